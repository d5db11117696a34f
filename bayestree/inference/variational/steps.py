"""Steps along the natural gradient of the bound.

A step draws all experts once. With the paths of the rows integrated out (``routing.expectation``),
the log-likelihood of a row has, in the score s of a node, the slope

    g  =  w P(passed | y) (P(right | passed, y) - q) c,      c = gamma / (1 - exp(-s)),

with q = P(right | x), the steepness gamma and the weight w of the row, and the curvature

    g ((1 - 2 q) c - exp(-s) / (1 - exp(-s)))  -  g^2 / w.

s = sum_k r_k softplus(psi_k) with psi_k = beta_k . x turns these into slope and curvature in each
psi_k and each log r_k, by row. The precision of a normal factor is the expectation of minus the
curvature at the optimum (Opper and Archambeau, "The variational Gaussian approximation revisited",
2009), so that

    precision  <-  (1 - rho) precision + rho (E[1 / sigma^2] + sum_n h_n x_n x_n'),
    mean       <-  mean + rho precision^-1 (slope of the bound)

is a natural-gradient step (Khan and Lin, "Conjugate-computation variational inference", 2017). For
h, the first half of a fit takes g^2 / w (Gauss-Newton), which is never negative. The second half
takes minus the curvature itself; a term of second order keeps the precision positive definite (Lin,
Schmidt and Khan, "Handling the positive-definite constraint in the Bayesian learning rule", 2020).

For a weight, the log-likelihood is replaced by alpha x - beta e^x in x = log r, which has the same
slope f' and curvature -J at the draw if alpha = f' + J and beta = J / r. It adds alpha to the shape
of the prior and beta to its rate. J is at least -f', so that a vote that only harms adds to the
rate alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bayestree import routing
from bayestree.inference.data import Data
from bayestree.inference.variational.factors import ExpertDraw, Factors, Rows, StepRule
from bayestree.models.priors import Moments

ACTIVATIONS, LEAST_ROWS = 50_000, 64  # of rows that are evaluated together, in the cache


class Slopes(NamedTuple):
    """Log-likelihood of rows, its slopes, minus its curvatures, and the leaves' statistics."""

    likelihood: Tensor  # (T,)
    coefficient: Tensor  # slope in the coefficients, (V, K, d + 1)
    information: Tensor  # minus the curvature in each psi of each row, (V, K, n)
    weight: Tensor  # slope in log r, (V, K)
    weight_information: Tensor  # minus the curvature in log r, (V, K)
    sums: Tensor  # (L, c)

    @classmethod
    def joined(cls, parts: Sequence["Slopes"]) -> "Slopes":
        """Add the slopes of consecutive rows."""
        terms = {name: [getattr(part, name) for part in parts] for name in cls._fields}
        information = torch.cat(terms.pop("information"), dim=-1)
        sums = {name: torch.stack(values).sum(0) for name, values in terms.items()}
        return cls(information=information, **sums)


