"""A half-space in words, with a limit rounded to suit its units, and values of columns."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import one_line


def inequality(
    normal: FloatArray,
    strength: FloatArray,
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
    first = int(order[0])
    lead = normal[first]
    terms = [names[first]]
    terms += [signed(normal[j] / lead, decimals, names[j]) for j in order[1:max_features].tolist()]
    text = separator.join([*terms, *_hidden(order, max_features)])
    return f"{text} {'<=' if lead > 0 else '>='}", first


def weighted_sum(
    normal: FloatArray,
    strength: FloatArray,
    names: Sequence[str],
    *,
    max_features: int | None = None,
    decimals: int | None = None,
) -> str:
    """normal . x in words, such as ``"2 age - 0.5 height + … 1 more"``; empty if normal is 0."""
    order = _by_strength(strength)
    terms = [signed(normal[j], decimals, names[j]) for j in order[:max_features].tolist()]
    return leading(" ".join([*terms, *_hidden(order, max_features)]))


def signed(value: float, decimals: int | None, name: str = "") -> str:
    """Return a signed term of a sum, such as ``"- 4 height"``."""
    return f"{'-' if value < 0 else '+'} {plain(abs(value), decimals)} {name}".rstrip()


def leading(terms: str) -> str:
    """Return a sum of signed terms without a leading plus or a space after a leading minus."""
    return f"-{terms[2:]}" if terms.startswith("- ") else terms.removeprefix("+ ")


def _by_strength(strength: FloatArray) -> NDArray[np.intp]:
    """Return the features with a coefficient, the strongest first."""
    return np.argsort(-np.abs(strength), kind="stable")[: np.count_nonzero(strength)]


def _hidden(order: NDArray[np.intp], max_features: int | None) -> list[str]:
    hidden = len(order) - len(order[:max_features])
    return [f"+ … {hidden} more"] if hidden else []


def plain(value: float, decimals: int | None) -> str:
    """A number to some significant digits, or in full; an exponent only if very small or large."""
    short = repr(float(value)) if decimals is None else f"{value:.{decimals}g}"
    if 1e-6 <= abs(value) < 1e7 or value == 0:
        return np.format_float_positional(float(short), trim="-")
    return short


def limit(value: float, spread: float, decimals: int | None = 3) -> str:
    """Return a limit to some significant digits of the spread of its feature, or in full."""
    if decimals is None:
        return plain(value, None)
    places = decimals - 1 - math.floor(math.log10(spread))
    if not math.isfinite(value) or not abs(places) <= 12:
        return f"{value:.{decimals}g}"
    return f"{round(value, places):z.{max(places, 0)}f}"  # "0.00", not "-0.00"


def in_words(value: object, digits: int) -> str:
    """A value of a column: a number to some digits, text or a date as it is, or "missing"."""
    text = str(value).removesuffix(" 00:00:00")
    if text in ("None", "nan", "NaT") and not isinstance(value, str):
        return "missing"
    return plain(value, digits) if isinstance(value, float) else one_line(text)
