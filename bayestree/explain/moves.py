"""What may change of a row: numbers within limits, and categories from one level to another."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.tables import Column, Encoding, Numbers

#: Columns that may change, by name or number, or for each the least and the largest value, or the
#: levels that it may change to; None for any.
Features = Sequence[str | int] | Mapping[Any, Sequence[Any] | None] | None
FILLED = 10.0  # widest range of a number that was missing, in units of ``scale`` around the mean


class Moves(NamedTuple):
    """Changes of a row (d,): of numbers, and one of several options for each other column.

    ``low`` and ``high`` (d,) bound the features of numbers; equal bounds leave one as it is. Option
    m, of the column ``group[m]``, replaces the row by ``rows[m]`` at the cost ``cost[m]``, in units
    of ``scale``, and shows the column as ``labels[m]``. If ``gate[m]`` is 0 or more, this number
    was missing, and may change only with the option.
    """

    low: FloatArray
    high: FloatArray
    rows: FloatArray
    cost: FloatArray
    group: IntArray
    gate: IntArray
    labels: tuple[Any, ...] = ()

    @classmethod
    def of_numbers(cls, low: FloatArray, high: FloatArray) -> Self:
        """Changes of numbers alone."""
        none = np.zeros(0, dtype=np.int64)
        return cls(low, high, np.zeros((0, len(low))), np.zeros(0), none, none)


def moves_of(
    encoding: Encoding,
    cells: Sequence[Any],
    row: FloatArray,
    scale: FloatArray,
    features: Features = None,
) -> Moves:
    """The changes of a row with these ``cells`` by column and these features (d,).

    A number moves by degrees, a category or boolean to any other level at a cost of 1, an ordered
    one by as many steps as it costs. A missing value stays missing unless ``features`` names the
    column; to fill it in costs 1 and, for a number, its distance from the mean. Dates stay as they
    are: no linear program keeps their parts consistent.
    """
    limits = _limits(encoding, features)
    found = _Found(row, scale)
    for number, (column, own) in enumerate(zip(encoding.columns, encoding.places, strict=True)):
        value, named = cells[number], features is not None
        if number not in limits or (pd.isna(value) and column.gaps and not named):
            continue
        if column.options:
            found.add_options(column, number, own, value, limits[number])
        elif isinstance(column, Numbers):
            found.add_number(column, number, own, value, limits[number])
        elif named:
            what = "dates do not change" if len(own) else "the fit ignores the column"
            raise ValueError(f"{what}; leave {column.name!r} out of features.")
    return found.moves()


def _limits(encoding: Encoding, features: Features) -> dict[int, Sequence[Any] | None]:
    """The limits of each column that may change."""
    if features is None:
        return dict.fromkeys(range(len(encoding.columns)))
    given = features if isinstance(features, Mapping) else dict.fromkeys(features)
    return {encoding.number(key): among for key, among in given.items()}


class _Found:
    """Collects the changes of one row."""

    def __init__(self, row: FloatArray, scale: FloatArray) -> None:
        self.row, self.scale = row, scale
        self.low, self.high = row.copy(), row.copy()
        self.options: list[tuple[FloatArray, float, int, int, Any]] = []

    def moves(self) -> Moves:
        if not self.options:
            return Moves.of_numbers(self.low, self.high)
        rows, cost, group, gate, labels = zip(*self.options, strict=True)
        return Moves(
            self.low,
            self.high,
            np.array(rows),
            np.array(cost),
            np.array(group),
            np.array(gate),
            labels,
        )

    def add_options(
        self, column: Column, number: int, own: IntArray, value: Any, among: Sequence[Any] | None
    ) -> None:
        """Options for the other levels of a column of categories or booleans."""
        among = [among] if isinstance(among, str) else among
        known = {str(one): one for one in column.options}
        named = [*known] if among is None else [*map(str, among)]
        if unknown := [one for one in named if one not in known]:
            raise ValueError(
                f"{unknown[0]!r} in features is not a level of {column.name!r}, which has "
                f"{', '.join(map(repr, column.options))}."
            )
        levels = [known[one] for one in named]
        blocks = column.encode(pd.Series(levels, dtype=object))
        costs = column.steps(value, levels)
        for label, block, cost in zip(levels, blocks, costs, strict=True):
            if label != value:
                self._add(own, block, cost, number, label)

    def add_number(
        self, column: Column, number: int, own: IntArray, value: Any, among: Sequence[Any] | None
    ) -> None:
        """Limits of a number and, if it is missing, the option to fill it in."""
        j = own[0]
        absent = column.gaps and bool(pd.isna(value))
        width = FILLED * self.scale[j] if absent else np.inf
        least, most = (None, None) if among is None else among
        low = self.row[j] - width if least is None else float(least)
        high = self.row[j] + width if most is None else float(most)
        if not low <= self.row[j] <= high:
            raise ValueError(
                f"the limits {low:g} and {high:g} of {column.name!r} in features must contain its "
                f"value, {self.row[j]:g}."
            )
        self.low[j], self.high[j] = low, high
        if absent:
            self._add(own, np.array([self.row[j], 0.0]), 1.0, number, None, gate=int(j))

    def _add(
        self, own: IntArray, block: FloatArray, cost: float, number: int, label: Any, gate: int = -1
    ) -> None:
        row = self.row.copy()
        row[own] = block
        self.options.append((row, cost, number, gate, label))
