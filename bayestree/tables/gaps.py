"""Values that are missing, infinite or too large, counted some rows at a time."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from bayestree.tables.errors import CellError, InputError

LARGEST = 1e150  # a larger number has no finite square
UNNAMED = re.compile(r"(Unnamed: \d+(\.\d+)*)?")  # what pandas calls a column without a name


class Gaps:
    """Missing and infinite values of a table, and those too large to be squared."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.counts: dict[str, dict[str, int]] = {"missing": {}, "infinite": {}, "too large": {}}
        self.first: dict[str, dict[str, int]] = {word: {} for word in self.counts}

    def add(self, frame: pd.DataFrame) -> None:
        """Count those of some rows, whose index holds their numbers."""
        self.n_rows += len(frame)
        for name, column in frame.items():
            self._count("missing", str(name), column.isna().to_numpy(), frame.index)
            if pd.api.types.is_float_dtype(column):
                size = np.abs(column.to_numpy(dtype=float, na_value=np.nan))
                self._count("infinite", str(name), np.isinf(size), frame.index)
                large = (size > LARGEST) & np.isfinite(size)
                self._count("too large", str(name), large, frame.index)

    def _count(self, word: str, name: str, found: Any, index: pd.Index) -> None:
        if found.any():
            counts = self.counts[word]
            counts[name] = counts.get(name, 0) + int(found.sum())
            self.first[word].setdefault(name, int(index[found.argmax()]))

    @property
    def empty(self) -> list[str]:
        """Names of the columns without any value."""
        return [name for name, n in self.counts["missing"].items() if n == self.n_rows > 1]

    @property
    def unnamed(self) -> list[str]:
        """Those of them that have no name either, as spreadsheets write them."""
        return [name for name in self.empty if UNNAMED.fullmatch(name)]

    def check(self) -> None:
        """Refuse all that was found, except unnamed empty columns.

        Raises
        ------
        InputError
            With the number of such values, their columns, and the row of the first.
        """
        without = self.unnamed
        if empty := [name for name in self.empty if name not in without]:
            verb, which = ("is", "it") if len(empty) == 1 else ("are", "them")
            raise InputError(f"{named(empty)} {verb} empty; fill in values, or drop {which}.")
        for word, every in self.counts.items():
            counts = {name: count for name, count in every.items() if name not in without}
            if counts:
                self._refuse(word, counts)

    def _refuse(self, word: str, counts: dict[str, int]) -> None:
        column = min(counts, key=self.first[word].__getitem__)
        total = sum(counts.values())
        listed = some([f"{name!r}: {count}" for name, count in counts.items()], quote=False)
        raise CellError(
            f"{total} {word} {'value' if total == 1 else 'values'} ({listed}), first at",
            self.first[word][column],
            "; impute them, or drop the rows or columns.",
            column=column,
            missing=word == "missing",
        )


def check_complete(frame: pd.DataFrame) -> None:
    """Refuse missing and infinite values, and those too large to be squared.

    Raises
    ------
    InputError
        With the number of such values, their columns, and the row of the first.
    """
    gaps = Gaps()
    gaps.add(frame)
    gaps.check()


def named(names: Iterable[Any]) -> str:
    """Columns, as a list for a person."""
    listed = list(names)
    return f"{'column' if len(listed) == 1 else 'columns'} {some(listed)}"


def some(items: Iterable[Any], most: int = 8, *, quote: bool = True) -> str:
    """The first few, as a list for a person."""
    listed = [repr(str(item)) if quote else str(item) for item in items]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
