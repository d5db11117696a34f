"""The actions on a row: how each column may change, at what cost, and which features it becomes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.explain.branch_and_bound import Moves
from bayestree.tables import Column, Encoding, Numbers
from bayestree.tree import Tree

DIRECTIONS = ("rise", "fall")

#: Columns that may change, by name or number, or for each the least and the largest value, "rise"
#: or "fall", or the levels that it may change to; None for any.
Features = Sequence[str | int] | Mapping[Any, Sequence[Any] | None] | None


class Values(NamedTuple):
    """Values of a column: as they are shown, their features (n, k), and their costs (n,)."""

    cells: list[Any]
    features: FloatArray
    cost: FloatArray


class Number(NamedTuple):
    """A number that may change, to values between ``low`` and ``high`` of some decimal places.

    ``now`` is the present value, or the mean if it is ``absent``: to fill it in costs 1.
    """

    number: int
    own: IntArray
    now: float
    absent: bool
    low: float
    high: float
    scale: float
    places: int

    @property
    def gate(self) -> int:
        """The feature that may change only once the value is filled in; -1 if it is not missing."""
        return int(self.own[0]) if self.absent else -1

    @property
    def others(self) -> Values:
        """To fill in the mean, if the value is missing."""
        n = int(self.absent)
        return Values([None] * n, np.array([[self.now, 0.0]] * n), np.ones(n))

    def at(self, values: Sequence[float] | FloatArray) -> Values:
        """Return the possible values that are nearest to the given ones, in increasing order."""
        rounded = {round(float(one), self.places) + 0.0 for one in values}  # 0.0, not -0.0
        inside = {min(max(one, self.low), self.high) for one in rounded if self.low <= self.high}
        cells = sorted(inside if self.absent else inside - {self.now})
        features = np.zeros((len(cells), len(self.own)))
        features[:, 0] = cells
        cost = np.abs(features[:, 0] - self.now) / self.scale + self.absent
        return Values(cells, features, cost)

    def spread(self, n: int) -> Values:
        """Return about n values of the whole range."""
        return self.at(np.linspace(self.low, self.high, n))

    def nearer(self, cell: float, n: int, start: float | None = None) -> Values:
        """Return about n values from ``start``, by default the present one, to another."""
        return self.at(np.linspace(self.now if start is None else start, cell, n))

    def times(self, cell: float, factor: float) -> float | None:
        """Multiply the change to ``cell``, rounded away from the present value."""
        change = factor * (cell - self.now)
        further = np.copysign(0.5 * 10.0**-self.places, change)
        found = self.at([self.now + change + further]).cells
        return found[0] if found else None


class Options(NamedTuple):
    """A column of categories or booleans that may change to some other values."""

    number: int
    own: IntArray
    others: Values
    gate: int = -1

    def at(self, values: Sequence[Any]) -> Values:
        return self._of([self.others.cells.index(one) for one in values])

    def spread(self, n: int) -> Values:
        return self.others

    def nearer(self, cell: Any, n: int, start: Any = None) -> Values:
        """Return the values that cost less than another."""
        cost = self.others.cost
        return self._of(np.flatnonzero(cost < cost[self.others.cells.index(cell)]).tolist())

    def times(self, cell: Any, factor: float) -> Any:
        return cell

    def _of(self, places: list[int]) -> Values:
        cells, features, cost = self.others
        return Values([cells[one] for one in places], features[places], cost[places])


Movable = Number | Options


def moves_of(row: FloatArray, columns: Sequence[Movable]) -> Moves:
    """Return the changes of these columns; a number outside its range may stay or approach it."""
    low, high = row.copy(), row.copy()
    rows: list[FloatArray] = []
    about: list[tuple[float, int, int, Any]] = []
    for column in columns:
        if isinstance(column, Number):
            j = column.own[0]
            low[j], high[j] = min(column.low, row[j]), max(column.high, row[j])
        for label, features, cost in zip(*column.others, strict=True):
            rows.append(row.copy())
            rows[-1][column.own] = features
            about.append((cost, column.number, column.gate, label))
    if not rows:
        return Moves.of_numbers(low, high)
    cost, group, gate, labels = zip(*about, strict=True)
    return Moves(low, high, np.array(rows), np.array(cost), np.array(group), np.array(gate), labels)


def movable_columns(
    encoding: Encoding, cells: Sequence[Any], row: FloatArray, tree: Tree, features: Features = None
) -> list[Movable]:
    """Return the columns of a row that may change, and how.

    A number moves by degrees within the range of the training rows. A category or boolean moves to
    any other level at a cost of 1, an ordered category at a cost of 1 for each step. A missing
    value stays missing unless ``features`` names the column; to fill it in costs 1 and, for a
    number, its distance from the mean. Dates stay as they are: no linear program keeps their parts
    consistent.
    """
    limits = _limits(encoding, features)
    found: list[Movable] = []
    for number, (column, own) in enumerate(zip(encoding.columns, encoding.places, strict=True)):
        value, named = cells[number], features is not None
        if number not in limits or (pd.isna(value) and column.gaps and not named):
            continue
        if column.options:
            found.append(_options(column, number, own, value, limits[number]))
        elif isinstance(column, Numbers):
            absent = column.gaps and bool(pd.isna(value))
            found.append(_number(column, number, own, row, tree, limits[number], absent=absent))
        elif named:
            what = "dates do not change" if len(own) else "the fit ignores the column"
            raise ValueError(f"{what}; leave {column.name!r} out of features.")
    return found


def _limits(encoding: Encoding, features: Features) -> dict[int, Sequence[Any] | None]:
    """Return the limits of each column that may change."""
    if features is None:
        return dict.fromkeys(range(len(encoding.columns)))
    given = features if isinstance(features, Mapping) else dict.fromkeys(features)
    return {encoding.number(key): among for key, among in given.items()}


def _options(
    column: Column, number: int, own: IntArray, value: Any, among: Sequence[Any] | None
) -> Options:
    """Return the other levels of a column of categories or booleans."""
    among = [among] if isinstance(among, str) else among
    known = {str(one): one for one in column.options}
    named = [*known] if among is None else [*map(str, among)]
    if unknown := [one for one in named if one not in known]:
        raise ValueError(
            f"{unknown[0]!r} in features is not a level of {column.name!r}, which has "
            f"{', '.join(map(repr, column.options))}."
        )
    levels = [known[one] for one in named if known[one] != value]
    features = column.encode(pd.Series(levels, dtype=object))
    return Options(number, own, Values(levels, features, np.array(column.steps(value, levels))))


def _number(
    column: Numbers,
    number: int,
    own: IntArray,
    row: FloatArray,
    tree: Tree,
    among: Sequence[Any] | None,
    *,
    absent: bool,
) -> Number:
    """Return a number within the given limits, by default within its range."""
    j = own[0]
    now, scale = float(row[j]), float(tree.scale[j])
    if isinstance(among, str):
        if among not in DIRECTIONS:
            raise ValueError(
                f"{column.name!r} in features must have a least and a largest value, "
                f"'rise' or 'fall', got {among!r}."
            )
        among = (now, None) if among == "rise" else (None, now)
    least, most = (None, None) if among is None else among
    ends = -np.inf if least is None else float(least), np.inf if most is None else float(most)
    if not ends[0] <= now <= ends[1]:
        raise ValueError(
            f"the limits {ends[0]:g} and {ends[1]:g} of {column.name!r} in features must contain "
            f"its value, {now:g}."
        )
    span = column.limits(float(tree.center[j]), scale)
    low = span[0] if least is None else ends[0]
    high = span[1] if most is None else ends[1]
    if column.whole:
        low, high = float(math.ceil(low)), float(math.floor(high))
    return Number(number, own, now, absent, low, high, scale, column.places(scale))
