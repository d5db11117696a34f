"""Columns of a table: invalid values, codes for missing ones, text, numbers, target and weights."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree._utils.wording import CellError, InputError, brief, nearest_match, refuse_cells
from bayestree.tables.dates import REMEDY, find_dates

MAX_SIZE = 1e150  # squares of larger numbers overflow
HUGE = 1e300  # larger integers and decimals, which may exceed any float, count as this
EXACT = 2**53  # floats represent all integers up to this one
MAX_TEXT = 10_000  # letters of a class, a category or the name of a column
IMPUTE = "impute them, or drop the rows or columns"  # missing values of columns to predict from
DROP = "drop these rows"  # without a target, weight, exposure or event
UNNAMED = re.compile(r"(Unnamed: \d+(\.\d+)*)?")  # what pandas calls a column without a name


class InvalidValues:
    """The missing, infinite and too large values of a table: their number, and the first row."""

    def __init__(self) -> None:
        self.n_rows = 0
        kinds = "missing", "infinite", "too large"
        self.found: dict[str, dict[str, tuple[int, int]]] = {kind: {} for kind in kinds}

    def add(self, frame: pd.DataFrame) -> None:
        """Count the invalid values of a chunk, indexed by row number."""
        self.n_rows += len(frame)
        for name, column in frame.items():
            invalid = {"missing": column.isna().to_numpy()}
            if pd.api.types.is_float_dtype(column):
                size = np.abs(column.to_numpy(dtype=float, na_value=np.nan))
                invalid["infinite"] = np.isinf(size)
                invalid["too large"] = (size > MAX_SIZE) & np.isfinite(size)
            for kind, mask in invalid.items():
                if mask.any():
                    first = int(frame.index[int(mask.argmax())])
                    self._include(kind, str(name), int(mask.sum()), first)

    def merge(self, other: "InvalidValues") -> None:
        """Add the counts of the following rows."""
        self.n_rows += other.n_rows
        for kind, columns in other.found.items():
            for name, (count, first) in columns.items():
                self._include(kind, name, count, first)

    def _include(self, kind: str, name: str, count: int, row: int) -> None:
        known, first = self.found[kind].get(name, (0, row))
        self.found[kind][name] = known + count, first

    @property
    def empty(self) -> list[str]:
        return [name for name, (n, _) in self.found["missing"].items() if n == self.n_rows > 1]

    def check(self, gaps: Collection[str] = (), remedy: str = IMPUTE) -> None:
        """Refuse invalid values, and locate the first; in ``gaps`` values may be missing."""
        if empty := [name for name in self.empty if name not in gaps]:
            verb, pronoun = ("is", "it") if len(empty) == 1 else ("are", "them")
            raise InputError(
                f"{quote_columns(empty)} {verb} empty; fill in values, or drop {pronoun}."
            )
        for kind, every in self.found.items():
            allowed = gaps if kind == "missing" else ()
            counts = {name: count for name, (count, _) in every.items() if name not in allowed}
            if not counts:
                continue
            column = min(counts, key=lambda name: every[name][1])
            total = sum(counts.values())
            listed = abbreviate(f"{name!r}: {count}" for name, count in counts.items())
            advice = remedy if kind == "missing" else "replace them, or drop the rows or columns"
            raise CellError(
                f"{total} {kind} {'value' if total == 1 else 'values'} ({listed}), first at",
                every[column][1],
                f"; {advice}.",
                column=column,
                missing=kind == "missing",
            )


def check_complete(frame: pd.DataFrame, gaps: Collection[str] = (), remedy: str = IMPUTE) -> None:
    """Refuse infinite values, those too large to be squared, and missing ones but for ``gaps``."""
    invalid = InvalidValues()
    invalid.add(frame)
    invalid.check(gaps, remedy)


def check_finite(table: pd.DataFrame | pd.Series) -> None:
    """Refuse infinite values, and those too large to be squared."""
    values = table.to_numpy()
    if not (values.dtype == float and (np.abs(values) <= MAX_SIZE).all()):
        frame = table.to_frame() if isinstance(table, pd.Series) else table
        check_complete(frame, gaps=[str(name) for name in frame])


def quote_columns(names: Iterable[Any]) -> str:
    """Return the first few names in quotation marks, after ``column`` or ``columns``."""
    quoted = [brief(str(name)) for name in names]
    return f"{'column' if len(quoted) == 1 else 'columns'} {abbreviate(quoted)}"


def check_purposes(
    purposes: Iterable[tuple[str, str]], known: Sequence[str], table: str, note: str = ""
) -> None:
    """Refuse columns that a table lacks, and those with two purposes.

    ``purposes`` are pairs such as ``("target", "price")``; a message about a column that the table
    lacks ends with the ``note``.
    """
    first: dict[str, str] = {}
    for purpose, name in purposes:
        if name not in known:
            raise InputError(
                f"{purpose} {name!r} is not a column of {table!r}, which has "
                f"{', '.join(map(repr, known[:20]))}{nearest_match(name, known, '.')}{note}"
            )
        if name in first:
            raise InputError(
                f"{purpose} {name!r} is also named as {first[name]}; name each column once."
            )
        first[name] = purpose


def abbreviate(items: Iterable[str], limit: int = 8) -> str:
    """Return the first few items of a list."""
    every = list(items)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more


Code = int | float | str
Codes = tuple[Code, ...]


def codes_by_column(missing_values: Any, names: Sequence[str]) -> dict[str, Codes]:
    """Return the codes of each column, given for all columns or by their names."""
    if missing_values is None:
        return {}
    if not isinstance(missing_values, Mapping):
        return dict.fromkeys(names, _codes(missing_values))
    for name in missing_values:
        if name not in names:
            end = nearest_match(str(name), names)
            raise InputError(f"missing_values: {name!r} is not a column to predict from{end}")
    return {name: _codes(given) for name, given in missing_values.items()}


def without_codes(values: pd.Series, codes: Codes) -> pd.Series:
    """Return the values, with missing ones in the place of codes; text and numbers are the same."""
    if not codes:
        return values
    if isinstance(values.dtype, pd.CategoricalDtype):
        known = values.cat.categories
        return values.cat.remove_categories(known[_are_codes(known.to_series(), codes)])
    return values.mask(_are_codes(values, codes))


def _are_codes(values: pd.Series, codes: Codes) -> pd.Series:
    numeric = pd.to_numeric(pd.Series([*codes], dtype=object), errors="coerce").dropna()
    if pd.api.types.is_numeric_dtype(values):
        return values.isin(numeric.astype(float))
    return values.isin([*codes, *map(text_of, codes)])


def text_of(value: Any) -> str:
    """Return a value as text; 2.0, a number in a column of floats, is 2."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def _codes(given: Any) -> Codes:
    found = [given] if np.isscalar(given) else [*given]
    for one in found:
        if not np.isscalar(one) or isinstance(one, bool | np.bool_):
            raise InputError(f"missing_values must be numbers or texts, got {one!r}.")
    plain: list[Any] = [one.item() if isinstance(one, np.generic) else one for one in found]
    return tuple(one for one in plain if not pd.isna(one))  # which is missing in any case


SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"  # between thousands
MARKED = re.compile(rf"[-+]?[$€£]?\s?\d[\d.,'{SPACES}]*\s?[%$€£]?")  # 1,5 or 1,234.5 or 12 %
CODE = re.compile(r"0\d+")  # such as a postal code
FEW = 20  # this many different dates or numbers may still be categories
MANY = 100  # this many different texts tell the kind of a column
PLAIN = "write numbers with a decimal point and without other marks"


class Texts:
    """The different texts of a column, some of which may be numbers or dates.

    Of either type, ``typed`` is the number of rows that hold it, and ``others`` are the first row
    and text that do not.
    """

    def __init__(self, name: str) -> None:
        self.name, self.n_rows, self.are_codes = name, 0, False
        self.kinds: dict[str, str] = {}  # of the first different texts
        self.days: dict[str, str] = {}  # different dates without their times, and a text of each
        self.typed = {"numbers": 0, "dates": 0}
        self.others: dict[str, tuple[int, str]] = {}

    def add(self, column: pd.Series) -> None:
        """Read a chunk, whose index holds row numbers."""
        labels = column.dropna().astype(str)
        counts = labels.value_counts(sort=False)  # in the order of the rows
        is_number = pd.to_numeric(pd.Series(counts.index), errors="coerce").notna().to_numpy()
        self.n_rows += len(labels)
        for noun, found in (("numbers", is_number), ("dates", self._dates(counts.index))):
            self.typed[noun] += int(counts.to_numpy()[found].sum())
            if noun not in self.others and not found.all():
                other = str(counts.index[~found][0])
                self.others[noun] = int(labels.index[labels == other][0]), other
        self.are_codes = self.are_codes or any(map(CODE.fullmatch, counts.index[is_number]))
        for label, number in zip(counts.index, is_number, strict=True):
            if len(self.kinds) > MANY:
                break
            other = "marked" if MARKED.fullmatch(label) else "text"
            self.kinds[label] = "number" if number else other

    def _dates(self, labels: pd.Index) -> BoolArray:
        """Return which texts are dates; if few of the first are, none of the others."""
        texts = pd.Series(labels, dtype=object)
        found = np.zeros(len(texts), dtype=bool)
        for some in (slice(MANY), slice(MANY, None)):
            if some.start is None or len(texts) > MANY <= 2 * found.sum():
                found[some], days = find_dates(texts[some])
                self.days |= days
        return found

    def merge(self, other: "Texts") -> None:
        """Include the texts of the following rows."""
        self.n_rows += other.n_rows
        self.typed = {noun: n + other.typed[noun] for noun, n in self.typed.items()}
        self.others = other.others | self.others
        self.days |= other.days
        self.are_codes = self.are_codes or other.are_codes
        self.kinds = dict([*(self.kinds | other.kinds).items()][: MANY + 1])

    def _found(self, noun: str) -> str:
        return f"column {self.name!r} holds {noun} in {self.typed[noun]} of {self.n_rows} rows"

    def _check_mistakes(self, noun: str, n_different: int, remedy: str) -> None:
        """Refuse the first text of another type, if so many have the type that it is a mistake."""
        share = 0.5 if n_different > MANY else 0.9
        if noun not in self.others or self.typed[noun] < share * self.n_rows:
            return
        row, value = self.others[noun]
        n_others = self.n_rows - self.typed[noun]
        first = f", the first of {n_others}" if n_others > 1 else ""
        holds = f" holds {brief(value)}{first}; {remedy}"
        raise CellError(f"{self._found(noun)}, but", row, holds, column=self.name)

    def check(self) -> None:
        """Refuse malformed numbers, which would become very many categories."""
        kinds = list(self.kinds.values())
        if "numbers" not in self.others or len(kinds) <= FEW:
            return
        row, value = self.others["numbers"]
        if kinds.count("number") > FEW:
            fix = PLAIN if MARKED.fullmatch(value) else "correct it, list it in missing_values"
            codes = "prefix each with a letter to have them treated as categories"
            remedy = f"{fix}, or drop the rows or the column. If these are codes, {codes}."
            self._check_mistakes("numbers", len(kinds), remedy)
        if self._are_marked:
            raise CellError(
                f"column {self.name!r} holds numbers that cannot be read:",
                row,
                f" holds {brief(value)}; {PLAIN}, or drop the column.",
                column=self.name,
            )

    def are_dates(self, *, typed: bool) -> bool:
        """Return whether all are dates, and too many for categories.

        If nearly all are, the others are refused, unless the table is ``typed``: it was not read
        from a file.
        """
        if len(self.kinds) <= FEW:
            return False
        if not typed:
            remedy = "list it in missing_values if it stands for a missing date"
            self._check_mistakes(
                "dates", len(self.days), f"{remedy}, or {REMEDY}, or drop the column."
            )
        return self.typed["dates"] == self.n_rows > 0

    @property
    def are_numbers(self) -> bool:
        """Whether most rows state numbers, with or without marks."""
        return 2 * self.typed["numbers"] > self.n_rows or self._are_marked

    @property
    def _are_marked(self) -> bool:
        return set(self.kinds.values()) == {"marked"}

    def date_warnings(self) -> list[str]:
        """Return a warning about dates that are treated as categories."""
        few = len(self.days) <= FEW or 2 * self.typed["dates"] < self.n_rows
        if few or "dates" not in self.others:
            return []
        row, value = self.others["dates"]
        return [
            f"{self._found('dates')}, and is treated as categorical because row {row + 1} holds "
            f"{brief(value)}: if it stands for a missing date, list it in missing_values."
        ]

    def warnings(self, *, typed: bool) -> list[str]:
        """Return warnings about numbers treated as categories, ``typed`` if X holds text."""
        if not self.are_numbers or self.are_codes:
            return []
        found, remedy = "numbers as text", f"convert it by pandas.to_numeric(X[{self.name!r}])"
        if "numbers" in self.others:
            row, value = self.others["numbers"]
            found = f"numbers in {self.typed['numbers']} of {self.n_rows} rows, but {brief(value)} "
            found += f"in row {row + 1}"
            remedy = f"{remedy[:-1]}, errors='coerce')"
            if not typed:
                remedy = "correct the others, or list them in missing_values"
            if self._are_marked:
                found, remedy = f"numbers such as {brief(value)}", PLAIN
        return [
            f"column {self.name!r} holds {found}; its values are categories. If it is a quantity, "
            f"{remedy}."
        ]


