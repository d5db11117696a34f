"""A single tree distilled from several modes: it is fitted to their predictions.

Reference: Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network" (2015).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.progress import fitting
from bayestree.estimators._stages import StagedTree, fitted_start
from bayestree.fitted.diagnostics import measure_nodes
from bayestree.fitted.rows import TrainingRows
from bayestree.fitted.scaling import with_unused_columns
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.inference import Data, Posterior, Svi
from bayestree.models.leaves import Leaf

SIMULATED = 4  # simulated rows for each training row,
MOST_ROWS = 50_000  # as long as there are no more in total
# The tree is fitted to P(class) (P(class | x) / P(class))^SHARPNESS, normalised. A tree of few
# leaves is read for its decisions; above 1, fewer splits are spent on probabilities whose largest
# class is the same. Relative to P(class), a rare class that is never the largest still counts.
SHARPNESS = 2.0
SMALL_SHARE = 0.02  # classes of such a share of the most probable one's are not counted
NEIGHBOURS = 5
BLOCK = 5000  # rows among which neighbours are searched, so that time is linear in the rows


def mean_predictions(trees: Sequence[FittedTree], rows: FloatArray) -> list[FloatArray]:
    """E(y | x) of each tree for standardised rows, in the units of its fit."""
    return [one.posterior.predictive(rows)[0] for one in trees]


def distil(
    students: Sequence[StagedTree],
    teacher: StagedTree,
    modes: Mixture,
    rows: TrainingRows,
    leaf: Leaf,
) -> FittedTree:
    """Fit each student to the predictions of the mixture; the one that agrees with them best.

    Its posterior is that of the rows, by the method of ``teacher``, the estimator of the medoid.
    """
    seeds = check_random_state(students[0].random_state)
    n_simulated = max(0, min(SIMULATED * len(rows.y), MOST_ROWS - len(rows.y)))
    X, scaling = rows.X[:], modes.trees[0].scaling
    near = scaling.standardise(X)[:, scaling.used]
    given = np.concatenate([X, simulated_rows(X, near, rows.weights, n_simulated, seeds)])
    weight = np.concatenate([rows.weights, np.full(n_simulated, rows.weights.mean())])
    each = mean_predictions(modes.trees, scaling.standardise(given))
    mean = np.tensordot(modes.weights, each, axes=1)
    lesson = _labelled(given, mean, weight, rows.class_names, SHARPNESS)
    learned = []
    for student in students:
        student._scaling, student._has_units = scaling, True
        learned.append((student, student._fitted_tree(lesson, leaf)))
    best, found = max(learned, key=lambda one: _agreement(one[1], given, mean, weight))
    if found.tree.n_nodes == 0:
        return found
    taught = _labelled(given, mean, weight, rows.class_names)
    steepness = modes.trees[modes.medoid].posterior.model.steepness
    data, start = _start(best, found, rows, leaf)
    posterior = _posterior(best, start, data, teacher, steepness, seeds)
    return _returned(found, posterior, best.min_leaf, rows, taught)


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


def _agreement(found: FittedTree, X: FloatArray, mean: FloatArray, weights: FloatArray) -> float:
    """Accuracy of the tree, or minus its squared error, as the mixture expects it."""
    own = found.tree.predict(X)
    if mean.ndim == 1:
        score = -((found.scaling.units.encode(own) - mean) ** 2)
    else:
        score = np.take_along_axis(mean, own.argmax(axis=1)[:, None], axis=1)[:, 0]
    return float(np.average(score, weights=weights))


def _returned(
    found: FittedTree,
    posterior: Posterior,
    min_leaf: int,
    rows: TrainingRows,
    taught: TrainingRows,
) -> FittedTree:
    """The tree with the posterior, row counts and reach of the training rows.

    The leaves keep the mean predictions at the ``taught`` rows, training and simulated ones. Splits
    with fewer than ``min_leaf`` training rows on a side are removed.
    """
    n_classes, units = len(rows.class_names), found.scaling.units
    tree, kept = found.tree.pruned(rows.X, min_leaf)
    means = tree.fill(taught.X, taught.y, taught.weights, n_classes)
    means = means.rescaled(units.y_scale, units.y_center)
    own = tree.fill(rows.X, rows.y, rows.weights, n_classes)  # for the number of rows
    shown, reach = own.with_value(means.value), found.polytopes
    measured = measure_nodes(
        posterior,
        shown,
        rows.X,
        found.scaling.standardise(rows.X),
        reach.nodes[kept],
        None if reach.level is None else reach.level[kept],
    )
    return replace(found, tree=shown, posterior=posterior, reach=measured)


def _start(
    student: StagedTree, found: FittedTree, rows: TrainingRows, leaf: Leaf
) -> tuple[Data, Posterior]:
    """The training rows with the columns in use, and the tree's splits with leaves from them."""
    used = found.scaling.used
    reduced = not (used.all() or student._in_place())
    data = student._data(rows, 1.0, used if reduced else slice(None))
    start = fitted_start(found.posterior, student._model(leaf), data, used)
    return data, replace(start, inference=found.posterior.inference)


