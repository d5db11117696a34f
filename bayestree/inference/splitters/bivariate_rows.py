"""Rows as the search of bivariate splits sorts them: one by one, or those that are alike as one."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray

CHUNK = 100_000  # numbers held at a time, in each of a few arrays: they stay in the cache
OVERHEAD = 40_000  # numbers that are sorted and summed in the time that it takes to make cells


class Rows(NamedTuple):
    """What is sorted: rows, or cells of rows that are alike.

    Attributes
    ----------
    z : array, shape (d, m)
        Standardised features.
    statistics : array, shape (c, m)
    counts : array of int, shape (m,)
        How many rows each stands for.
    """

    z: FloatArray
    statistics: FloatArray
    counts: IntArray

    def take(self, rows: IntArray) -> "Rows":
        """Some of the rows."""
        return Rows(self.z[:, rows], self.statistics[:, rows], self.counts[rows])


class Codes(NamedTuple):
    """Which of its distinct values each feature has in each row (d, m), and how many they are."""

    codes: IntArray
    levels: IntArray

    def take(self, rows: IntArray) -> "Codes":
        """Some of the rows."""
        return self._replace(codes=self.codes[:, rows])

    def n_sorted(self, groups: IntArray, numbers: int) -> IntArray:
        """What is sorted for each group of features (G, k), cells or rows, shape (G,).

        Cells are fewer, but made one group at a time: that pays if it spares enough of the
        ``numbers`` that each row or cell takes.
        """
        n_rows = self.codes.shape[1]
        n_cells: IntArray = self.levels[groups].prod(axis=1)
        return np.where((n_rows - n_cells) * numbers > OVERHEAD, n_cells, n_rows)


def codes_of(z: FloatArray) -> Codes:
    """The codes of standardised features (d, m)."""
    codes = np.empty(z.shape, dtype=np.int64)
    for feature, values in enumerate(z):
        _, codes[feature] = np.unique(values, return_inverse=True)
    return Codes(codes, codes.max(axis=1) + 1)


def parts(
    rows: Rows, codes: Codes, groups: IntArray, n_directions: int
) -> Iterator[tuple[IntArray, Rows]]:
    """Groups of features in batches: their numbers, and the rows, or cells of rows alike in them.

    Parameters
    ----------
    rows : Rows
    codes : Codes
    groups : array of int, shape (G, k)
    n_directions : int
        Projections of each group, for memory.

    Yields
    ------
    own : array of int, shape (g,)
        Which groups.
    part : Rows
        With g k features, those of the groups one after the other.
    """
    numbers = n_directions * len(rows.statistics)
    few = codes.n_sorted(groups, numbers) < rows.z.shape[1]
    for place in np.flatnonzero(few).tolist():
        yield np.array([place]), _cells(rows, codes, groups[place])
    others = np.flatnonzero(~few)
    step = max(1, CHUNK // (n_directions * rows.statistics.size))
    for start in range(0, len(others), step):
        own = others[start : start + step]
        yield own, rows._replace(z=rows.z[groups[own].ravel()])


def _cells(rows: Rows, codes: Codes, features: IntArray) -> Rows:
    """Rows that have all of some features in common, as one."""
    shape = tuple(codes.levels[features])
    code = np.ravel_multi_index(tuple(codes.codes[features]), shape)
    n_codes = math.prod(shape)
    counts = np.bincount(code, rows.counts, n_codes)
    used = np.flatnonzero(counts)
    sums = [np.bincount(code, column, n_codes)[used] for column in rows.statistics]
    member = np.empty(n_codes, dtype=np.int64)
    member[code] = np.arange(len(code))
    return Rows(
        rows.z[np.ix_(features, member[used])], np.stack(sums), counts[used].astype(np.int64)
    )
