"""The variational fit of the package's own guide, and resets of its idle experts.

An idle expert is reset to the prior where this raises the bound.

A fit that spreads the votes of a node over redundant experts is a local optimum: each pays its
divergence, and none can leave the others its share of the votes without a loss on the way. Leaving
out an expert changes the score s of its node to s - r softplus(beta . x + b), hence the
log-probabilities l and r of its branches to l' and r', and the likelihood of a row by the factor

    1 - m + m ((1 - R) exp(l' - l) + R exp(r' - r)),

with m the probability given y that the row passed the node, and R that it then went right. An
expert is idle if this loses less than the divergence that the reset saves. The factor holds for one
expert while all others stay, and late in a fit a reset cannot be mended. A copy of the fit
therefore takes the next steps with the resets, on the same batches and noise. It replaces the fit
only if its bound is then higher by twice the Monte Carlo error of their difference.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bayestree import routing
from bayestree._utils.progress import Track
from bayestree._utils.seed import forked, seeded
from bayestree._utils.wording import counted
from bayestree.distributions import nearest_weibull
from bayestree.inference.convergence import (
    ELBO_ROWS,
    evaluate_elbo,
    guide_balance,
    objective_estimates,
    polytope_gain,
    sample,
)
from bayestree.inference.data import Data
from bayestree.inference.facets.search import improve_facets, polytope_guide, without_unneeded
from bayestree.inference.guides import PolytopeGuide
from bayestree.inference.posterior import Posterior
from bayestree.inference.training import (
    RAMPS,
    Ascent,
    Ramps,
    leaf_sums,
)
from bayestree.inference.warm_start import Memory
from bayestree.models.priors import HyperPriors
from bayestree.models.soft_tree import SoftTree
from bayestree.routing import levels, right_given_y
from bayestree.topology import Topology

POLISH_DRAWS = 64  # draws used to compare the fits before and after polishing
LEARN_STEPS = 10  # minimum number of steps between updates of hyperparameters
POLISH_RATE, POLISH_SHARE = 0.1, 0.2  # learning rate and epochs of polishing, relative to a fit
STRETCH = 0.05  # share of the epochs between proposals
DRAWS = 4  # over which losses and divergences are averaged
NEGLIGIBLE = 0.3  # nats: all experts that lose less, but of the others one in each node
MIN_GAIN = 2.0  # nats that the reset of an expert of negligible loss saves
MARGIN = 2.0  # standard errors by which the bound must rise


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
        hyper_priors = model.priors.hyper_priors(weak=settings["learn_prior"])
        model = model.with_(priors=model.priors.fixed())
        sites = init.point_sites(data.X)
        sums = leaf_sums(init.model, sites, data)
        guide = PolytopeGuide(
            model,
            sites,
            sums,
            covariance=settings["covariance"],
            tolerance=settings["routing_tolerance"],
            partially_centred=settings["guide"] == "partially-centred",
            memory=memory,
        )
        ramps = None if memory is None else ()  # which would forget it at first
        trace, resets = _climb(guide, data, settings, progress, ramps, hyper_priors)
        if settings["reset_idle"]:
            recorded["reset_trace"] = resets
        if hyper_priors:
            recorded["hyperparameters"] = guide.priors.learned_values
    if not all(one.isfinite().all() for one in guide.parameters()):
        raise ValueError(f"the fit diverged: reduce learning_rate={settings['learning_rate']:g}.")
    guide.eval().refresh(steps=50)
    bound = float(evaluate_elbo(guide, data))
    stats |= guide_balance(guide, data, settings["kl_weight"])
    draws = [guide.sample() for _ in range(n_draws)]
    log_q = [float(guide.log_prob(draw)) for draw in draws]
    draws, (point,) = map(_without_scales, (draws, [guide.point()]))
    shared = {name: settings[name] for name in ("batch_size", "kl_weight")}
    stats |= polytope_gain(guide, data, epochs=len(trace), **shared)
    found = variational_posterior(guide.model, draws, log_q, point, trace, bound)
    return replace(found, stats={**found.stats, **stats}, settings=recorded)


def _without_scales(draws: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Drop the scales, which the model of the draws integrates out."""
    scales = ("hyperplane_scale", "intercept_scale")
    return [{name: draw[name] for name in draw if name not in scales} for draw in draws]


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
    trace, _ = _climb(polished, data, settings | gentle, progress, ramps=())
    seed = int(torch.randint(2**31 - 1, ()))
    bounds = []
    for candidate in (guide, polished):
        candidate.eval().refresh(steps=50)
        with seeded(seed):
            bounds.append(float(evaluate_elbo(candidate, data, POLISH_DRAWS)))
    return (polished if bounds[1] >= bounds[0] else guide), trace


