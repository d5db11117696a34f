"""Rows for the search of bivariate splits, individually or merged into cells of equal rows."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.splitters.cuts import Classes

CHUNK = 100_000  # numbers per array and batch, which fit into the cache
FEW = 20  # classes, over which sums are as fast as a second sort of the rows
OVERHEAD = 40_000  # cost of creating cells, in numbers sorted and summed


class Rows(NamedTuple):
    """Rows, or cells of equal rows, to be sorted."""

    z: FloatArray  # (d, m): standardised features
    statistics: FloatArray  # (c, m)
    counts: IntArray  # (m,): number of rows in each cell
    classes: Classes | None = None  # of rows, if these are too many to be summed one by one

    @property
    def width(self) -> int:
        """Numbers that are summed for each row or cell and direction."""
        return len(self.statistics) if self.classes is None else FEW

    def take(self, rows: IntArray) -> "Rows":
        own = None if self.classes is None else self.classes.take(rows)
        return Rows(self.z[:, rows], self.statistics[:, rows], self.counts[rows], own)


class Codes(NamedTuple):
    """Codes of the distinct values of each feature (d, m), and the number of these values (d,)."""

    codes: IntArray
    levels: IntArray

    @classmethod
    def of(cls, z: FloatArray) -> "Codes":
        """Codes of the values of features (d, m)."""
        codes = np.stack([np.unique(values, return_inverse=True)[1] for values in z])
        return cls(codes, codes.max(axis=1) + 1)

    def take(self, rows: IntArray) -> "Codes":
        return self._replace(codes=self.codes[:, rows])

    def n_sorted(self, groups: IntArray, numbers: int) -> IntArray:
        """Number of cells or rows to sort for each group of features (G, k), shape (G,).

        There are fewer cells than rows, but they are created one group at a time, which pays if
        it saves more than ``OVERHEAD`` (``numbers`` per row or cell).
        """
        n_rows = self.codes.shape[1]
        n_cells: IntArray = self.levels[groups].prod(axis=1)
        return np.where((n_rows - n_cells) * numbers > OVERHEAD, n_cells, n_rows)


def parts(
    rows: Rows, codes: Codes, groups: IntArray, n_directions: int
) -> Iterator[tuple[IntArray, Rows]]:
    """Batches of groups (G, k) of features: the numbers of g groups, and rows or cells (g k, m).

    ``n_directions`` is the number of projections per group, which determines the memory.
    """
    n_rows = rows.z.shape[1]
    few = np.zeros(len(groups), dtype=bool)
    if rows.classes is None:  # which cells do not have
        few = codes.n_sorted(groups, n_directions * rows.width) < n_rows
    for place in np.flatnonzero(few).tolist():
        yield np.array([place]), _cells(rows, codes, groups[place])
    others = np.flatnonzero(~few)
    step = max(1, CHUNK // (n_directions * n_rows * rows.width))
    for start in range(0, len(others), step):
        batch = others[start : start + step]
        yield batch, rows._replace(z=rows.z[groups[batch].ravel()])


def _cells(rows: Rows, codes: Codes, features: IntArray) -> Rows:
    """Merge rows that agree in all of the given features."""
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
