"""The smallest change of a row that alters what a model predicts, in terms of its columns.

Predictions average over draws and modes, and have no border that a program could cross. The search
begins with the nearest changes of the deterministic trees, see ``branch_and_bound``, and tries
others: each is lengthened along its line. Beginning with no change, columns are added, one by one,
each with the value that brings the prediction nearest to the wanted one, until it is reached. The
changes that reach it are then shortened in each column.

With an assurance q, a change has the outcome if the prediction and a share q of the draws have it.
The margin of the draws is then the largest m such that the margins of a share q are at least m: 0
or more if and only if the assurance is reached, and a direction for the search where it is not.

The same search in each of the trees says how far the row is from another outcome: its robustness.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, weighted_quantiles
from bayestree._utils.wording import nearest_match, plain, written
from bayestree.diagnostics.draws import tails
from bayestree.explain.actions import Features, Movable, Number, Values, movable_columns, moves_of
from bayestree.explain.branch_and_bound import Moves, NearestRow, Outcome, nearest_row
from bayestree.tables import Encoding
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

Step = dict[int, Any]  # the new values of columns, by their places in a list of columns

#: For rows (n, d), whether they have the wanted outcome, and how near to it they are.
Judge = Callable[[FloatArray], tuple[BoolArray, FloatArray]]
#: Class probabilities (n, C), or means (n,), of rows, and their standard deviations over the draws.
Expect = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
#: Predictions of groups of draws, (S, n, C) or (S, n), and the weights (S,) of these draws.
Drawn = Callable[[FloatArray], Iterator[tuple[FloatArray, FloatArray]]]


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
    assurance : float or None
        The share of the draws, by the weights of their modes, that have the outcome for the changed
        row: whose class of largest P(y | x), or whose mean, is as wanted. None if there is no such
        row or only one draw.
    required : float or None
        The assurance that was asked for.
    """

    wanted: str
    row: FloatArray | None
    cells: tuple[Any, ...]
    sizes: FloatArray
    distance: float
    bound: float | None
    prediction: Any = None
    expected: FloatArray | None = None
    assurance: float | None = None
    required: float | None = None


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
                raise ValueError(f"target must be a finite number, got {written(target)}.")
            below = bool(expected[0] > level)
            name = f"at {'most' if below else 'least'} {plain(level, None)}"
            return cls(name, sign=-1 if below else 1, level=level)
        now = int(np.argmax(expected))
        if target is None:
            return cls(f"another class than {labels[now]}", now)
        known = [str(label) for label in labels]
        if str(target) not in known:
            raise ValueError(
                f"target {written(target)} is not a class of the fit"
                f"{nearest_match(str(target), known)}"
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

    def among(
        self, drawn: Iterator[tuple[FloatArray, FloatArray]], assurance: float
    ) -> tuple[FloatArray, FloatArray]:
        """Compute the share of the draws that have the outcome, and the margin of the draws, (n,).

        The margins of a share ``assurance`` of the draws are at least this large.
        """
        weights: list[FloatArray] = []
        holds: list[AnyArray] = []
        margins: list[AnyArray] = []
        for predicted, weight in drawn:
            flat = predicted.reshape(-1, *predicted.shape[2:])
            for parts, part in zip((holds, margins), self.judge(flat), strict=True):
                parts.append(part.reshape(predicted.shape[:2]))
            weights.append(weight)
        weight, margin = np.concatenate(weights), np.concatenate(margins)
        order = np.argsort(-margin, axis=0, kind="stable")
        reached = weight[order].cumsum(axis=0) >= assurance - ROUNDING
        last = np.take_along_axis(order, reached.argmax(axis=0)[None], axis=0)
        return weight @ np.concatenate(holds), np.take_along_axis(margin, last, axis=0)[0]

    def outcomes(self, tree: Tree) -> list[Outcome]:
        """Return all wanted outcomes of a tree."""
        if self.sign:
            return [Outcome.beyond(tree, self.level, below=self.sign < 0)]
        if self.label is not None:
            return [Outcome.of_class(tree, self.label)]
        if tree.slope is None:
            return [Outcome(tree.value.argmax(axis=1) != self.now)]
        return [Outcome.of_class(tree, c) for c in range(tree.value.shape[1]) if c != self.now]

    def nearest(self, tree: Tree, row: FloatArray, moves: Moves, max_programs: int) -> NearestRow:
        """Find the nearest row to which a tree gives a wanted outcome."""
        outcomes = self.outcomes(tree)
        found = [nearest_row(tree, row, one, moves, max_programs=max_programs) for one in outcomes]
        best = min(found, key=lambda one: one.distance)
        return replace(
            best,
            bound=min(one.bound for one in found),
            complete=all(one.complete for one in found),
            programs=sum(one.programs for one in found),
        )


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
    drawn: Drawn | None = None,
    assurance: float | None = None,
) -> Counterfactual:
    """Search a small change of a row (d,) with these ``cells`` of its columns.

    ``trees`` are deterministic trees, whose nearest changes begin the search, and ``averages``
    tells whether predictions average over draws or modes; ``drawn`` predicts by each draw, if there
    are several. For the other arguments see ``explain`` of the estimators.
    """
    wanted = Wanted.of(np.atleast_1d(expect(row[None])[0][0]), labels, target)
    columns = movable_columns(encoding, cells, row, trees[0], features)
    moves = moves_of(row, columns)
    each = max_programs // len(trees)
    near = [wanted.nearest(tree, row, moves, each) for tree in trees]

    def judge(rows: FloatArray) -> tuple[BoolArray, FloatArray]:
        holds, margin = wanted.judge(expect(rows)[0])
        if drawn is None or assurance is None:
            return holds, margin
        share, of_draws = wanted.among(drawn(rows), assurance)
        return holds & (share >= assurance - ROUNDING), np.minimum(margin, of_draws)

    search = _Refinement(row, columns, judge)
    step = search.nearest([{}, *(_step(one, row, columns, moves) for one in near)])
    bound = None if averages else near[0].bound
    sizes = np.zeros(len(cells))
    if step is None:
        none = Counterfactual(wanted.name, None, cells, sizes, np.inf, bound)
        return replace(none, required=assurance)
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
        None if drawn is None else float(wanted.among(drawn(moved[None]), 1.0)[0][0]),
        assurance,
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