def _climb(
    guide: PolytopeGuide,
    data: Data,
    settings: dict[str, Any],
    progress: bool,
    ramps: Ramps | None = None,
    hyper_priors: HyperPriors | None = None,
) -> tuple[list[float], list[str]]:
    """Fit a guide; return the ELBO by epoch, and the resets that were tried."""
    last = guide.model.steepness
    ascent = Ascent(
        guide,
        guide.leaf_sums,
        data,
        steepness=(settings["steepness"] or last, last),
        ramps=RAMPS[settings["kl_schedule"]] if ramps is None else ramps,
        weight=settings["kl_weight"],
        **{name: settings[name] for name in ("epochs", "batch_size", "learning_rate")},
    )
    advance = partial(_advance, hyper_priors=hyper_priors)
    rival = Rival(ascent, advance) if settings["reset_idle"] else None
    trace: list[float] = []
    parts: dict[str, Any] = {"guide": guide, "optimiser": ascent.optimiser, "trace": trace}
    if rival is not None:
        parts["rival"] = rival
    track = Track(range(settings["epochs"]), "svi", show=progress, parts=parts)
    for epoch in track:
        if rival is not None:
            rival.before(epoch)
        elbo, batch = advance(ascent, epoch)
        if rival is not None:
            rival.after(epoch)
        trace.append(elbo)
        track.note(f"ELBO {elbo:,.0f}, {counted(guide.n_facets(batch.X), 'facet')}")
    return trace, [] if rival is None else rival.trace


