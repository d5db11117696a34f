"""Where the facets of a node's polytope lie, matched across draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.inequality import inequality, limit
from bayestree._utils.wording import one_line
from bayestree.diagnostics.draws import Draws, kept_draws, tails, weight_of
from bayestree.diagnostics.matching import match
from bayestree.diagnostics.polytopes import needed, thresholds

MATTERS = 0.9  # of the squared strength of a facet, that its named features hold
NAMED = 4  # features of a facet in tables
RARE = 0.05  # probability below which a facet is not printed


@dataclass(frozen=True, eq=False)
class Facets:
    """Posterior of the facets of one node, the most probable first.

    The experts of a node are exchangeable, so facets are matched across draws by where they lie.
    A facet is a half-space normal . x <= offset with a unit normal, in the units of the data.
    Rows outside any of them go right. Rows inside all of them go left, but for those near the
    border, where the votes of several experts add up: the polytope of the facets encloses it.

    Attributes
    ----------
    probability : array, shape (F,)
        Share of the draws that have the facet.
    normal : array, shape (F, d)
        Mean direction of the normals of the draws that have the facet, as a unit normal. The mean
        is taken per unit (``scale``) of each feature, as ``strength``: in the units of the data,
        the feature of the finest unit would hide the others.
    offset : array, shape (F,)
        Of the half-space of this normal whose distance from the mean of the data, on the scaled
        features, is that of the draws, on average.
    normal_interval : array, shape (F, d, 2)
        Central interval of each coefficient of the draws' unit normals. No draw reaches beyond a
        length of 1, so the interval of a large coefficient may lie below ``normal``, which is
        that of a mean.
    offset_interval : array, shape (F, 2)
        Central interval of the distance from the mean of the data, as an offset of ``normal``:
        the facet lies between the two parallels. An offset from the origin would vary with the
        direction too, the more the farther away the data are.
    strength : array, shape (F, d)
        Mean direction of the normals per unit (``scale``) of each feature, of length 1: what the
        features matter relative to each other.
    counts : array of int, shape (F,)
        Draws that have the facet.
    n_draws : int
        Draws that were measured.
    level : float
        Probability that the intervals hold.
    node : str
        Path of the node from the root.
    scale : array, shape (d,)
        Unit of each feature: its spread.
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
    scale: FloatArray
    feature_names: tuple[str, ...]

    @property
    def features(self) -> tuple[tuple[str, ...], ...]:
        """Names of the features that matter to each facet, the strongest first.

        The fewest that hold 90 % of the squared strength.
        """
        named = []
        for strength in self.strength**2:
            order = np.argsort(-strength, kind="stable")
            held = np.cumsum(strength[order]) / strength.sum()
            n_needed = int(np.searchsorted(held, MATTERS)) + 1
            named.append(tuple(self.feature_names[j] for j in order[:n_needed]))
        return tuple(named)

    def inequalities(self, max_features: int = NAMED) -> tuple[str, ...]:
        """Each facet in words, with the interval of its limit; inside is where all of them hold.

        Divided by the coefficient of the first term, as :func:`bayestree.export_text` does, so
        that the limit is in the units of that feature. The interval is that of ``offset``: the
        coefficients are those of the mean direction (``to_frame("feature")`` has theirs).

        Parameters
        ----------
        max_features : int
            Terms shown of each facet, the strongest first.

        Returns
        -------
        tuple of str
            As in ``"age - 4 height <= -2.0  (-2.4 to -1.7)"``.

        Raises
        ------
        ValueError
            If ``max_features`` is below 1.
        """
        if max_features < 1:
            raise ValueError(f"max_features must be 1 or more, got {max_features}.")
        return tuple(self._inequality(facet, max_features) for facet in range(len(self.counts)))

    def _inequality(self, facet: int, max_features: int) -> str:
        left, first = inequality(
            self.normal[facet],
            self.strength[facet],
            tuple(map(one_line, self.feature_names)),
            max_features=max_features,
        )
        limits = np.append(self.offset[facet], self.offset_interval[facet])
        limits = limits / self.normal[facet, first]
        middle, low, high = (
            limit(float(one), float(self.scale[first]))
            for one in (limits[0], limits[1:].min(), limits[1:].max())
        )
        return f"{left} {middle}  ({low} to {high})"

    def to_frame(self, by: Literal["facet", "feature"] = "facet") -> pd.DataFrame:
        """The facets as a table.

        Parameters
        ----------
        by : {"facet", "feature"}
            A row for each facet, with the offset and the names of the features that matter; or
            for each feature of each facet, with the coefficient of the unit normal.

        Raises
        ------
        ValueError
            If ``by`` is neither.
        """
        numbers = np.arange(1, len(self.counts) + 1)
        if by == "facet":
            columns: dict[str, Any] = {
                "probability": self.probability,
                "offset": self.offset,
                "offset_low": self.offset_interval[:, 0],
                "offset_high": self.offset_interval[:, 1],
                "features": [_listed(names) for names in self.features],
            }
            return pd.DataFrame(columns, index=pd.Index(numbers, name="facet"))
        if by != "feature":
            raise ValueError(f"by must be 'facet' or 'feature', got {by!r}.")
        index = pd.MultiIndex.from_product(
            [numbers, self.feature_names], names=["facet", "feature"]
        )
        columns = {
            "normal": self.normal.ravel(),
            "normal_low": self.normal_interval[..., 0].ravel(),
            "normal_high": self.normal_interval[..., 1].ravel(),
            "strength": self.strength.ravel(),
        }
        return pd.DataFrame(columns, index=index)

    def __str__(self) -> str:
        head = (
            f"Facets of node {self.node}: {self.n_draws} draws, limits with intervals of "
            f"{100 * self.level:.0f} %"
        )
        if not len(self.counts):
            return f"{head}\nno draw has a facet where the node's rows lie"
        common = np.flatnonzero(self.probability >= RARE).tolist()
        rare = len(self.counts) - len(common)
        lines = [head, "facet  probability  inside is"]
        for facet in common:
            share = f"{facet + 1:5d}{self.probability[facet]:13.2f}"
            lines.append(f"{share}  {self._inequality(facet, NAMED)}")
        if rare:
            lines.append(f"... and {rare} more, each in fewer than {100 * RARE:.0f} % of the draws")
        return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    """Names with commas, the first few of many."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" + {more} more" if more > 0 else "")


class HalfSpaces(NamedTuple):
    """The facets of one draw, on standardised features: plane . z <= bound, plane (m, d)."""

    plane: FloatArray
    bound: FloatArray


def node_facets(
    draws: Draws,
    node: int,
    low: FloatArray,
    high: FloatArray,
    *,
    center: FloatArray,
    scale: FloatArray,
    factor: float = 1.0,
    label: str = "",
    feature_names: Sequence[str] = (),
    level: float = 0.9,
    max_draws: int = 100,
) -> Facets:
    """Facets of a node's enclosing polytope inside a box, matched across draws.

    Parameters
    ----------
    draws : mapping of arrays
        Sites ``hyperplane`` (chain, draw, V, K, d), ``intercept`` and, unless every weight is 1,
        ``log_weight`` (chain, draw, V, K), on (x - center) / scale.
    node : int
        Number of the node in the draws.
    low, high : arrays, shape (d,)
        Box of the node's rows, on the scale of the draws.
    center, scale : arrays, shape (d,)
        From which the units of the data follow.
    factor : float
        Of the weights (see :class:`bayestree.diagnostics.reach.Reach`).
    label : str
        Name of the node; its number by default.
    feature_names : sequence of str, optional
        ``x0``, ``x1``, ... by default.
    level : float
        Probability of the intervals.
    max_draws : int
        Most draws that are measured, of all chains together, spread evenly over each.

    Returns
    -------
    Facets

    Raises
    ------
    ValueError
        If ``level`` is not between 0 and 1, ``max_draws`` below 1, or names are too few.
    """
    n_features = len(center)
    names = tuple(feature_names) or tuple(f"x{j}" for j in range(n_features))
    if len(names) != n_features:
        raise ValueError(f"feature_names must name {n_features} features, got {len(names)}.")
    bounds = tails(level)
    kept = kept_draws(draws, max_draws)
    found = [
        _half_spaces(draws, (chain, draw, node), factor, low, high)
        for chain in range(len(draws["intercept"]))
        for draw in kept
    ]
    numbers = np.concatenate(match([_points(one, low, high) for one in found]))
    plane = np.concatenate([one.plane for one in found])
    bound = np.concatenate([one.bound for one in found])
    distance = bound / np.linalg.norm(plane, axis=1)
    unit = plane / scale
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    n_facets = int(numbers.max(initial=-1)) + 1
    own = [numbers == facet for facet in range(n_facets)]
    strength = _directions(plane, own)
    length = np.linalg.norm(strength / scale, axis=1)  # of the normal whose offset is a distance
    normal = strength / scale / length[:, None]
    away = normal @ center
    return Facets(
        probability=np.array([one.sum() for one in own]) / len(found),
        normal=normal,
        offset=_each(own, lambda one: distance[one].mean(), ()) / length + away,
        normal_interval=_each(
            own, lambda one: np.quantile(unit[one], bounds, axis=0).T, (n_features, 2)
        ),
        offset_interval=_each(own, lambda one: np.quantile(distance[one], bounds), (2,))
        / length[:, None]
        + away[:, None],
        strength=strength,
        counts=np.array([one.sum() for one in own], dtype=np.int64),
        n_draws=len(found),
        level=level,
        node=label or str(node),
        scale=scale,
        feature_names=names,
    )


def _half_spaces(
    draws: Draws, one: tuple[int, int, int], factor: float, low: FloatArray, high: FloatArray
) -> HalfSpaces:
    """Facets of one draw, each divided by the length of its normal in units of the box."""
    weight = weight_of(draws, one) * factor
    plane = draws["hyperplane"][one].astype(np.float64)
    intercept = draws["intercept"][one].astype(np.float64)
    kept = needed(weight, plane, intercept, low, high)
    bound = (thresholds(weight) - intercept)[kept]
    length = np.linalg.norm(plane[kept] * (high - low) / 2, axis=1)
    return HalfSpaces(plane[kept] / length[:, None], bound / length)


def _points(one: HalfSpaces, low: FloatArray, high: FloatArray) -> FloatArray:
    """Unit normals in units of the box, and distances from a place amid the rows, (m, d + 1)."""
    amid = np.clip(0.0, low, high)  # where the mean of the data lies, or nearest to it
    offset = one.bound - one.plane @ amid
    return np.column_stack([one.plane * (high - low) / 2, offset])


def _directions(plane: FloatArray, own: Sequence[BoolArray]) -> FloatArray:
    """Mean direction of the normals of each facet, of length 1."""
    unit = plane / np.linalg.norm(plane, axis=1, keepdims=True)
    mean = _each(own, lambda one: unit[one].mean(axis=0), (plane.shape[1],))
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def _each(
    own: Sequence[BoolArray], summary: Callable[[BoolArray], Any], shape: tuple[int, ...]
) -> FloatArray:
    """A summary of each facet from the half-spaces that are its own, shape (F, *shape)."""
    return np.array([summary(one) for one in own]).reshape(len(own), *shape)
