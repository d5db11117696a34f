"""The stages of a plan as the method of a recipe: growth, and what continues from its trees."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from bayestree import inference
from bayestree._utils.arrays import BoolArray
from bayestree._utils.state import RandomState, draw_seed
from bayestree.fitted.training_rows import Scaling
from bayestree.fitting.hard import with_ordered_draws
from bayestree.fitting.plan import FitPlan
from bayestree.inference import Data, Map, Posterior
from bayestree.inference.growth.single_leaf import SingleLeafWarning, warn_single_leaf
from bayestree.inference.pointwise import leaf_sums
from bayestree.inference.training import HARD, fits_worse_than_tree
from bayestree.models import SoftTree

KEPT_LEAF = (
    "warm_start=True keeps the single leaf of the fit before; set warm_start=False to fit a new "
    "tree"
)
#: Grows trees from which the next stage starts: ``grow(growth, model, data, n_trees, **common)``.
Grow = Callable[..., list[Posterior]]


def grown(growth: Any, model: SoftTree, data: Data, n_trees: int, **common: Any) -> list[Posterior]:
    """Grow trees by the first stage of a plan."""
    found: list[Posterior] = growth.fit_several(model, data, n_trees, **common)
    return found


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
    grow: Grow = grown

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
            found = [with_ordered_draws(one, data) for one in found]
        every = {"monotone": model.monotone, "groups": model.groups, "priors": model.priors}
        return [replace(one, model=one.model.with_(**every)) for one in found]

    def _together(
        self, model: SoftTree, data: Data, used: BoolArray, starts: Sequence[Posterior | None]
    ) -> list[Posterior]:
        seeds = check_random_state(draw_seed(self.random_state))
        training, validation = self.held_out(data, seeds)
        common: dict[str, Any] = {"random_state": seeds, "progress": self.progress}
        common["validation"] = validation
        growth, *stages = self.plan.stages
        before = [one for one in starts if one is not None]
        if before:
            first = [fitted_start(one, model, training, used) for one in before]
            self._warn_if_single_leaf(first[0], training, KEPT_LEAF)
        else:
            with warnings.catch_warnings():
                if self.plan.samples_topology:  # by a method that decides about splits
                    warnings.simplefilter("ignore", SingleLeafWarning)
                limits = self.plan.limits
                first = self.grow(growth, model, training, len(starts), limits=limits, **common)
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
        if split and not stages:
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
