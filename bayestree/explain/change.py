"""The change of a row that would alter what a tree predicts, in terms of features and outcomes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.inequality import plain
from bayestree._utils.wording import nearest_match
from bayestree.explain.nearest import Outcome, nearest_change
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

FACTORS = np.linspace(1.0, 4.0, 31)  # of a change, at which the average of the draws is evaluated

#: Class probabilities (n, C), or means (n,), of rows, and their standard deviations over the draws.
Expect = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
#: Features that may change, by name or number, or the least and the largest value of each.
Features = Sequence[str | int] | Mapping[Any, tuple[float | None, float | None]] | None


@dataclass(frozen=True, eq=False)
class Change:
    """The nearest change of a row that gives another outcome of the deterministic tree.

    Attributes
    ----------
    wanted : str
        The outcome in words.
    row : array, shape (d,), or None
        The changed row; None if there is none, or none was found.
    distance : float
        Sum of the absolute changes in units of ``tree_.scale``, about a standard deviation each.
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
    distance: float
    bound: float
    complete: bool
    programs: int
    tree_prediction: Any
    prediction: Any
    expected: FloatArray | None
    factor: float | None


def change_of(
    tree: Tree,
    row: FloatArray,
    expect: Expect,
    *,
    labels: AnyArray | None,
    features: Features,
    target: Any,
    max_programs: int,
) -> Change:
    """The nearest change of a row (d,); the arguments are those of ``explanation``."""
    low, high = _ranges(tree, row, features)
    outcome, wanted = _wanted(tree, row, labels, target)
    near = nearest_change(tree, row, outcome, low=low, high=high, max_programs=max_programs)
    change = Change(wanted, *near, None, None, None, None)
    if near.row is None:
        return change
    steps = np.clip(row + FACTORS[:, None] * (near.row - row), low, high)
    return _predicted(change, tree, steps, expect(steps)[0], outcome, labels)


def label_of(expected: AnyArray, labels: AnyArray | None) -> Any:
    """The class with the largest probability, or a mean."""
    if labels is not None:
        return labels[int(np.argmax(expected))]
    return float(np.ravel(expected)[0])


def _wanted(
    tree: Tree, row: FloatArray, labels: AnyArray | None, target: Any
) -> tuple[Outcome, str]:
    """The outcome that the change must have, and its name."""
    if labels is None:
        try:
            level = float(target)
        except (TypeError, ValueError):
            level = np.nan
        if not np.isfinite(level):
            raise ValueError(f"target must be a finite number, got {target!r}.")
        below = bool(tree.predict(row[None])[0] > level)
        name = f"at {'most' if below else 'least'} {plain(level, None)}"
        return Outcome.beyond(tree, level, below=below), name
    predicted = tree.value.argmax(axis=1)
    if target is None:
        now = int(np.argmax(tree.predict(row[None])[0]))
        return Outcome(predicted != now), f"another class than {labels[now]}"
    known = [str(label) for label in labels]
    if str(target) not in known:
        raise ValueError(
            f"target {target!r} is not a class of the fit{nearest_match(str(target), known)}"
        )
    return Outcome(predicted == known.index(str(target))), str(target)


def feature_number(tree: RoutedTree, key: str | int) -> int:
    """Number of a feature that is given by its name or number."""
    names = tree.feature_labels
    if isinstance(key, str):
        if key not in names:
            raise ValueError(f"{key!r} is not a feature of the fit{nearest_match(key, names)}")
        return names.index(key)
    if not 0 <= key < len(names):
        raise ValueError(f"feature {key!r} does not exist; the fit had {len(names)} features.")
    return int(key)


def _ranges(tree: Tree, row: FloatArray, features: Features) -> tuple[FloatArray, FloatArray]:
    """The least and the largest value that each feature may have, each shape (d,)."""
    if features is None:
        return np.full(len(row), -np.inf), np.full(len(row), np.inf)
    low, high = row.copy(), row.copy()
    for key in features:
        j = feature_number(tree, key)
        least, most = features[key] if isinstance(features, Mapping) else (None, None)
        low[j] = -np.inf if least is None else least
        high[j] = np.inf if most is None else most
        if not low[j] <= row[j] <= high[j]:
            raise ValueError(
                f"the limits {low[j]:g} and {high[j]:g} of {key!r} in features must contain its "
                f"value, {row[j]:g}."
            )
    return low, high


def _predicted(
    change: Change,
    tree: Tree,
    steps: FloatArray,
    expected: FloatArray,
    outcome: Outcome,
    labels: AnyArray | None,
) -> Change:
    """The change with its predictions; ``steps`` (n, d) are multiples of it, ``FACTORS``."""
    if labels is None:
        follows = outcome.sign * (expected - outcome.level) >= 0
    else:
        wanted = np.unique(tree.value[outcome.leaves].argmax(axis=1))
        follows = np.isin(expected.argmax(axis=1), wanted)
    return replace(
        change,
        tree_prediction=label_of(tree.predict(steps[:1])[0], labels),
        prediction=label_of(expected[0], labels),
        expected=np.atleast_1d(expected[0]),
        factor=float(FACTORS[follows.argmax()]) if follows.any() else None,
    )
