"""Facets as people write them down: conjunctions of short inequalities, or of scores, and splits.

A sparse split is inside if every facet normal . x <= limit holds. In the tree, a facet is an expert
of weight 1 with the vote softplus(C (normal . x - limit)): exactly log 2 on the facet and, for a
large C, nearly 0 below it and far above log 2 beyond. Where there are several, 4 is subtracted from
their activations, so that a row on several facets is inside, too. C is a power of two, so that a
rounded normal and limit remain exact.

As a score, a facet becomes sum_j p_j x_j / u_j <= limit with whole points p_j and round units u_j
such as 10 years. As for risk scores, multiples of the coefficients are rounded (Ustun and Rudin,
"Learning optimized risk scores", JMLR 20, 2019; Liu et al., "FasterRisk: fast and accurate
interpretable risk scores", NeurIPS 2022). Each is judged with its own best limit, by the gain of
the projection. Further steps of single points were no better on other rows.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.topology import Topology
from bayestree.tree import INSIDE

THINNED = 0.25  # of the terms of a node that are left out at once, while there are many
STEEP = 2.0**24  # steepness of votes, per unit of the feature
MOST_DIGITS = 17
NEGLIGIBLE = 0.02  # change of a facet by a column, relative to the largest, that rounding drops
PASSES = 3  # over the facets of a node, in the choice of their limits
MOST_MULTIPLES = 60  # of a facet, that are rounded
SAME = 1e-9  # of the total size of gains
TINY = 1e-300  # the length of scores of features that do not vary among the rows


@dataclass(frozen=True, eq=False)
class Conjunction:
    """K facets normal . x <= limit, in the units of the data; inside means that all hold."""

    #: The strongest coefficient is 1 or -1, or all are whole multiples of points, (K, d).
    normal: FloatArray
    limit: FloatArray  # (K,)

    @classmethod
    def of(cls, coefficient: FloatArray, center: FloatArray, scale: FloatArray) -> "Conjunction":
        """Return the facets coefficient . ((x - center) / scale, 1) <= 0 of (K, d + 1).

        A facet without columns would be no condition at all, so that another is needed.
        """
        normal = coefficient[:, :-1] / scale
        own = normal.any(axis=1)
        limit = normal @ center - coefficient[:, -1]
        return cls(normal[own], limit[own]).in_units_of_first(scale)

    def in_units_of_first(self, scale: FloatArray) -> "Conjunction":
        """Divide each facet by the size of the coefficient of its strongest feature."""
        lead = np.abs(self.normal * scale).argmax(axis=1)
        size = np.abs(np.take_along_axis(self.normal, lead[:, None], axis=1))
        return Conjunction(self.normal / size, self.limit / size[:, 0])

    @property
    def length(self) -> int:
        """Number of coefficients."""
        return int(np.count_nonzero(self.normal))

    def beyond(self, X: FloatArray) -> BoolArray:
        """Mark the facets of which each row is outside, (n, K)."""
        values = X @ self.normal.T
        return np.greater(values, self.limit)

    def outside(self, X: FloatArray) -> BoolArray:
        """Mark the rows outside the conjunction, (n,)."""
        return np.asarray(self.beyond(X).any(axis=1))

    def settled(self, X: FloatArray, gain: FloatArray) -> "Conjunction":
        """Choose the limits anew, one facet after another: those of the largest total gain.

        ``gain`` (n,) is what it is worth to have each row outside.
        """
        values, limit = X @ self.normal.T, self.limit.copy()
        for _ in range(PASSES):
            before = limit.copy()
            for k in range(len(limit)):
                free = ~np.delete(values > limit, k, axis=1).any(axis=1)
                if free.any():
                    limit[k] = best_limit(values[free, k], gain[free], limit[k])
            if (limit == before).all():
                break
        return replace(self, limit=limit)

    def without_idle(self, X: FloatArray) -> "Conjunction":
        """Drop facets that exclude no row that is not excluded by the others, too."""
        beyond, kept = self.beyond(X), np.ones(len(self.limit), dtype=bool)
        outside = beyond.any(axis=1)
        for k in np.argsort(beyond.sum(axis=0), kind="stable"):
            others = kept & (np.arange(len(kept)) != k)
            if others.any() and (beyond[:, others].any(axis=1) == outside).all():
                kept = others
        return Conjunction(self.normal[kept], self.limit[kept])

    def without_idle_terms(self, X: FloatArray) -> "Conjunction":
        """Drop terms without which another limit divides the rows in the same way."""
        normal, limit = self.normal.copy(), self.limit.copy()
        size = np.abs(normal) * X.std(axis=0)
        for k, beyond in enumerate(self.beyond(X).T):
            if beyond.all() or not beyond.any():
                continue
            for term in sorted(np.flatnonzero(normal[k]), key=lambda j: size[k, j])[:-1]:
                rest = np.where(np.arange(len(size[k])) == term, 0.0, normal[k])
                values = X @ rest
                low, high = values[~beyond].max(), values[beyond].min()
                if low < high:
                    normal[k], limit[k] = rest, (low + high) / 2
        return Conjunction(normal, limit)

    def rounded(self, X: FloatArray, digits: int) -> "Conjunction":
        """Round coefficients to some digits, and limits as far as rows (n, d) keep their sides.

        Columns that hardly change a facet are dropped.
        """
        change = np.abs(self.normal) * X.std(axis=0)
        large = change >= NEGLIGIBLE * change.max(axis=1, keepdims=True)
        normal = np.array([[float(f"{c:.{digits}g}") for c in row] for row in self.normal * large])
        # Rounding turns a facet; about the mean of the rows, few of them change their sides.
        limit = self.limit + (normal - self.normal) @ X.mean(axis=0)
        values = np.sort(X @ normal.T, axis=0)
        return Conjunction(
            normal, np.array([roundest(values[:, k], one) for k, one in enumerate(limit)])
        )

    def relative(self, X: FloatArray, groups: Sequence[IntArray]) -> "Conjunction":
        """Subtract the coefficient of the most frequent level from those of its category.

        The features of a category sum to one in each row, so that this only moves the limit.
        Rows X (n, d) tell which groups are such categories. A level that no row has counts as the
        most frequent one from then on.
        """
        normal, limit = self.normal.copy(), self.limit.copy()
        for own in groups:
            levels = X[:, own]
            indicators = np.isin(levels, (0, 1)).all() and np.all(levels.sum(axis=1) == 1)
            if len(own) > 1 and indicators:
                first = normal[:, own[levels.sum(axis=0).argmax()]].copy()
                normal[:, own] -= first[:, None]
                limit -= first
        changed = np.asarray(normal.any(axis=1))  # a facet of equal coefficients stays as it is
        return Conjunction(
            np.where(changed[:, None], normal, self.normal), np.where(changed, limit, self.limit)
        )

    def experts(self, scale: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return weights (K,), hyperplanes (K, d) and intercepts (K,) of the votes."""
        largest = np.abs(self.normal * scale).max(axis=1)
        factor = 2.0 ** np.ceil(np.log2(STEEP / largest))
        lowered = INSIDE if len(factor) > 1 else 0.0
        return np.ones(len(factor)), self.normal * factor[:, None], -self.limit * factor - lowered


