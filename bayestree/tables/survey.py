"""Checks of the columns of a table, chunk by chunk."""

from collections.abc import Collection

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray
from bayestree.tables.columns import Kind, kind_of
from bayestree.tables.invalid import UNNAMED, InvalidValues
from bayestree.tables.texts import Texts


class Survey:
    """Checks of a table that is read in chunks, with messages about the whole table.

    ``features`` are the columns to predict from; only their values may be missing. Columns in
    ``keep`` are never ignored. ``kinds`` are those of the features; ``formats``, of dates that
    are stated as text, ``ignored``, the messages about ignored columns by name, and ``doubts``, the
    other warnings, are set by :meth:`check`.
    """

    def __init__(self, features: Collection[str], keep: Collection[str] = ()) -> None:
        self.kinds: dict[str, Kind] = dict.fromkeys(features, "numbers")
        self.formats: dict[str, str] = {}
        self.ignored: dict[str, str] = {}
        self.doubts: list[str] = []
        self._keep = keep
        self._invalid = InvalidValues()
        self._texts: dict[str, Texts] = {}
        self._numbers: dict[str, list[FloatArray]] = {
            name: [] for name in features if UNNAMED.fullmatch(name)
        }

    def add(self, frame: pd.DataFrame) -> None:
        """Examine a chunk, indexed by row number."""
        self._invalid.add(frame)
        for name, before in self.kinds.items():
            here = kind_of(frame[name])
            if before == "numbers":
                self.kinds[name] = here
            if here == "text" and not isinstance(frame[name].dtype, pd.CategoricalDtype):
                self._texts.setdefault(name, Texts(name)).add(frame[name])
            elif name in self._numbers and here == "numbers":
                self._numbers[name].append(frame[name].to_numpy(dtype=float, na_value=np.nan))

    def check(self) -> list[str]:
        """Refuse a table that cannot be used; otherwise set ``ignored`` and return the warnings."""
        self._invalid.check(gaps=self.kinds)
        for name, texts in self._texts.items():
            if texts.are_dates():
                self.kinds[name] = "dates"
                self.formats[name], doubts = texts.dates.choose()
                self.doubts += doubts
            else:
                texts.check()
                self.doubts += texts.dates.warnings()
        reasons = {
            name: "is unnamed and empty" if UNNAMED.fullmatch(name) else "is empty"
            for name in self._invalid.empty
        }
        reasons |= dict.fromkeys(self._row_indexes(), "is unnamed and looks like a row index")
        self.ignored = {
            name: f"column {name!r} {reason}; ignored."
            for name, reason in reasons.items()
            if name in self.kinds and name not in self._keep
        }
        text = [one for name, one in self._texts.items() if self.kinds[name] == "text"]
        self.doubts += [doubt for texts in text for doubt in texts.warnings()]
        return [*self.ignored.values(), *self.doubts]

    def _row_indexes(self) -> list[str]:
        """Unnamed columns of whole numbers that are all different."""
        found = []
        for name, parts in self._numbers.items():
            values = (
                np.concatenate(parts) if parts and self.kinds[name] == "numbers" else np.zeros(0)
            )
            whole = bool((values == np.round(values)).all())
            if whole and len(np.unique(values)) == len(values) > 0:
                found.append(name)
        return found
