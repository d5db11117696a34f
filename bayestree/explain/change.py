"""The change of a row that would alter what a tree predicts, in terms of features and outcomes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.inequality import plain
from bayestree._utils.wording import nearest_match
from bayestree.explain.moves import Features, Moves, moves_of
from bayestree.explain.nearest import Nearest, Outcome, nearest_change, nearest_of
from bayestree.tables import Encoding
from bayestree.tree import Tree

FACTORS = np.linspace(1.0, 4.0, 31)  # of a change, at which the average of the draws is evaluated

#: Class probabilities (n, C), or means (n,), of rows, and their standard deviations over the draws.
Expect = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, eq=False)
class Change:
    """The nearest change of a row that gives another outcome of the deterministic tree.

    Attributes
    ----------
    wanted : str
        The outcome in words.
    row : array, shape (d,), or None
        The features of the changed row; None if there is none, or none was found.
    cells : tuple, length c
        The values of the columns of the changed row.
    sizes : array, shape (c,)
        The change of each column: of a number in units of ``tree_.scale``, and of a category or
        boolean 1, or the number of steps of an ordered category. To fill in a missing value counts
        1 as well.
    distance : float
        Sum of the absolute sizes.
    bound : float
        No smaller change has the outcome. It is equal to ``distance`` unless the votes of several
        facets add up on the way, or the search was cut off.
    complete : bool
        Whether the search came to an end within ``programs`` linear programs.
    tree_prediction, prediction
        What the deterministic tree and the estimator, which may average over draws, predict for
        the changed row.
    expected : array, shape (C,) or (1,), or None
        Probabilities of the classes, or the mean, that the estimator predicts for it.
    factor : float or None
        Multiple of the change, up to 4, after which the estimator predicts the outcome as well: 1
        if it does so for ``row``, None if it does for none.
    """

    wanted: str
    row: FloatArray | None
    cells: tuple[Any, ...]
    sizes: FloatArray
    distance: float
    bound: float
    complete: bool
    programs: int
    tree_prediction: Any = None
    prediction: Any = None
    expected: FloatArray | None = None
    factor: float | None = None


def change_of(
    tree: Tree,
    row: FloatArray,
    expect: Expect,
    *,
    encoding: Encoding,
    cells: tuple[Any, ...],
    labels: AnyArray | None,
    features: Features,
    target: Any,
    max_programs: int,
) -> Change:
    """The nearest change of a row (d,); the arguments are those of ``explanation``."""
    moves = moves_of(encoding, cells, row, tree.scale, features)
    outcomes, wanted = _wanted(tree, row, labels, target)
    near = nearest_of(
        [nearest_change(tree, row, one, moves, max_programs=max_programs) for one in outcomes]
    )
    after = _by_column(near, moves, encoding, cells, row, tree.scale)
    change = Change(
        wanted, near.row, *after, near.distance, near.bound, near.complete, near.programs
    )
    if near.row is None:
        return change
    steps = np.clip(row + FACTORS[:, None] * (near.row - row), moves.low, moves.high)
    steps = np.where(moves.low < moves.high, steps, near.row)
    return _predicted(change, tree, steps, expect(steps)[0], outcomes, labels)


def _by_column(
    near: Nearest,
    moves: Moves,
    encoding: Encoding,
    cells: tuple[Any, ...],
    row: FloatArray,
    scale: FloatArray,
) -> tuple[tuple[Any, ...], FloatArray]:
    """The values of the columns after a change, and the size of the change of each, (c,)."""
    after, sizes = list(cells), np.zeros(len(cells))
    if near.row is None:
        return cells, sizes
    for number, own in enumerate(encoding.places):
        for j in own[:1]:  # ignored columns have no features
            if moves.low[j] < moves.high[j] and near.row[j] != row[j]:
                after[number], sizes[number] = float(near.row[j]), (near.row[j] - row[j]) / scale[j]
    for m in near.chosen:
        number, size = int(moves.group[m]), sizes[moves.group[m]]
        after[number] = near.row[moves.gate[m]] if moves.gate[m] >= 0 else moves.labels[m]
        sizes[number] = np.copysign(abs(size) + moves.cost[m], size)
    return tuple(after), sizes


def label_of(expected: AnyArray, labels: AnyArray | None) -> Any:
    """The class with the largest probability, or a mean."""
    if labels is not None:
        return labels[int(np.argmax(expected))]
    return float(np.ravel(expected)[0])


def _wanted(
    tree: Tree, row: FloatArray, labels: AnyArray | None, target: Any
) -> tuple[list[Outcome], str]:
    """The outcomes of which the change must have one, and their name."""
    if labels is None:
        try:
            level = float(target)
        except (TypeError, ValueError):
            level = np.nan
        if not np.isfinite(level):
            raise ValueError(f"target must be a finite number, got {target!r}.")
        below = bool(tree.predict(row[None])[0] > level)
        name = f"at {'most' if below else 'least'} {plain(level, None)}"
        return [Outcome.beyond(tree, level, below=below)], name
    if target is None:
        now = int(np.argmax(tree.predict(row[None])[0]))
        name = f"another class than {labels[now]}"
        if tree.slope is None:
            return [Outcome(tree.value.argmax(axis=1) != now)], name
        return [Outcome.of_class(tree, c) for c in range(len(labels)) if c != now], name
    known = [str(label) for label in labels]
    if str(target) not in known:
        raise ValueError(
            f"target {target!r} is not a class of the fit{nearest_match(str(target), known)}"
        )
    return [Outcome.of_class(tree, known.index(str(target)))], str(target)


def _predicted(
    change: Change,
    tree: Tree,
    steps: FloatArray,
    expected: FloatArray,
    outcomes: list[Outcome],
    labels: AnyArray | None,
) -> Change:
    """The change with its predictions; ``steps`` (n, d) are multiples of it, ``FACTORS``."""
    if labels is None:
        (outcome,) = outcomes
        follows = outcome.sign * (expected - outcome.level) >= 0
    else:
        wanted = [
            tree.value[one.leaves].argmax(axis=1) if one.label is None else [one.label]
            for one in outcomes
        ]
        follows = np.isin(expected.argmax(axis=1), np.concatenate(wanted))
    return replace(
        change,
        tree_prediction=label_of(tree.predict(steps[:1])[0], labels),
        prediction=label_of(expected[0], labels),
        expected=np.atleast_1d(expected[0]),
        factor=float(FACTORS[follows.argmax()]) if follows.any() else None,
    )
