"""Which half-spaces of several draws are the same facet.

The experts of a node are exchangeable, so a facet has no number of its own: it is known by where
it lies. A half-space is a point: its unit normal, and its distance from a place amid the rows, in
units in which the rows reach from -1 to 1 along every feature. The squared distance of two such
points is 2 (1 - cosine of the angle) + (difference of the distances)^2.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from bayestree._utils.arrays import FloatArray, IntArray

LIMIT = 1.0  # squared distance beyond which two are not the same: 60 degrees at equal distances
BESIDE = 0.1  # share of the draws of a facet that may have another which is the same one
PASSES = 20  # of the assignment; few are needed


def match(draws: Sequence[FloatArray]) -> list[IntArray]:
    """Number the facets of several draws so that equal numbers lie in like places.

    Every draw is assigned to common centres (Hungarian method), no centre twice; what lies beyond
    ``LIMIT`` of all that are free opens a centre of its own. The first centres are the facets of
    the draw that is most like the others; then they are the means of what was assigned to them,
    until nothing changes. Centres of one draw only do not last from pass to pass, and near ones
    that no draw has side by side become one, so that what lies near the mean of a facet, though
    far from some draws of it, comes home to it.

    Parameters
    ----------
    draws : sequence of arrays, each of shape (facets, d + 1)
        Points of the half-spaces of each draw.

    Returns
    -------
    list of arrays of int, each of shape (facets,)
        Numbers 0, 1, ..., the most frequent facet first.
    """
    if not draws:
        return []
    found = _assigned(draws, draws[_most_typical(draws)])
    for _ in range(PASSES):
        centers = _means(draws, found)
        again = _assigned(draws, centers)
        if all(np.array_equal(one, other) for one, other in zip(found, again, strict=True)):
            break
        found = again
    return _by_frequency(found)


def assign(points: FloatArray, centers: FloatArray) -> IntArray:
    """The centre that each point is assigned to, -1 where none within ``LIMIT`` is free."""
    n_points, n_centers = len(points), len(centers)
    cost = np.full((n_points, n_centers + n_points), LIMIT)  # one place without centre for each
    cost[:, :n_centers] = _distance(points, centers)
    _, taken = linear_sum_assignment(cost)
    return np.where(taken < n_centers, taken, -1)


def _assigned(draws: Sequence[FloatArray], centers: FloatArray) -> list[IntArray]:
    """Every draw in order, new centres opened as they are needed."""
    found = []
    for points in draws:
        numbers = assign(points, centers)
        new = numbers < 0
        numbers[new] = len(centers) + np.arange(new.sum())
        centers = np.concatenate([centers, points[new]])
        found.append(numbers)
    return found


def _means(draws: Sequence[FloatArray], found: Sequence[IntArray]) -> FloatArray:
    """Means of the points of each number that two draws have, the most frequent first.

    A number that is near to a more frequent one, and that no draw has beside it (but for a few),
    is the same facet: the two become one.
    """
    numbers, points = np.concatenate(found), np.concatenate(draws)
    there = np.zeros((len(found), int(numbers.max(initial=-1)) + 1))
    sums = np.zeros((there.shape[1], points.shape[1]))
    np.add.at(sums, numbers, points)
    for draw, own in enumerate(found):
        there[draw, own] = 1
    counts = there.sum(axis=0)
    kept: list[int] = []
    for k in np.argsort(-counts, kind="stable"):
        if counts[k] < 2:
            break
        means = sums[kept] / counts[kept, None]
        near = _distance(sums[k, None] / counts[k], means)[0] <= LIMIT
        apart = there[:, k] @ there[:, kept] <= BESIDE * counts[k]
        same = np.flatnonzero(near & apart)
        if len(same):
            first = kept[same[0]]
            sums[first] += sums[k]
            counts[first] += counts[k]
            there[:, first] = np.maximum(there[:, first], there[:, k])
        else:
            kept.append(int(k))
    return sums[kept] / counts[kept, None]


def _most_typical(draws: Sequence[FloatArray]) -> int:
    """The draw whose facets cost least to assign to those of all draws and back."""
    cost = [sum(_difference(one, other) for other in draws) for one in draws]
    return int(np.argmin(cost))


def _difference(one: FloatArray, other: FloatArray) -> float:
    """Summed distances of what is assigned, and ``LIMIT`` for each facet that is not."""
    numbers = assign(one, other)
    met = numbers >= 0
    close = ((one[met] - other[numbers[met]]) ** 2).sum()
    return float(close + LIMIT * (len(one) + len(other) - 2 * met.sum()))


def _distance(points: FloatArray, centers: FloatArray) -> FloatArray:
    squares = (points**2).sum(axis=1)[:, None] + (centers**2).sum(axis=1)
    # Rounding can leave the distance of equal points just below zero.
    return np.maximum(squares - 2 * points @ centers.T, 0.0)


def _by_frequency(found: Sequence[IntArray]) -> list[IntArray]:
    counts = np.bincount(np.concatenate(found))
    place = np.empty(len(counts), dtype=np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return [place[numbers] for numbers in found]
