"""Missing, infinite and too large values of a table, counted chunk by chunk."""

import re
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pandas as pd

from bayestree._utils.arrays import BoolArray
from bayestree._utils.errors import CellError, InputError

MAX_SIZE = 1e150  # squares of larger numbers overflow
UNNAMED = re.compile(r"(Unnamed: \d+(\.\d+)*)?")  # what pandas calls a column without a name


class InvalidValues:
    """Counts of the missing, infinite and too large values of a table."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.counts: dict[str, dict[str, int]] = {"missing": {}, "infinite": {}, "too large": {}}
        self.first_rows: dict[str, dict[str, int]] = {kind: {} for kind in self.counts}

    def add(self, frame: pd.DataFrame) -> None:
        """Count the invalid values of a chunk, indexed by row number."""
        self.n_rows += len(frame)
        for name, column in frame.items():
            self._count("missing", str(name), column.isna().to_numpy(), frame.index)
            if pd.api.types.is_float_dtype(column):
                size = np.abs(column.to_numpy(dtype=float, na_value=np.nan))
                self._count("infinite", str(name), np.isinf(size), frame.index)
                large = (size > MAX_SIZE) & np.isfinite(size)
                self._count("too large", str(name), large, frame.index)

    def _count(self, kind: str, name: str, invalid: BoolArray, index: pd.Index) -> None:
        if invalid.any():
            counts = self.counts[kind]
            counts[name] = counts.get(name, 0) + int(invalid.sum())
            self.first_rows[kind].setdefault(name, int(index[int(invalid.argmax())]))

    @property
    def empty(self) -> list[str]:
        return [name for name, n in self.counts["missing"].items() if n == self.n_rows > 1]

    def check(self, gaps: Collection[str] = ()) -> None:
        """Refuse invalid values, and locate the first; in ``gaps`` values may be missing."""
        if empty := [name for name in self.empty if name not in gaps]:
            verb, pronoun = ("is", "it") if len(empty) == 1 else ("are", "them")
            raise InputError(
                f"{quote_columns(empty)} {verb} empty; fill in values, or drop {pronoun}."
            )
        for kind, every in self.counts.items():
            allowed = gaps if kind == "missing" else ()
            counts = {name: count for name, count in every.items() if name not in allowed}
            if counts:
                self._refuse(kind, counts)

    def _refuse(self, kind: str, counts: dict[str, int]) -> None:
        column = min(counts, key=self.first_rows[kind].__getitem__)
        total = sum(counts.values())
        listed = abbreviate(f"{name!r}: {count}" for name, count in counts.items())
        raise CellError(
            f"{total} {kind} {'value' if total == 1 else 'values'} ({listed}), first at",
            self.first_rows[kind][column],
            f"; {'impute' if kind == 'missing' else 'replace'} them, or drop the rows or columns.",
            column=column,
            missing=kind == "missing",
        )


def check_complete(frame: pd.DataFrame) -> None:
    """Refuse missing and infinite values, and those too large to be squared."""
    invalid = InvalidValues()
    invalid.add(frame)
    invalid.check()


def check_finite(frame: pd.DataFrame) -> None:
    """Refuse infinite values, and those too large to be squared."""
    invalid = InvalidValues()
    invalid.add(frame)
    invalid.check(gaps=[str(name) for name in frame])


def quote_columns(names: Iterable[Any]) -> str:
    """Return the first few names in quotation marks, after ``column`` or ``columns``."""
    quoted = [repr(str(name)) for name in names]
    return f"{'column' if len(quoted) == 1 else 'columns'} {abbreviate(quoted)}"


def abbreviate(items: Iterable[str], limit: int = 8) -> str:
    """Return the first few items of a list."""
    every = list(items)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more
