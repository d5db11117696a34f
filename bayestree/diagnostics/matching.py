"""Matching of facets across draws.

The experts of a node are exchangeable, so a facet is identified by its location rather than by
a number. A half-space is represented by a point: its unit normal, and its distance from a central
point, in units in which the rows extend from -1 to 1 along every feature. The squared distance
between two such points is 2 (1 - cosine of the angle) + (difference of the distances)^2.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from bayestree._utils.arrays import FloatArray, IntArray

LIMIT = 1.0  # largest squared distance of a match: an angle of 60 degrees at equal distances
BESIDE = 0.1  # facets that occur together in a larger share of draws are not merged
MAX_PASSES = 20  # maximum number of passes; few are needed


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
    found = _assigned(draws, draws[_most_typical(draws)])
    for _ in range(MAX_PASSES):
        centers = _means(draws, found)
        again = _assigned(draws, centers)
        if all(np.array_equal(one, other) for one, other in zip(found, again, strict=True)):
            break
        found = again
    return _by_frequency(found)


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
    """Mean points of the facets of two draws or more, the most frequent first.

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


def _most_typical(draws: Sequence[FloatArray]) -> int:
    """Medoid: the draw with the smallest total difference from all draws."""
    cost = [sum(_difference(one, other) for other in draws) for one in draws]
    return int(np.argmin(cost))


def _difference(one: FloatArray, other: FloatArray) -> float:
    """Squared distances of matched facets, plus ``LIMIT`` for each unmatched one."""
    numbers = assign(one, other)
    matched = numbers >= 0
    close = ((one[matched] - other[numbers[matched]]) ** 2).sum()
    return float(close + LIMIT * (len(one) + len(other) - 2 * matched.sum()))


def _distance(points: FloatArray, centers: FloatArray) -> FloatArray:
    squares = (points**2).sum(axis=1)[:, None] + (centers**2).sum(axis=1)
    # Rounding can make the distance of equal points slightly negative.
    return np.maximum(squares - 2 * points @ centers.T, 0.0)


def _by_frequency(found: Sequence[IntArray]) -> list[IntArray]:
    counts = np.bincount(np.concatenate(found))
    place = np.empty(len(counts), dtype=np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return [place[numbers] for numbers in found]