Kind = Literal["numbers", "text", "dates", "ignored"]

NUMERIC = ("regression", "survival")  # tasks whose targets are numbers
MAX_CLASSES = 20  # numeric targets with more different whole numbers are quantities
# Types as pandas infers them.
DATES = ("datetime64", "datetime", "date", "period")
SPANS = ("timedelta64", "timedelta")
BOOLEANS = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
NUMBERS = ("integer", "floating", "boolean", "mixed-integer-float", "decimal", *SPANS)


def numbers(column: pd.Series) -> pd.Series:
    """Convert numbers or booleans to float, and spans of time to days.

    Text is refused unless it states numbers, or nothing but ``True`` and ``False``.
    """
    found = read_numbers(column)
    odd = (found.isna() & column.notna()).to_numpy()
    refuse_cells(
        column,
        odd,
        "numbers",
        lambda value: f"{PLAIN if MARKED.fullmatch(value) else 'correct it'}, or drop the row",
    )
    check_finite(found)
    return found


def read_numbers(column: pd.Series) -> pd.Series:
    """Convert as :func:`numbers` does; what is not a number becomes NaN. Dates are refused."""
    if column.dtype == float:
        return column
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind in DATES:
        raise _dates_refused(column.name)
    if kind in SPANS:
        return pd.to_timedelta(column) / pd.Timedelta(days=1)
    if kind in NUMBERS or kind == "empty" or pd.api.types.is_numeric_dtype(column):
        if column.hasnans:  # which may be None or pandas.NA
            column = column.astype(object).where(column.notna(), np.nan)
        if column.dtype == object:
            column = column.map(lambda one: min(max(one, -HUGE), HUGE))
        return column.astype(float)
    if column.dropna().isin([*BOOLEANS]).all():
        return column.map(BOOLEANS).astype(float)
    return pd.to_numeric(column.astype(str), errors="coerce").astype(float)


