"""Numbers and lists in prose."""

import math
import re
from collections.abc import Sequence

SUBTRACTION = re.compile(r" - (?=[0-9.])")  # between two terms
SPACE = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
LARGE = 1e7  # numbers from here on have an exponent


def percent(share: float) -> str:
    """A share with one decimal, or none if it is 0 or 100 %."""
    if not math.isfinite(share):
        return "not known"
    value = 100 * share
    return f"{value:.0f}{SPACE}%" if value in (0.0, 100.0) else f"{value:.1f}{SPACE}%"


def number(value: float, digits: int = 4) -> str:
    """A value to some significant digits, with a true minus sign."""
    if not math.isfinite(value):
        return "not finite" if not math.isnan(value) else "not known"
    size = abs(value)
    if 1 <= size < LARGE:  # without an exponent
        places = max(0, digits - 1 - math.floor(math.log10(size)))
        text = f"{round(value, places):,.{places}f}"
        text = text.rstrip("0").rstrip(".") if places else text
    else:
        text = f"{value:.{digits}g}"
    return with_minus(text)


def with_error(value: float, error: float | None) -> str:
    """A value with its standard error, both to the two leading digits of the error."""
    if error is None or not error > 0:
        return number(value)
    places = max(0, 1 - math.floor(math.log10(error)))
    return with_minus(f"{value:,.{places}f} \N{PLUS-MINUS SIGN} {error:,.{places}f}")


def with_minus(text: str) -> str:
    """A number with a true minus sign."""
    return text.replace("-", MINUS)


def relation(left: str) -> str:
    """The left side of an inequality with typographic signs."""
    left = SUBTRACTION.sub(f" {MINUS} ", left)
    for ascii_sign, sign in (
        ("<=", "\N{LESS-THAN OR EQUAL TO}"),
        (">=", "\N{GREATER-THAN OR EQUAL TO}"),
    ):
        if left.endswith(ascii_sign):
            return left.removesuffix(ascii_sign) + sign
    return left


def listed(names: Sequence[str], most: int = 4) -> str:
    """The first few names with commas and an *and*."""
    shown = [*names[:most]]
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
