"""Posterior of the facets of a node's polytope, matched across draws.

The experts of a node are exchangeable, so a facet is identified by its location rather than by
a number. A half-space is represented by a point: its unit normal, and its distance from a central
point, in units in which the rows extend from -1 to 1 along every feature. The squared distance
between two such points is 2 (1 - cosine of the angle) + (difference of the distances)^2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.wording import inequality, limit, one_line
from bayestree.diagnostics.draws import (
    MAX_NAMES,
    SHARE,
    VARIATIONAL,
    Draws,
    kept_draws,
    listed,
    named_features,
    split_of,
    tails,
)
from bayestree.diagnostics.polytopes import cuts_off, needed, thresholds

COVERED = 0.9  # share of a facet's squared strength covered by its named features
RARE = 0.05  # facets of lower probability are not printed
LIMIT = 1.0  # largest squared distance of a match: an angle of 60 degrees at equal distances
BESIDE = 0.1  # facets that occur together in a larger share of draws are not merged
MAX_PASSES = 20  # maximum number of passes; few are needed


@dataclass(frozen=True, eq=False)
class Facets:
    """Posterior of the facets of one node, in order of decreasing probability.

    The experts of a node are exchangeable, so facets are matched across draws by their location.
    A facet is a half-space normal . x <= offset with a unit normal, in the units of the data.
    To be inside each facet is necessary for going left, but not sufficient: the votes of several
    experts add up near the border, which the polytope of the facets encloses.

    Attributes
    ----------
    probability : array, shape (F,)
        Share of the draws that have the facet.
    normal : array, shape (F, d)
        Mean direction of the normals of the draws that have the facet, as a unit normal. Like
        ``strength``, the mean is taken on scaled features: in the units of the data, the feature
        with the finest unit would dominate.
    offset : array, shape (F,)
        Offset at which the half-space of ``normal`` has the mean distance of the draws, measured
        from the mean of the data on scaled features.
    normal_interval : array, shape (F, d, 2)
        Central interval of each coefficient of the draws' unit normals. These have length 1, so the
        interval of a large coefficient may lie below ``normal``, which belongs to a mean direction.
    offset_interval : array, shape (F, 2)
        Central interval of the distance from the mean of the data, expressed as an offset of
        ``normal``: the facet lies between these two parallels. (Offsets from the origin would
        also vary with the direction, the more so the farther the data are from the origin.)
    strength : array, shape (F, d)
        Mean direction of the normals on scaled features, of length 1: the relative importance of
        the features.
    counts : array of int, shape (F,)
        Number of draws that have the facet.
    n_draws : int
        Number of draws measured.
    level : float
        Probability of the intervals.
    node : str
        Path of the node from the root.
    scale : array, shape (d,)
        Scale of each feature: its spread.
    feature_names : tuple of str
    min_share : float
        Least share of the node's rows that each of these facets alone cuts off; 0 if all facets in
        the box of the rows are listed.
    variational : bool
        Whether the draws come from a single variational fit, whose numbers of facets are too
        certain.
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
    min_share: float = 0.0
    variational: bool = False

    @property
    def features(self) -> tuple[tuple[str, ...], ...]:
        """For each facet, the fewest features that cover 90 % of the squared strength.

        The strongest comes first.
        """
        named = []
        for strength in self.strength**2:
            order = np.argsort(-strength, kind="stable")
            covered = np.cumsum(strength[order]) / strength.sum()
            n_needed = int(np.searchsorted(covered, COVERED)) + 1
            named.append(tuple(self.feature_names[j] for j in order[:n_needed]))
        return tuple(named)

    def inequalities(self, max_features: int = MAX_NAMES) -> tuple[str, ...]:
        """Write each facet as an inequality with an interval of its limit; inside, all hold.

        As in :func:`bayestree.export_text`, it is divided by the coefficient of the first term,
        so that the limit is in the units of that feature. The interval covers the uncertainty of
        ``offset`` only; ``to_frame("feature")`` has the coefficients' intervals.

        Parameters
        ----------
        max_features : int
            Number of terms shown per facet, the strongest first.

        Returns
        -------
        tuple of str
            For example ``"age - 4 height <= -2.0  (-2.4 to -1.7)"``.

        Raises
        ------
        ValueError
            If ``max_features`` is below 1.
        """
        if max_features < 1:
            raise ValueError(f"max_features must be 1 or more, got {max_features}.")
        return tuple(self._inequality(facet, max_features) for facet in range(len(self.counts)))

    def _inequality(self, facet: int, max_features: int) -> str:
        names = tuple(map(one_line, self.feature_names))
        left, middle, low, high = self.terms(facet, names, max_features)
        return f"{left} {middle}  ({low} to {high})"

    def terms(
        self, facet: int, names: Sequence[str], max_features: int
    ) -> tuple[str, str, str, str]:
        """Write the left side and the limit of a facet, and the ends of the limit's interval."""
        left, first = inequality(
            self.normal[facet], self.strength[facet], names, max_features=max_features
        )
        limits = np.append(self.offset[facet], self.offset_interval[facet])
        limits = limits / self.normal[facet, first]
        of = names[first] if np.count_nonzero(self.normal[facet]) == 1 else ""
        values = limits[0], limits[1:].min(), limits[1:].max()
        middle, low, high = (
            limit(float(value), float(self.scale[first]), of=of, up=bool(up))
            for value, up in zip(values, (self.normal[facet, first] < 0, False, True), strict=True)
        )
        return left, middle, low, high

    def to_frame(self, by: Literal["facet", "feature"] = "facet") -> pd.DataFrame:
        """Tabulate the facets.

        Parameters
        ----------
        by : {"facet", "feature"}
            One row per facet, with the offset and the most important features; or one row per
            facet and feature, with the coefficient of the unit normal.

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
                "features": [listed(names) for names in self.features],
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
            f"Facets of node {self.node}: {self.n_draws} draws, limits with "
            f"{100 * self.level:.0f} % intervals"
        )
        if self.min_share:
            head += f"; each cuts off at least {100 * self.min_share:.2g} % of the rows"
        if self.variational:
            head = f"{VARIATIONAL}\n{head}"
        if not len(self.counts):
            return f"{head}\nno draw has a facet near the node's rows"
        common = np.flatnonzero(self.probability >= RARE).tolist()
        rare = len(self.counts) - len(common)
        lines = [head, "facet  probability  inside is"]
        for facet in common:
            share = f"{facet + 1:5d}{self.probability[facet]:13.2f}"
            lines.append(f"{share}  {self._inequality(facet, MAX_NAMES)}")
        if rare:
            lines.append(f"... and {rare} more, each in fewer than {100 * RARE:.0f} % of the draws")
        return "\n".join(lines)


class HalfSpaces(NamedTuple):
    """Facets plane . z <= bound of one draw, on standardised features z; plane is (m, d)."""

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
    label: str = "",
    feature_names: Sequence[str] = (),
    level: float = 0.9,
    max_draws: int = 100,
    cut: AnyArray | None = None,
    exchanged: BoolArray | None = None,
    min_share: float = SHARE,
    variational: bool = False,
) -> Facets:
    """Match the facets of a node's enclosing polytope inside a box across draws.

    Parameters
    ----------
    draws : mapping of arrays
        Sites ``hyperplane`` (chain, draw, V, K, d), ``intercept`` and, unless every weight is 1,
        ``log_weight`` (chain, draw, V, K), on (x - center) / scale.
    node : int
        Number of the node in the draws.
    low, high : arrays, shape (d,)
        Bounding box of the node's rows, on the scale of the draws.
    center, scale : arrays, shape (d,)
        Standardisation of the features: draws apply to (x - center) / scale.
    label : str
        Name of the node; its number by default.
    feature_names : sequence of str, optional
        ``x0``, ``x1``, ... by default.
    level : float
        Probability of the intervals.
    max_draws : int
        Maximum number of draws measured, over all chains, evenly spaced within each.
    cut : array, shape (chain, draw, K), optional
        Share of the node's rows that each expert alone cuts off.
    exchanged : array of bool, shape (chain, draw), optional
        Draws in which the sides of the node have changed places. Their half-spaces are turned
        round, so that a border counts once; of several, one is then enough for going left.
    min_share : float
        Facets that alone cut off a smaller share are left out. Ignored without ``cut``.
    variational : bool
        Whether the draws come from a single variational fit.

    Raises
    ------
    ValueError
        If ``level`` is not between 0 and 1, ``min_share`` not from 0 to 1, ``max_draws`` below 1,
        or the number of names wrong.
    """
    n_features = len(center)
    names = named_features(feature_names, n_features)
    bounds = tails(level)
    if not 0 <= min_share <= 1:
        raise ValueError(f"min_share must lie between 0 and 1, got {min_share}.")
    kept = kept_draws(draws, max_draws)
    found = [
        _half_spaces(
            draws,
            (chain, draw, node),
            low,
            high,
            None if cut is None else cuts_off(cut[chain, draw], min_share),
        )
        for chain in range(len(draws["intercept"]))
        for draw in kept
    ]
    if exchanged is not None:
        turned = exchanged[:, kept].ravel()
        found = [
            HalfSpaces(*(-part for part in f)) if t else f
            for f, t in zip(found, turned, strict=True)
        ]
    numbers = np.concatenate(match([_points(one, low, high) for one in found]))
    plane = np.concatenate([one.plane for one in found])
    bound = np.concatenate([one.bound for one in found])
    distance = bound / np.linalg.norm(plane, axis=1)
    unit = plane / scale
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    n_facets = int(numbers.max(initial=-1)) + 1
    members = [numbers == facet for facet in range(n_facets)]
    # With z = (x - center) / scale and |s| = 1, s . z <= t reads (s / scale) . x <= t + shift, and
    # dividing by length = |s / scale| makes the normal a unit vector in the units of the data.
    direction = plane / np.linalg.norm(plane, axis=1, keepdims=True)
    strength = _each(members, lambda one: direction[one].mean(axis=0), (plane.shape[1],))
    strength = strength / np.linalg.norm(strength, axis=1, keepdims=True)
    length = np.linalg.norm(strength / scale, axis=1)
    normal = strength / scale / length[:, None]
    shift = normal @ center
    distances = _each(members, lambda one: np.quantile(distance[one], bounds), (2,))
    return Facets(
        probability=np.array([one.sum() for one in members]) / len(found),
        normal=normal,
        offset=_each(members, lambda one: distance[one].mean(), ()) / length + shift,
        normal_interval=_each(
            members, lambda one: np.quantile(unit[one], bounds, axis=0).T, (n_features, 2)
        ),
        offset_interval=distances / length[:, None] + shift[:, None],
        strength=strength,
        counts=np.array([one.sum() for one in members], dtype=np.int64),
        n_draws=len(found),
        level=level,
        node=label or str(node),
        scale=scale,
        feature_names=names,
        min_share=0.0 if cut is None else min_share,
        variational=variational,
    )


def _half_spaces(
    draws: Draws,
    index: tuple[int, int, int],
    low: FloatArray,
    high: FloatArray,
    cutting: BoolArray | None,
) -> HalfSpaces:
    """Find the facets of one draw, each divided by the length of its normal in units of the box."""
    weight, plane, intercept = split_of(draws, index)
    kept = needed(weight, plane, intercept, low, high)
    if cutting is not None:
        kept = kept[cutting[kept]]
    bound = (thresholds(weight) - intercept)[kept]
    length = np.linalg.norm(plane[kept] * (high - low) / 2, axis=1)
    return HalfSpaces(plane[kept] / length[:, None], bound / length)


def _points(one: HalfSpaces, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return unit normals in units of the box, and distances from a central point, (m, d + 1)."""
    middle = np.clip(0.0, low, high)  # the mean of the data, or the point of the box nearest to it
    offset = one.bound - one.plane @ middle
    return np.column_stack([one.plane * (high - low) / 2, offset])