def kind_of(column: pd.Series) -> Kind:
    """Return the kind of a column by the type of its values; empty ones are taken for numbers.

    Values of other types are refused.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "text"
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "empty" or pd.api.types.is_numeric_dtype(column) or kind in NUMBERS:
        return "numbers"
    if kind == "string":
        return "text"
    if kind in DATES:
        return "dates"
    raise InputError(
        f"column {column.name!r} holds {kind} values; convert them to numbers or text, or drop it."
    )


def is_text(column: pd.Series) -> bool:
    """Return whether a target holds text; dates are refused."""
    kind = kind_of(column)
    if kind == "dates":
        raise _dates_refused(column.name)
    if isinstance(column.dtype, pd.CategoricalDtype):
        return is_text(pd.Series(column.cat.categories, name=column.name))
    return kind == "text"


def _dates_refused(name: Any, noun: str = "column") -> InputError:
    return InputError(
        f"{noun} {name!r} holds dates; replace it with numbers, such as "
        f"pandas.to_datetime(frame[{str(name)!r}]).dt.day_of_year, or drop the column."
    )


def is_single(dtype: Any) -> bool:
    """Return whether single precision represents all numbers; categories become 0 and 1."""
    if not pd.api.types.is_numeric_dtype(dtype):
        return not pd.api.types.is_timedelta64_dtype(dtype)
    return isinstance(dtype, np.dtype) and np.can_cast(dtype, np.float32)


def read_target(column: pd.Series, task: str = "auto") -> tuple[str, AnyArray]:
    """Read the target, which has no missing values, and infer the task.

    The task is classification for text, booleans, or at most 20 different whole numbers. The
    returned array (n,) holds text, integers or booleans; for regression and survival, floats.
    """
    name = column.name
    if is_text(column):
        if task in NUMERIC:
            return task, numbers(column).to_numpy()
        texts = Texts(str(name))
        texts.add(column)
        if texts.are_dates(typed=False):
            raise _dates_refused(name, "target")
        texts.check()
        labels = short(column.astype(str)).to_numpy(dtype=object)  # NumPy's: as wide as the longest
        n_classes = len(np.unique(labels))
        if n_classes == len(labels) > 1:
            raise InputError(
                f"target {name!r} holds a different text in each of {len(labels)} rows; choose a "
                "column whose classes repeat."
            )
        return "classification", _two_classes(labels, name)
    values = numbers(column).to_numpy()
    whole = bool((values == np.round(values)).all())
    if task == "auto":
        few = whole and len(np.unique(values)) <= MAX_CLASSES
        task = "classification" if few else "regression"
    if task in NUMERIC:
        return task, values
    _check_whole(values, name, "; use regression")
    boolean = pd.api.types.is_bool_dtype(column)
    return "classification", _two_classes(values.astype(bool if boolean else np.int64), name)


def read_matching_target(column: pd.Series, y: AnyArray, task: str) -> AnyArray:
    """Read the target of other rows in the same way as the training rows' target ``y``."""
    if y.dtype.kind in "UO":
        return short(column.astype(str)).to_numpy(dtype=object)
    values = numbers(column).to_numpy()
    if task in NUMERIC:
        return values
    _check_whole(values, column.name)
    return values.astype(y.dtype)


