"""What a sweep tries: every combination of values, or combinations drawn at random."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bayestree.runs.fields import Whole
from bayestree.tables import InputError

MOST = 100_000  # settings of a sweep; more are a slip
PATIENCE = 100  # times the points: draws in a row that bring nothing new
DIGITS = 4  # of numbers drawn from a range, so that a table shows them whole

Number = Whole | Annotated[float, Field(strict=True, allow_inf_nan=False)]
Setting = dict[str, Any]


class Range(BaseModel):
    """Numbers between two, for a random search; whole ones, if both are.

    Parameters
    ----------
    low, high : int or float
        Both may be drawn.
    log : bool
        Draw evenly in the logarithm.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: Number
    high: Number
    log: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low = {self.low} must be below high = {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"low = {self.low} must be above 0 where log = true")
        return self

    def draw(self, rng: np.random.Generator) -> int | float:
        """A number of the range."""
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        margin = 0.5 if whole else 0.0  # so that the ends are as likely as the others
        low, high, share = self.low - margin, self.high + margin, rng.random()
        if self.log:
            drawn = math.exp((1 - share) * math.log(low) + share * math.log(high))
        else:
            drawn = (1 - share) * low + share * high
        drawn = round(drawn) if whole else float(f"{drawn:.{DIGITS}g}")
        return min(max(drawn, self.low), self.high)


Choices = Mapping[str, Sequence[Any] | Range]


def grid(vary: Choices, where: str) -> list[Setting]:
    """Every combination of the values, the last name's changing fastest.

    Parameters
    ----------
    vary : mapping
        Names, such as ``"model.max_depth"``, to values.
    where : str
        The sweep file, for messages.

    Raises
    ------
    InputError
        If a name has a range, or there are more than 100,000 combinations.
    """
    lists: list[Sequence[Any]] = []
    for name, values in vary.items():
        if isinstance(values, Range):
            raise InputError(
                f"{where}: [vary] {name} is a range, and a grid needs a list; or set method = "
                '"random".'
            )
        lists.append(values)
    count = math.prod(map(len, lists))
    if count > MOST:
        raise InputError(
            f"{where}: the grid has {count} combinations, and {MOST} is the most; vary less, or "
            'set method = "random".'
        )
    return [dict(zip(vary, values, strict=True)) for values in itertools.product(*lists)]


def random(vary: Choices, points: int, seed: int, where: str) -> list[Setting]:
    """Different combinations, each value drawn evenly from its list or range.

    The first are the same for any number of points.

    Parameters
    ----------
    vary : mapping
        Names to values or ranges.
    points : int
        How many.
    seed : int
    where : str
        The sweep file, for messages.

    Raises
    ------
    InputError
        If there are hardly so many combinations.
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
                f"{where}: [sweep] points = {points}, but only {len(found)} different ones were "
                'found; take fewer, or set method = "grid".'
            )
    return list(found.values())


def _drawn(vary: Choices, seed: int) -> Iterator[Setting]:
    """Settings without end. By name, so that their order in the file is of no account."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = {name: _draw(vary[name], rng) for name in sorted(vary)}
        yield {name: drawn[name] for name in vary}


def _draw(values: Sequence[Any] | Range, rng: np.random.Generator) -> Any:
    if isinstance(values, Range):
        return values.draw(rng)
    return values[int(rng.integers(len(values)))]