def _each(
    members: Sequence[BoolArray], summary: Callable[[BoolArray], Any], shape: tuple[int, ...]
) -> FloatArray:
    """Summarize the half-spaces of each facet, shape (F, *shape)."""
    return np.array([summary(one) for one in members]).reshape(len(members), *shape)


def match(draws: Sequence[FloatArray]) -> list[IntArray]:
    """Number the facets of several draws so that equal numbers mean the same facet.

    Like k-means with one-to-one assignment: the facets of every draw are assigned to common
    centres (Hungarian method), and a facet farther than ``LIMIT`` from every free centre opens a
    new one. Centres start at the facets of the most typical draw and then move to the means of
    their facets until nothing changes. Between passes, centres of a single draw are dropped, and
    nearby centres that hardly ever occur in the same draw are merged.

    The points of a draw have shape (facets, d + 1); its numbers, the most frequent facet being 0,
    shape (facets,).
    """
    if not draws:
        return []
    cost = [sum(_difference(one, other) for other in draws) for one in draws]
    found = _assigned(draws, draws[int(np.argmin(cost))])  # the medoid
    for _ in range(MAX_PASSES):
        centers = _means(draws, found)
        again = _assigned(draws, centers)
        if all(np.array_equal(one, other) for one, other in zip(found, again, strict=True)):
            break
        found = again
    counts = np.bincount(np.concatenate(found))
    place = np.empty(len(counts), dtype=np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return [place[numbers] for numbers in found]


def assign(points: FloatArray, centers: FloatArray) -> IntArray:
    """Centre assigned to each point, or -1 if none within ``LIMIT`` is free."""
    n_points, n_centers = len(points), len(centers)
    cost = np.full((n_points, n_centers + n_points), LIMIT)  # a dummy column per point: no match
    cost[:, :n_centers] = _distance(points, centers)
    _, taken = linear_sum_assignment(cost)
    return np.where(taken < n_centers, taken, -1)


def _assigned(draws: Sequence[FloatArray], centers: FloatArray) -> list[IntArray]:
    """Assign the draws one after the other, opening new centres as needed."""
    found = []
    for points in draws:
        numbers = assign(points, centers)
        new = numbers < 0
        numbers[new] = len(centers) + np.arange(new.sum())
        centers = np.concatenate([centers, points[new]])
        found.append(numbers)
    return found


def _means(draws: Sequence[FloatArray], found: Sequence[IntArray]) -> FloatArray:
    """Average the points of the facets of two draws or more, the most frequent first.

    A facet near a more frequent one is merged with it if few draws have both.
    """
    numbers, points = np.concatenate(found), np.concatenate(draws)
    present = np.zeros((len(found), int(numbers.max(initial=-1)) + 1))
    sums = np.zeros((present.shape[1], points.shape[1]))
    np.add.at(sums, numbers, points)
    for draw, facets in enumerate(found):
        present[draw, facets] = 1
    counts = present.sum(axis=0)
    kept: list[int] = []
    for k in np.argsort(-counts, kind="stable"):
        if counts[k] < 2:
            break
        means = sums[kept] / counts[kept, None]
        near = _distance(sums[k, None] / counts[k], means)[0] <= LIMIT
        apart = present[:, k] @ present[:, kept] <= BESIDE * counts[k]
        same = np.flatnonzero(near & apart)
        if len(same):
            first = kept[same[0]]
            sums[first] += sums[k]
            counts[first] += counts[k]
            present[:, first] = np.maximum(present[:, first], present[:, k])
        else:
            kept.append(int(k))
    return sums[kept] / counts[kept, None]


def _difference(one: FloatArray, other: FloatArray) -> float:
    """Sum squared distances of matched facets, and ``LIMIT`` for each unmatched one."""
    numbers = assign(one, other)
    matched = numbers >= 0
    close = ((one[matched] - other[numbers[matched]]) ** 2).sum()
    return float(close + LIMIT * (len(one) + len(other) - 2 * matched.sum()))


def _distance(points: FloatArray, centers: FloatArray) -> FloatArray:
    squares = (points**2).sum(axis=1)[:, None] + (centers**2).sum(axis=1)
    # Rounding can make the distance of equal points slightly negative.
    return np.maximum(squares - 2 * points @ centers.T, 0.0)