def _advance(ascent: Ascent, epoch: int, hyper_priors: HyperPriors | None) -> tuple[float, Data]:
    """Take the steps of an epoch; return its ELBO, and the last batch."""
    every, guide = -(-LEARN_STEPS // ascent.per_epoch), ascent.module
    warm = ascent.schedule.prior(epoch * ascent.per_epoch) >= 1
    # counted from the last epoch, so that a short fit learns, too
    following = ascent.schedule.n_steps // ascent.per_epoch - epoch - 1
    if hyper_priors and warm and following % every == 0:
        guide.learn(hyper_priors)
    return ascent.epoch(epoch, -float(guide.leaf_law.kl()))


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


@torch.no_grad()
def losses(guide: PolytopeGuide, data: Data, steepness: float) -> Tensor:
    """Compute the log-likelihood lost by leaving out one expert, (V, K), from one draw."""
    total = torch.zeros_like(guide.loc)
    moments = guide.moments
    for part in data.parts(ones=True):
        activation, log_weight = guide.activations(part.X, moments)
        score, silent = routing.rates(activation, log_weight.exp())
        old = routing.branch_log_probs(score, steepness)
        odds, passed = _given_y(old[1] - old[0], guide.log_density(part.y).T, guide.model.topology)
        others = score.unsqueeze(1) + log_weight.exp().unsqueeze(-1) * silent
        others = others.clamp_min(routing.FLOOR * torch.finfo(score.dtype).tiny)  # as in ``vote``
        new = routing.branch_log_probs(others, steepness)
        given = logsigmoid(-odds), logsigmoid(odds)
        terms = [(p - a).unsqueeze(1) + b for p, a, b in zip(given, old, new, strict=True)]
        passed = passed.unsqueeze(1)
        change = torch.logaddexp((-passed.exp()).log1p(), passed + torch.logaddexp(*terms))
        total -= change @ part.weights
    return total


def _given_y(odds: Tensor, log_density: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    """Compute the log-odds of having gone right and log P(passed) given y, both (V, n).

    As ``expectation``, but in logarithms: P(left) of a row may be far below the rounding of 1.
    """
    plan = levels(topology, odds.device)
    value = torch.cat((torch.empty_like(odds), log_density))
    given = torch.empty_like(odds)
    for level in reversed(plan):
        below = value[level.left], value[level.right]
        given[level.nodes], value[level.nodes] = right_given_y(odds[level.nodes], *below)
    passed = torch.zeros_like(value)
    for level in plan:
        passed[level.left] = passed[level.nodes] + logsigmoid(-given[level.nodes])
        passed[level.right] = passed[level.nodes] + logsigmoid(given[level.nodes])
    return given, passed[: len(odds)]


@torch.no_grad()
def divergences(guide: PolytopeGuide) -> Tensor:
    """Compute the KL divergence of each expert from the prior, shape (V, K)."""
    return torch.stack([torch.sub(*guide.kl_terms(guide.moments)) for _ in range(DRAWS)]).mean(0)


@torch.no_grad()
def find_idle(guide: PolytopeGuide, data: Data, steepness: float, kl_weight: float) -> Tensor:
    """Mark the experts (V, K) whose reset saves more divergence than it loses likelihood.

    In each node, the experts of negligible loss, and of the others the one that gains most.
    """
    empty = copy.deepcopy(guide)
    reset(empty, torch.ones_like(guide.loc, dtype=torch.bool))
    parts = [sample(data, ELBO_ROWS // DRAWS) for _ in range(DRAWS)]
    share = len(parts[0].X) / len(data.X)
    loss = torch.stack([losses(guide, part, steepness) for part in parts]).mean(0) / share
    gain = kl_weight * (divergences(guide) - divergences(empty)) - loss
    negligible = loss <= NEGLIGIBLE
    best = torch.where(negligible, -math.inf, gain).max(1, keepdim=True).values
    return torch.where(negligible, gain > MIN_GAIN, (gain == best) & (gain > 0))


@torch.no_grad()
def reset(guide: PolytopeGuide, experts: Tensor) -> None:
    """Move the factors of ``experts``, a mask (V, K), to the prior, or nearest to it."""
    weight = nearest_weibull(guide.priors.weight.law(guide.model.split.n_experts, guide.loc))
    guide.loc[experts] = weight.loc
    guide.log_concentration[experts] = weight.concentration.log()
    guide.unit_mean[experts] = 0.0
    guide.log_scale[experts] = guide.scales.reset(experts)
    if guide.full:
        guide.unit_lower[experts] = 0.0
        guide.unit_tilt[experts] = 0.0


class Rival:
    """A copy of a fit that takes the same steps, but after resets of its idle experts.

    ``ascent`` is the fit, and ``advance`` takes the steps of an epoch of either. The epochs in
    which the divergence has its full weight are divided into stretches. At the start of a stretch
    the rival follows from the fit, and at its end the better of the two goes on.
    """

    def __init__(self, ascent: Ascent, advance: Callable[[Ascent, int], Any]) -> None:
        self.ascent, self.rival, self.advance = ascent, ascent.copied(), advance
        self.n_epochs = ascent.schedule.n_steps // ascent.per_epoch
        self.stretch = max(1, round(STRETCH * self.n_epochs))
        self.n_reset = 0  # experts in the present stretch; 0 if there is no rival
        self.trace: list[str] = []  # the resets that were tried

    def before(self, epoch: int) -> None:
        """Take the rival's steps of an epoch, on the random numbers that the fit will use."""
        schedule, step = self.ascent.schedule, epoch * self.ascent.per_epoch
        whole = epoch % self.stretch == 0 and epoch + self.stretch <= self.n_epochs
        if whole and schedule.prior(step) >= 1:
            with forked():
                self._propose(schedule.gamma(step))
        if self.n_reset:
            with forked():
                self.advance(self.rival, epoch)

    def _propose(self, steepness: float) -> None:
        guide = self.ascent.module.eval()
        idle = find_idle(guide, self.ascent.data, steepness, self.ascent.weight)
        guide.train()
        self.n_reset = int(idle.sum())
        if self.n_reset:
            _follow(self.rival, self.ascent)
            reset(self.rival.module, idle)
            self.rival.optimiser.forget(idle)

    def after(self, epoch: int) -> None:
        """End a stretch: let the fit follow from its rival if that has a higher bound."""
        if not self.n_reset or (epoch + 1) % self.stretch:
            return
        steepness = self.ascent.schedule.gamma((epoch + 1) * self.ascent.per_epoch - 1)
        gains = _bounds(self.rival, steepness) - _bounds(self.ascent, steepness)
        gain, error = float(gains.mean()), float(gains.std()) / math.sqrt(len(gains))
        kept = gain > MARGIN * error
        if kept:
            _follow(self.ascent, self.rival)
        self.trace.append(
            f"epoch {epoch + 1}: {self.n_reset} experts reset, bound {gain:+.1f} ± {error:.1f}, "
            + ("kept" if kept else "dropped")
        )
        self.n_reset = 0

    def state_dict(self) -> dict[str, Any]:
        guide, optimiser = self.rival.module.state_dict(), self.rival.optimiser.state_dict()
        moves = {"n_reset": self.n_reset, "trace": list(self.trace)}
        return {"guide": guide, "optimiser": optimiser, **moves}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rival.module.load_state_dict(state["guide"])
        self.rival.optimiser.load_state_dict(state["optimiser"])
        self.n_reset, self.trace[:] = state["n_reset"], state["trace"]


@torch.no_grad()
def _bounds(fit: Ascent, steepness: float) -> Tensor:
    """Estimate the objective of a fit draw by draw, on random numbers common to all fits."""
    fit.module.eval()
    with forked():
        found = torch.stack(list(objective_estimates(fit.module, fit.data, steepness, fit.weight)))
    fit.module.train()
    return found


def _follow(fit: Ascent, other: Ascent) -> None:
    """Continue a fit from the state of another."""
    fit.module.load_state_dict(other.module.state_dict())
    fit.optimiser.load_state_dict(other.optimiser.state_dict())
