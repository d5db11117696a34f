"""A small change of a row that gives another prediction, from changes that come near to one.

Predictions average over draws and modes, and have no border that a program could cross. Changes are
therefore tried: each is lengthened along its line. Beginning with no change, columns are added, one
by one, each with the value that brings the prediction nearest to the wanted one, until it is
reached. The changes that reach it are then shortened in each column.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree.explain.moves import Movable, Values

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


class Refinement:
    """The search among changes of a row (d,) in some columns."""

    def __init__(self, row: FloatArray, columns: Sequence[Movable], judge: Judge) -> None:
        self.row, self.columns, self.judge = row, columns, judge
        self.points = int(np.clip(ROWS // max(len(columns), 1), 3, POINTS))

    def nearest(self, starts: Sequence[Step]) -> Step | None:
        """The nearest change with the outcome that is found from some changes; None if none is."""
        longer = [self._first(start, LONGER) for start in starts]
        reached = [one for one in longer if one is not None]
        grown = map(self._grown, [{}] if reached else [{}, *starts])
        reached += islice(filter(None, grown), 1)
        return min(map(self._shortened, reached), key=self.distance, default=None)

    def distance(self, step: Step) -> float:
        """The cost of a change."""
        return sum(float(self.columns[k].at([cell]).cost[0]) for k, cell in step.items())

    def moved(self, step: Step) -> FloatArray:
        """The row after a change."""
        row = self.row.copy()
        for k, cell in step.items():
            row[self.columns[k].own] = self.columns[k].at([cell]).features[0]
        return row

    def _grown(self, step: Step) -> Step | None:
        """A change with the outcome that other columns add to; None if none is found."""
        step = self._times(step, 1.0)
        for _ in range(2 * MOST):
            better, holds = self._nearer(step)
            if better is None or holds:
                return better
            step = better
        return None

    def _nearer(self, step: Step) -> tuple[Step | None, bool]:
        """A change with another value of a column, and whether it has the outcome.

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
        """A smaller change with the outcome, as a change with it."""
        for _ in range(SWEEPS):
            before = self.distance(step)
            step = self._first(step, SHORTER) or step
            for k in sorted(step, key=lambda k: -self.distance({k: step[k]})):
                step = self._less(step, k)
            if not self.distance(step) < before * (1 - CLOSER):
                break
        return step

    def _less(self, step: Step, k: int) -> Step:
        """The change without one of its columns, or with the least change of it that is needed."""
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
        """The first multiple of a change that has the outcome."""
        steps = [self._times(step, factor) for factor in factors.tolist()]
        holds, _ = self.judge(np.array([self.moved(one) for one in steps]))
        return steps[int(holds.argmax())] if holds.any() else None

    def _times(self, step: Step, factor: float) -> Step:
        """A multiple of a change, in values that its columns may have."""
        longer = {k: self.columns[k].times(cell, factor) for k, cell in step.items()}
        return {k: cell for k, cell in longer.items() if cell is not None}

    def _with(self, step: Step, k: int, values: Values) -> FloatArray:
        """The row after a change, with several values of a column, (n, d)."""
        rows = np.repeat(self.moved(step)[None], len(values.cells), axis=0)
        rows[:, self.columns[k].own] = values.features
        return rows


def _without(step: Step, k: int) -> Step:
    return {j: cell for j, cell in step.items() if j != k}
