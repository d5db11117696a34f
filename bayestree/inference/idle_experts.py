"""Idle experts: their removal before sampling, and their resets during a variational fit.

Resets to the prior are kept if they raise the bound.

A fit that spreads the votes of a node over redundant experts is a local optimum: each pays its
divergence, and none can leave the others its share of the votes without a loss on the way. Leaving
out an expert changes the score s of its node to s - r softplus(beta . x + b), hence the
log-probabilities l and r of its branches to l' and r', and the likelihood of a row by the factor

    1 - m + m ((1 - R) exp(l' - l) + R exp(r' - r)),

with m the probability given y that the row passed the node, and R that it then went right. An
expert is idle if this loses less than the divergence that the reset saves. The factor holds for one
expert while all others stay, and late in a fit a reset cannot be mended. A copy of the fit
therefore takes the next steps with the resets, on the same batches and noise as the fit without
them, and replaces it only if its bound is then higher by twice the Monte Carlo error of their
difference.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from bayestree import routing
from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.seed import forked
from bayestree.distributions import nearest_weibull
from bayestree.inference.data import Data
from bayestree.inference.draws import Arrays
from bayestree.inference.elbo import ELBO_ROWS, objective_estimates, sample
from bayestree.inference.growing import GrowthLimits
from bayestree.inference.guides import PolytopeGuide
from bayestree.inference.harden import needed_nodes
from bayestree.inference.posterior import Posterior
from bayestree.inference.training import Ascent
from bayestree.models.splits import joined
from bayestree.routing import levels, right_given_y
from bayestree.topology import Topology

STRETCH = 0.05  # share of the epochs between proposals
DRAWS = 4  # of which losses and divergences are averages
NEGLIGIBLE = 0.3  # nats: all experts that lose less, but of the others one in each node
MIN_GAIN = 2.0  # nats that the reset of an expert of negligible loss saves
MARGIN = 2.0  # standard errors by which the bound must rise
MIN_EXPERTS, SPARE = 4, 2.0  # experts that remain: at least, and in units of the facets in use


@torch.no_grad()
def losses(guide: PolytopeGuide, data: Data, steepness: float) -> Tensor:
    """Log-likelihood lost by leaving out one expert, for each expert (V, K); one draw."""
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
    """Log-odds of having gone right, and log P(passed), of nodes and rows (V, n), given y.

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
    """KL divergence of each expert from the prior, shape (V, K)."""
    return torch.stack([torch.sub(*guide.kl_terms(guide.moments)) for _ in range(DRAWS)]).mean(0)


@torch.no_grad()
def find_idle(guide: PolytopeGuide, data: Data, steepness: float, kl_weight: float) -> Tensor:
    """Mask (V, K) of the experts whose reset saves more divergence than it loses likelihood.

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
        """At the end of a stretch, let the fit follow from its rival if that has a higher bound."""
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
    """One-draw estimates of the objective of a fit, on random numbers common to all fits."""
    fit.module.eval()
    with forked():
        found = torch.stack(list(objective_estimates(fit.module, fit.data, steepness, fit.weight)))
    fit.module.train()
    return found


def _follow(fit: Ascent, other: Ascent) -> None:
    """Continue a fit from the state of another."""
    fit.module.load_state_dict(other.module.state_dict())
    fit.optimiser.load_state_dict(other.optimiser.state_dict())


def without_idle(posterior: Posterior, data: Data) -> Posterior:
    """The posterior without the nodes and experts that its point estimate does not use.

    A node that the deterministic tree would not keep is replaced by the child that receives more
    rows. The number of experts in a node falls to twice the largest number of facets in use, but
    at least 4, with the same gamma process truncated there; those of the largest votes remain.
    The posterior is returned unchanged if its tree needs no node.
    """
    model = posterior.model
    limits = GrowthLimits(max_depth=model.topology.depth, min_leaf=1)
    needed = needed_nodes(posterior, data, limits)
    if not needed.any():
        return posterior
    sites = posterior.point_sites(data.X)
    with torch.no_grad():
        parts = [part.weights @ model.leaf_log_probs(sites, part.X).exp() for part in data.parts()]
    sides = model.topology.turns @ torch.stack(parts).sum(0).numpy(force=True)
    topology, nodes, leaves = model.topology.collapse(np.where(needed, -1, sides.argmax(0)))
    votes = _largest_votes(posterior, data)[nodes]
    in_use = int((votes > routing.LOG2).sum(1).max())
    n_experts = min(model.split.n_experts, max(MIN_EXPERTS, int(SPARE * in_use)))
    experts = np.sort(np.argsort(-votes, axis=1, kind="stable")[:, :n_experts], axis=1)
    split: Any = model.split  # a split of one expert has no such field
    if n_experts < split.n_experts:
        split = replace(split, n_experts=n_experts)

    def selected(arrays: Arrays, lead: int) -> dict[str, NDArray[Any]]:
        known = model.dimensions.items()
        return {
            name: _selected(arrays[name], dimensions, lead, nodes, experts, leaves)
            for name, dimensions in known
            if name in arrays
        }

    return replace(
        posterior,
        model=model.with_(topology=topology, split=split),
        draws=selected(posterior.draws, 2),
        point=selected(posterior.point, 0),
    )


def _largest_votes(posterior: Posterior, data: Data) -> FloatArray:
    """Largest vote r softplus(beta . x + b) of each expert over the rows, shape (V, K)."""
    sites = posterior.point_sites(data.X)
    coefficient = joined(sites)
    tops = [coefficient.flatten(0, 1) @ part.X.T for part in data.parts(ones=True)]
    top = torch.stack([each.amax(1) for each in tops]).amax(0).view(coefficient.shape[:2])
    weight = torch.as_tensor(posterior.weight()).to(top)
    return (weight * torch.nn.functional.softplus(top)).numpy(force=True).astype(np.float64)


def _selected(
    values: NDArray[Any],
    dimensions: Sequence[str],
    lead: int,
    nodes: IntArray,
    experts: IntArray,
    leaves: IntArray,
) -> NDArray[Any]:
    """Entries of a site of these dimensions, after ``lead`` others."""
    if "node" in dimensions:
        values = values.take(nodes, axis=lead)
    if "leaf" in dimensions:
        values = values.take(leaves, axis=lead)
    if "expert" in dimensions:
        after = values.ndim - lead - 2
        places = experts.reshape((1,) * lead + experts.shape + (1,) * after)
        values = np.take_along_axis(values, places, axis=lead + 1)
    return values
