"""Several modes of a posterior: trees grown from different seeds, and the weights of their mixture.

The modes of the posterior over trees are topologies, between which no inference for one topology
moves. Each mode is therefore a whole fit; their mixture is the posterior that is reported.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parallel import one_thread, threads_for
from bayestree._utils.progress import Verbose, fitting
from bayestree._utils.state import draw_seed
from bayestree.diagnostics.loo import elbo_weights, loo, stacking_weights
from bayestree.fitted.assessment import UnconvergedWarning
from bayestree.fitted.training_rows import TrainingRows
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitting.defaults import scores_unseen_rows
from bayestree.fitting.engine import Prepared, Recipe, complete, fit_each, prepare
from bayestree.fitting.plan import FitPlan
from bayestree.fitting.stages import Stages
from bayestree.inference import Data, pointwise
from bayestree.inference.growth.single_leaf import SingleLeafWarning, warn_single_leaf
from bayestree.models.leaves import Leaf

SCORED_ROWS = 2000  # a weight is estimated from as many; its standard error is then about 1 %
MEDOID_DRAWS = 10  # of each mode, by which modes are compared
PRIOR_ROWS = 5.0  # in favour of each mode: few rows would otherwise often leave a single one
EVERY_MODE = (
    "no mode has kept a split with min_leaf rows on both sides; there may be nothing to find, or "
    "try another random_state"
)


def mode_seeds(random_state: Any, n_modes: int) -> list[int]:
    """Return the seeds of the modes: the first has the seed itself, as a single tree would."""
    whole = isinstance(random_state, int | np.integer)
    first = int(random_state) if whole else draw_seed(random_state)
    others = check_random_state(draw_seed(first)).randint(2**31 - 1, size=n_modes)[1:]
    return [first, *others.tolist()]


def fit_modes(
    plan: FitPlan, recipes: Sequence[Recipe], rows: TrainingRows, *, verbose: Verbose
) -> Mixture:
    """Fit all modes to rows of positive weight, and weight them.

    The methods of the recipes are ``Stages``. Modes that are fitted at once, with the same leaves,
    follow each other.
    """
    groups = [[*own] for _, own in groupby(recipes, key=lambda one: one.model.leaf)]
    with one_thread():
        prepared, *others = (prepare(own[0], rows) for own in groups)
    if plan.last.several:
        each = zip(groups, [prepared, *others], strict=True)
        trees = [one for own, with_rows in each for one in _fit_together(own, with_rows, verbose)]
    else:
        trees = fit_each(recipes, prepared, label="modes", n_jobs=plan.n_jobs, verbose=verbose)
    with one_thread():
        scored = _scored_rows(recipes[0].method, prepared.data)
        scores, leaf = _scores(recipes[0].method, trees, scored), prepared.model.leaf
        weights = _weigh(plan.mode_weights, trees, scores, scored)
        if scores is not None and not leaf.regresses:
            gain = _gain(scores, weights, leaf, scored)
            trees = [
                replace(one, posterior=replace(own := one.posterior, stats={**own.stats, **gain}))
                for one in trees
            ]
        found = Mixture(trees, weights, _medoid(trees, weights, scored))
    if not any(one.tree.n_nodes for one in trees):
        leaf, limits = found.shown.posterior.model.leaf, recipes[0].form.limits
        warn_single_leaf(prepared.data.y, leaf, limits, EVERY_MODE)
    return found


def _fit_together(
    recipes: Sequence[Recipe], prepared: Prepared, verbose: Verbose
) -> list[FittedTree]:
    """Fit the trees of several recipes at once, by the seed and the settings of the first."""
    starts = [recipe.method.start for recipe in recipes]
    first: Stages = recipes[0].method
    with threads_for(recipes[0].work), fitting(verbose), warnings.catch_warnings():
        for of_all in (SingleLeafWarning, UnconvergedWarning):  # which the whole gives
            warnings.simplefilter("ignore", of_all)
        found = first.together(prepared.model, prepared.given, prepared.scaling, starts)
        return [
            complete(recipe, posterior, prepared)
            for recipe, posterior in zip(recipes, found, strict=True)
        ]


def _scores(stages: Stages, trees: Sequence[FittedTree], scored: Data) -> FloatArray | None:
    """Score each row (n, M) by trees that have not seen it; None if the plan has no such scores."""
    if not scores_unseen_rows(stages.plan.last, stages.validation_fraction):
        return None
    held_out = stages.validation_fraction > 0
    each = scored._replace(weights=torch.ones_like(scored.weights)) if held_out else scored
    columns = []
    for posterior in (one.posterior for one in trees):
        draws = [*posterior.each()]
        if held_out:
            columns.append(pointwise.log_density(posterior.model, draws, each))
        else:  # all copies of a row are left out together: the score of each of them
            terms = pointwise.log_likelihood(posterior.model, draws, each)
            columns.append(loo(terms[None]).elpd_row / _weights(scored))
    return np.stack(columns, axis=1)


def _weigh(
    mode_weights: str, trees: Sequence[FittedTree], scores: FloatArray | None, scored: Data
) -> FloatArray:
    """Return the weights of the modes, shape (M,)."""
    if mode_weights == "elbo":
        return elbo_weights([_elbo(one.posterior.stats) for one in trees])
    if mode_weights == "equal" or scores is None:
        return np.full(len(trees), 1 / len(trees))
    return stacking_weights(scores, row_weights=_weights(scored), prior_rows=PRIOR_ROWS)


def _weights(scored: Data) -> FloatArray:
    found: FloatArray = scored.weights.numpy(force=True).astype(np.float64)
    return found


def _gain(scores: FloatArray, weights: FloatArray, leaf: Leaf, scored: Data) -> dict[str, Any]:
    """Return how far unseen rows are scored above the best constant, in nats, and its error.

    The constant has seen the rows itself, which favours it by about a nat for each parameter.
    """
    total = leaf.statistics(scored.y, scored.weights).sum(0, keepdim=True)
    constant = leaf.log_density(leaf.estimate(total), scored.y)[:, 0].numpy(force=True)
    own = logsumexp(scores, b=weights, axis=1)
    each = _weights(scored) * (own - constant)
    error = each.std() * math.sqrt(len(each))
    return {"unseen_gain": np.array(each.sum()), "unseen_gain_error": np.array(error)}


def _scored_rows(stages: Stages, data: Data) -> Data:
    """Return at most ``SCORED_ROWS`` rows: held-out rows, if there are any."""
    seeds = check_random_state(draw_seed(stages.random_state))
    _, held_out = stages.held_out(data, seeds)
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
