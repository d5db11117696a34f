"""Starts of a search, and moves from one fit to others.

Starts are over-complete fits of points, and guides around points. Moves are deletions, merges,
births, exchanges and rotations; each returns candidates that are not yet refitted, and a race
decides between them.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

from bayestree.distributions import EULER
from bayestree.inference.variational.facets.bound import (
    WEIBULL_SD,
    FacetPrior,
    Fits,
    NodeGuide,
    Problem,
    drop_negligible,
    join,
    refit,
)
from bayestree.inference.variational.facets.lbfgs import minimise
from bayestree.inference.variational.facets.likelihood import (
    Planes,
    SideState,
    SplitRows,
    log_likelihood,
    votes,
)

LOG2 = math.log(2)
CUT_OFF = (0.05, 0.4)  # range of the share of rows that an initial half-space sends right
LEFT_SHARES = (0.5, 0.35, 0.65)  # shares of the rows that consecutive starts send left
SEGMENTS = (5, 10, 20, 40, 80, 160)  # iterations between updates of the sides
MIN_SCORE = 1e-6  # smaller scores have no reliable Fisher information
POOL_CONCENTRATION, POOL_SCALE, POOL_INTERCEPT = 0.15, 0.5, -1.0
MIN_SIMILARITY = 0.2  # minimum cosine of two facets that may be merged
SAME = 0.95  # births of greater cosine count as the same
MAX_ANGLE = 0.6  # maximum rotation in radians
#: Random search for a cut: directions per feature, survivors of a step, copies of each.
DIRECTIONS, NARROWED, COPIES = 50, 12, 4


class Points(NamedTuple):
    """Point estimates of the experts of several fits."""

    coefficient: Tensor  # (fit, slot, feature + 1)
    log_weight: Tensor  # (fit, slot)

    def one(self, fit: int) -> "Points":
        """Select a fit, without the dimension."""
        return Points(self.coefficient[fit], self.log_weight[fit])

    @classmethod
    def at(cls, flat: Tensor, slots: int) -> "Points":
        """Take points from coordinates (fit, slot * (feature + 2)), each log-weight last."""
        both = flat.view(len(flat), slots, -1)
        return cls(both[..., :-1], both[..., -1])

    @property
    def flat(self) -> Tensor:
        """Coordinates, the inverse of :meth:`at`."""
        return torch.cat([self.coefficient, self.log_weight[..., None]], -1).flatten(1)

    def strongest(self, slots: int, rows: SplitRows) -> "Points":
        """Select the experts (slot, ...) that contribute most to the scores of the rows."""
        top = softplus(self.coefficient @ rows.design.T).amax(-1) * self.log_weight.exp()
        return Points(*(part[top.argsort(descending=True)[:slots]] for part in self))


def outer_points(problem: Problem) -> Points:
    """Draw steep half-spaces that cut off outer parts of the rows."""
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
    """Find the MAP of many starts at once; also return sides and log-posteriors (fit,)."""
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
    """Compute minus the log-prior, up to a constant, with shrinkages at their means, (fit,)."""
    law = prior.weight.law(prior.n_experts, points.log_weight)
    shrinkage = prior.hyperplane.prior_means(points.log_weight)["shrinkage"]
    b = shrinkage[..., None] * prior.hyperplane.squares(points.coefficient)
    planes = prior.hyperplane.collapsed_log_prob(points.coefficient, b)
    return -planes.sum((-1, -2)) - law.log_prob(points.log_weight).sum(-1)


def laplace_slots(points: Points, rows: SplitRows, prior: FacetPrior) -> NodeGuide:
    """Create slots from each expert's block of the Fisher information of one fit."""
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


def _information(points: Points, rows: SplitRows) -> Tensor:
    """Compute the information on (log-weight, coefficients), (slot, feature + 2, feature + 2)."""
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


def pool_slot(rows: SplitRows, prior: FacetPrior) -> NodeGuide:
    """Create a pool near the prior: small weights, wide hyperplanes, negative intercepts."""
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


