"""Several modes of a posterior: trees grown from different seeds, and the weights of their mixture.

The modes of the posterior over trees are topologies, between which no inference for one topology
moves. Each mode is therefore a whole fit; their mixture is the posterior that is reported.

A single tree can be distilled from the modes: it is fitted to their predictions (Hinton, Vinyals
and Dean, "Distilling the knowledge in a neural network", 2015).
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Annotated, Any, Literal

import numpy as np
import torch
from sklearn.utils import check_random_state

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parallel import one_thread, processes_for
from bayestree._utils.parameters import Count, Inference, declare
from bayestree._utils.progress import fitting, watched
from bayestree._utils.seed import draw_seed
from bayestree.diagnostics.loo import elbo_weights, loo, stacking_weights
from bayestree.estimators._combinations import scores_unseen_rows
from bayestree.estimators._estimator import member_of
from bayestree.estimators._members import fit_members, fit_together
from bayestree.estimators._stages import StagedTree, fitted_start
from bayestree.fitted.diagnostics import measure_nodes
from bayestree.fitted.rows import TrainingRows, with_unused_columns
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitting.plan import SINGLE_ROWS
from bayestree.inference import Data, Map, Posterior, Stage, Svi, Vi, pointwise
from bayestree.inference.single_leaf import SingleLeafWarning
from bayestree.models.leaves import Leaf

SCORED_ROWS = 2000  # a weight is estimated from as many; its standard error is then about 1 %
MEDOID_DRAWS = 10  # of each mode, by which modes are compared
PRIOR_ROWS = 5.0  # in favour of each mode: few rows would otherwise often leave a single one
EVERY_MODE = (
    "no mode has kept a split with min_leaf rows on both sides; there may be nothing to find, or "
    "try another random_state"
)


@declare
class Modes:
    """How many trees are fitted, and how they are weighted."""

    n_modes: Annotated[
        Count | None,
        Inference(
            "Number of trees; by default 4 with inference='vi' and 3 with 'svi', but 1 with "
            "search_facets and with other methods. Each is grown from random starts of its own, "
            "refined and drawn from, and predictions average over all of them with the weights "
            "mode_weights_. tree_ and all that refers to its nodes belong to the medoid, the tree "
            "whose predictions differ least from the others; modes_ has all trees. Those of 'vi' "
            "are fitted at once, so that each depends on their number; with other methods, the "
            "first has the seed random_state, as with n_modes=1."
        ),
    ] = None
    mode_weights: Annotated[
        Literal["auto", "stacking", "equal", "elbo"],
        Inference(
            "Weights of the trees. 'stacking' maximises the log score of the mixture for rows that "
            "are left out one by one, or for those that validation_fraction holds out, and needs "
            "draws or such rows; 'elbo' makes them proportional to exp(ELBO), for inference='vi' "
            "and 'svi', which often leaves a single tree. 'auto': stacking where it is possible, "
            "otherwise equal."
        ),
    ] = "auto"
    mode_tree: Annotated[
        Literal["medoid", "distilled"],
        Inference(
            "tree_ with several modes: the tree of the medoid, the mode whose predictions differ "
            "least from the others, or a single tree fitted to the predictions of the mixture, at "
            "the training rows and at simulated ones, with at most max_leaves leaves (by default "
            "as many as the medoid)."
        ),
    ] = "medoid"


def fit_modes(estimator: Any, rows: TrainingRows, leaf: Leaf) -> Mixture:
    """Fit all modes, and weight them."""
    members = _new_members(estimator)
    with one_thread():
        prepared = members[0]._prepare(rows, leaf)
    if members[0]._plan.last.several:
        trees = fit_together(members, prepared, verbose=estimator.verbose)
    else:
        n_jobs = _processes(estimator, members, prepared.data)
        shared: dict[str, Any] = {"n_jobs": n_jobs, "verbose": estimator.verbose}
        trees = fit_members(members, prepared, leaf, label="modes", **shared)
    rows = prepared.rows
    weights = torch.as_tensor(rows.weights).to(prepared.data.X)  # of rows, not what they represent
    data = prepared.data._replace(weights=weights)
    with one_thread():
        scored = _scored_rows(members[0], data)
        shares = _weigh(estimator, trees, scored)
        medoid = _medoid(trees, shares, scored)
    shown = _distilled(estimator, members, Mixture(trees, shares, medoid), rows, leaf)
    found = Mixture(trees, shares, medoid, shown)
    if not any(one.tree.n_nodes for one in trees):
        estimator._warn_if_single_leaf(found.shown.tree.topology, leaf, data, EVERY_MODE)
    return found


def _processes(estimator: Any, members: Sequence[Any], data: Data) -> int | None:
    """Return ``n_jobs`` or, for long fits that are not watched, as many as there are threads for.

    Workers share rows in memory, but would each copy those that are mapped.
    """
    given: int | None = estimator.n_jobs
    suits = len(data.X) >= SINGLE_ROWS and data.X.device.type == "cpu" and not data.mapped
    if given is not None or watched() or not suits:
        return given
    return processes_for(len(members))


def _new_members(estimator: Any) -> list[Any]:
    """Return the modes before their fit; with a warm start, they have the trees of the last fit."""
    given = estimator.random_state
    first = int(given) if isinstance(given, Integral) else draw_seed(given)
    n_trees = estimator._plan.n_trees
    seeds = check_random_state(draw_seed(first)).randint(2**31 - 1, size=n_trees)[1:]
    members = [
        _single(estimator, random_state=seed, n_jobs=None, verbose=False)
        for seed in (first, *seeds.tolist())
    ]
    for number, one in enumerate(members):
        one._split_seed = first if number else None
        if estimator._continues():
            one.fitted_ = Mixture.of(estimator.fitted_.trees[number])
        one._kept_plan = one._planned(estimator._plan.table)
    return members


def _single(estimator: Any, **changes: Any) -> Any:
    """Return an estimator of one tree, before its fit, with some parameters changed."""
    shared = estimator.get_params(deep=False) | {"n_modes": 1, "mode_tree": "medoid"}
    return member_of(estimator, type(estimator)(**shared | changes))


def _distilled(
    estimator: Any, members: Sequence[Any], found: Mixture, rows: TrainingRows, leaf: Leaf
) -> FittedTree | None:
    """Distil a tree from the modes; None for the medoid."""
    nearest = found.trees[found.medoid]
    if estimator.mode_tree == "medoid" or nearest.tree.n_leaves == 1:
        return None
    seed = draw_seed(members[-1].random_state)
    students = [
        _single(
            estimator,
            inference="map",
            n_experts=estimator._plan.n_experts,
            steepness=estimator.steepness or Map.default_steepness,  # to imitate, not to predict
            max_leaves=estimator.max_leaves or nearest.tree.n_leaves,
            validation_fraction=0.0,
            warm_start=starts,
            random_state=seed,
        )
        for starts in (False, True)
    ]
    students[1].fitted_ = Mixture.of(nearest)
    for one in students:
        one._kept_plan = one._planned(estimator._plan.table)
    if nearest.posterior.model.split != members[found.medoid]._model(leaf).split:
        students.pop()  # of another form, which the fit cannot continue
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SingleLeafWarning)  # the medoid is shown instead
        tree = distil(students, members[found.medoid], found, rows, leaf)
    return tree if tree.tree.n_nodes else None


def _weigh(estimator: Any, trees: Sequence[FittedTree], scored: Data) -> FloatArray:
    """Return the weights of the modes, shape (M,)."""
    if estimator.mode_weights == "elbo":
        return elbo_weights([_elbo(one.posterior.stats) for one in trees])
    if estimator.mode_weights == "equal" or not scores_unseen_rows(estimator):
        return np.full(len(trees), 1 / len(trees))
    held_out = estimator.validation_fraction > 0
    rows = scored.weights.numpy(force=True).astype(np.float64)
    each = scored._replace(weights=torch.ones_like(scored.weights)) if held_out else scored
    columns = []
    for posterior in (one.posterior for one in trees):
        if held_out:
            columns.append(pointwise.log_density(posterior.model, posterior.each(), each))
        else:  # all copies of a row are left out together: the score of each of them
            terms = pointwise.log_likelihood(posterior.model, posterior.each(), each)
            columns.append(loo(terms[None]).elpd_row / rows)
    scores = np.stack(columns, axis=1)
    return stacking_weights(scores, row_weights=rows, prior_rows=PRIOR_ROWS)


def _scored_rows(member: Any, data: Data) -> Data:
    """Return at most ``SCORED_ROWS`` rows: held-out rows, if there are any."""
    seeds = check_random_state(draw_seed(member.random_state))
    _, held_out = member._hold_out(data, seeds)
    found = data if held_out is None else held_out
    if len(found.X) <= SCORED_ROWS:
        return found
    some = np.sort(seeds.choice(len(found.X), SCORED_ROWS, replace=False))
    return found.take(torch.as_tensor(some, device=found.X.device))


def _medoid(trees: Sequence[FittedTree], weights: FloatArray, scored: Data) -> int:
    """Return the medoid, the mode whose predictions differ least from the others."""
    rows = scored.X.numpy(force=True)
    means = [one.posterior.thinned(MEDOID_DRAWS).predictive(rows)[0] for one in trees]
    distance = np.array([[np.abs(a - b).mean() for b in means] for a in means]) @ weights
    return int(np.where(weights > 0, distance, np.inf).argmin())


def _elbo(stats: Any) -> float:
    """Return the ELBO of a mode, or the log-evidence of a single leaf, whose draws are exact."""
    if "final_elbo" in stats:
        return float(stats["final_elbo"])
    return float(np.mean(stats["log_p"] - stats["log_q"]))


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
    """Return E(y | x) of each tree for standardised rows, in the units of its fit."""
    return [one.posterior.predictive(rows)[0] for one in trees]


def distil(
    students: Sequence[StagedTree],
    teacher: StagedTree,
    modes: Mixture,
    rows: TrainingRows,
    leaf: Leaf,
) -> FittedTree:
    """Fit each student to the predictions of the mixture; the one that agrees with them best.

    Its posterior is fitted to the rows by the method of ``teacher``, the estimator of the medoid.
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
    """Make rows whose y is the prediction: a row for each probable class."""
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
    """Return the accuracy of the tree, or minus its squared error, as the mixture expects it."""
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
    """Return the tree with the posterior, row counts and reach of the training rows.

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
    )
    return replace(found, tree=shown, posterior=posterior, reach=measured)


def _start(
    student: StagedTree, found: FittedTree, rows: TrainingRows, leaf: Leaf
) -> tuple[Data, Posterior]:
    """Return the rows in the columns in use, and the tree's splits with leaves from these rows."""
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
    """Fit the posterior of the tree's splits to the training rows, by the model of the modes."""
    last = teacher._plan.last
    if last.draws not in (None, (1, 1)):
        start = replace(start, model=start.model.with_(steepness=steepness))
        if isinstance(last, Vi):
            stage: Stage = last
        else:
            before = (one for one in teacher._plan.stages if isinstance(one, Svi))
            stage = replace(next(before), search_facets=False)  # which may change the topology
        with fitting(student.verbose):
            progress = bool(student.verbose)
            start = stage.run(start, data, random_state=seeds, progress=progress)
    used = student._used
    return with_unused_columns(start, used, reduced=data.X.shape[1] < len(used))


def simulated_rows(
    X: FloatArray,
    standardised: FloatArray,
    weights: FloatArray,
    n_rows: int,
    random_state: np.random.RandomState,
) -> FloatArray:
    """Draw points in the boxes between rows and their neighbours, shape (n_rows, d).

    As in MUNGE (Bucila, Caruana and Niculescu-Mizil 2006), each is made of a row, drawn in
    proportion to its weight, and a neighbour: each coordinate is uniform between
    their two values. Columns of whole numbers are rounded. Columns of two values, such as an
    encoded category, are taken together from either row, so that their combination
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
    """Return the numbers of the nearest rows in the block of each row, (n, NEIGHBOURS)."""
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
