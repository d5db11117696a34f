"""Rows in a file, of which some at a time are read and never all of them held."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.estimators._numbers import validated
from bayestree.inference import scratch

PARTS = 8  # of what may be held, for it is copied a few times


class FileRows:
    """Rows of a mapped array, in double precision and in some units.

    Parameters
    ----------
    source : array of numbers, shape (N, d)
        Such as ``numpy.memmap``.
    numbers : array of int, shape (n,), optional
        Which of its rows.
    center, scale : arrays, shape (d,), optional
        Rows are (source - center) / scale.
    """

    def __init__(
        self,
        source: NDArray[Any],
        numbers: IntArray | None = None,
        center: FloatArray | None = None,
        scale: FloatArray | None = None,
    ) -> None:
        self.source, self.numbers = source, numbers
        self.center, self.scale = center, scale

    def __len__(self) -> int:
        return len(self.source if self.numbers is None else self.numbers)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self), self.source.shape[1]

    def __getitem__(self, rows: slice | IntArray) -> FloatArray:
        """Some of the rows, in memory."""
        own = self.source[rows if self.numbers is None else self.numbers[rows]]
        found = np.array(own, dtype=np.float64)
        if self.center is not None and self.scale is not None:
            found -= self.center
            found /= self.scale
        return found

    def where(self, kept: BoolArray) -> "FileRows":
        """The rows that are marked."""
        if kept.all():
            return self
        numbers = np.flatnonzero(kept)
        own = numbers if self.numbers is None else self.numbers[numbers]
        return FileRows(self.source, own, self.center, self.scale)

    def standardised(self, center: FloatArray, scale: FloatArray) -> "FileRows":
        """The rows of the file in units."""
        return FileRows(self.source, self.numbers, center, scale)

    def slices(self) -> Iterator[slice]:
        """All rows, so many at a time as can be held."""
        size = max(1, scratch.HELD // PARTS // self.shape[1])
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def tensor(
        self, dtype: torch.dtype, device: str, columns: slice | BoolArray = slice(None)
    ) -> torch.Tensor:
        """Columns of all rows as a tensor, in a file if it is not to be on another device."""
        shape = (len(self), self[:0][:, columns].shape[1])
        if torch.device(device).type == "cpu":
            found = scratch.mapped_tensor(shape, dtype)
        else:
            found = torch.empty(shape, dtype=dtype, device=device)
        for part in self.slices():
            found[part] = torch.from_numpy(self[part][:, columns]).to(dtype)
        return found


def large_file(X: Any) -> NDArray[Any] | None:
    """The array of X, if it is mapped from a file and holds more than is to be in memory.

    X may be a ``numpy.memmap``, or a DataFrame of one.
    """
    if isinstance(X, np.memmap):
        return X if X.size > scratch.HELD else None
    if not isinstance(X, pd.DataFrame) or X.size <= scratch.HELD or len(set(X.dtypes)) > 1:
        return None
    base: Any = X.to_numpy()
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return X.to_numpy()
        base = base.base
    return None


def parts_of(X: pd.DataFrame) -> Iterator[slice]:
    """All rows of a table: at once, or a part of a large file at a time."""
    array = large_file(X)
    return iter([slice(0, len(X))]) if array is None else FileRows(array).slices()


def fits_in_parts(estimator: Any) -> bool:
    """Whether an estimator's fit never needs all rows of a file at a time."""
    return bool(estimator._in_parts())


def checked(
    estimator: Any, X: Any, *, in_parts: bool, y: Any = "no_validation", **checks: Any
) -> Any:
    """X as an array of floats, or as it is in its file if it is large and may be read in parts.

    Parameters
    ----------
    estimator
        In which the number and the names of the features are kept, or with which they must agree.
    X : array or DataFrame
    in_parts : bool
    y : array, optional
        A None is refused; the default is scikit-learn's word for no y.
    checks
        For ``validate_data`` of scikit-learn.

    Returns
    -------
    array or FileRows, or a pair of such rows and y
    """
    array = large_file(X) if in_parts else None
    kind = np.float64 if array is None else "numeric"
    found = validated(estimator, X, y, dtype=kind, **checks)
    if array is None:
        return found
    return (FileRows(array), found[1]) if isinstance(found, tuple) else FileRows(array)
