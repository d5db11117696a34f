"""Samplers of the posterior: what their chains and runs share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayestree.inference.data import Data
from bayestree.inference.growth.harden import without_idle
from bayestree.inference.posterior import Arrays, Posterior
from bayestree.inference.stage import GrowthLimits, Stage
from bayestree.inference.training import check_soft, check_split, check_topology
from bayestree.models.soft_tree import SoftTree


@dataclass
class Runs:
    """Independent runs of a sampler, which other processes move on, as a part of a loop."""

    each: list[Any]

    def state_dict(self) -> dict[str, Any]:
        return {"runs": [run.state_dict() for run in self.each]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for run, one in zip(self.each, state["runs"], strict=True):
            run.load_state_dict(one)


class ChainSampler(Stage):
    """A sampler of the posterior of a tree of given topology, by chains that start from a fit."""

    n_chains: int
    n_warmup: int
    n_draws: int
    thinning: int
    drop_idle: bool
    keep_warmup: bool

    needs_double = True
    calibrates = False

    def default_depth(self, n_classes: int) -> int:
        return GrowthLimits.max_depth  # chains of larger trees take hours

    @property
    def draws(self) -> tuple[int, int]:
        return self.n_chains, self.n_draws

    @property
    def total(self) -> int:
        """Number of transitions of a chain."""
        return self.n_warmup + self.n_draws * self.thinning

    def _checked(self, model: SoftTree, init: Posterior, data: Data) -> Posterior:
        """Check the start of the chains, and return it under a model."""
        check_topology(model, init)
        check_split(model)
        check_soft(model)
        init = replace(init, model=model)
        return without_idle(init, data) if self.drop_idle else init


def keeps(settings: ChainSampler, done: int) -> bool:
    """Return whether the state of a chain after so many transitions is a draw that is kept."""
    if done <= settings.n_warmup:
        return settings.keep_warmup
    return (done - settings.n_warmup) % settings.thinning == 0


def recorded(
    settings: ChainSampler, model: SoftTree, draws: Arrays, stats: Arrays, name: str
) -> Posterior:
    """Return the draws after the warm-up as a posterior without a point estimate."""
    warm = draws["intercept"].shape[1] - settings.n_draws

    def selected(arrays: Arrays, part: slice) -> Arrays:
        return {name: value[:, part] for name, value in arrays.items()}

    names = set(settings.chosen()) - {"n_draws", "n_jobs", "keep_warmup", "time_limit"}
    return Posterior(
        model=model,
        draws=selected(draws, slice(warm, None)),
        point={},
        inference=name,
        stats=selected(stats, slice(warm, None)),
        settings=settings.chosen(*sorted(names)),
        warmup_draws=selected(draws, slice(warm)) if warm else {},
        warmup_stats=selected(stats, slice(warm)) if warm else {},
    )


def started(found: Posterior, init: Posterior) -> Posterior:
    """Note that nodes have either orientation if they have in the draws that chains start from."""
    mirror = {"mirror": True} if init.settings.get("mirror") else {}
    return replace(found, settings={**found.settings, **mirror})


def segments(total: int, most: int) -> list[int]:
    """Divide a run in at most so many parts; return their lengths."""
    ends = np.unique(np.linspace(0, total, min(most, total) + 1).round().astype(int))
    return np.diff(ends).tolist()
