"""Facets as scores: a few whole points for each round unit of a column.

A facet normal . x <= limit becomes sum_j p_j x_j / u_j <= limit with whole points p_j and units u_j
such as 10 years. As for risk scores, multiples of the coefficients are rounded (Ustun and Rudin,
"Learning optimized risk scores", JMLR 20, 2019; Liu et al., "FasterRisk: fast and accurate
interpretable risk scores", NeurIPS 2022). Each is judged with its own best limit, by the gain of
the projection. Further steps of single points were no better on other rows.
"""

import math
from fractions import Fraction

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.fitting.projection.facets import Conjunction, best_limit, roundest

MOST_MULTIPLES = 60  # of a facet, that are rounded
SAME = 1e-9  # of the total size of gains
TINY = 1e-300  # the length of scores of features that do not vary among the rows


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