def guide_around(points: Points, rows: SplitRows, prior: FacetPrior) -> NodeGuide:
    """Create the guide of one fit, pool included, around its points."""
    pool = pool_slot(rows, prior)
    return pool.add(laplace_slots(points, rows, prior), prior.n_experts)


def with_points(guide: NodeGuide, new: Points, problem: Problem) -> NodeGuide:
    """Add experts at new points to the guide of one fit."""
    here, level = (part[0] for part in guide.centre())
    together = Points(torch.cat([here, new.coefficient]), torch.cat([level, new.log_weight]))
    slots = laplace_slots(together, problem.rows, problem.prior)
    return guide.add(
        slots.slots(torch.arange(len(here), len(slots.loc[0]))), problem.prior.n_experts
    )


def over_complete(problem: Problem, present: Points | None = None) -> list[Fits]:
    """Fit over-complete points, and ``present`` ones; return them as guides, briefly refitted."""
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


def proposals(fit: Fits, problem: Problem) -> list[Fits]:
    """Propose candidates of all kinds of moves."""
    return [
        *births(fit, problem, 3, 2),
        *exchanges(fit, problem, 5),
        *deletions(fit, problem, 3),
        *merges(fit, problem, 2),
        *rotations(fit, problem, 3),
    ]


def removal_loss(fit: Fits, problem: Problem) -> Tensor:
    """Compute the loss of log-likelihood at the centre when an expert is removed, (facet,)."""
    rows = problem.rows
    coefficient, log_weight = (part[0] for part in fit.guide.centre())
    part = log_weight.exp()[:, None] * softplus(coefficient @ rows.design.T)
    score = part.sum(0)
    sides = fit.sides.log_left[0], fit.sides.log_right[0]
    without = rows.log_likelihood((score - part).clamp_min(1e-12), *sides) @ rows.weights
    return (rows.log_likelihood(score, *sides) @ rows.weights - without)[:-1]


def deletions(fit: Fits, problem: Problem, limit: int) -> list[Fits]:
    """Propose fits without a facet whose removal costs little."""
    return [
        fit._replace(guide=fit.guide.without([facet], problem.prior.n_experts))
        for facet in removal_loss(fit, problem).argsort()[:limit].tolist()
    ]


def merges(fit: Fits, problem: Problem, limit: int) -> list[Fits]:
    """Propose fits with two facets of similar direction replaced by one between them."""
    guide, n_experts = fit.guide, problem.prior.n_experts
    n_facets = guide.n_slots - 1
    unit = normalize(guide.mean[0, :-1, :-1], dim=-1)
    first, second = torch.triu_indices(n_facets, n_facets, 1)
    like = (unit[first] * unit[second]).sum(-1)
    found = []
    for pair in like.argsort(descending=True)[:limit].tolist():
        if float(like[pair]) < MIN_SIMILARITY:
            break
        both = [int(first[pair]), int(second[pair])]
        between = Points(
            guide.mean[0, both].mean(0, keepdim=True),
            guide.centre()[1][0, both].logsumexp(0, keepdim=True),
        )
        merged = with_points(guide.without(both, n_experts), between, problem)
        found.append(fit._replace(guide=merged))
    return found


def births(fit: Fits, problem: Problem, limit: int, depth: int = 1) -> list[Fits]:
    """Propose fits with one more facet (or up to ``depth``, greedily) where its gain is largest."""
    rows, guide = problem.rows, fit.guide
    if guide.n_slots > problem.prior.n_experts:
        return []
    left, right = fit.sides.log_left[0], fit.sides.log_right[0]
    now = rows.log_likelihood(guide.score(rows.design)[0], left, right)
    sent = right if rows.log_else is None else torch.logaddexp(right, rows.log_else)
    cuts = best_cuts((sent - now) * rows.weights, problem, limit)
    steep, level = _typical(guide, problem)
    # where an expert of that weight alone sends half of its rows right
    shift = torch.log(torch.expm1(LOG2 * torch.exp(-level)))
    found = []
    for direction, offset in zip(cuts.direction, cuts.offset, strict=True):
        coefficient = torch.cat([steep * direction, (shift - steep * offset)[None]])
        point = Points(coefficient[None], level[None])
        born = fit._replace(guide=with_points(guide, point, problem))
        found.append(born)
        if depth > 1:
            found.extend(births(born, problem, 1, depth - 1))
    return found


