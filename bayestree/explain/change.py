"""The change of a row that would alter what a model predicts, in terms of columns and outcomes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree._utils.inequality import plain
from bayestree._utils.wording import nearest_match
from bayestree.explain.moves import Features, Movable, Moves, Number, movable_columns
from bayestree.explain.nearest import Nearest, Outcome, nearest_change, nearest_of
from bayestree.explain.refine import Refinement, Step
from bayestree.tables import Encoding
from bayestree.tree import Tree

#: Class probabilities (n, C), or means (n,), of rows, and their standard deviations over the draws.
Expect = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, eq=False)
class Change:
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
        """The outcome ``target``, as an estimator expects something for the row now."""
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
        """Whether predictions (n, C) or (n,) have the outcome, and how near to it they are."""
        if self.sign:
            margin = self.sign * (expected - self.level)
            return margin >= 0, margin
        best, own = expected.argmax(axis=1), self.now if self.label is None else self.label
        margin = np.delete(expected, own, axis=1).max(axis=1, initial=0.0) - expected[:, own]
        return (best != own, margin) if self.label is None else (best == own, -margin)

    def outcomes(self, tree: Tree) -> list[Outcome]:
        """The outcomes of a tree of which any is wanted."""
        if self.sign:
            return [Outcome.beyond(tree, self.level, below=self.sign < 0)]
        if self.label is not None:
            return [Outcome.of_class(tree, self.label)]
        if tree.slope is None:
            return [Outcome(tree.value.argmax(axis=1) != self.now)]
        return [Outcome.of_class(tree, c) for c in range(tree.value.shape[1]) if c != self.now]


def change_of(
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
) -> Change:
    """A small change of a row (d,) that the search finds; for the arguments see ``explanation``."""
    wanted = Wanted.of(np.atleast_1d(expect(row[None])[0][0]), labels, target)
    columns = movable_columns(encoding, cells, row, trees[0], features)
    moves = Moves.of(row, columns)
    each = max_programs // len(trees)
    near = [
        nearest_of(
            [
                nearest_change(tree, row, one, moves, max_programs=each)
                for one in wanted.outcomes(tree)
            ]
        )
        for tree in trees
    ]
    search = Refinement(row, columns, lambda rows: wanted.judge(expect(rows)[0]))
    step = search.nearest([{}, *(_step(one, row, columns, moves) for one in near)])
    bound = None if averages else near[0].bound
    sizes = np.zeros(len(cells))
    if step is None:
        return Change(wanted.name, None, cells, sizes, np.inf, bound)
    after = list(cells)
    for k, cell in step.items():
        column = columns[k]
        cost = float(column.at([cell]).cost[0])
        after[column.number] = cell
        down = isinstance(column, Number) and cell < column.now
        sizes[column.number] = -cost if down else cost
    moved = search.moved(step)
    expected = np.atleast_1d(expect(moved[None])[0][0])
    return Change(
        wanted.name,
        moved,
        tuple(after),
        sizes,
        search.distance(step),
        bound,
        label_of(expected, labels),
        expected,
    )


def _step(near: Nearest, row: FloatArray, columns: Sequence[Movable], moves: Moves) -> Step:
    """The change to the nearest row of a tree, as far as there is one."""
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
    """The class with the largest probability, or a mean."""
    if labels is not None:
        return labels[int(np.argmax(expected))]
    return float(np.ravel(expected)[0])
