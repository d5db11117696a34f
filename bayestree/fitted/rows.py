"""Training rows, in memory or in a file that is read in chunks."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree.inference import memory_mapped

PARTS = 8  # chunks that fit into the allowed memory, since each is copied a few times


class FileRows:
    """Selected rows of a mapped array (N, d), as (source - center) / scale in double precision.

    ``limits`` (2, d) are the least and the greatest value of each column of the source.
    """

    def __init__(
        self,
        source: AnyArray,
        numbers: IntArray | None = None,
        center: FloatArray | None = None,
        scale: FloatArray | None = None,
        limits: tuple[FloatArray, FloatArray] | None = None,
    ) -> None:
        self.source, self.numbers = source, numbers
        self.center, self.scale, self.limits = center, scale, limits

    def __len__(self) -> int:
        return len(self.source if self.numbers is None else self.numbers)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self), self.source.shape[1]

    def __getitem__(self, rows: slice | IntArray) -> FloatArray:
        """Some of the rows as an array."""
        own = self.source[rows if self.numbers is None else self.numbers[rows]]
        found = np.array(own, dtype=np.float64)
        if self.limits is not None:
            found = np.clip(found, *self.limits)
        if self.center is not None and self.scale is not None:
            found -= self.center
            found /= self.scale
        return found

    def where(self, kept: BoolArray) -> "FileRows":
        """The marked rows."""
        if kept.all():
            return self
        numbers = np.flatnonzero(kept)
        own = numbers if self.numbers is None else self.numbers[numbers]
        return FileRows(self.source, own, self.center, self.scale, self.limits)

    def standardised(self, center: FloatArray, scale: FloatArray) -> "FileRows":
        """The same rows in other units."""
        return FileRows(self.source, self.numbers, center, scale, self.limits)

    def within(self, low: FloatArray, high: FloatArray) -> "FileRows":
        """The same rows, with the values of the source between ``low`` and ``high``."""
        return FileRows(self.source, self.numbers, self.center, self.scale, (low, high))

    def slices(self) -> Iterator[slice]:
        """Slices of all rows, each of which fits into memory."""
        size = max(1, memory_mapped.HELD // PARTS // self.shape[1])
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def tensor(
        self, dtype: torch.dtype, device: str, columns: slice | BoolArray = slice(None)
    ) -> torch.Tensor:
        """Columns of all rows as a tensor, which is mapped from a file if it is on the CPU."""
        shape = (len(self), self[:0][:, columns].shape[1])
        if torch.device(device).type == "cpu":
            found = memory_mapped.mapped_tensor(shape, dtype)
        else:
            found = torch.empty(shape, dtype=dtype, device=device)
        for part in self.slices():
            found[part] = torch.from_numpy(self[part][:, columns]).to(dtype)
        return found


def large_file(X: Any) -> AnyArray | None:
    """The array of a ``numpy.memmap``, or of a DataFrame of one, if it is too large for memory."""
    if isinstance(X, np.memmap):
        return X if X.size > memory_mapped.HELD else None
    if not isinstance(X, pd.DataFrame) or X.size <= memory_mapped.HELD or len(set(X.dtypes)) > 1:
        return None
    base: Any = X.to_numpy()
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return X.to_numpy()
        base = base.base
    return None


def parts_of(X: pd.DataFrame) -> Iterator[slice]:
    """Slices of all rows of a table: one, or several if it is mapped from a large file."""
    array = large_file(X)
    return iter([slice(0, len(X))]) if array is None else FileRows(array).slices()


class TrainingRows(NamedTuple):
    """Rows in the units of the data, with encoded y."""

    X: FloatArray | FileRows
    y: AnyArray
    weights: FloatArray
    class_names: tuple[str, ...] = ()
    extra: FloatArray | None = None  # (n,), a number that the leaves need (see ``Leaf.extra``)

    @property
    def response(self) -> AnyArray:
        """y, with the extra number of each row as a second column if there is one."""
        return self.y if self.extra is None else np.column_stack((self.y, self.extra))

    def counted(self) -> "TrainingRows":
        """The rows of positive weight; the others are ignored."""
        kept = self.weights > 0
        X = self.X.where(kept) if isinstance(self.X, FileRows) else self.X[kept]
        extra = None if self.extra is None else self.extra[kept]
        return self._replace(X=X, y=self.y[kept], weights=self.weights[kept], extra=extra)
