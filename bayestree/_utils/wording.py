"""What users read: errors and warnings, names, numbers with their nouns, and half-spaces."""

import difflib
import math
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import pandas as pd

    from bayestree._utils.arrays import BoolArray, FloatArray, IntArray

MAX_INTEGER = 2**31 - 1  # larger integers are refused: libraries count in 32 bits


class InputError(ValueError):
    """Input that cannot be used; the message is one line and names the remedy."""


class CellError(InputError):
    """A value in a table that cannot be used.

    ``before`` and ``after`` are the message around the location of the value; ``row`` counts from
    0; ``missing`` is true for a missing value.
    """

    def __init__(
        self, before: str, row: int, after: str, *, column: str, missing: bool = False
    ) -> None:
        self.before, self.row, self.after = before, row, after
        self.column, self.missing = column, missing
        super().__init__(self.located_at(f"row {row + 1}"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process creates the error anew."""
        given: dict[str, Any] = {"column": self.column, "missing": self.missing}
        return partial(type(self), self.before, self.row, self.after, **given), ()

    def located_at(self, place: str) -> str:
        """Return the message with another name for the row, such as its line in a file."""
        return f"{self.before} {place}{self.after}"


def refuse_special(path: Path, error: type[ValueError] = InputError) -> None:
    """Refuse a pipe, a socket or a device, which may never end; links to files are followed."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise error(f"{str(path)!r} is a pipe, a socket or a device; copy it to a file first.")


def refuse_cells(
    column: "pd.Series", odd: "BoolArray", expected: str, remedy: str | Callable[[str], str]
) -> None:
    """Raise a CellError for the first odd value of a column (n,), whose index holds row numbers."""
    if odd.any():
        value = str(column[odd].iloc[0])
        raise CellError(
            f"column {column.name!r} should hold {expected}, but",
            int(column.index[odd][0]),
            f" holds {brief(value)}; {remedy if isinstance(remedy, str) else remedy(value)}.",
            column=str(column.name),
        )


#: Control characters and others that XML has not; line breaks and tabs are allowed.
CONTROL = re.compile(r"[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FIRST_STRONG, POP = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
LONGEST = 120  # letters of a name in a page
#: Levels that would be read as words of a statement about them, or as several levels.
AMBIGUOUS = re.compile(r"[,\"]|\b(?:and|is|missing|neither|none|nor|not|one|or)\b")
RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))
#: Packages whose frames are skipped: this one, and packages that call ``fit`` for the user.
INTERNAL = {"bayestree", "sklearn", "joblib"}
SAME_STEP = 1e-4  # of a step from one date to the next, for rounding errors
EPOCH, FIRST_DAY, LAST_DAY = datetime(1970, 1, 1), -719_162, 2_932_896  # years 1 to 9999


class Indicator(str):
    """Name of a feature that is 1 where it holds and otherwise 0; it has brackets in a sum."""

    __slots__ = ()


class MissingMark(Indicator):
    """Name of the feature that is 1 where the value of a column is missing: "age missing"."""

    __slots__ = ()


class Days(str):
    """Name of the feature that counts the days of a date since 1970: "start (days)".

    A limit of this feature alone is a date. ``step`` is the time between two dates, in seconds.
    """

    __slots__ = ()
    step: ClassVar[int] = 86_400

    @property
    def column(self) -> str:
        return "".join(self.rpartition(" (days)")[::2])

    def since(self, day: str) -> str:
        """Return the name as a sum has it."""
        return f"days of {self.column} since {day}"

    def date(self, days: float, *, up: bool) -> str:
        """Return the last date of so many days or fewer, or the first of so many or more."""
        if not FIRST_DAY <= days <= LAST_DAY:
            return plain(days, None)
        steps = days * 86_400 / self.step
        whole = math.ceil(steps - SAME_STEP) if up else math.floor(steps + SAME_STEP)
        text = (EPOCH + timedelta(seconds=whole * self.step)).isoformat(" ")
        return text.removesuffix(" 00:00:00" if self.step > 1 else ":00")


class Times(Days):
    """Name of the days of a date with a time of day."""

    __slots__ = ()
    step = 1


def _statement(name: Indicator) -> tuple[str, str]:
    """Return the column of an indicator, and the value that it marks, in quotes if need be."""
    column, found, end = name.rpartition(" missing")
    if isinstance(name, MissingMark) and found:
        return f"{column}{end}", "missing"
    column, _, value = name.partition("=")
    return column, f'"{value}"' if AMBIGUOUS.search(value) or not value else value


def _is_unclear(name: Indicator, names: Sequence[str]) -> bool:
    """Whether a level has several "=", or missing values count as a share between two levels."""
    column = name.partition("=")[0]
    alone = sum(other.startswith(f"{column}=") for other in names) == 1
    is_between = (alone or column.endswith(">")) and f"{column.removesuffix('>')} missing" in names
    return not isinstance(name, MissingMark) and (is_between or name.count("=") > 1)


def in_levels(
    terms: "FloatArray", bound: float, names: Sequence[str], most: int | None = None
) -> tuple[str, str] | None:
    """Say for which values of its columns terms . x <= bound holds, and for which it does not.

    For example ``"stage is II or III"`` and ``"stage is neither II nor III"``. None if a name is
    not that of a level, if values of several columns must be added up, or if missing values count
    as a share between two levels. ``most`` limits the number of values that are named.
    """
    each = [(name, one) for name, one in zip(names, terms.tolist(), strict=True) if one]
    at_zero = bound >= 0
    turned = [name for name, one in each if (one <= bound) != at_zero]
    columns: dict[str, list[str]] = {}
    for name, _ in each:
        if not isinstance(name, Indicator) or _is_unclear(name, names):
            return None
        column, value = _statement(name)
        if column.endswith(">"):  # "size>=M" holds for larger sizes, too
            above = f"{column[:-1]} >= {value}", f"{column[:-1]} < {value}"
            return (above[::-1] if at_zero else above) if turned and len(each) == 1 else None
        columns.setdefault(column, [])
        if name in turned:
            columns[column].append(value)
    several, alike = len(columns) > 1, len({one > 0 for _, one in each}) == 1
    if turned and (not several or (alike and len(turned) == len(each))):
        yes = " or ".join(f"{col} is {_alternatives(own, most)}" for col, own in columns.items())
        no = " and ".join(f"{column} {_outside(own, most)}" for column, own in columns.items())
        return (no, yes) if at_zero else (yes, no)
    return None


def _outside(values: Sequence[str], most: int | None) -> str:
    if len(values) == 2:
        return f"is neither {values[0]} nor {values[1]}"
    return f"is not {_alternatives(values, most)}"


def _alternatives(values: Sequence[str], most: int | None) -> str:
    """Join values as in "II, III or IV", or the first of them and the number of the others."""
    if most is not None and len(values) > max(most, 2):
        return f"{', '.join(values[:most])}, … {len(values) - most} more"
    return " or ".join(part for part in (", ".join(values[:-1]), values[-1]) if part)


def in_sum(name: str) -> str:
    """Return a name as a sum has it: that of an indicator in brackets, as Iverson wrote them."""
    if isinstance(name, Days):
        return name.since("1970")
    return f"[{name}]" if isinstance(name, Indicator) else name


def alone(name: str) -> str:
    """Return the name of the only feature of a facet: of the days of a date, that of its column."""
    return name.column if isinstance(name, Days) else in_sum(name)


def one_line(name: str) -> str:
    """Return a name on one line: line breaks, tabs and control characters become spaces."""
    return type(name)(" ".join("".join(c if c.isprintable() else " " for c in name).split()))


def isolated(name: str) -> str:
    """Return a name on one line that neither floods nor reorders the text around it.

    Without isolation, an Arabic or Hebrew name would reverse the order of ``name <= 5``. Of a text
    that is longer than a name, the middle is left out.
    """
    text = one_line(name)
    if len(text) > LONGEST:
        text = type(name)(f"{text[: LONGEST // 2]}…{text[-LONGEST // 4 :]}")
    if any(unicodedata.bidirectional(letter) in RIGHT_TO_LEFT for letter in text):
        return type(name)(f"{FIRST_STRONG}{text}{POP}")
    return text


def brief(value: Any) -> str:
    """Return a value as Python writes it, without the middle of a long text."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 4 :]}"


def written(value: Any) -> str:
    """Return a value as Python writes it, also if it is a scalar of NumPy."""
    return repr(value.item() if getattr(value, "ndim", 1) == 0 else value)


def quantity(number: float) -> str:
    """Return a number of rows: without decimals if it is whole, otherwise with one."""
    return f"{round(number, 1):,.10g}"


def counted(number: float, noun: str) -> str:
    """Return a number with its noun, such as ``"2 leaves"`` and ``"1,234.5 rows"``."""
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{quantity(number)} {noun if number == 1 else plural}"


def nearest_match(name: str, known: Collection[str], otherwise: str | None = None) -> str:
    """End a message about an unknown name with the nearest known one.

    If none is near, the message ends with ``otherwise``, or with the list of all known names.
    """
    plain = {one.strip().casefold(): one for one in sorted(known)}
    key = name.strip().casefold()
    close = [key] if key in plain else difflib.get_close_matches(key, plain, n=1, cutoff=0.7)
    if close:
        return f"; did you mean {plain[close[0]]!r}?"
    return f"; expected one of {', '.join(sorted(known))}." if otherwise is None else otherwise


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line outside ``INTERNAL``.

    Python shows a warning once per line; one that pointed at a fixed internal line would be shown
    only once per session.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in INTERNAL:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def inequality(
    normal: "FloatArray",
    strength: "FloatArray",
    names: Sequence[str],
    *,
    max_features: int | None = 4,
    decimals: int | None = 3,
    separator: str = " ",
) -> tuple[str, int]:
    """Return the left side and relation of normal . x <= limit, divided by the first coefficient.

    For example ``"age - 4 height + … 2 more >="``, with the number of the first feature, by whose
    coefficient the limit must be divided as well. Terms are in decreasing order of ``strength``,
    the coefficients per unit of each feature. ``decimals`` is the number of significant digits;
    None writes the full double precision.
    """
    order = _by_strength(strength)
    first = order[0]
    lead = normal[first]
    terms = [(in_sum if order[1:] else alone)(names[first])]
    terms += [signed(normal[j] / lead, decimals, names[j]) for j in order[1:max_features]]
    text = separator.join([*terms, *_hidden(order, max_features)])
    return f"{text} {'<=' if lead > 0 else '>='}", first


def score(
    points: "IntArray",
    unit: "FloatArray",
    strength: "FloatArray",
    names: Sequence[str],
    *,
    max_features: int | None = None,
    separator: str = " ",
) -> tuple[str, int]:
    """Return the left side and relation of a score, and the first feature, as :func:`inequality`.

    For example ``"2 per 10 age + 4 [sex=male] <="``, where the unit of the second feature is 1.
    The points of the first are positive.
    """
    order = _by_strength(strength)
    lead = points[order[0]]
    terms = []
    for j in order[:max_features]:
        per = "" if unit[j] == 1 else f"per {plain(unit[j], None)} "
        sign = "-" if points[j] * lead < 0 else "+"
        terms.append(f"{sign} {abs(points[j])} {per}{in_sum(names[j])}")
    text = separator.join([leading(terms[0]), *terms[1:], *_hidden(order, max_features)])
    return f"{text} {'<=' if lead > 0 else '>='}", order[0]


def weighted_sum(
    normal: "FloatArray",
    strength: "FloatArray",
    names: Sequence[str],
    *,
    max_features: int | None = None,
    decimals: int | None = None,
) -> str:
    """Return normal . x in words, such as ``"2 age - 0.5 height + … 1 more"``; empty if it is 0."""
    order = _by_strength(strength)
    terms = [signed(normal[j], decimals, names[j]) for j in order[:max_features]]
    return leading(" ".join([*terms, *_hidden(order, max_features)]))


def signed(value: float, decimals: int | None, name: str = "") -> str:
    """Return a signed term of a sum, such as ``"- 4 height"``."""
    size, name = plain(abs(value), decimals), in_sum(name)
    return (
        f"{'-' if value < 0 else '+'} {name if name and size == '1' else f'{size} {name}'}".rstrip()
    )


def leading(terms: str) -> str:
    """Return a sum of signed terms without a leading plus or a space after a leading minus."""
    return f"-{terms[2:]}" if terms.startswith("- ") else terms.removeprefix("+ ")


def _by_strength(strength: "FloatArray") -> list[int]:
    """Return the features with a coefficient, the strongest first."""
    sizes = abs(strength).tolist()
    return sorted((j for j, size in enumerate(sizes) if size), key=lambda j: -sizes[j])


def _hidden(order: list[int], max_features: int | None) -> list[str]:
    hidden = len(order) - len(order[:max_features])
    return [f"+ … {hidden} more"] if hidden else []


def plain(value: float, decimals: int | None) -> str:
    """Return a number to some significant digits, or in full; an exponent only if far from 1."""
    short = repr(float(value)) if decimals is None else f"{value:.{decimals}g}"
    if 1e-6 <= abs(value) < 1e7 or value == 0:
        return f"{Decimal(repr(float(short))):f}".removesuffix(".0")
    return short


def limit(
    value: float, spread: float, decimals: int | None = 3, of: str = "", *, up: bool = False
) -> str:
    """Return a limit to some significant digits of the spread of its feature, or in full.

    That ``of`` the days of a date alone is a date, the first within a lower limit if ``up``.
    """
    if isinstance(of, Days):
        return of.date(value, up=up)
    if decimals is None:
        return plain(value, None)
    places = decimals - 1 - math.floor(math.log10(spread))
    if not math.isfinite(value) or not abs(places) <= 12:
        return f"{value:.{decimals}g}"
    return f"{round(value, places):z.{max(places, 0)}f}"  # "0.00", not "-0.00"


def in_words(value: object, digits: int) -> str:
    """Return a value of a column: a number to some digits, text or a date as is, or "missing"."""
    text = str(value).removesuffix(" 00:00:00")
    if text in ("None", "nan", "NaT") and not isinstance(value, str):
        return "missing"
    return plain(value, digits) if isinstance(value, float) else one_line(text)
