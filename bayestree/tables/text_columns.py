"""Columns of text, examined chunk by chunk: whether their values are numbers or dates."""

import re
from typing import ClassVar, Self

import numpy as np
import pandas as pd

from bayestree._utils.arrays import BoolArray
from bayestree._utils.wording import CellError, InputError, brief
from bayestree.tables.dates import FORMATS, REMEDY, Parts, read_days

FEW = 20  # this many different dates or numbers may still be categories
MANY = 100  # this many different texts tell the kind of a column
SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"  # between thousands
MARKED = re.compile(rf"[-+]?[$€£]?\s?\d[\d.,'{SPACES}]*\s?[%$€£]?")  # 1,5 or 1,234.5 or 12 %
CODE = re.compile(r"0\d+")  # such as a postal code
PLAIN = "write numbers with a decimal point and without other marks"
NOT_DATES = r"\d+|(?!\d\d\.\d\d\.)\d\d?\.\d\d?\.\d\d"  # 20240131 and 1.2.34, of codes and versions


class TextCounts:
    """How many rows of a column of text hold values of a type, and the first that does not."""

    noun: ClassVar[str]

    def __init__(self, name: str) -> None:
        self.name = name
        self.n_rows = self.n_typed = 0
        self.first_other: tuple[int, str] | None = None

    def count(self, labels: pd.Series, counts: pd.Series, are_typed: BoolArray) -> None:
        """Include texts, indexed by row.

        ``counts`` says how often each different one occurs, and ``are_typed`` which have the type.
        """
        self.n_rows += len(labels)
        self.n_typed += int(counts.to_numpy()[are_typed].sum())
        if self.first_other is None and not are_typed.all():
            other = str(counts.index[~are_typed][0])  # counts are in the order of the rows
            self.first_other = int(labels.index[labels == other][0]), other

    def merge(self, other: Self) -> None:
        """Include the texts of the following rows."""
        self.n_rows += other.n_rows
        self.n_typed += other.n_typed
        self.first_other = self.first_other or other.first_other

    @property
    def found(self) -> str:
        return f"column {self.name!r} holds {self.noun} in {self.n_typed} of {self.n_rows} rows"

    def are_mistakes(self, n_different: int) -> bool:
        """Whether so many values have the type that the others are likely to be mistakes."""
        share = 0.5 if n_different > MANY else 0.9
        return self.first_other is not None and self.n_typed >= share * self.n_rows

    def refusal(self, remedy: str) -> CellError:
        """Return the error that names the first value of another type."""
        assert self.first_other is not None
        row, value = self.first_other
        others = self.n_rows - self.n_typed
        first = f", the first of {others}" if others > 1 else ""
        holds = f" holds {brief(value)}{first}; {remedy}"
        return CellError(f"{self.found}, but", row, holds, column=self.name)


class DateTexts(TextCounts):
    """The texts of a column that may be dates."""

    noun = "dates"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.days: dict[str, str] = {}  # different dates without their times, and a text of each

    def add(self, labels: pd.Series, counts: pd.Series) -> None:
        """Read texts, indexed by row; ``counts`` says how often each occurs."""
        texts = pd.Series(counts.index, dtype=object)
        are_dates = np.zeros(len(texts), dtype=bool)
        are_dates[:MANY] = self._examine(texts[:MANY])
        if len(texts) > MANY <= 2 * are_dates.sum():
            are_dates[MANY:] = self._examine(texts[MANY:])
        self.count(labels, counts, are_dates)

    def merge(self, other: Self) -> None:
        super().merge(other)
        self.days |= other.days

    def _examine(self, texts: pd.Series) -> BoolArray:
        """Return which texts are dates; these are kept."""
        parts = Parts.of(texts)
        days = parts.day.unique()
        known = pd.DataFrame(read_days(days, FORMATS), index=days).notna().any(axis=1)
        is_date = parts.day.map(known) & parts.time.notna() & ~texts.str.fullmatch(NOT_DATES)
        self.days |= dict(zip(parts.day[is_date], texts[is_date], strict=True))
        return is_date.to_numpy(dtype=bool)

    def check(self, *, typed: bool) -> bool:
        """Return whether all texts are dates; if nearly all are, the others are refused in files.

        ``typed`` tables were not read from a file.
        """
        if not typed and self.are_mistakes(len(self.days)):
            raise self.refusal(
                f"list it in missing_values if it stands for a missing date, or {REMEDY}, or drop "
                "the column."
            )
        return self.n_typed == self.n_rows > 0

    def warnings(self) -> list[str]:
        """Return a warning about dates that are treated as categories."""
        if self.first_other is None or len(self.days) <= FEW or 2 * self.n_typed < self.n_rows:
            return []
        row, value = self.first_other
        return [
            f"{self.found}, and is treated as categorical because row {row + 1} holds "
            f"{brief(value)}: if it stands for a missing date, list it in missing_values."
        ]

    def text_format(self) -> str | None:
        """Return the only format that fits all dates; None is ISO 8601."""
        days = [*self.days]
        readings = read_days(days, FORMATS)
        fits = {one: when for one, when in readings.items() if when.notna().all()}
        if not fits:
            odd = max(readings.values(), key=lambda when: when.notna().sum()).isna()
            texts = [self.days[days[int(place)]] for place in (odd.argmin(), odd.argmax())]
            raise InputError(
                f"column {self.name!r} holds dates in several formats, such as {texts[0]!r} and "
                f"{texts[1]!r}; {REMEDY}, or drop the column."
            )
        (chosen, when), *others = fits.items()
        for _, other in others:
            if (differs := (when != other).to_numpy()).any():
                text = self.days[days[int(differs.argmax())]]
                read = " or ".join(f"{one[differs].iloc[0]:%Y-%m-%d}" for one in (when, other))
                raise InputError(
                    f"column {self.name!r} holds dates like {text!r}, which may be {read}; "
                    f"{REMEDY}, or drop the column."
                )
        return chosen


