"""The smallest change of a row that alters what a model predicts, in terms of its columns.

Predictions average over draws and modes, and have no border that a program could cross. The search
begins with the nearest changes of the deterministic trees, see ``branch_and_bound``, and tries
others: each is lengthened along its line. Beginning with no change, columns are added, one by one,
each with the value that brings the prediction nearest to the wanted one, until it is reached. The
changes that reach it are then shortened in each column.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.wording import nearest_match, plain
from bayestree.explain.branch_and_bound import Moves, NearestRow, Outcome, nearest_of, nearest_row
from bayestree.tables import Column, Encoding, Numbers
from bayestree.tree import Tree

MOST = 10  # columns to which a change grows
POINTS = 41  # values of a number that are tried at a time
ROWS = 2_000  # rows that are predicted at a time, about
LONGER = np.linspace(1.0, 4.0, 16)  # factors by which a change is lengthened
SHORTER = np.linspace(0.0, 1.0, 16, endpoint=False)[1:]
SWEEPS = 4  # over the columns of a change that is shortened
ZOOMS = 3  # into the values of a number that is shortened
SMALL = 0.05  # cost below which a change is not preferred for being small
ROUNDING = 1e-12  # smaller differences of predictions are rounding errors
CLOSER = 0.01  # relative gain below which another sweep is not worth its predictions
UNKNOWN_SPAN = 6.0  # units of ``scale`` on either side of the mean, if the model has no range
DIGITS = 3  # of the scale of a number, to which its new values are rounded

Step = dict[int, Any]  # the new values of columns, by their places in a list of columns

#: For rows (n, d), whether they have the wanted outcome, and how near to it they are.
Judge = Callable[[FloatArray], tuple[BoolArray, FloatArray]]
#: Class probabilities (n, C), or means (n,), of rows, and their standard deviations over the draws.
Expect = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
#: Columns that may change, by name or number, or for each the least and the largest value, or the
#: levels that it may change to; None for any.
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


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """A small change of a row after which the estimator predicts another outcome.

    Attributes
    ----------
    wanted : str
        The outcome in words.
    row : array, shape (d,), or None
        The features of the changed row; None if no change was found.
    cells : tuple, length c
        The values of the columns of the changed row, which ``predict`` takes to the outcome.
    sizes : array, shape (c,)
        The change of each column: of a number in units of ``tree_.scale``, and of a category or
        boolean 1, or the number of steps of an ordered category. To fill in a missing value counts
        1 as well.
    distance : float
        Sum of the absolute sizes; infinite if no change was found.
    bound : float or None
        No smaller change has the outcome. None where predictions average over draws or modes, for
        which there is no such limit.
    prediction : label or float
        What the estimator predicts for the changed row; None if there is none.
    expected : array, shape (C,) or (1,), or None
        Probabilities of the classes, or the mean, that it predicts.
    """

    wanted: str
    row: FloatArray | None
    cells: tuple[Any, ...]
    sizes: FloatArray
    distance: float
    bound: float | None
    prediction: Any = None
    expected: FloatArray | None = None


class Wanted(NamedTuple):
    """The wanted outcome: another class than ``now``, the class ``label``, or a mean.

    The mean is at least (``sign`` 1) or most (-1) ``level``.
    """

    name: str
    now: int = 0
    label: int | None = None
    sign: int = 0
    level: float = 0.0

    @classmethod
    def of(cls, expected: FloatArray, labels: AnyArray | None, target: Any) -> "Wanted":
        """Return the outcome ``target``, given what an estimator expects for the row now."""
        if labels is None:
            try:
                level = float(target)
            except (TypeError, ValueError):
                level = np.nan
            if not np.isfinite(level):
                raise ValueError(f"target must be a finite number, got {target!r}.")
            below = bool(expected[0] > level)
            name = f"at {'most' if below else 'least'} {plain(level, None)}"
            return cls(name, sign=-1 if below else 1, level=level)
        now = int(np.argmax(expected))
        if target is None:
            return cls(f"another class than {labels[now]}", now)
        known = [str(label) for label in labels]
        if str(target) not in known:
            raise ValueError(
                f"target {target!r} is not a class of the fit{nearest_match(str(target), known)}"
            )
        return cls(str(target), now, known.index(str(target)))

    def judge(self, expected: FloatArray) -> tuple[BoolArray, FloatArray]:
        """Tell whether predictions (n, C) or (n,) have the outcome, and how near to it they are."""
        if self.sign:
            margin = self.sign * (expected - self.level)
            return margin >= 0, margin
        best, own = expected.argmax(axis=1), self.now if self.label is None else self.label
        margin = np.delete(expected, own, axis=1).max(axis=1, initial=0.0) - expected[:, own]
        return (best != own, margin) if self.label is None else (best == own, -margin)

    def outcomes(self, tree: Tree) -> list[Outcome]:
        """Return all wanted outcomes of a tree."""
        if self.sign:
            return [Outcome.beyond(tree, self.level, below=self.sign < 0)]
        if self.label is not None:
            return [Outcome.of_class(tree, self.label)]
        if tree.slope is None:
            return [Outcome(tree.value.argmax(axis=1) != self.now)]
        return [Outcome.of_class(tree, c) for c in range(tree.value.shape[1]) if c != self.now]


def counterfactual(
    trees: Sequence[Tree],
    row: FloatArray,
    expect: Expect,
    *,
    averages: bool,
    encoding: Encoding,
    cells: tuple[Any, ...],
    labels: AnyArray | None,
    features: Features,
    target: Any,
    max_programs: int,
) -> Counterfactual:
    """Search a small change of a row (d,) with these ``cells`` of its columns.

    ``trees`` are deterministic trees, whose nearest changes begin the search, and ``averages``
    tells whether predictions average over draws or modes. For the other arguments see ``explain``
    of the estimators.
    """
    wanted = Wanted.of(np.atleast_1d(expect(row[None])[0][0]), labels, target)
    columns = movable_columns(encoding, cells, row, trees[0], features)
    moves = moves_of(row, columns)
    each = max_programs // len(trees)
    near = [
        nearest_of(
            [nearest_row(tree, row, one, moves, max_programs=each) for one in wanted.outcomes(tree)]
        )
        for tree in trees
    ]
    search = _Refinement(row, columns, lambda rows: wanted.judge(expect(rows)[0]))
    step = search.nearest([{}, *(_step(one, row, columns, moves) for one in near)])
    bound = None if averages else near[0].bound
    sizes = np.zeros(len(cells))
    if step is None:
        return Counterfactual(wanted.name, None, cells, sizes, np.inf, bound)
    after = list(cells)
    for k, cell in step.items():
        column = columns[k]
        cost = float(column.at([cell]).cost[0])
        after[column.number] = cell
        down = isinstance(column, Number) and cell < column.now
        sizes[column.number] = -cost if down else cost
    moved = search.moved(step)
    expected = np.atleast_1d(expect(moved[None])[0][0])
    return Counterfactual(
        wanted.name,
        moved,
        tuple(after),
        sizes,
        search.distance(step),
        bound,
        label_of(expected, labels),
        expected,
    )


def _step(near: NearestRow, row: FloatArray, columns: Sequence[Movable], moves: Moves) -> Step:
    """Convert the nearest row of a tree to a change of columns."""
    if near.row is None:
        return {}
    chosen = {int(moves.group[m]): moves.labels[m] for m in near.chosen}
    step: Step = {}
    for k, column in enumerate(columns):
        if isinstance(column, Number):
            j = column.own[0]
            if near.row[j] != row[j] or column.number in chosen:
                step[k] = float(near.row[j])
        elif column.number in chosen:
            step[k] = chosen[column.number]
    return step


def label_of(expected: AnyArray, labels: AnyArray | None) -> Any:
    """Return the class with the largest probability, or a mean."""
    if labels is not None:
        return labels[int(np.argmax(expected))]
    return float(np.ravel(expected)[0])


class _Refinement:
    """The search among changes of a row (d,) in some columns."""

    def __init__(self, row: FloatArray, columns: Sequence[Movable], judge: Judge) -> None:
        self.row, self.columns, self.judge = row, columns, judge
        self.points = int(np.clip(ROWS // max(len(columns), 1), 3, POINTS))

    def nearest(self, starts: Sequence[Step]) -> Step | None:
        """Find the nearest change with the outcome from some changes; None if none is found."""
        longer = [self._first(start, LONGER) for start in starts]
        reached = [one for one in longer if one is not None]
        grown = map(self._grown, [{}] if reached else [{}, *starts])
        reached += islice(filter(None, grown), 1)
        return min(map(self._shortened, reached), key=self.distance, default=None)

    def distance(self, step: Step) -> float:
        """Sum the costs of a change."""
        return sum(float(self.columns[k].at([cell]).cost[0]) for k, cell in step.items())

    def moved(self, step: Step) -> FloatArray:
        """Return the row after a change."""
        row = self.row.copy()
        for k, cell in step.items():
            row[self.columns[k].own] = self.columns[k].at([cell]).features[0]
        return row

    def _grown(self, step: Step) -> Step | None:
        """Extend a change to other columns until it has the outcome; None if none is found."""
        step = self._times(step, 1.0)
        for _ in range(2 * MOST):
            better, holds = self._nearer(step)
            if better is None or holds:
                return better
            step = better
        return None

    def _nearer(self, step: Step) -> tuple[Step | None, bool]:
        """Change another value of a column; tell whether the outcome is reached.

        It is the least that has it. If none has, the column changes that comes nearest for its
        cost, each by the value that comes nearest; None if none comes nearer.
        """
        free = [*step] if len(step) >= MOST else range(len(self.columns))
        tried = [(k, self.columns[k].spread(self.points)) for k in free]
        cells = [(k, cell) for k, values in tried for cell in values.cells]
        if not cells:
            return None, False
        rows = [self.moved(step)[None], *(self._with(step, *one) for one in tried)]
        (_, *reached), (margin, *margins) = self.judge(np.vstack(rows))
        holds, gain = np.array(reached), np.array(margins) - margin
        cost = np.concatenate(
            [self.distance(_without(step, k)) + values.cost for k, values in tried]
        )
        if holds.any():
            best = int(np.where(holds, cost, np.inf).argmin())
        else:
            column = np.array([k for k, _ in cells])
            most = [
                own[gain[own].argmax()] for k in free if len(own := np.flatnonzero(column == k))
            ]
            rate = gain / np.maximum(cost - self.distance(step), SMALL)
            best = max(most, key=lambda i: rate[i])
            if gain[best] <= ROUNDING:
                return None, False
        k, cell = cells[best]
        return step | {k: cell}, bool(holds[best])

    def _shortened(self, step: Step) -> Step:
        """Shorten a change that has the outcome, and keep the outcome."""
        for _ in range(SWEEPS):
            before = self.distance(step)
            step = self._first(step, SHORTER) or step
            for k in sorted(step, key=lambda k: -self.distance({k: step[k]})):
                step = self._less(step, k)
            if not self.distance(step) < before * (1 - CLOSER):
                break
        return step

    def _less(self, step: Step, k: int) -> Step:
        """Remove a column from the change, or find the least change of it that is needed."""
        rest, column, cell = _without(step, k), self.columns[k], step[k]
        if self.judge(self.moved(rest)[None])[0][0]:
            return rest
        start = None
        for _ in range(ZOOMS):
            values = column.nearer(cell, POINTS, start)
            order = np.argsort(values.cost, kind="stable")
            if not len(order):
                break
            holds = self.judge(self._with(rest, k, values))[0][order]
            if not holds.any():
                break
            first = int(holds.argmax())
            cell = values.cells[order[first]]
            start = values.cells[order[first - 1]] if first else start
        return rest | {k: cell}

    def _first(self, step: Step, factors: FloatArray) -> Step | None:
        """Return the first multiple of a change that has the outcome."""
        steps = [self._times(step, factor) for factor in factors.tolist()]
        holds, _ = self.judge(np.array([self.moved(one) for one in steps]))
        return steps[int(holds.argmax())] if holds.any() else None

    def _times(self, step: Step, factor: float) -> Step:
        """Multiply a change, in values that its columns may have."""
        longer = {k: self.columns[k].times(cell, factor) for k, cell in step.items()}
        return {k: cell for k, cell in longer.items() if cell is not None}

    def _with(self, step: Step, k: int, values: Values) -> FloatArray:
        """Return the row after a change, with several values of a column, (n, d)."""
        rows = np.repeat(self.moved(step)[None], len(values.cells), axis=0)
        rows[:, self.columns[k].own] = values.features
        return rows


def _without(step: Step, k: int) -> Step:
    return {j: cell for j, cell in step.items() if j != k}


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
    encoding: Encoding,
    cells: Sequence[Any],
    row: FloatArray,
    tree: Tree,
    features: Features = None,
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
    least, most = (None, None) if among is None else among
    ends = -np.inf if least is None else float(least), np.inf if most is None else float(most)
    if not ends[0] <= now <= ends[1]:
        raise ValueError(
            f"the limits {ends[0]:g} and {ends[1]:g} of {column.name!r} in features must contain "
            f"its value, {now:g}."
        )
    away = UNKNOWN_SPAN * scale
    span = column.span or (float(tree.center[j]) - away, float(tree.center[j]) + away)
    low = span[0] if least is None else ends[0]
    high = span[1] if most is None else ends[1]
    places = DIGITS - 1 - math.floor(math.log10(scale))
    if column.whole:
        low, high, places = float(math.ceil(low)), float(math.floor(high)), min(places, 0)
    return Number(number, own, now, absent, low, high, scale, places)