@dataclass(frozen=True, eq=False)
class Robustness:
    """Distances from a row to the nearest facet that decides; can be printed.

    Attributes
    ----------
    outcome : str
        The outcome beyond the facet, in words.
    radius : float
        The distance to the nearest row found for which the deterministic tree has the outcome, in
        the units of a counterfactual's ``distance``; infinite if none was found.
    bound : float
        No change below it gives the deterministic tree the outcome. Equal to ``radius`` if nodes
        have one facet each, unless the search was cut off; where votes of several add up, the
        nearest row is a local minimum.
    drawn : array, shape (S,)
        The radius for the deterministic form of each draw, which splits at P(right) = 1/2; 0 for a
        draw that has the outcome for the row as it is. Empty without several draws.
    weights : array, shape (S,)
        Of the draws, with sum 1.
    level : float
        Probability of ``interval``.
    """

    outcome: str
    radius: float
    bound: float
    drawn: FloatArray
    weights: FloatArray
    level: float

    @property
    def disagreement(self) -> float:
        """Share of the draws that have the outcome for the row as it is."""
        return float(self.weights @ (self.drawn == 0))

    @property
    def mean(self) -> float:
        """Mean over the draws in which some change has the outcome; NaN if there is none."""
        found = np.isfinite(self.drawn)
        total = float(self.weights[found].sum())
        return float(self.weights[found] @ self.drawn[found]) / total if total else np.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Quantiles over all draws; NaN if there are none."""
        low, high = self.quantiles(tails(self.level))
        return float(low), float(high)

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Return the least radii that shares ``levels`` of the draws do not exceed."""
        if not len(self.drawn):
            return np.full(len(levels), np.nan)
        return weighted_quantiles(self.drawn, self.weights, levels)

    def __str__(self) -> str:
        text = (
            f"Distance to the nearest row found for which the deterministic tree predicts "
            f"{self.outcome}: {self.radius:.3g}, certainly none below {self.bound:.3g}"
        )
        if not len(self.drawn):
            return text
        low, high = self.interval
        return (
            f"{text}\nOf {len(self.drawn)} draws: mean {self.mean:.3g}, {100 * self.level:.3g} % "
            f"interval {low:.3g} to {high:.3g}; {100 * self.disagreement:.3g} % of them predict "
            "it already."
        )

    __repr__ = __str__


def robustness(
    tree: Tree,
    drawn: Iterable[tuple[Tree, float]],
    row: FloatArray,
    moves: Moves,
    *,
    labels: AnyArray | None,
    target: object,
    level: float,
    max_programs: int,
) -> Robustness:
    """Measure how far a row (d,) is from another outcome, in a tree and in weighted others."""
    wanted = Wanted.of(np.atleast_1d(tree.predict(row[None])[0]), labels, target)
    each = [(tree, 0.0), *drawn]
    found = [wanted.nearest(one, row, moves, max_programs) for one, _ in each]
    weights = np.array([weight for _, weight in each[1:]])
    return Robustness(
        wanted.name,
        found[0].distance,
        found[0].bound,
        np.array([one.distance for one in found[1:]]),
        weights / (weights.sum() or 1.0),
        level,
    )