def short(labels: pd.Series) -> pd.Series:
    """Return texts, none of which is too long to be the name of a class or a category."""
    refuse_cells(
        labels,
        (labels.astype(str).str.len() > MAX_TEXT).to_numpy(),
        f"texts of at most {MAX_TEXT:,} letters",
        lambda value: f"it has {len(value):,}: shorten it, or drop the row or the column",
    )
    return labels


def read_weights(column: pd.Series) -> FloatArray:
    """Return the weights of the rows (n,): none negative, and not all zero."""
    values = numbers(column).to_numpy()
    if (values < 0).any() or not values.any():
        raise InputError(
            f"weights {column.name!r} must be zero or more and not all zero, got a minimum of "
            f"{values.min():g}."
        )
    return values


def read_extra(column: pd.Series, purpose: str) -> FloatArray:
    """Return the exposures of the rows (n,), above 0, or with this purpose their events, 0 or 1."""
    values, expected = numbers(column).to_numpy(), "exposures above 0"
    odd = ~(values > 0)
    if purpose == "event":
        odd = ~np.isin(values, (0, 1))
        expected = "events: 1 or true where they were observed, 0 or false where times are censored"
    refuse_cells(column, odd, expected, f"correct it, or give another column as {purpose}")
    return values


def _check_whole(values: AnyArray, name: Any, remedy: str = "") -> None:
    odd = values[(values != np.round(values)) | (np.abs(values) > EXACT)]
    if len(odd):
        raise InputError(f"target {name!r} holds {odd[0]:g}, which is not a class{remedy}.")


def _two_classes(labels: AnyArray, name: Any) -> AnyArray:
    if len(np.unique(labels)) < 2:
        raise InputError(f"target {name!r} has one class, {labels.tolist()[0]!r}; two are needed.")
    return labels