def best_limit(values: FloatArray, gain: FloatArray, present: float) -> float:
    """Return the limit beyond which rows have the largest total gain.

    It lies in the middle between two rows. Of equally good ones, it is the nearest to the
    ``present`` one.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    total = np.zeros(len(values) + 1)  # of the rows from each on
    total[:-1] = np.cumsum(gain[order][::-1])[::-1]
    total[1:-1][ordered[:-1] == ordered[1:]] = -np.inf
    best = (total >= total.max() - 1e-12 * np.abs(gain).sum()).nonzero()[0]
    width = float(ordered[-1] - ordered[0]) or max(1.0, abs(ordered[0]))
    ends = ([ordered[0] - width], [ordered[-1] + width])
    cuts = np.concatenate((ends[0], (ordered[:-1] + ordered[1:]) / 2, ends[1]))[best]
    return float(cuts[np.abs(cuts - present).argmin()])


def roundest(values: FloatArray, limit: float) -> float:
    """Return the number of fewest digits between the two sorted values around a limit."""
    place = int(np.searchsorted(values, limit, side="right"))
    low = values[place - 1] if place else -math.inf
    high = values[place] if place < len(values) else math.inf
    if low < 0 < high:
        return 0.0
    for digits in range(1, MOST_DIGITS):
        for found in _of_digits(limit, digits):
            if low < found < high:
                return found
    return limit


def _of_digits(limit: float, digits: int) -> list[float]:
    """Return the numbers of some digits next to a limit, the nearest first."""
    if limit == 0:
        return [0.0]
    unit = 10.0 ** (math.floor(math.log10(abs(limit))) + 1 - digits)
    each = (math.floor(limit / unit), math.floor(limit / unit) + 1)
    found = [float(f"{count * unit:.{digits + 1}g}") for count in each]
    return sorted(found, key=lambda value: abs(value - limit))


def round_units(X: FloatArray) -> FloatArray:
    """Return a unit of each feature (d,): 1, 2 or 5 times a power of ten near its deviation.

    The unit of indicators is 1; most of their values are 0 or 1, and others are filled in.
    """
    spread = X.std(axis=0)
    ends = np.isin(X, (0.0, 1.0)).mean(axis=0) >= 0.5
    indicator = ends & (X.min(axis=0) >= 0) & (X.max(axis=0) <= 1)
    return np.array([_rounded(s) if s > 0 else 1.0 for s in np.where(indicator, 1.0, spread)])


def _rounded(size: float) -> float:
    power = math.floor(math.log10(size))
    each = [float(f"{lead}e{power}") for lead in (1, 2, 5, 10)]
    return min(each, key=lambda unit: abs(math.log(unit / size)))


def in_points(
    facets: Conjunction,
    X: FloatArray,
    gain: FloatArray,
    unit: FloatArray,
    most: int,
    *,
    whole: bool,
) -> Conjunction:
    """Return facets of at most ``most`` points a feature, one after another.

    ``gain`` (n,) is what it is worth to have each of the rows X outside. With ``whole``, limits are
    whole numbers of points; otherwise they are as round as the rows allow. A facet of one feature
    is a limit of this feature. Coefficients are exact: whole multiples of the points per unit.
    """
    normal, limit = facets.normal.copy(), facets.limit.copy()
    for k in range(len(limit)):
        free = ~np.delete(Conjunction(normal, limit).beyond(X), k, axis=1).any(axis=1)
        some = free if free.any() else np.ones(len(X), dtype=bool)
        used = np.flatnonzero(normal[k])
        if len(used) > 1:
            score = _Scores(X[some][:, used], gain[some], unit[used], most, whole=whole)
            normal[k, used], limit[k] = score.best(normal[k, used], limit[k])
    return Conjunction(normal, limit).without_idle(X)


class _Scores:
    """Scores of the features in use at some rows, in the place of one facet."""

    def __init__(
        self, X: FloatArray, gain: FloatArray, unit: FloatArray, most: int, *, whole: bool
    ) -> None:
        self.X, self.Z, self.unit, self.most, self.whole = X, X / unit, unit, most, whole
        self.gain = gain / (np.abs(gain).sum() or 1.0)

    def best(self, normal: FloatArray, limit: float) -> tuple[FloatArray, float]:
        """Return coefficients and limit of the multiple of a facet that gains most when rounded.

        Each has the limit of the largest gain, the nearest to the present one. Of multiples that
        gain the same, it is the one of the smallest angle to the facet, per deviation.
        """
        aim, spread = normal * self.unit, self.Z.std(axis=0)
        found = multiples(aim, self.most)
        cuts, gains = np.zeros(len(found)), np.zeros(len(found))
        for number, one in enumerate(found):
            values, _ = self._values(one)
            cuts[number] = best_limit(values, self.gain, limit * float(one @ aim / (aim @ aim)))
            gains[number] = self.gain[values > cuts[number]].sum()
        size = np.maximum(np.linalg.norm(found * spread, axis=1), TINY)
        near = (found * spread) @ (aim * spread) / size
        best = int(np.lexsort((near, gains >= gains.max() - SAME))[-1])
        return self._exact(found[best], float(cuts[best]))

    def _values(self, points: IntArray) -> tuple[FloatArray, bool]:
        """Return the sums of points, and whether their limit is whole.

        They are then rounded up and lowered by 1/2: a sum is at most a whole limit if and only if
        the next whole number is.
        """
        values = self.Z @ points
        whole = self.whole or bool((values == np.rint(values)).all())
        if whole and np.count_nonzero(points) > 1:
            return np.ceil(values) - 0.5, True
        return values, False

    def _exact(self, points: IntArray, cut: float) -> tuple[FloatArray, float]:
        """Return exact multiples of the points per unit, and of a round limit of points."""
        values, whole = self._values(points)
        values.sort()
        if np.count_nonzero(points) == 1:  # a limit of the feature itself
            (j,) = np.flatnonzero(points)
            size = self.unit[j] / abs(points[j])
            return np.sign(points) * 1.0, roundest(values * size, cut * size)
        unit = [Fraction(repr(float(one))) for one in self.unit]
        common = math.lcm(*(one.numerator for one, p in zip(unit, points, strict=True) if p))
        normal = [float(int(p) * common / one) for one, p in zip(unit, points, strict=True)]
        rounded = roundest(values, math.floor(cut) if whole else cut)
        return np.array(normal), rounded * common


def multiples(aim: FloatArray, most: int) -> IntArray:
    """Return the scores to which multiples of coefficients (m,) round, (C, m), without divisors."""
    size = np.abs(aim) / np.abs(aim).max()
    turns = (np.arange(most) + 0.5)[:, None] / size[size > 0]  # where a rounded number changes
    ends = np.unique(np.append(turns[turns < most + 0.5], [0.5, most + 0.5]))
    middle = (ends[:-1] + ends[1:]) / 2
    few = middle[np.unique(np.linspace(0, len(middle) - 1, MOST_MULTIPLES).astype(int))]
    return _reduced(np.rint(few[:, None] * size * np.sign(aim)).astype(np.int64))


def _reduced(points: IntArray) -> IntArray:
    """Divide scores by the common divisor of their points, and drop equal ones and zeros."""
    divisor = np.gcd.reduce(points, axis=1)
    kept = divisor > 0
    return np.unique(points[kept] // divisor[kept, None], axis=0)


@dataclass(frozen=True, eq=False)
class Facets:
    """The facets of a node."""

    size: int  # maximum number of columns of each
    coefficient: FloatArray  # standardised; 0 is the limit, (K, d + 1)
    exact: Conjunction  # in the units of the data
    rule: Conjunction  # the same after rounding

    def shorter(self, X: FloatArray, gain: FloatArray) -> Iterator[tuple[float, "Facets"]]:
        """Yield the facets without one of them, or without a term, and the gain of rows outside.

        A facet that has lost a term gets the limit of the largest gain of the rows X outside.
        """
        normal, limit, beyond = self.exact.normal, self.exact.limit, self.exact.beyond(X)
        for k, own in enumerate(normal):
            others = np.arange(len(limit)) != k
            excluded = beyond[:, others].any(axis=1)
            without = float(gain[excluded].sum())
            if others.any():
                rest = Conjunction(normal[others], limit[others])
                yield without, Facets(self.size, self.coefficient[others], rest, rest)
            terms, free = np.flatnonzero(own), ~excluded
            left, worth = X[free][:, terms] * own[terms], gain[free]
            for place, term in enumerate(terms if len(terms) > 1 else ()):
                values = np.delete(left, place, axis=1).sum(axis=1)
                cut = best_limit(values, worth, limit[k]) if len(worth) else limit[k]
                trial, limits, coefficient = normal.copy(), limit.copy(), self.coefficient.copy()
                trial[k, term] = coefficient[k, term] = 0.0
                limits[k] = cut
                rest = Conjunction(trial, limits)
                found = Facets(self.size, coefficient, rest, rest)
                yield without + float(worth[values > cut].sum()), found

    def thinned(self, X: FloatArray, gain: FloatArray) -> "Facets":
        """Leave out a quarter of the terms at once, those that cost least when left out alone."""
        normal = self.exact.normal
        cuts = [one for one in self.shorter(X, gain) if len(one[1].coefficient) == len(normal)]
        least = sorted(cuts, key=lambda one: -one[0])[: math.ceil(THINNED * len(cuts))]
        kept = np.logical_and.reduce([normal != 0, *(one.exact.normal != 0 for _, one in least)])
        kept |= ~kept.any(axis=1, keepdims=True)  # a facet that would lose all keeps them
        rest = Conjunction(np.where(kept, normal, 0.0), self.exact.limit)
        support = np.column_stack((kept, np.ones(len(kept), dtype=bool)))
        return Facets(self.size, np.where(support, self.coefficient, 0.0), rest, rest)

    def n_columns(self, groups: Sequence[IntArray]) -> int:
        """Return the largest number of columns of a facet."""
        used = self.rule.normal != 0
        return int(max(sum(one[own].any() for own in groups) for one in used))


@dataclass(frozen=True, eq=False)
class Splits:
    """Splits of a topology of which some nodes are left out."""

    topology: Topology
    facets: tuple[Facets, ...]  # of each node, also of those that are left out
    #: -1 for a node that remains, or the side to which one that is left out sends all rows, (V,).
    side: IntArray
    slopes: int = 0  # the number of slopes that pay for themselves in the leaves

    def child(self, node: int, side: int) -> int:
        """Return the node or leaf on a side of a node, behind those that are left out."""
        found = int(self.topology.children[node, side])
        while found >= 0 and self.side[found] >= 0:
            found = int(self.topology.children[found, self.side[found]])
        return found

    def below(self, root: int) -> list[int]:
        """Return the nodes that remain from a node or leaf on, parents first."""
        if root < 0:
            return []
        return [root, *self.below(self.child(root, 0)), *self.below(self.child(root, 1))]

    @cached_property
    def nodes(self) -> list[int]:
        """The nodes that remain, parents first."""
        root = 0
        while root >= 0 and self.side[root] >= 0:
            root = int(self.topology.children[root, self.side[root]])
        return self.below(root)

    @cached_property
    def terms(self) -> int:
        """The number of terms of all facets."""
        return sum(self.facets[node].rule.length for node in self.nodes)

    @property
    def numbers(self) -> int:
        """The numbers of the tree: terms of facets, a limit with the first, leaves and slopes."""
        return self.terms + len(self.nodes) + 1 + self.slopes

    def right(self, X: FloatArray, *, exact: bool = False) -> BoolArray:
        """Mark the rows that are right of each node, before or after rounding, (n, V)."""
        found = np.empty((len(X), len(self.facets)), dtype=bool)
        for node, (side, own) in enumerate(zip(self.side.tolist(), self.facets, strict=True)):
            rule = own.exact if exact else own.rule
            found[:, node] = side if side >= 0 else rule.outside(X)
        return found

    def leaves(self, right: BoolArray, start: int = 0) -> IntArray:
        """Return the leaf below a child to which the sides lead each row."""
        at = np.full(len(right), start)
        every = np.arange(len(right))
        while (inner := at >= 0).any():
            rows = every[inner]
            at[rows] = self.topology.children[at[rows], right[rows, at[rows]].astype(np.intp)]
        return ~at

    def places(self, X: FloatArray) -> IntArray:
        """Return the leaf of each row."""
        return self.leaves(self.right(X))

    def reach(self, right: BoolArray, node: int) -> IntArray:
        """Return the rows that reach a node."""
        reached = np.ones(len(right), dtype=bool)
        while node > 0:
            parent = int(self.topology.node_parent[node])
            reached &= right[:, parent] == (self.topology.children[parent, 1] == node)
            node = parent
        return np.flatnonzero(reached)

    def with_facets(self, node: int, facets: Facets) -> "Splits":
        """Replace the facets of a node."""
        return replace(self, facets=(*self.facets[:node], facets, *self.facets[node + 1 :]))

    def without(self, node: int, side: int, slopes: int) -> "Splits":
        """Leave out a node, and send its rows to a side, which adds a number of slopes."""
        kept = np.where(np.arange(len(self.side)) == node, side, self.side)
        return replace(self, side=kept, slopes=self.slopes + slopes)

    def leaves_below(self, root: int) -> list[int]:
        """Return the leaves below a node, or the leaf itself."""
        if root < 0:
            return [~root]
        both = ((node, side) for node in self.below(root) for side in (0, 1))
        return [~child for child in (self.child(*one) for one in both) if child < 0]
