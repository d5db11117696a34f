"""Columns that tell the rows of a table apart, and nothing else."""

import numpy as np
import pandas as pd
from pandas.util import hash_pandas_object

FEW = 20  # this many different values may differ by chance
FIRST = 100  # rows in which most columns repeat a value
MAX_SPREAD = 2  # numbers of a part of the rows still lie this close, relative to their number


class Distinct:
    """The values of a column, as long as all of them are different; texts as their hashes."""

    def __init__(self) -> None:
        self._parts: list[pd.Series] | None = []

    def add(self, column: pd.Series) -> None:
        """Examine a chunk."""
        if self._parts is None:
            return
        present = column.dropna()
        if present.head(FIRST).duplicated().any() or present.duplicated().any():
            self._parts = None
        else:
            whole = pd.api.types.is_integer_dtype(present)
            self._parts.append(present if whole else hash_pandas_object(present, index=False))

    @property
    def all(self) -> pd.Series:
        """All values in the order of the rows; none if some are equal."""
        parts = [part for part in self._parts or () if len(part)]
        found = pd.concat(parts) if parts else pd.Series(dtype=object)
        return found if found.is_unique else found[:0]


def count_rows(values: pd.Series) -> bool:
    """Whether different whole numbers rise or fall from row to row, or leave out few numbers."""
    found = values.to_numpy(dtype=float)
    if len(found) <= FEW:
        return False
    steps = np.diff(found)
    dense = np.ptp(found) < MAX_SPREAD * len(found)
    return bool(dense or (steps > 0).all() or (steps < 0).all())
