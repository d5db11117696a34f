"""Several modes of a posterior: trees grown from different seeds, and the weights of their mixture.

The modes of the posterior over trees are topologies, between which no inference for one topology
moves. Each mode is therefore a whole fit; their mixture is the posterior that is reported.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import Annotated, Any, Literal

import numpy as np
import torch
from sklearn.utils import check_random_state

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parallel import one_thread, processes_for
from bayestree._utils.parameters import Count, Inference, declare
from bayestree._utils.progress import watched
from bayestree._utils.seed import draw_seed
from bayestree.diagnostics.loo import elbo_weights, loo, stacking_weights
from bayestree.estimators._combinations import scores_unseen_rows
from bayestree.estimators._estimator import member_of
from bayestree.estimators._members import fit_members, fit_together
from bayestree.fitted.rows import TrainingRows
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitting.plan import SINGLE_ROWS
from bayestree.inference import Data, pointwise
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
    found = Mixture(trees, shares, medoid)
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
    shared = estimator.get_params(deep=False) | {"n_modes": 1, "n_jobs": None, "verbose": False}
    members = [
        member_of(estimator, type(estimator)(**shared | {"random_state": seed}))
        for seed in (first, *seeds.tolist())
    ]
    for number, one in enumerate(members):
        one._split_seed = first if number else None
        if estimator._continues():
            one.fitted_ = Mixture.of(estimator.fitted_.trees[number])
        one._kept_plan = one._planned(estimator._plan.table)
    return members


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
