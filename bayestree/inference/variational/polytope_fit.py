"""The variational fit of the package's own guide."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.progress import Track
from bayestree._utils.state import seeded
from bayestree._utils.wording import counted
from bayestree.inference.convergence import (
    evaluate_elbo,
    guide_balance,
    polytope_gain,
)
from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.inference.streaming import Memory
from bayestree.inference.training import (
    Ascent,
    leaf_sums,
)
from bayestree.inference.variational.facets.search import (
    improve_facets,
    polytope_guide,
    without_unneeded,
)
from bayestree.inference.variational.guides import PolytopeGuide
from bayestree.models.soft_tree import SoftTree

POLISH_DRAWS = 64  # draws used to compare the fits before and after polishing
POLISH_RATE, POLISH_SHARE = 0.1, 0.2  # learning rate and epochs of polishing, relative to a fit


def fit_polytope(
    model: SoftTree,
    data: Data,
    init: Posterior,
    settings: dict[str, Any],
    n_draws: int,
    progress: bool,
    *,
    memory: Memory | None,
) -> Posterior:
    """Fit the package's own guide, after a search for facets where the settings ask for it."""
    stats: dict[str, Any] = {}
    recorded: dict[str, Any] = {}
    if settings["search_facets"]:
        start = replace(init, model=model)
        seed = int(torch.randint(2**31 - 1, ()))
        facets = improve_facets(start, data, random_state=seed, progress=progress)
        model, facets = without_unneeded(model, facets, data)
        stats["n_facets"], recorded["facet_trace"] = facets.n_facets, list(facets.trace)
        guide, trace = _polish(polytope_guide(model, facets, data), data, settings, progress)
    else:
        model = model.with_(priors=model.priors.fixed())
        sites = init.point_sites(data.X)
        sums = leaf_sums(init.model, sites, data)
        guide = PolytopeGuide(
            model,
            sites,
            sums,
            covariance=settings["covariance"],
            tolerance=settings["routing_tolerance"],
            memory=memory,
        )
        # a memory would be forgotten at first
        trace = _climb(guide, data, settings, progress, warm_up=memory is None)
    if not all(one.isfinite().all() for one in guide.parameters()):
        raise ValueError(f"the fit diverged: reduce learning_rate={settings['learning_rate']:g}.")
    guide.eval().refresh(steps=50)
    bound = float(evaluate_elbo(guide, data))
    stats |= guide_balance(guide, data, settings["kl_weight"])
    draws = [guide.sample() for _ in range(n_draws)]
    log_q = [float(guide.log_prob(draw)) for draw in draws]
    shared = {name: settings[name] for name in ("batch_size", "kl_weight")}
    stats |= polytope_gain(guide, data, epochs=len(trace), **shared)
    found = variational_posterior(guide.model, draws, log_q, guide.point(), trace, bound)
    return replace(found, stats={**found.stats, **stats}, settings=recorded)


def _polish(
    guide: PolytopeGuide, data: Data, settings: dict[str, Any], progress: bool
) -> tuple[PolytopeGuide, list[float]]:
    """Fit jointly with a small learning rate; keep the fit if the ELBO does not decrease."""
    polished = copy.deepcopy(guide)
    gentle = {
        "learning_rate": POLISH_RATE * settings["learning_rate"],
        "epochs": max(1, round(POLISH_SHARE * settings["epochs"])),
        "steepness": None,
    }
    trace = _climb(polished, data, settings | gentle, progress, warm_up=False)
    seed = int(torch.randint(2**31 - 1, ()))
    bounds = []
    for candidate in (guide, polished):
        candidate.eval().refresh(steps=50)
        with seeded(seed):
            bounds.append(float(evaluate_elbo(candidate, data, POLISH_DRAWS)))
    return (polished if bounds[1] >= bounds[0] else guide), trace


def _climb(
    guide: PolytopeGuide, data: Data, settings: dict[str, Any], progress: bool, *, warm_up: bool
) -> list[float]:
    """Fit a guide; return the ELBO by epoch."""
    last = guide.model.steepness
    ascent = Ascent(
        guide,
        guide.leaf_sums,
        data,
        steepness=(settings["steepness"] or last, last),
        warm_up=warm_up,
        weight=settings["kl_weight"],
        **{name: settings[name] for name in ("epochs", "batch_size", "learning_rate")},
    )
    trace: list[float] = []
    parts: dict[str, Any] = {"guide": guide, "optimiser": ascent.optimiser, "trace": trace}
    track = Track(range(settings["epochs"]), "svi", show=progress, parts=parts)
    for epoch in track:
        elbo, batch = ascent.epoch(epoch, -float(guide.leaf_law.kl()))
        trace.append(elbo)
        track.note(f"ELBO {elbo:,.0f}, {counted(guide.n_facets(batch.X), 'facet')}")
    return trace


def variational_posterior(
    model: SoftTree,
    draws: list[dict[str, Tensor]],
    log_q: list[float],
    point: dict[str, Tensor],
    trace: list[float],
    final_elbo: float,
) -> Posterior:
    """Stack draws from a fitted guide to a chain, with the trace and final value of its bound."""
    stacked = {
        name: torch.stack([draw[name] for draw in draws])[None].cpu().numpy() for name in draws[0]
    }
    stats = {"elbo": np.array(trace), "final_elbo": np.array(final_elbo)}
    if log_q:
        stats["log_q"] = np.array([log_q])
    return Posterior(
        model=model,
        draws=stacked,
        point={name: value.cpu().numpy() for name, value in point.items()},
        inference="svi",
        stats=stats,
    )
