"""Settings of a sweep: all combinations of the values, or random ones."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from bayestree._utils.parameters import MAX_INTEGER
from bayestree.runs.settings import Flag, Section
from bayestree.tables import InputError

MAX_SETTINGS = 100_000  # settings of a sweep; more are a mistake
PATIENCE = 100  # duplicates drawn in a row, for each point, before the search stops
DIGITS = 4  # significant digits of numbers drawn from a range, as a table shows them

Integer = Annotated[int, Field(strict=True, ge=-MAX_INTEGER, le=MAX_INTEGER)]
Number = Integer | Annotated[float, Field(strict=True, allow_inf_nan=False)]
Setting = dict[str, Any]


class Range(Section):
    """Range of a random search, with both ends; of integers if both ends are integers.

    With ``log``, numbers are drawn uniformly on the logarithmic scale.
    """

    low: Number
    high: Number
    log: Flag = False

    @field_validator("high")
    @classmethod
    def _ordered(cls, high: float, info: ValidationInfo) -> float:
        low = info.data.get("low")
        if low is not None and not low < high:
            raise ValueError(f"low = {low} must be less than high = {high}.")
        return high

    @field_validator("log")
    @classmethod
    def _positive(cls, log: bool, info: ValidationInfo) -> bool:
        low = info.data.get("low")
        if log and low is not None and low <= 0:
            raise ValueError(f"low = {low} must be above 0 if log = true.")
        return log

    def draw(self, rng: np.random.Generator) -> int | float:
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        margin = 0.5 if whole else 0.0  # the ends are as likely as other integers
        low, high, share = self.low - margin, self.high + margin, rng.random()
        if self.log:
            drawn = math.exp((1 - share) * math.log(low) + share * math.log(high))
        else:
            drawn = (1 - share) * low + share * high
        drawn = round(drawn) if whole else float(f"{drawn:.{DIGITS}g}")
        return min(max(drawn, self.low), self.high)


Choices = Mapping[str, Sequence[Any] | Range]


def grid(vary: Choices, where: str) -> list[Setting]:
    """Return all combinations of the values; those of the last name change fastest.

    ``vary`` maps names, such as ``"model.max_depth"``, to values. Messages name the file ``where``.
    """
    lists: list[Sequence[Any]] = []
    for name, values in vary.items():
        if isinstance(values, Range):
            raise InputError(
                f"{where} [vary]: {name} is a range, but a grid needs a list; write a list, or set "
                'method = "random".'
            )
        lists.append(values)
    count = math.prod(map(len, lists))
    if count > MAX_SETTINGS:
        raise InputError(
            f"{where}: the grid has {count} combinations, but the maximum is {MAX_SETTINGS}; "
            'vary less, or set method = "random".'
        )
    return [dict(zip(vary, values, strict=True)) for values in itertools.product(*lists)]


def random(vary: Choices, points: int, seed: int, where: str) -> list[Setting]:
    """Return distinct combinations, each value drawn uniformly from its list or range.

    The first combinations do not depend on the number of points.
    """
    found: dict[str, Setting] = {}
    repeats = 0
    for setting in _drawn(vary, seed):
        before = len(found)
        found.setdefault(repr(setting), setting)
        repeats = repeats + 1 if len(found) == before else 0
        if len(found) == points:
            break
        if repeats > PATIENCE * points:
            raise InputError(
                f"{where} [sweep]: points = {points}, but only {len(found)} distinct ones were "
                'found; reduce points, or set method = "grid".'
            )
    return list(found.values())


def _drawn(vary: Choices, seed: int) -> Iterator[Setting]:
    """Yield settings endlessly; names are sorted so that their order in the file is irrelevant."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = {name: _draw(vary[name], rng) for name in sorted(vary)}
        yield {name: drawn[name] for name in vary}


def _draw(values: Sequence[Any] | Range, rng: np.random.Generator) -> Any:
    if isinstance(values, Range):
        return values.draw(rng)
    return values[int(rng.integers(len(values)))]
