"""Several modes of a posterior: trees grown from different seeds, and the weights of their mixture.

The modes of the posterior over trees are topologies, between which no inference for one topology
moves. Each mode is therefore a whole fit; their mixture is the posterior that is reported.
"""

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Annotated, Any, Literal

import numpy as np
import torch
from sklearn.utils import check_random_state

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Count, Inference, declare
from bayestree._utils.seed import draw_seed
from bayestree.diagnostics.loo import elbo_weights, loo, stacking_weights
from bayestree.estimators._combinations import scores_unseen_rows
from bayestree.estimators._distil import distil, mean_predictions
from bayestree.estimators._members import fit_members, member_of
from bayestree.fitted.rows import TrainingRows
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.inference import Data, pointwise
from bayestree.inference.single_leaf import SingleLeafWarning
from bayestree.models.leaves import Leaf

SCORED_ROWS = 2000  # a weight is estimated from as many; its standard error is then about 1 %
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
            "Number of trees; by default 3 with inference='svi', but 1 with search_facets and with "
            "other methods. Each is grown, refined and drawn from with a seed of its own, and "
            "predictions average over all of them with the weights mode_weights_. tree_ and all "
            "that refers to its nodes belong to the medoid, the tree whose predictions differ "
            "least from the others; modes_ has all trees. The first has the seed random_state, as "
            "with n_modes=1."
        ),
    ] = None
    mode_weights: Annotated[
        Literal["auto", "stacking", "equal", "elbo"],
        Inference(
            "Weights of the trees. 'stacking' maximises the log score of the mixture for rows that "
            "are left out one by one, or for those that validation_fraction holds out, and needs "
            "draws or such rows; 'elbo' makes them proportional to exp(ELBO), for inference='svi', "
            "which often leaves a single tree. 'auto': stacking where it is possible, otherwise "
            "equal."
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
    trees = fit_members(
        members, rows, leaf, label="modes", n_jobs=estimator.n_jobs, verbose=estimator.verbose
    )
    members[0]._scaling = trees[0].scaling
    rows = rows.counted()
    data = members[0]._data(rows, 1.0)
    scored = _scored_rows(members[0], data)
    weights = _weigh(estimator, trees, scored)
    medoid = _medoid(trees, weights, scored)
    shown = _distilled(estimator, members, Mixture(trees, weights, medoid), rows, leaf)
    found = Mixture(trees, weights, medoid, shown)
    if not any(one.tree.n_nodes for one in trees):
        estimator._warn_if_single_leaf(found.shown.tree.topology, leaf, data, EVERY_MODE)
    return found


def _new_members(estimator: Any) -> list[Any]:
    """The modes before their fit; those of a warm start have the trees of the last fit."""
    given = estimator.random_state
    first = int(given) if isinstance(given, Integral) else draw_seed(given)
    seeds = check_random_state(draw_seed(first)).randint(2**31 - 1, size=estimator._number())[1:]
    members = [
        _single(estimator, random_state=seed, n_jobs=None, verbose=False)
        for seed in (first, *seeds.tolist())
    ]
    for number, one in enumerate(members):
        one._split_seed = first if number else None
        if estimator._continues():
            one.fitted_ = Mixture.of(estimator.fitted_.trees[number])
    return members


def _single(estimator: Any, **changes: Any) -> Any:
    """An estimator of one tree, before its fit, with some parameters changed."""
    shared = estimator.get_params(deep=False) | {"n_modes": 1, "mode_tree": "medoid"}
    return member_of(estimator, type(estimator)(**shared | changes))


def _distilled(
    estimator: Any, members: Sequence[Any], found: Mixture, rows: TrainingRows, leaf: Leaf
) -> FittedTree | None:
    """The tree that is distilled from the modes; None for the medoid."""
    nearest = found.trees[found.medoid]
    if estimator.mode_tree == "medoid" or nearest.tree.n_leaves == 1:
        return None
    seed = draw_seed(members[-1].random_state)
    students = [
        _single(
            estimator,
            inference="map",
            max_leaves=estimator.max_leaves or nearest.tree.n_leaves,
            validation_fraction=0.0,
            warm_start=starts,
            random_state=seed,
        )
        for starts in (False, True)
    ]
    students[1].fitted_ = Mixture.of(nearest)
    if nearest.posterior.model.split != members[found.medoid]._model(leaf).split:
        students.pop()  # of another form, which the fit cannot continue
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SingleLeafWarning)  # the medoid is shown instead
        tree = distil(students, members[found.medoid], found, rows, leaf)
    return tree if tree.tree.n_nodes else None


def _stacks(estimator: Any) -> bool:
    """Whether the modes can be scored on rows that they have not seen."""
    return estimator.mode_weights in ("auto", "stacking") and scores_unseen_rows(estimator)


def _weigh(estimator: Any, trees: Sequence[FittedTree], scored: Data) -> FloatArray:
    """The weights of the modes, shape (M,)."""
    if estimator.mode_weights == "elbo":
        return elbo_weights([_elbo(one.posterior.stats) for one in trees])
    if not _stacks(estimator):
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
    """The rows that the modes held out, or else those of the fit: at most ``SCORED_ROWS``."""
    seeds = check_random_state(draw_seed(member.random_state))
    _, held_out = member._hold_out(data, seeds)
    found = data if held_out is None else held_out
    if len(found.X) <= SCORED_ROWS:
        return found
    some = np.sort(seeds.choice(len(found.X), SCORED_ROWS, replace=False))
    return found.take(torch.as_tensor(some, device=found.X.device))


def _medoid(trees: Sequence[FittedTree], weights: FloatArray, scored: Data) -> int:
    """The mode whose predictions differ least from the others."""
    means = mean_predictions(trees, scored.X.numpy(force=True))
    distance = np.array([[np.abs(a - b).mean() for b in means] for a in means]) @ weights
    return int(np.where(weights > 0, distance, np.inf).argmin())


def _elbo(stats: Any) -> float:
    """The ELBO of a mode; of a single leaf, whose draws are exact, the log-evidence."""
    if "final_elbo" in stats:
        return float(stats["final_elbo"])
    return float(np.mean(stats["log_p"] - stats["log_q"]))
