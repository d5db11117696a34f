"""A half-space in words: its largest terms by name, and a limit as fine as its units ask."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def inequality(
    normal: FloatArray,
    strength: FloatArray,
    names: Sequence[str],
    *,
    max_features: int = 4,
    decimals: int = 3,
    separator: str = " ",
) -> tuple[str, int]:
    """The left side of normal . x <= limit and its sign, divided by the coefficient of a feature.

    Parameters
    ----------
    normal : array, shape (d,)
        Some coefficient is not 0.
    strength : array, shape (d,)
        Coefficients per unit of each feature: terms come in the order of their sizes.
    names : sequence of d str
    max_features : int
        Most terms shown.
    decimals : int
        Significant digits of a coefficient.
    separator : str
        Between two terms.

    Returns
    -------
    str
        As in ``"age - 4 height + … 2 more >="``.
    int
        Number of the first feature, by whose coefficient the limit is to be divided too.
    """
    order = np.argsort(-np.abs(strength), kind="stable")[: np.count_nonzero(strength)]
    first = int(order[0])
    lead, shown = normal[first], order[:max_features]
    terms = [names[first]]
    for j in shown[1:]:
        ratio = normal[j] / lead
        terms.append(f"{'-' if ratio < 0 else '+'} {_plain(abs(ratio), decimals)} {names[j]}")
    hidden = f" + … {len(order) - len(shown)} more" if len(order) > len(shown) else ""
    return f"{separator.join(terms)}{hidden} {'<=' if lead > 0 else '>='}", first


def _plain(value: float, decimals: int) -> str:
    """So many significant digits, without an exponent where that is not much longer."""
    short = f"{value:.{decimals}g}"
    if 1e-6 <= value < 1e7:
        return np.format_float_positional(float(short), trim="-")
    return short


def limit(value: float, spread: float, decimals: int = 3) -> str:
    """A limit, to so many significant digits of the spread of its feature."""
    places = decimals - 1 - math.floor(math.log10(spread))
    if not math.isfinite(value) or not abs(places) <= 12:
        return f"{value:.{decimals}g}"
    return f"{round(value, places):.{max(places, 0)}f}"
