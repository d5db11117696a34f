"""Numbers and names as a person writes them."""

import math
import re
import unicodedata
from collections.abc import Sequence

from bayestree._utils.wording import FIRST_STRONG, POP

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
TAKEN = re.compile(r" - (?=[0-9.])")  # between two terms
SPACE = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
LARGE = 1e7  # from here on numbers have an exponent
# Widths of letters, of the size of the text: East Asian ones, wide and narrow ones, capitals and
# all others.
WIDE, BROAD, NARROW, CAPITAL, LETTER = 1.0, 0.88, 0.32, 0.68, 0.56


def count(number: float, noun: str, plural: str = "") -> str:
    """A number and what it counts, as in ``"1 leaf"`` and ``"1,234 rows"``."""
    what = noun if number == 1 else plural or f"{noun}s"
    return f"{quantity(number)} {what}"


def quantity(number: float) -> str:
    """A number of rows: whole ones as such, weighted ones with one decimal."""
    return f"{round(number, 1):,.10g}"


def posterior(median: int, low: int, high: int) -> str:
    """A median with its 90 % interval, as in ``"14 (13 to 15)"``."""
    return f"{median} ({low} to {high})"


def percent(share: float) -> str:
    """A share with a decimal, but for none and all."""
    if not math.isfinite(share):
        return "not known"
    value = 100 * share
    return f"{value:.0f}{SPACE}%" if value in (0.0, 100.0) else f"{value:.1f}{SPACE}%"


def number(value: float, digits: int = 4) -> str:
    """A value to so many significant digits, with a true minus sign."""
    if not math.isfinite(value):
        return "not finite" if not math.isnan(value) else "not known"
    size = abs(value)
    if 1 <= size < LARGE:  # no exponent where that is not much longer
        places = max(0, digits - 1 - math.floor(math.log10(size)))
        text = f"{round(value, places):,.{places}f}"
        text = text.rstrip("0").rstrip(".") if places else text
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", MINUS)


def with_error(value: float, error: float | None) -> str:
    """A value to the two leading digits of its standard error, with it."""
    if error is None or not error > 0:
        return number(value)
    places = max(0, 1 - math.floor(math.log10(error)))
    text = f"{value:,.{places}f} \N{PLUS-MINUS SIGN} {error:,.{places}f}"
    return text.replace("-", MINUS)


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names with commas and an *and*; the first few of many."""
    shown = [*names[:most]]
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def width(text: str, size: float) -> float:
    """About how wide a line of text is, in the unit of its size."""
    return size * sum(map(_width_of, text))


def _width_of(letter: str) -> float:
    if unicodedata.category(letter) in ("Mn", "Cf"):  # accents, and marks of direction
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return WIDE
    if letter in "mwMW@%":
        return BROAD
    if letter in "iljtfrI.,:;'|!()[] \N{NO-BREAK SPACE}":
        return NARROW
    return CAPITAL if letter.isupper() else LETTER


def cut(text: str, size: float, room: float) -> str:
    """As much of a text as some room holds, with an ellipsis where it is cut."""
    if width(text, size) <= room:
        return text
    room -= width(ELLIPSIS, size)
    kept = ""
    for letter in text:
        if width(kept + letter, size) > room:
            break
        kept += letter
    end = POP * (kept.count(FIRST_STRONG) - kept.count(POP))
    return kept.rstrip() + end + ELLIPSIS


def wrapped(text: str, size: float, room: float) -> list[str]:
    """A text on one line or, where that is too long, on two, of which the second may be cut."""
    first, *rest = text.split(" ")
    while rest and width(f"{first} {rest[0]}", size) <= room:
        first = f"{first} {rest.pop(0)}"
    if not rest:
        return [cut(first, size, room)]
    *middle, last = rest
    start = " ".join(middle)
    if width(f"{start} {last}", size) > room:  # the last word, a probability, stays
        start = cut(start, size, room - width(f" {last}", size))
    return [cut(first, size, room), f"{start} {last}".strip()]


def relation(left: str) -> str:
    """The left side of an inequality with the signs of print."""
    left = TAKEN.sub(f" {MINUS} ", left)
    for plain, printed in (
        ("<=", "\N{LESS-THAN OR EQUAL TO}"),
        (">=", "\N{GREATER-THAN OR EQUAL TO}"),
    ):
        if left.endswith(plain):
            return left.removesuffix(plain) + printed
    return left


def side_of(label: str, words: tuple[str, str]) -> str:
    """Which side of its parent a node or leaf lies on."""
    return words["LR".index(label[-1])]
