"""The stages of a fit, and several modes: trees of different seeds, and their weights in a mixture.

The stages of a plan are the method of a recipe: growth, and what continues from its trees.

The modes of the posterior over trees are topologies, between which no inference for one topology
moves. Each mode is therefore a whole fit; their mixture is the posterior that is reported.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from bayestree import inference
from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree._utils.parallel import one_thread, threads_for
from bayestree._utils.progress import Verbose, fitting
from bayestree._utils.state import RandomState, draw_seed
from bayestree.diagnostics.loo import elbo_weights, loo, stacking_weights
from bayestree.fitted.assessment import UnconvergedWarning
from bayestree.fitted.training_rows import Scaling, TrainingRows
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitting import engine
from bayestree.fitting.defaults import scores_unseen_rows
from bayestree.fitting.plan import FitPlan
from bayestree.inference import Data, Map, Posterior, pointwise
from bayestree.inference.growth.single_leaf import SingleLeafWarning, warn_single_leaf
from bayestree.inference.pointwise import leaf_sums
from bayestree.inference.training import HARD, fits_worse_than_tree
from bayestree.models import SoftTree
from bayestree.models.leaves import Leaf

KEPT_LEAF = (
    "warm_start=True keeps the single leaf of the fit before; set warm_start=False to fit a new "
    "tree"
)
#: Grows trees from which the next stage starts: ``grow(growth, model, data, n_trees, **common)``.
Grow = Callable[..., list[Posterior]]


@dataclass(frozen=True, eq=False)
class Stages:
    """Run the stages of a plan on one tree or, by a method that can, on several at once."""

    plan: FitPlan
    random_state: RandomState = None
    progress: bool = False
    #: Share of the rows that is held out for the methods that use it.
    validation_fraction: float = 0.0
    split_seed: int | None = None  # seed of the rows that are held out, which all modes share
    start: Posterior | None = None  # the result of a fit that is continued, in the place of growth
    grow: Grow | None = None  # in the place of the growth of the plan itself

    def __call__(self, model: SoftTree, data: Data, scaling: Scaling) -> Posterior:
        """Fit one tree."""
        return self.together(model, data, scaling, [self.start])[0]

    def together(
        self, model: SoftTree, data: Data, scaling: Scaling, starts: Sequence[Posterior | None]
    ) -> list[Posterior]:
        """Fit a tree for each of the starts, which are None for new trees."""
        used = scaling.used
        own = model.among(used) if data.X.shape[1] < len(used) else model
        found = self._together(own, data, used, starts)
        if model.monotone:
            found = [engine.with_ordered_draws(one, data) for one in found]
        every = {"monotone": model.monotone, "groups": model.groups, "priors": model.priors}
        return [replace(one, model=one.model.with_(**every)) for one in found]

    def _together(
        self, model: SoftTree, data: Data, used: BoolArray, starts: Sequence[Posterior | None]
    ) -> list[Posterior]:
        seeds = check_random_state(draw_seed(self.random_state))
        training, validation = self.held_out(data, seeds)
        common: dict[str, Any] = {"random_state": seeds, "progress": self.progress}
        common["validation"] = validation
        growth: Any = self.plan.stages[0]
        before = [one for one in starts if one is not None]
        if before:
            first = [fitted_start(one, model, training, used) for one in before]
            self._warn_if_single_leaf(first[0], training, KEPT_LEAF)
        else:
            with warnings.catch_warnings():
                if self.plan.samples_topology:  # by a method that decides about splits
                    warnings.simplefilter("ignore", SingleLeafWarning)
                grow = growth.fit_several if self.grow is None else partial(self.grow, growth)
                first = grow(model, training, len(starts), limits=self.plan.limits, **common)
        found = dict(enumerate(first))
        if not self.plan.samples_topology:
            last = self.plan.last.draws
            found = {
                i: one if one.model.topology.n_nodes else _single(one, training, last, seeds)
                for i, one in found.items()
            }
        split = [
            i
            for i, one in found.items()
            if one.model.topology.n_nodes or self.plan.samples_topology
        ]
        if split and len(self.plan.stages) == 1:
            return [inference.recalibrated(one, training) for one in found.values()]
        if split:
            refined = self._refined([found[i] for i in split], training, common)
            found |= zip(split, refined, strict=True)
        return [*found.values()]

    def _refined(
        self, found: list[Posterior], data: Data, common: dict[str, Any]
    ) -> list[Posterior]:
        """Run the stages after growth."""
        _, *stages = self.plan.stages
        for stage in stages:
            found = stage.run_several(found, data, **common)
            if len(found) == 1 and found[0].model.topology.n_nodes == 0:
                self._warn_if_single_leaf(found[0], data, "the inference removed every split")
                return found
        return [self._sharpened(one, data, common) for one in found]

    def _sharpened(self, found: Posterior, data: Data, common: dict[str, Any]) -> Posterior:
        """Repeat the last stage with steeper splits where the plan allows it and the rows ask."""
        if not (self.plan.steeper and fits_worse_than_tree(found, data)):
            return found
        stage = replace(self.plan.last, steepness=found.model.steepness)
        start = replace(found, model=found.model.with_(steepness=Map.default_steepness))
        repeated: Posterior = stage.run(start, data, **common)
        return repeated

    def held_out(self, data: Data, seeds: np.random.RandomState) -> tuple[Data, Data | None]:
        """Split training from validation rows, stratified by class."""
        if self.validation_fraction == 0:
            return data, None
        if self.split_seed is not None:
            seeds = check_random_state(draw_seed(self.split_seed))
        from sklearn.model_selection import train_test_split  # noqa: PLC0415 - takes 0.1 s to import

        classes = None if data.y.is_floating_point() else data.y.numpy(force=True)
        parts = train_test_split(
            np.arange(len(data.X)),
            test_size=self.validation_fraction,
            stratify=classes,
            random_state=seeds,
        )
        kept, held = (torch.as_tensor(np.sort(part), device=data.X.device) for part in parts)
        return data.subset(kept), data.subset(held)

    def _warn_if_single_leaf(self, found: Posterior, data: Data, reason: str) -> None:
        if found.model.topology.n_nodes == 0:
            warn_single_leaf(data.y, found.model.leaf, self.plan.limits, reason)


def _single(
    first: Posterior, data: Data, draws: tuple[int, int] | None, seeds: np.random.RandomState
) -> Posterior:
    """Estimate the leaf of a tree without a split, or draw from its posterior."""
    first = inference.recalibrated(first, data)
    if draws is None:
        return first
    return inference.single_leaf(
        first, data, n_chains=draws[0], n_draws=draws[1], random_state=seeds
    )


def fitted_start(posterior: Posterior, model: SoftTree, data: Data, used: BoolArray) -> Posterior:
    """Return the splits of a fit as the start of another, with leaves estimated from its rows.

    The result is what growth would give. ``used`` marks the columns of the posterior that ``data``
    has, if it does not have all of them.
    """
    sites = posterior.point_sites(data.X)
    splits = {name: sites[name] for name in model.split.parameters(sites)}
    if data.X.shape[1] < len(used):
        splits["hyperplane"] = splits["hyperplane"][..., np.flatnonzero(used)]
    fitted = posterior.model
    model = model.with_(topology=fitted.topology, split=fitted.split, steepness=fitted.steepness)
    sums = leaf_sums(model.with_(steepness=HARD), splits, data)
    model = model.with_(leaf=model.leaf.calibrate(sums))
    return Posterior.from_point(model, splits | model.leaf.estimate(sums), "grow")


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
    plan: FitPlan, recipes: Sequence[engine.Recipe], rows: TrainingRows, *, verbose: Verbose
) -> Mixture:
    """Fit all modes to rows of positive weight, and weight them.

    The methods of the recipes are ``Stages``. Modes that are fitted at once, with the same leaves,
    follow each other.
    """
    groups = [[*own] for _, own in groupby(recipes, key=lambda one: one.model.leaf)]
    with one_thread():
        prepared, *others = (engine.prepare(own[0], rows) for own in groups)
    if plan.last.several:
        each = zip(groups, [prepared, *others], strict=True)
        trees = [one for own, with_rows in each for one in _fit_together(own, with_rows, verbose)]
    else:
        trees = engine.fit_each(
            recipes, prepared, label="modes", n_jobs=plan.n_jobs, verbose=verbose
        )
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
    recipes: Sequence[engine.Recipe], prepared: engine.Prepared, verbose: Verbose
) -> list[FittedTree]:
    """Fit the trees of several recipes at once, by the seed and the settings of the first."""
    starts = [recipe.method.start for recipe in recipes]
    first: Stages = recipes[0].method
    with threads_for(recipes[0].work), fitting(verbose), warnings.catch_warnings():
        for of_all in (SingleLeafWarning, UnconvergedWarning):  # which the whole gives
            warnings.simplefilter("ignore", of_all)
        found = first.together(prepared.model, prepared.given, prepared.scaling, starts)
        return [
            engine.complete(recipe, posterior, prepared)
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
