"""Moves from one fit to others: deletions, merges, births, exchanges and rotations.

Each returns candidates that are not yet refitted; a race decides between them.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

from bayestree.inference.facets.fits import Fits, Problem
from bayestree.inference.facets.guide import NodeGuide
from bayestree.inference.facets.starts import LOG2, Points, with_points

MIN_SIMILARITY = 0.2  # minimum cosine of two facets that may be merged
SAME = 0.95  # births of greater cosine count as the same
MAX_ANGLE = 0.6  # maximum rotation in radians
#: Random search for a cut: directions per feature, survivors of a step, copies of each.
DIRECTIONS, NARROWED, COPIES = 50, 12, 4


def proposals(fit: Fits, problem: Problem) -> list[Fits]:
    """Candidates of all kinds of moves."""
    return [
        *births(fit, problem, 3, 2),
        *exchanges(fit, problem, 5),
        *deletions(fit, problem, 3),
        *merges(fit, problem, 2),
        *rotations(fit, problem, 3),
    ]


def removal_loss(fit: Fits, problem: Problem) -> Tensor:
    """Loss of log-likelihood at the centre when one expert is removed, shape (facet,)."""
    rows = problem.rows
    coefficient, log_weight = (part[0] for part in fit.guide.centre())
    part = log_weight.exp()[:, None] * softplus(coefficient @ rows.design.T)
    score = part.sum(0)
    sides = fit.sides.log_left[0], fit.sides.log_right[0]
    without = rows.log_likelihood((score - part).clamp_min(1e-12), *sides) @ rows.weights
    return (rows.log_likelihood(score, *sides) @ rows.weights - without)[:-1]


def deletions(fit: Fits, problem: Problem, limit: int) -> list[Fits]:
    """Candidates without one of the facets whose removal costs least."""
    return [
        fit._replace(guide=fit.guide.without([facet], problem.prior.n_experts))
        for facet in removal_loss(fit, problem).argsort()[:limit].tolist()
    ]


def merges(fit: Fits, problem: Problem, limit: int) -> list[Fits]:
    """Candidates with two facets of similar direction replaced by one between them."""
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
    """Candidates with one more facet (or up to ``depth``, greedily) where its gain is largest."""
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
    """Median steepness and log-weight of the experts in use."""
    if guide.n_slots == 1:
        like = guide.loc
        return like.new_tensor(problem.options.steepness), like.new_tensor(0.0)
    steep = guide.mean[0, :-1, :-1].norm(dim=-1).median()
    return steep, guide.centre()[1][0, :-1].median().clamp(-3.0, 1.0)


def exchanges(fit: Fits, problem: Problem, limit: int) -> list[Fits]:
    """Candidates with one facet replaced by one or two better cuts."""
    found = []
    for without in deletions(fit, problem, limit):
        found.extend(births(without, problem, 1, 2)[-1:])
    return found


def rotations(fit: Fits, problem: Problem, limit: int) -> list[Fits]:
    """Candidates rotated at random about the mean of the rows on the left."""
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
    """Distinct half-spaces whose rows have the largest sums of ``gain`` (row,).

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
