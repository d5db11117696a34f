"""A single tree distilled from several modes: it is fitted to their predictions.

Reference: Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network" (2015).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from sklearn.utils import check_random_state

from bayestree._utils.arrays import FloatArray
from bayestree._utils.progress import fitting
from bayestree.estimators._base import TrainingRows
from bayestree.estimators._columns import with_unused_columns
from bayestree.estimators._diagnostics import measure_nodes
from bayestree.estimators._simulated import simulated_rows
from bayestree.estimators._stages import StagedTree
from bayestree.estimators._warm import fitted_start
from bayestree.inference import Posterior, Svi
from bayestree.models.leaves import Leaf

SIMULATED = 4  # simulated rows for each training row,
MOST_ROWS = 50_000  # as long as there are no more in total
# The tree is fitted to P(class) (P(class | x) / P(class))^SHARPNESS, normalised. A tree of few
# leaves is read for its decisions; above 1, fewer splits are spent on probabilities whose largest
# class is the same. Relative to P(class), a rare class that is never the largest still counts.
SHARPNESS = 2.0
SMALL_SHARE = 0.02  # classes of such a share of the most probable one's are not counted

Student = TypeVar("Student", bound=StagedTree)


def mean_predictions(modes: Sequence[StagedTree], rows: FloatArray) -> list[FloatArray]:
    """E(y | x) of each mode for standardised rows, in the units of its fit."""
    return [mode.posterior_.predictive(rows)[0] for mode in modes]


def distil(
    students: Sequence[Student],
    modes: Sequence[StagedTree],
    weights: FloatArray,
    medoid: int,
    rows: TrainingRows,
    leaf: Leaf,
) -> Student:
    """Fit each student to the predictions of the mixture; the one that agrees with them best.

    Its posterior is that of the rows.
    """
    seeds = check_random_state(students[0].random_state)
    n_simulated = max(0, min(SIMULATED * len(rows.y), MOST_ROWS - len(rows.y)))
    X = rows.X[:]
    near = modes[0]._standardise(X)[:, students[0]._used]
    given = np.concatenate([X, simulated_rows(X, near, rows.weights, n_simulated, seeds)])
    weight = np.concatenate([rows.weights, np.full(n_simulated, rows.weights.mean())])
    each = mean_predictions(modes, modes[0]._standardise(given))
    mean = np.tensordot(weights, each, axes=1)
    lesson = _labelled(given, mean, weight, rows.class_names, SHARPNESS)
    for student in students:
        student._units, student._has_units = modes[0]._units, True
        student._fit(lesson, leaf)
    best = max(students, key=lambda student: _agreement(student, given, mean, weight))
    if best.tree_.n_nodes:
        taught = _labelled(given, mean, weight, rows.class_names)
        _return_to(best, modes[medoid], rows, taught, leaf, seeds)
    return best


def _labelled(
    X: FloatArray,
    mean: FloatArray,
    weights: FloatArray,
    class_names: tuple[str, ...],
    sharpness: float = 1.0,
) -> TrainingRows:
    """Rows whose y is the prediction: for classes, one row for each that is probable."""
    if mean.ndim == 1:
        return TrainingRows(X, mean, weights)
    prior = np.average(mean, axis=0, weights=weights)
    prior[prior == 0] = 1.0  # of a class that no row may have
    share = mean * (mean / prior) ** (sharpness - 1.0)
    share /= share.max(axis=1, keepdims=True)
    share[share < SMALL_SHARE] = 0.0
    share /= share.sum(axis=1, keepdims=True)
    row, label = np.nonzero(share)
    return TrainingRows(X[row], label, weights[row] * share[row, label], class_names)


def _agreement(student: StagedTree, X: FloatArray, mean: FloatArray, weights: FloatArray) -> float:
    """Accuracy of the tree, or minus its squared error, as the mixture expects it."""
    own = student.tree_.predict(X)
    if mean.ndim == 1:
        score = -((student._units.encode(own) - mean) ** 2)
    else:
        score = np.take_along_axis(mean, own.argmax(axis=1)[:, None], axis=1)[:, 0]
    return float(np.average(score, weights=weights))


def _return_to(
    student: StagedTree,
    medoid: StagedTree,
    rows: TrainingRows,
    taught: TrainingRows,
    leaf: Leaf,
    seeds: np.random.RandomState,
) -> None:
    """Replace posterior, row counts and reach of the student by those of the training rows.

    The leaves keep the mean predictions at the ``taught`` rows, training and simulated ones. Splits
    with fewer than ``min_leaf`` training rows on a side are removed.
    """
    n_classes = len(rows.class_names)
    tree, kept = student.tree_.pruned(rows.X, student.min_leaf)
    means = tree.fill(taught.X, taught.y, taught.weights, n_classes)
    means = means.rescaled(student._units.y_scale, student._units.y_center)
    own = tree.fill(rows.X, rows.y, rows.weights, n_classes)  # for the number of rows
    student.tree_ = own.with_value(means.value)
    student.posterior_ = _posterior(student, medoid, rows, leaf, seeds)
    reach = student._reach
    student._reach = measure_nodes(
        student.posterior_,
        student.tree_,
        rows.X,
        student._standardise(rows.X),
        reach.nodes[kept],
        None if reach.level is None else reach.level[kept],
    )


def _posterior(
    student: StagedTree,
    medoid: StagedTree,
    rows: TrainingRows,
    leaf: Leaf,
    seeds: np.random.RandomState,
) -> Posterior:
    """The posterior of the tree's splits given the training rows, by the model of the modes."""
    used = student._used
    reduced = not (used.all() or student._in_place())
    data = student._data(rows, 1.0, used if reduced else slice(None))
    start = fitted_start(student.posterior_, student._model(leaf), data, used)
    start = replace(start, inference=student.posterior_.inference)
    last = medoid._stages()[-1]
    if last.draws not in (None, (1, 1)):
        steepness = medoid.posterior_.model.steepness
        start = replace(start, model=start.model.with_(steepness=steepness))
        svi = last if isinstance(last, Svi) else Svi.from_keywords(medoid._keywords(Svi))
        svi = replace(svi, search_facets=False)  # which may change the topology
        with fitting(student.verbose):
            progress = bool(student.verbose)
            start = svi.run(start, data, random_state=seeds, progress=progress)
    return with_unused_columns(start, used, reduced=reduced)