def _typical(guide: NodeGuide, problem: Problem) -> tuple[Tensor, Tensor]:
    """Return the median steepness and log-weight of the experts in use."""
    if guide.n_slots == 1:
        like = guide.loc
        return like.new_tensor(problem.options.steepness), like.new_tensor(0.0)
    steep = guide.mean[0, :-1, :-1].norm(dim=-1).median()
    return steep, guide.centre()[1][0, :-1].median().clamp(-3.0, 1.0)


def exchanges(fit: Fits, problem: Problem, limit: int) -> list[Fits]:
    """Propose fits with one facet replaced by one or two better cuts."""
    found = []
    for without in deletions(fit, problem, limit):
        found.extend(births(without, problem, 1, 2)[-1:])
    return found


def rotations(fit: Fits, problem: Problem, limit: int) -> list[Fits]:
    """Propose fits rotated at random about the mean of the rows on the left."""
    rows, mean = problem.rows, fit.guide.mean
    n_features = rows.x.shape[1]
    share = rows.split(fit.guide.score(rows.design)[0])[0].exp() * rows.weights
    middle = share @ rows.x / share.sum()
    found = []
    for _ in range(limit if n_features > 1 else 0):
        skew = torch.randn(n_features, n_features, generator=problem.generator, dtype=rows.x.dtype)
        skew = skew - skew.T
        turn = torch.matrix_exp(skew * MAX_ANGLE / torch.linalg.matrix_norm(skew, 2))
        direction = mean[..., :-1] @ turn
        offset = mean[..., -1] + (mean[..., :-1] - direction) @ middle
        turned = torch.cat([direction, offset[..., None]], -1)
        turned = torch.cat([turned[:, :-1], mean[:, -1:]], 1)
        found.append(fit._replace(guide=fit.guide._replace(mean=turned)))
    return found


class Cuts(NamedTuple):
    """Half-spaces direction . x > offset, and the summed gain of their rows."""

    gain: Tensor
    direction: Tensor
    offset: Tensor


def best_cuts(gain: Tensor, problem: Problem, limit: int) -> Cuts:
    """Find distinct half-spaces whose rows have the largest sums of ``gain`` (row,).

    The offset is optimal, the direction found by random search with decreasing steps.
    """
    x, generator = problem.rows.x, problem.generator
    n_features = x.shape[1]
    anywhere = torch.randn(DIRECTIONS * n_features, n_features, generator=generator, dtype=x.dtype)
    cuts = _best_offsets(anywhere, gain, x)
    spread = 0.5
    for _ in range(4 if n_features > 2 else 2):
        top = cuts.direction[cuts.gain.topk(NARROWED).indices].repeat(COPIES, 1)
        noise = torch.randn(top.shape, generator=generator, dtype=x.dtype)
        noise = noise * spread / math.sqrt(n_features)
        more = _best_offsets(top + noise, gain, x)
        cuts = Cuts(*(torch.cat(parts) for parts in zip(cuts, more, strict=True)))
        spread /= 2
    chosen: list[int] = []
    for i in cuts.gain.argsort(descending=True).tolist():
        if len(chosen) == limit or cuts.gain[i] <= 0:
            break
        if all(float(cuts.direction[i] @ cuts.direction[j]) < SAME for j in chosen):
            chosen.append(i)
    return Cuts(*(part[chosen] for part in cuts))


def _best_offsets(direction: Tensor, gain: Tensor, x: Tensor) -> Cuts:
    direction = normalize(direction, dim=-1)
    projected, order = (direction @ x.T).sort(-1, descending=True)
    total, at = gain[order].cumsum(-1)[:, :-1].max(-1)
    each = torch.arange(len(direction))
    return Cuts(total, direction, (projected[each, at] + projected[each, at + 1]) / 2)
