"""A small change of a row that gives another prediction, from changes that come near to one.

Predictions average over draws and modes, and have no border that a program could cross. Changes are
therefore tried: each is lengthened along its line, then by the value of a column that brings the
prediction nearest to the wanted one, until it gives this, and then shortened in each column.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree.explain.moves import Movable, Values

MOST = 5  # columns that change together
POINTS = 41  # values of a number that are tried at a time
ROWS = 4_000  # rows that are predicted at a time, about
LONGER = np.linspace(1.0, 4.0, 16)  # factors by which a change is lengthened
SHORTER = np.linspace(0.0, 1.0, 16, endpoint=False)[1:]
SWEEPS = 4  # over the columns of a change that is shortened
ZOOMS = 3  # into the values of a number that is shortened
CLOSER = 0.01  # relative gain below which another sweep is not worth its predictions

Step = dict[int, Any]  # the new values of columns, by their places in a list of columns

#: For rows (n, d), whether they have the wanted outcome, and how near to it they are.
Judge = Callable[[FloatArray], tuple[BoolArray, FloatArray]]


class Refinement:
    """The search among changes of a row (d,) in some columns."""

    def __init__(self, row: FloatArray, columns: Sequence[Movable], judge: Judge) -> None:
        self.row, self.columns, self.judge = row, columns, judge
        self.points = int(np.clip(ROWS // max(len(columns), 1), 3, POINTS))

    def nearest(self, starts: Iterable[Step]) -> Step | None:
        """The nearest change with the outcome that is found from some changes; None if none is."""
        reached = [one for start in starts if (one := self._reached(start)) is not None]
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

    def _reached(self, step: Step) -> Step | None:
        """A change with the outcome that goes on from another one; None if none is found."""
        longer = self._first(step, LONGER)
        if longer is not None or len(step) > MOST:
            return longer if longer is not None and len(longer) <= MOST else None
        margin = -np.inf
        while True:
            free = [*step] if len(step) == MOST else range(len(self.columns))
            tried = [(k, self.columns[k].spread(self.points)) for k in free]
            place = [(k, i) for k, values in tried for i in range(len(values.cells))]
            if not place:
                return None
            holds, near = self.judge(np.vstack([self._with(step, *one) for one in tried]))
            least = np.concatenate([self._rest(step, k) + values.cost for k, values in tried])
            best = int(np.where(holds, -least, -np.inf if holds.any() else (near-(margin if np.isfinite(margin) else self.judge(self.moved(step)[None])[1][0])-1e-12)/(np.maximum(least-self.distance(step),.05))).argmax())
            if not holds.any() and near[best] <= margin:
                return None
            k, i = place[best]
            step, margin = step | {k: dict(tried)[k].cells[i]}, near[best]
            if holds.any():
                return step

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
        rest, column, cell = {j: one for j, one in step.items() if j != k}, self.columns[k], step[k]
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
        longer = {k: self.columns[k].times(cell, factor) for k, cell in step.items()}
        return {k: cell for k, cell in longer.items() if cell is not None}

    def _rest(self, step: Step, k: int) -> float:
        return self.distance({j: cell for j, cell in step.items() if j != k})

    def _with(self, step: Step, k: int, values: Values) -> FloatArray:
        """The row after a change, with several values of a column, (n, d)."""
        rows = np.repeat(self.moved(step)[None], len(values.cells), axis=0)
        rows[:, self.columns[k].own] = values.features
        return rows
