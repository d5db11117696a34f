"""Starts of a search: over-complete fits of points, and guides around points."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

from bayestree.distributions import EULER
from bayestree.inference.facets.bound import FacetPrior
from bayestree.inference.facets.draws import WEIBULL_SD
from bayestree.inference.facets.fits import Fits, Problem, drop_negligible, join, refit
from bayestree.inference.facets.guide import NodeGuide
from bayestree.inference.facets.likelihood import Planes, log_likelihood
from bayestree.inference.facets.rows import Rows, votes
from bayestree.inference.facets.sides import SideState
from bayestree.inference.lbfgs import minimise

LOG2 = math.log(2)
CUT_OFF = (0.05, 0.4)  # range of the share of rows that an initial half-space sends right
LEFT_SHARES = (0.5, 0.35, 0.65)  # shares of the rows that consecutive starts send left
SEGMENTS = (5, 10, 20, 40, 80, 160)  # iterations between updates of the sides
MIN_SCORE = 1e-6  # smaller scores have no reliable Fisher information
POOL_CONCENTRATION, POOL_SCALE, POOL_INTERCEPT = 0.15, 0.5, -1.0


class Points(NamedTuple):
    """Point estimates of the experts of several fits."""

    coefficient: Tensor  # (fit, slot, feature + 1)
    log_weight: Tensor  # (fit, slot)

    def one(self, fit: int) -> "Points":
        """One of the fits, without the dimension."""
        return Points(self.coefficient[fit], self.log_weight[fit])

    @classmethod
    def at(cls, flat: Tensor, slots: int) -> "Points":
        """Points of coordinates (fit, slot * (feature + 2)), the log-weight last in each slot."""
        both = flat.view(len(flat), slots, -1)
        return cls(both[..., :-1], both[..., -1])

    @property
    def flat(self) -> Tensor:
        """Coordinates, the inverse of :meth:`at`."""
        return torch.cat([self.coefficient, self.log_weight[..., None]], -1).flatten(1)

    def strongest(self, slots: int, rows: Rows) -> "Points":
        """The experts (slot, ...) that contribute most to the scores of the rows."""
        top = softplus(self.coefficient @ rows.design.T).amax(-1) * self.log_weight.exp()
        return Points(*(part[top.argsort(descending=True)[:slots]] for part in self))


def outer_points(problem: Problem) -> Points:
    """Steep half-spaces, each of which cuts off an outer part of the rows."""
    options, generator, x = problem.options, problem.generator, problem.rows.x
    shape = (options.restarts, min(options.start_facets, problem.prior.n_experts))
    direction = normalize(
        torch.randn(*shape, x.shape[1], generator=generator, dtype=x.dtype), dim=-1
    )
    low, high = CUT_OFF
    share = low + (high - low) * torch.rand(*shape, generator=generator, dtype=x.dtype)
    projected = (direction @ x.T).sort(-1).values
    place = ((1 - share) * (len(x) - 1)).long()
    offset = projected.gather(-1, place[..., None])
    steep = options.steepness / projected.std(-1, keepdim=True).clamp_min(1e-6)
    coefficient = torch.cat([direction * steep, -steep * offset], -1)
    log_weight = torch.zeros(shape, dtype=x.dtype)
    score = votes(coefficient, log_weight, problem.rows.design)
    middle = [torch.quantile(one, LEFT_SHARES[i % len(LEFT_SHARES)]) for i, one in enumerate(score)]
    return Points(coefficient, log_weight + (LOG2 / torch.stack(middle)).log()[:, None])


def fit_points(points: Points, problem: Problem) -> tuple[Points, SideState, Tensor]:
    """MAP in the log-weights of many starts at once, sides updated between segments.

    The last result is the log-posteriors (fit,), up to a constant.
    """
    rows, slots = problem.rows, points.log_weight.shape[1]
    state = problem.routed(votes(*points, rows.design))

    def objective(flat: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        flat = flat.detach().requires_grad_()
        at = Points.at(flat, slots)
        fit = log_likelihood(
            Planes(at.coefficient), at.log_weight[..., None], rows, state.take(which)
        )
        value = penalty(at, problem.prior) - fit
        (gradient,) = torch.autograd.grad(value.sum(), flat)
        return value.detach(), gradient

    for iterations in SEGMENTS:
        found = minimise(objective, points.flat, max_iterations=iterations, tolerance=1e-2)
        points = Points.at(found.point, slots)
        state = problem.follow(Planes(points.coefficient), points.log_weight[..., None], state)
    return points, state, -found.value


def penalty(points: Points, prior: FacetPrior) -> Tensor:
    """Minus the log-prior, up to a constant, with shrinkages at their prior means, (fit,)."""
    law = prior.weight.law(prior.n_experts, points.log_weight)
    shrinkage = prior.hyperplane.prior_means(points.log_weight)["shrinkage"]
    b = shrinkage[..., None] * prior.hyperplane.squares(points.coefficient)
    planes = prior.hyperplane.collapsed_log_prob(points.coefficient, b)
    return -planes.sum((-1, -2)) - law.log_prob(points.log_weight).sum(-1)


def laplace_slots(points: Points, rows: Rows, prior: FacetPrior) -> NodeGuide:
    """Slots of one fit from each expert's block of the Fisher information.

    ``points`` are those of one fit, without the dimension.
    """
    coefficient, log_weight = points
    precision = _information(points, rows)
    spread = coefficient.square().mean(-1, keepdim=True)
    prior_like = torch.cat([torch.full_like(spread, 0.3), 3 / (spread + coefficient**2 + 1e-3)], -1)
    covariance = torch.linalg.inv(precision + torch.diag_embed(prior_like))
    sd = covariance[:, 0, 0].sqrt()
    tilt = covariance[:, 1:, 0] / sd[:, None]
    factor = torch.linalg.cholesky(covariance[:, 1:, 1:] - tilt[:, :, None] * tilt[:, None])
    concentration = WEIBULL_SD / sd
    second = coefficient.square() + tilt.square() + factor.square().sum(-1)
    parts = (
        coefficient,
        tilt,
        factor,
        log_weight + EULER / concentration,
        concentration.log(),
        prior.log_rate(second),
        torch.ones_like(log_weight),
    )
    return NodeGuide(*(part[None] for part in parts))


def _information(points: Points, rows: Rows) -> Tensor:
    """Fisher information of (log-weight, coefficients), (slot, feature + 2, feature + 2)."""
    score = votes(*points, rows.design).clamp_min(MIN_SCORE)
    left, right = rows.split(score)
    # information of a Bernoulli variable with log-odds steepness * log(exp(s) - 1) about s
    info = rows.weights * (left + right).exp() * (rows.steepness / torch.expm1(-score)).square()
    activation = points.coefficient @ rows.design.T
    weight = points.log_weight.exp()[:, None]
    by_weight = (weight * softplus(activation))[..., None]
    by_coefficient = (weight * torch.sigmoid(activation))[..., None] * rows.design
    jacobian = torch.cat([by_weight, by_coefficient], -1)
    return (jacobian * info[:, None]).mT @ jacobian


def pool_slot(rows: Rows, prior: FacetPrior) -> NodeGuide:
    """A pool near the prior: small weights, and wide hyperplanes with negative intercepts."""
    width, like = rows.design.shape[1], rows.design
    mean = like.new_zeros(1, 1, width)
    mean[..., -1] = POOL_INTERCEPT
    factor = POOL_SCALE * torch.eye(width, dtype=like.dtype)[None, None]
    log_concentration = like.new_full((1, 1), math.log(POOL_CONCENTRATION))
    law = prior.weight.law(prior.n_experts, like)
    rate = float(law.rate) + 0.1 * float(rows.weights.sum())
    level = math.log(float(law.concentration) / rate)
    loc = level - torch.lgamma(1 + torch.exp(-log_concentration))
    log_rate = prior.log_rate(mean.square() + factor.square().sum(-1))
    experts = torch.full_like(loc, prior.n_experts)
    return NodeGuide(mean, 0 * mean, factor, loc, log_concentration, log_rate, experts)


def guide_around(points: Points, rows: Rows, prior: FacetPrior) -> NodeGuide:
    """Guide of one fit, pool included, around its points."""
    pool = pool_slot(rows, prior)
    return pool.add(laplace_slots(points, rows, prior), prior.n_experts)


def with_points(guide: NodeGuide, new: Points, problem: Problem) -> NodeGuide:
    """Guide of one fit with experts at new points added to its own."""
    here, level = (part[0] for part in guide.centre())
    together = Points(torch.cat([here, new.coefficient]), torch.cat([level, new.log_weight]))
    slots = laplace_slots(together, problem.rows, problem.prior)
    return guide.add(
        slots.slots(torch.arange(len(here), len(slots.loc[0]))), problem.prior.n_experts
    )


def over_complete(problem: Problem, present: Points | None = None) -> list[Fits]:
    """Over-complete fits of points, converted to guides and briefly refitted.

    ``present`` (without the dimension of fits) is an additional start.
    """
    points = outer_points(problem)
    if present is not None:
        chosen = present.strongest(points.log_weight.shape[1], problem.rows)
        points = Points(*(torch.cat([p, c[None]]) for p, c in zip(points, chosen, strict=True)))
    points, state, value = fit_points(points, problem)
    fits = []
    for fit in range(len(value)):
        guide = guide_around(points.one(fit), problem.rows, problem.prior)
        which = torch.tensor([fit])
        fits.append(drop_negligible(Fits(guide, state.take(which), value[which]), problem))
    field = refit(join(fits), problem, 30, 1, 0.5)
    return [
        fit._replace(guide=fit.guide.keep(fit.guide.experts[0] > 0, problem.prior.n_experts))
        for fit in field.each()
    ]
