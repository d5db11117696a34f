"""Where the facets of a node's polytope lie, matched across draws."""

from dataclasses import dataclass

from bayestree.topology import IntArray
from bayestree.tree import FloatArray


@dataclass(frozen=True, eq=False)
class Facets:
    """Posterior of the facets of one node, the most probable first.

    The experts of a node are exchangeable, so facets are matched across draws by where they lie.
    A facet is a half-space normal . x <= offset with a unit normal, in the units of the data; the
    inside of all of them goes left.

    Attributes
    ----------
    probability : array, shape (F,)
        Share of the draws that have the facet.
    normal : array, shape (F, d)
        Unit normal of the mean half-space of the draws that have the facet.
    offset : array, shape (F,)
        Its offset.
    normal_interval : array, shape (F, d, 2)
        Central interval of each coefficient over the draws that have the facet.
    offset_interval : array, shape (F, 2)
        That of the offset.
    strength : array, shape (F, d)
        Unit normal of the mean half-space per unit (``scale``) of each feature: what the
        features matter relative to each other.
    counts : array of int, shape (F,)
        Draws that have the facet.
    n_draws : int
        Draws that were measured.
    level : float
        Probability that the intervals hold.
    node : str
        Path of the node from the root.
    feature_names : tuple of str
    """

    probability: FloatArray
    normal: FloatArray
    offset: FloatArray
    normal_interval: FloatArray
    offset_interval: FloatArray
    strength: FloatArray
    counts: IntArray
    n_draws: int
    level: float
    node: str
    feature_names: tuple[str, ...]
