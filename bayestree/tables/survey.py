"""Checks of the columns of a table, made some rows at a time."""

from collections.abc import Collection

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayestree.tables.columns import is_text
from bayestree.tables.gaps import UNNAMED, Gaps
from bayestree.tables.texts import Texts


class Survey:
    """Checks of a table whose rows may come in chunks, with the messages of the whole table.

    Parameters
    ----------
    features : collection of str
        Columns to predict from; others are checked for missing values only.
    keep : collection of str
        Columns that are never ignored.

    Attributes
    ----------
    text : dict
        Whether a feature column holds text.
    idle : dict
        Columns that are ignored, set by :meth:`check`, and what to tell the user of each.
    """

    def __init__(self, features: Collection[str], keep: Collection[str] = ()) -> None:
        self.text = dict.fromkeys(features, False)
        self.idle: dict[str, str] = {}
        self._keep = keep
        self._gaps = Gaps()
        self._texts: dict[str, Texts] = {}
        self._numbers: dict[str, list[NDArray[np.float64]]] = {
            name: [] for name in features if UNNAMED.fullmatch(name)
        }

    def add(self, frame: pd.DataFrame) -> None:
        """Look at some rows, whose index holds their numbers.

        Raises
        ------
        InputError
            If a feature is neither numbers nor text.
        """
        self._gaps.add(frame)
        for name, before in self.text.items():
            found = is_text(frame[name])
            self.text[name] = before or found
            if found:
                self._texts.setdefault(name, Texts(name)).add(frame[name])
            elif name in self._numbers:
                self._numbers[name].append(frame[name].to_numpy(dtype=float, na_value=np.nan))

    def check(self) -> list[str]:
        """Refuse a table that cannot be used; otherwise set ``idle`` and return the remarks.

        Raises
        ------
        InputError
            With the column, the row and the value.
        """
        self._gaps.check()
        for texts in self._texts.values():
            texts.check()
        told = dict.fromkeys(self._gaps.unnamed, "is unnamed and empty")
        told |= dict.fromkeys(self._indexes(), "is unnamed and looks like a row index")
        self.idle = {
            name: f"column {name!r} {what}; ignored."
            for name, what in told.items()
            if name in self.text and name not in self._keep
        }
        return [*self.idle.values(), *(one for t in self._texts.values() for one in t.remarks())]

    def _indexes(self) -> list[str]:
        """Columns without a name whose values are whole numbers, each in one row."""
        found = []
        for name, parts in self._numbers.items():
            values = np.concatenate(parts) if parts and not self.text[name] else np.zeros(0)
            whole = bool((values == np.round(values)).all())
            if whole and len(np.unique(values)) == len(values) > 0:
                found.append(name)
        return found
