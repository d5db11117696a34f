"""Checks of the columns of a table, chunk by chunk."""

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd

from bayestree.tables.columns import Kind, kind_of
from bayestree.tables.identifiers import FEW, Distinct, count_rows
from bayestree.tables.invalid import UNNAMED, InvalidValues
from bayestree.tables.missing import Codes, text_of, without_codes
from bayestree.tables.sentinels import Sentinels
from bayestree.tables.texts import Texts


class UnusedColumnsWarning(UserWarning):
    """Columns of X that are not used by the fit, such as constant columns and identifiers."""


class DoubtfulColumnsWarning(UserWarning):
    """Columns that are used although their values may not mean what they seem to.

    Examples are codes for missing values, dates that can be read in two ways, and row numbers.
    """


class Survey:
    """Checks of a table that is read in chunks, with messages about the whole table.

    ``features`` are the columns to predict from; only their values may be missing, or be one of the
    ``codes`` for missing values. Columns in ``keep`` are never ignored. ``kinds`` are those of the
    features; ``formats``, of dates that are stated as text, ``ignored``, the messages about ignored
    columns by name, and ``doubts``, the other warnings, are set by :meth:`check`.
    """

    def __init__(
        self,
        features: Collection[str],
        keep: Collection[str] = (),
        codes: Mapping[str, Codes] | None = None,
    ) -> None:
        self.kinds: dict[str, Kind] = dict.fromkeys(features, "numbers")
        self.formats: dict[str, str] = {}
        self.ignored: dict[str, str] = {}
        self.doubts: list[str] = []
        self._keep, self.codes = keep, codes or {}
        self._invalid = InvalidValues()
        self._texts: dict[str, Texts] = {}
        self._distinct = {name: Distinct() for name in features}
        self._sentinels = {name: Sentinels() for name in features}

    def add(self, frame: pd.DataFrame) -> None:
        """Examine a chunk, indexed by row number."""
        own = {name: without_codes(frame[name], codes) for name, codes in self.codes.items()}
        frame = frame.assign(**own)
        self._invalid.add(frame)
        for name, before in self.kinds.items():
            column = frame[name]
            here = kind_of(column)
            if before == "numbers":
                self.kinds[name] = here
            if here == "text" and not isinstance(column.dtype, pd.CategoricalDtype):
                self._texts.setdefault(name, Texts(name)).add(column)
            if here == "text" or pd.api.types.is_integer_dtype(column):
                self._distinct[name].add(column)
            if pd.api.types.is_any_real_numeric_dtype(column):
                self._sentinels[name].add(column.to_numpy(dtype=float, na_value=np.nan))

    def check(self, *, typed: bool = False) -> list[str]:
        """Refuse a table that cannot be used; otherwise set ``ignored`` and return the warnings.

        Text among numbers is refused, unless the table is ``typed``: it was not read from a file,
        where a single malformed number makes text of a column.
        """
        self._invalid.check(gaps=self.kinds)
        for name, texts in self._texts.items():
            if texts.are_dates(typed=typed):
                self.kinds[name] = "dates"
                self.formats[name], doubts = texts.dates.choose()
                self.doubts += doubts
            else:
                if not typed:
                    texts.check()
                self.doubts += texts.dates.warnings()
        reasons = {
            name: "is unnamed and empty" if UNNAMED.fullmatch(name) else "is empty"
            for name in self._invalid.empty
        }
        reasons |= self._identifiers()
        self.ignored = {
            name: f"column {name!r} {reason}; ignored."
            for name, reason in reasons.items()
            if name in self.kinds and name not in self._keep
        }
        self.kinds |= dict.fromkeys(self.ignored, "ignored")
        text = [one for name, one in self._texts.items() if self.kinds[name] == "text"]
        self.doubts += [doubt for texts in text for doubt in texts.warnings(typed=typed)]
        self.doubts += [
            f"column {name!r} holds {text_of(value)} in {count} of {one.n_rows} rows, far from all "
            "other values: if it is a code for missing, list it in missing_values."
            for name, one in self._sentinels.items()
            for value, count in one.found()
        ]
        return [*self.ignored.values(), *self.doubts]

    def _identifiers(self) -> dict[str, str]:
        """Why columns that tell rows apart are ignored; those that may matter become doubts."""
        reasons = {}
        for name, kind in self.kinds.items():
            values = self._distinct[name].all
            if kind == "text" and len(values) > FEW:
                reasons[name] = "holds a different text in every row, like an identifier"
                if name in self._texts and self._texts[name].are_numbers:
                    reasons[name] = (
                        "holds numbers as text, and a different text in every row; if it is a "
                        "quantity, convert it to numbers"
                    )
            elif kind == "numbers" and UNNAMED.fullmatch(name) and len(values):
                reasons[name] = "is unnamed and looks like a row index"
            elif kind == "numbers" and count_rows(values):
                self.doubts.append(
                    f"column {name!r} holds a different whole number in every row, like an "
                    "identifier or a count of the rows: if it is one, drop it."
                )
        return reasons