@torch.no_grad()
def step(factors: Factors, rows: Rows, rule: StepRule, power: float = 1.0) -> Tensor:
    """Take a step, and return the bound of each tree before it, (T,).

    ``power`` is that of the likelihood of the splits: above 1 for a tempered posterior.
    """
    draw, rate = factors.draw(), rule.rate
    size = max(LEAST_ROWS, ACTIVATIONS // draw.log_weight.numel())
    each = [_slopes(factors, draw, part, rule, power) for part in rows.parts(size)]
    slopes = Slopes.joined(each)
    mean_slope, prior_precision, log_prior = _prior(factors)
    bound = slopes.likelihood - factors.split_divergence(log_prior) - factors.leaf_divergence()
    factors.sums.lerp_(slopes.sums, rate)
    if factors.model.split.weighted:
        _move_weights(factors, slopes, draw, rule)
    slope = slopes.coefficient + rule.prior * mean_slope
    factors.move(rows, slope, slopes.information, rule.prior * prior_precision, rule)
    return bound


def _slopes(factors: Factors, draw: ExpertDraw, rows: Rows, rule: StepRule, power: float) -> Slopes:
    """Compute slopes and curvatures at a draw, summed over the rows."""
    n_nodes, n_experts, width = draw.coefficient.shape
    activation = (draw.coefficient.view(-1, width) @ rows.X.T).view(n_nodes, n_experts, -1)
    weight = draw.log_weight.exp()
    score, silent = routing.rates(activation, weight)
    odds = rule.steepness * routing.log_odds(score)
    density = factors.leaf_law.expected_log_density(rows.y).T.contiguous()
    found = routing.expectation(odds, density, factors.topology)
    mass, right = found.mass[:n_nodes], odds.sigmoid()
    left = torch.exp(-score)
    chance = -torch.expm1(-score)
    scale = rule.steepness / chance
    of_one = mass * (found.right - right) * scale  # of a row of weight 1
    slope = power * rows.weights * of_one
    square = slope * of_one
    curvature = square - slope * ((1 - 2 * right) * scale - left / chance)
    turn = torch.expm1(silent).neg_()  # sigmoid(psi)
    up = weight.unsqueeze(-1) * turn  # d score / d psi
    of_coefficient = slope.unsqueeze(1) * up
    information = (curvature if rule.exact else square).unsqueeze(1) * up.square_()
    if rule.exact:
        information.addcmul_(of_coefficient, turn.sub_(1))
    vote = silent.neg_().mul_(weight.unsqueeze(-1))  # r softplus(psi) = d score / d log r
    of_weight = (vote @ slope.unsqueeze(-1)).squeeze(-1)
    bent = (vote.square_() @ curvature.unsqueeze(-1)).squeeze(-1) - of_weight
    return Slopes(
        found.log_likelihood @ rows.weights,
        of_coefficient @ rows.X,
        information,
        of_weight,
        bent,
        found.mass[n_nodes:] @ rows.statistics,
    )


def _move_weights(factors: Factors, slopes: Slopes, draw: ExpertDraw, rule: StepRule) -> None:
    """Move the gamma factors of the weights."""
    prior = factors.model.priors.weight.law(factors.model.split.n_experts, factors.rate)
    slope = slopes.weight
    information = torch.maximum(slopes.weight_information, -slope).clamp_min(0.0)
    # Without any prior, r has the flat density, of shape 1 and rate 0.
    shape = 1 + rule.prior * (prior.concentration - 1) + slope + information
    at = draw.log_weight.clamp_min(-600.0).exp()  # of weights that would underflow
    factors.shape.lerp_(shape, rule.rate)
    factors.rate.lerp_(rule.prior * prior.rate + information / at, rule.rate)


def _prior(factors: Factors) -> tuple[Tensor, Tensor, Tensor]:
    """Return slope in the means, precision (V, K, d + 1) and value of the expected log prior."""
    moments = factors.moments
    with torch.enable_grad():
        mean, variance = (value.detach().requires_grad_() for value in moments[:2])
        value = factors.scales.expected_log_prior(Moments(mean, variance))
        slope, half = torch.autograd.grad(value.sum(), (mean, variance))
    return slope, -2 * half, value.detach()


@torch.no_grad()
def bounds(factors: Factors, data: Data, weight: float, n_draws: int) -> Tensor:
    """Estimate the bound of each tree from single draws, shape (n_draws, T).

    Leaves are drawn, too, so that this bound is at least that of :func:`step`, which averages their
    log-densities. ``weight`` is the factor of the divergence of the splits.
    """
    model, experts = factors.model, factors.rate.numel()
    divergence = weight * factors.split_divergence() + factors.leaf_divergence()
    found = []
    for _ in range(n_draws):
        draw, leaves, total = factors.draw(), factors.leaf_law.sample(), -divergence
        for part in data.parts(max(LEAST_ROWS, ACTIVATIONS // experts), ones=True):
            odds = factors.odds(draw, part.X, model.steepness)
            density = model.leaf.log_density(leaves, part.y).T.contiguous()
            likelihood = routing.expectation(odds, density, factors.topology).log_likelihood
            total = total + likelihood @ part.weights
        found.append(total)
    return torch.stack(found)
