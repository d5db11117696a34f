"""Checks of the columns of a table, chunk by chunk."""

from collections.abc import Collection

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray
from bayestree.tables.columns import is_text
from bayestree.tables.invalid import UNNAMED, InvalidValues
from bayestree.tables.texts import Texts


class Survey:
    """Checks of a table that is read in chunks, with messages about the whole table.

    ``features`` are the columns to predict from; other columns are checked for missing values only.
    Columns in ``keep`` are never ignored. ``text`` records whether each feature holds text, and
    ``ignored``, set by :meth:`check`, the messages about ignored columns by name.
    """

    def __init__(self, features: Collection[str], keep: Collection[str] = ()) -> None:
        self.text = dict.fromkeys(features, False)
        self.ignored: dict[str, str] = {}
        self._keep = keep
        self._invalid = InvalidValues()
        self._texts: dict[str, Texts] = {}
        self._numbers: dict[str, list[FloatArray]] = {
            name: [] for name in features if UNNAMED.fullmatch(name)
        }

    def add(self, frame: pd.DataFrame) -> None:
        """Examine a chunk, indexed by row number."""
        self._invalid.add(frame)
        for name, before in self.text.items():
            here = is_text(frame[name])
            self.text[name] = before or here
            if here:
                self._texts.setdefault(name, Texts(name)).add(frame[name])
            elif name in self._numbers:
                self._numbers[name].append(frame[name].to_numpy(dtype=float, na_value=np.nan))

    def check(self) -> list[str]:
        """Refuse a table that cannot be used; otherwise set ``ignored`` and return the warnings."""
        self._invalid.check()
        for texts in self._texts.values():
            texts.check()
        reasons = dict.fromkeys(self._invalid.unnamed, "is unnamed and empty")
        reasons |= dict.fromkeys(self._row_indexes(), "is unnamed and looks like a row index")
        self.ignored = {
            name: f"column {name!r} {reason}; ignored."
            for name, reason in reasons.items()
            if name in self.text and name not in self._keep
        }
        doubts = [doubt for texts in self._texts.values() for doubt in texts.warnings()]
        return [*self.ignored.values(), *doubts]

    def _row_indexes(self) -> list[str]:
        """Unnamed columns of whole numbers that are all different."""
        found = []
        for name, parts in self._numbers.items():
            values = np.concatenate(parts) if parts and not self.text[name] else np.zeros(0)
            whole = bool((values == np.round(values)).all())
            if whole and len(np.unique(values)) == len(values) > 0:
                found.append(name)
        return found
