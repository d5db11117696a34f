"""Columns of text: categories, malformed numbers or dates, examined chunk by chunk."""

import re

import pandas as pd

from bayestree.tables.dates import FEW, MANY, DateTexts
from bayestree.tables.errors import CellError

SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"  # between thousands
MARKED = re.compile(rf"[-+]?[$€£]?\s?\d[\d.,'{SPACES}]*\s?[%$€£]?")  # 1,5 or 1,234.5 or 12 %
CODE = re.compile(r"0\d+")  # such as a postal code
PLAIN = "write numbers with a decimal point and without other marks"


def dates_remedy(name: str) -> str:
    """The remedy for a column of dates."""
    return (
        f"replace it with numbers, such as pandas.to_datetime(frame[{name!r}]).dt.day_of_year, or "
        "drop the column."
    )


class Texts:
    """The distinct texts of a column, by kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.n_rows = self.n_numbers = 0
        self.are_codes = False
        self.dates = DateTexts(name)
        self.kinds: dict[str, str] = {}  # of the first different texts
        self.first_other: tuple[int, str] | None = None  # first row that is not a number

    def add(self, column: pd.Series) -> None:
        """Examine a chunk, whose index holds row numbers."""
        labels = column.dropna().astype(str)
        counts = labels.value_counts(sort=False)
        is_number = pd.to_numeric(pd.Series(counts.index), errors="coerce").notna().to_numpy()
        self.n_rows += len(labels)
        self.dates.add(labels, counts)
        self.n_numbers += int(counts.to_numpy()[is_number].sum())
        self.are_codes = self.are_codes or any(map(CODE.fullmatch, counts.index[is_number]))
        if self.first_other is None and not is_number.all():
            other = str(counts.index[~is_number][0])  # counts are in the order of the rows
            self.first_other = int(labels.index[labels == other][0]), other
        for label, number in zip(counts.index, is_number, strict=True):
            if len(self.kinds) > MANY:
                break
            self.kinds[label] = "number" if number else _kind(label)

    def check(self) -> None:
        """Refuse malformed numbers, which would become very many categories."""
        kinds = list(self.kinds.values())
        if self.first_other is None or len(kinds) <= FEW:
            return
        row, value = self.first_other
        min_share = 0.5 if len(kinds) > MANY else 0.9
        if kinds.count("number") > FEW and self.n_numbers >= min_share * self.n_rows:
            raise self._malformed_number(row, value)
        if kinds.count("marked") == len(kinds):
            raise CellError(
                f"column {self.name!r} holds numbers that cannot be read:",
                row,
                f" holds {value!r}; {PLAIN}, or drop the column.",
                column=self.name,
            )

    def are_dates(self, *, typed: bool) -> bool:
        """Whether these are dates, and too many to be categories; see :meth:`DateTexts.check`."""
        return len(self.kinds) > FEW and self.dates.check(typed=typed)

    @property
    def are_numbers(self) -> bool:
        """Whether most rows state numbers, with or without marks."""
        return 2 * self.n_numbers > self.n_rows or self._are_marked

    @property
    def _are_marked(self) -> bool:
        return set(self.kinds.values()) == {"marked"}

    def _malformed_number(self, row: int, value: str) -> CellError:
        others = self.n_rows - self.n_numbers
        remedy = "correct it, list it in missing_values"
        if MARKED.fullmatch(value):
            remedy = PLAIN
        return CellError(
            f"column {self.name!r} holds numbers in {self.n_numbers} of {self.n_rows} rows, but",
            row,
            f" holds {value!r}{f', the first of {others}' if others > 1 else ''}; {remedy}, or "
            "drop the rows or the column. If these are codes, prefix each with a letter to have "
            "them treated as categories.",
            column=self.name,
        )

    def warnings(self, *, typed: bool) -> list[str]:
        """Warnings about numbers that are treated as categories, ``typed`` if X holds text."""
        marked = self._are_marked
        if not self.are_numbers or self.are_codes:
            return []
        found, remedy = "numbers as text", f"convert it by pandas.to_numeric(X[{self.name!r}])"
        if self.first_other is not None:
            row, value = self.first_other
            found = (
                f"numbers in {self.n_numbers} of {self.n_rows} rows, but {value!r} in row {row + 1}"
            )
            remedy = f"{remedy[:-1]}, errors='coerce')"
            if not typed:
                remedy = "correct the others, or list them in missing_values"
        if marked:
            found, remedy = f"numbers such as {value!r}", PLAIN
        return [
            f"column {self.name!r} holds {found}; its values are categories. If it is a quantity, "
            f"{remedy}."
        ]


def _kind(label: str) -> str:
    return "marked" if MARKED.fullmatch(label) else "text"