def _posterior(
    student: StagedTree,
    start: Posterior,
    data: Data,
    teacher: StagedTree,
    steepness: float,
    seeds: np.random.RandomState,
) -> Posterior:
    """The posterior of the tree's splits given the training rows, by the model of the modes."""
    last = teacher._stages()[-1]
    if last.draws not in (None, (1, 1)):
        start = replace(start, model=start.model.with_(steepness=steepness))
        svi = last if isinstance(last, Svi) else Svi.from_keywords(teacher._keywords(Svi))
        svi = replace(svi, search_facets=False)  # which may change the topology
        with fitting(student.verbose):
            progress = bool(student.verbose)
            start = svi.run(start, data, random_state=seeds, progress=progress)
    used = student._used
    return with_unused_columns(start, used, reduced=data.X.shape[1] < len(used))


def simulated_rows(
    X: FloatArray,
    standardised: FloatArray,
    weights: FloatArray,
    n_rows: int,
    random_state: np.random.RandomState,
) -> FloatArray:
    """Points in the boxes between rows and their neighbours, shape (n_rows, d).

    As in MUNGE (Bucila, Caruana and Niculescu-Mizil 2006), each is made of a row, drawn in
    proportion to its weight, and one of its nearest neighbours: each coordinate is uniform between
    their two values. Columns of whole numbers are rounded. Columns of two values, such as those of
    an encoded category, are taken together from one of the two rows, so that their combination
    occurs in the data.
    """
    first = random_state.choice(len(X), n_rows, p=weights / weights.sum())
    partner = _neighbours(standardised, random_state)[
        first, random_state.randint(NEIGHBOURS, size=n_rows)
    ]
    one, other = X[first], X[partner]
    share = random_state.uniform(size=one.shape)
    low, high = X.min(axis=0), X.max(axis=0)
    binary = ((low == X) | (high == X)).all(axis=0)
    share[:, binary] = random_state.randint(2, size=(n_rows, 1))
    found: FloatArray = one + share * (other - one)
    found[:, binary] = np.where(share[:, binary] > 0, other[:, binary], one[:, binary])
    whole = (np.rint(X) == X).all(axis=0)
    found[:, whole] = np.rint(found[:, whole])
    return found


def _neighbours(rows: FloatArray, random_state: np.random.RandomState) -> IntArray:
    """Numbers of the nearest rows of each one among those of its block, (n, NEIGHBOURS)."""
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415 - imports model_selection

    order = random_state.permutation(len(rows))
    found = np.empty((len(rows), NEIGHBOURS), dtype=np.int64)
    for block in np.array_split(order, -(-len(rows) // BLOCK)):
        most = min(NEIGHBOURS + 1, len(block))
        near = (
            NearestNeighbors(n_neighbors=most)
            .fit(rows[block])
            .kneighbors(rows[block], return_distance=False)
        )
        # Of a row and its copies any may be first; with few rows, neighbours are repeated.
        found[block] = block[near[:, np.resize(np.arange(most)[min(1, most - 1) :], NEIGHBOURS)]]
    return found
