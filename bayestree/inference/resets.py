"""Resets of idle experts to the prior during a variational fit, kept if they raise its bound.

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
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bayestree import routing
from bayestree._utils.seed import forked
from bayestree.distributions import nearest_weibull
from bayestree.inference.bounds import ELBO_ROWS, objective_estimates, sample
from bayestree.inference.data import Data
from bayestree.inference.expectation import levels, right_given_y
from bayestree.inference.guides import PolytopeGuide
from bayestree.inference.training import Ascent
from bayestree.topology import Topology

STRETCH = 0.05  # share of the epochs between proposals
DRAWS = 4  # of which losses and divergences are averages
NEGLIGIBLE = 0.3  # nats: all experts that lose less, but of the others one in each node
MIN_GAIN = 2.0  # nats that the reset of an expert of negligible loss saves
MARGIN = 2.0  # standard errors by which the bound must rise


@torch.no_grad()
def losses(guide: PolytopeGuide, data: Data, steepness: float) -> Tensor:
    """Log-likelihood lost by leaving out one expert, for each expert (V, K); one draw."""
    total = torch.zeros_like(guide.loc)
    moments = guide.moments
    for part in data.parts(ones=True):
        activation, log_weight = guide.activations(part.X, moments)
        score, silent = routing.vote_and_silence(activation, log_weight)
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
def idle_experts(guide: PolytopeGuide, data: Data, steepness: float, kl_weight: float) -> Tensor:
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
        idle = idle_experts(guide, self.ascent.data, steepness, self.ascent.weight)
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
