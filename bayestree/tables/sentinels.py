"""Numbers that may stand for missing values, such as -999, by their distance from all others."""

import math
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from bayestree._utils.arrays import FloatArray

KEPT = 3  # different values at each end, apart from those that look like codes
MIN_ROWS = 20
FAR = 10.0  # distance of any number from the others, relative to their range, to be reported
MAX_SHARE = 0.05  # of the rows: more common numbers are levels, such as doses
REPEATED = re.compile("77+|88+|9+[6-9]")
#: Limits of integers and of single precision, and the fill value of netCDF.
LIMITS = {
    *(2.0**bits - 1 for bits in (15, 16, 31, 32)),
    *(2.0**bits for bits in (15, 31, 63)),
    float(np.finfo(np.float32).max),
    9.969209968386869e36,
}


class Sentinels:
    """The smallest and largest values of a column of numbers, with their numbers of rows."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._ends: Counter[float] = Counter()

    def add(self, values: FloatArray) -> None:
        """Examine a chunk; NaN is missing."""
        present = values[np.isfinite(values)]
        self.n_rows += len(values)
        self._ends.update(_ends(present))
        kept = _ends(np.array([*self._ends]))
        self._ends = Counter({value: self._ends[value] for value in kept})

    def found(self) -> list[tuple[float, int]]:
        """The values that may be codes, with their numbers of rows."""
        plain = sorted(value for value in self._ends if not _is_code(value))
        if self.n_rows < MIN_ROWS or len(plain) < KEPT:
            return []
        found = {*self._codes(plain[0], plain[-1]), *self._others(plain)}
        return [(value, self._ends[value]) for value in sorted(found)]

    def _codes(self, low: float, high: float) -> Iterator[float]:
        """Usual codes farther from the other values than these are from each other."""
        for value, count in self._ends.items():
            far = max(low - value, value - high) > high - low
            # Short ones may be values by chance, and a lone negative number among others not.
            if _is_code(value) and (far or value < 0 <= low) and (abs(value) >= 100 or count > 1):
                yield value

    def _others(self, plain: list[float]) -> Iterator[float]:
        """Repeated values at either end that are much farther from the others."""
        for end, following, *_, last in (plain, plain[::-1]):
            far = abs(end - following) > FAR * abs(last - following)
            if far and 1 < self._ends[end] < MAX_SHARE * self.n_rows:
                yield end


def _ends(values: FloatArray) -> dict[float, int]:
    """The outermost values at both ends, with their numbers."""
    found = {}
    for sign in (1.0, -1.0):
        rest, plain = values, 0
        while len(rest) and plain < KEPT:
            value = sign * (sign * rest).max()
            same = rest == value
            found[float(value)] = int(same.sum())
            plain += not _is_code(value)
            rest = rest[~same]
    return found


def _is_code(value: float) -> bool:
    """Whether a number is a usual code: -9, 77, 999, -99.9, 1e20 or a limit of integers."""
    size = abs(value)
    digits = f"{size:.15g}"
    if "." in digits and value > 0:  # a price
        return False
    if REPEATED.fullmatch(digits.replace(".", "")) or value == -9:
        return True
    return size in LIMITS or (size >= 1e9 and size == 10.0 ** round(math.log10(size)))