class Texts(TextCounts):
    """The distinct texts of a column, of which some may be numbers."""

    noun = "numbers"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.are_codes = False
        self.dates = DateTexts(name)
        self.kinds: dict[str, str] = {}  # of the first different texts

    def add(self, column: pd.Series) -> None:
        """Read a chunk, whose index holds row numbers."""
        labels = column.dropna().astype(str)
        counts = labels.value_counts(sort=False)
        is_number = pd.to_numeric(pd.Series(counts.index), errors="coerce").notna().to_numpy()
        self.count(labels, counts, is_number)
        self.dates.add(labels, counts)
        self.are_codes = self.are_codes or any(map(CODE.fullmatch, counts.index[is_number]))
        for label, number in zip(counts.index, is_number, strict=True):
            if len(self.kinds) > MANY:
                break
            self.kinds[label] = "number" if number else _kind(label)

    def merge(self, other: Self) -> None:
        super().merge(other)
        self.dates.merge(other.dates)
        self.are_codes = self.are_codes or other.are_codes
        self.kinds = dict([*(self.kinds | other.kinds).items()][: MANY + 1])

    def check(self) -> None:
        """Refuse malformed numbers, which would become very many categories."""
        kinds = list(self.kinds.values())
        if self.first_other is None or len(kinds) <= FEW:
            return
        row, value = self.first_other
        if kinds.count("number") > FEW and self.are_mistakes(len(kinds)):
            remedy = "correct it, list it in missing_values"
            raise self.refusal(
                f"{PLAIN if MARKED.fullmatch(value) else remedy}, or drop the rows or the column. "
                "If these are codes, prefix each with a letter to have them treated as categories."
            )
        if self._are_marked:
            raise CellError(
                f"column {self.name!r} holds numbers that cannot be read:",
                row,
                f" holds {brief(value)}; {PLAIN}, or drop the column.",
                column=self.name,
            )

    def are_dates(self, *, typed: bool) -> bool:
        """Return whether these are dates, and too many for categories (:meth:`DateTexts.check`)."""
        return len(self.kinds) > FEW and self.dates.check(typed=typed)

    @property
    def are_numbers(self) -> bool:
        """Whether most rows state numbers, with or without marks."""
        return 2 * self.n_typed > self.n_rows or self._are_marked

    @property
    def _are_marked(self) -> bool:
        return set(self.kinds.values()) == {"marked"}

    def warnings(self, *, typed: bool) -> list[str]:
        """Return warnings about numbers treated as categories, ``typed`` if X holds text."""
        if not self.are_numbers or self.are_codes:
            return []
        found, remedy = "numbers as text", f"convert it by pandas.to_numeric(X[{self.name!r}])"
        if self.first_other is not None:
            row, value = self.first_other
            found = f"numbers in {self.n_typed} of {self.n_rows} rows, but {brief(value)} in row "
            found += f"{row + 1}"
            remedy = f"{remedy[:-1]}, errors='coerce')"
            if not typed:
                remedy = "correct the others, or list them in missing_values"
            if self._are_marked:
                found, remedy = f"numbers such as {brief(value)}", PLAIN
        return [
            f"column {self.name!r} holds {found}; its values are categories. If it is a quantity, "
            f"{remedy}."
        ]


def _kind(label: str) -> str:
    return "marked" if MARKED.fullmatch(label) else "text"
