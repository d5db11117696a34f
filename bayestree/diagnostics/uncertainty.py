"""How sure the splits are of rows: their sides, their leaves, and what is predicted of them."""

from dataclasses import dataclass

from bayestree.topology import BoolArray, IntArray
from bayestree.tree import FloatArray


@dataclass(frozen=True, eq=False)
class SplitUncertainty:
    """Posterior of the side of each of n rows at each of V nodes of the deterministic tree.

    Attributes
    ----------
    mean, sd : arrays, shape (n, V)
        Of P(right) over the draws.
    interval : array, shape (n, V, 2)
        Central interval of P(right) that has probability ``level``.
    outside : array, shape (n, V)
        Share of the draws whose own polytope has the row outside: P(right) > 1/2.
    disagreement : array, shape (n, V)
        Share of the draws that put the row on the other side than the deterministic tree.
    reached : array, shape (n, V)
        Mean probability that the row reaches the node.
    right : array of bool, shape (n, V)
        The side of the deterministic tree, whether or not the row comes by.
    leaf_probability : array, shape (n, L)
        Mean probability of each leaf.
    best_leaf : array of int, shape (n,)
        The most probable leaf, numbered as in ``leaf_labels``.
    best_leaf_probability : array, shape (n,)
    total_entropy, expected_entropy, mutual_information : arrays, shape (n,), or None
        Classification, in nats: entropy of the averaged prediction; mean entropy of the draws'
        predictions, which is in the data; and their difference, which is in the posterior and
        which more rows would lessen.
    total_variance, expected_variance, explained : arrays, shape (n,), or None
        Regression, in squared units of y: variance of y; mean of the draws' variances, which is
        in the data; variance of the draws' expectations, which is in the posterior.
    level : float
    labels, leaf_labels : tuples of str
        Paths of the nodes and leaves from the root.
    """

    mean: FloatArray
    sd: FloatArray
    interval: FloatArray
    outside: FloatArray
    disagreement: FloatArray
    reached: FloatArray
    right: BoolArray
    leaf_probability: FloatArray
    best_leaf: IntArray
    best_leaf_probability: FloatArray
    total_entropy: FloatArray | None
    expected_entropy: FloatArray | None
    mutual_information: FloatArray | None
    total_variance: FloatArray | None
    expected_variance: FloatArray | None
    explained: FloatArray | None
    level: float
    labels: tuple[str, ...]
    leaf_labels: tuple[str, ...]
