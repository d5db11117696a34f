"""Search for the number of facets of one polytope split.

An over-complete, accurate fit first; then moves (deletions, merges, births, exchanges, rotations),
each refitted to convergence in a race of a batch of candidates, and accepted by the evidence
lower bound.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from bayestree import routing
from bayestree.inference.facets.bound import FacetPrior, climb
from bayestree.inference.facets.draws import even_draws
from bayestree.inference.facets.fits import (
    SIDE_STEPS,
    Fits,
    Problem,
    drop_negligible,
    measure,
    race,
    refit,
)
from bayestree.inference.facets.guide import NodeGuide
from bayestree.inference.facets.moves import deletions, merges, proposals
from bayestree.inference.facets.rows import Rows
from bayestree.inference.facets.sides import SideState
from bayestree.inference.facets.starts import LOG2, Points, over_complete, pool_slot

RESELECTIONS = 3  # maximum number of times that the rows of the search are chosen
SAME_ELBO = 0.5  # fits whose ELBOs differ by fewer nats count as the same
NEAR_SHARE = 0.75  # share of the rows of the search that are near a boundary
MAX_WEIGHT = 3.0  # a mislabelled row of greater weight would justify a facet by itself
CLIMBS = 5  # climbs to the guide of an idle expert


class FacetSearch(NamedTuple):
    """Outcome of :func:`search_facets`."""

    guide: NodeGuide  # one fit of at most ``n_experts + 1`` slots
    sides: SideState
    elbo: float  # ELBO of all rows on fresh draws
    gain: float  # gain in nats over sending all rows one way
    trace: list[str]  # the moves that were tried, and the resulting ELBOs


def search_facets(
    problem: Problem, *, present: Points | None = None, guide: NodeGuide | None = None
) -> FacetSearch:
    """Posterior of one polytope split, with the number of facets that the ELBO supports.

    ``present`` is a start in addition to random ones: experts (slot, ...) without the dimension of
    fits. ``guide`` is a guide to improve by moves, instead of all starts.
    """
    trace: list[str] = []
    fit = _from_starts(problem, present, trace) if guide is None else problem.adopt(guide)
    fit = finish(_explore(fit, problem, trace), problem)
    elbo = measure(fit, problem)
    gain = split_gain(elbo, problem)
    trace.append(f"end {fit.guide.n_facets} {elbo:.1f}, gain {gain:.1f}")
    return FacetSearch(fit.guide, fit.sides, elbo, gain, trace)


def _from_starts(problem: Problem, present: Points | None, trace: list[str]) -> Fits:
    """The best of several over-complete fits, pruned."""
    found = over_complete(core_rows([], problem), present)
    trace.extend(f"start {fit.guide.n_facets} {fit.best:.1f}" for fit in found)
    found = distinct(found, problem.options.keep_starts)
    core = core_rows(found, problem)
    found = [prune(core.adopt(fit.guide), core, trace) for fit in found]
    return distinct(found, 1)[0]


def _explore(fit: Fits, problem: Problem, trace: list[str]) -> Fits:
    """Moves until none is accepted, on a selection of the rows where there are many."""
    core = core_rows([fit], problem)
    if core is problem:
        return improve(refit(problem.adopt(fit.guide), problem, 40, 2), problem, trace)
    for _ in range(RESELECTIONS):
        before = fit.guide.n_facets
        fit = improve(refit(core.adopt(fit.guide), core, 40, 2), core, trace)
        if fit.guide.n_facets == before:
            break
        core = core_rows([fit], problem)
    return prune(problem.adopt(fit.guide), problem, trace)


def core_rows(fits: list[Fits], problem: Problem) -> Problem:
    """The problem on a selection of the rows, reweighted so that sums are unbiased.

    Three quarters are the rows nearest to a boundary of ``fits``, with unchanged weights; the rest
    are drawn from the others with weights above 1. Distances are in feature space: in units of the
    score, a steep facet would have few rows near it, and mislabelled ones of large weight beyond
    them. Without fits, all rows have the same probability.
    """
    design, size = problem.rows.design, problem.options.core_rows
    n = len(design)
    if n <= size:
        return problem
    chance = torch.full((n,), size / n, dtype=torch.float64)
    if fits:
        distance = torch.stack([boundary_distance(fit.guide, design) for fit in fits])
        nearest = distance.amin(0).argsort()[: int(NEAR_SHARE * size)]
        rest = (size - len(nearest)) / (n - len(nearest))
        chance[:] = max(rest, 1 / MAX_WEIGHT)
        chance[nearest] = 1.0
    uniform = torch.rand(n, generator=problem.generator, dtype=torch.float64)
    index = torch.nonzero(uniform < chance)[:, 0]
    return problem.on(index, 1 / chance[index])


def boundary_distance(guide: NodeGuide, design: Tensor) -> Tensor:
    """Distance of each row from the border of the enclosing polytope, by its worst facet, (row,).

    A facet is where P(right) by its expert alone is 1/2.
    """
    coefficient, log_weight = (part[0, :-1] for part in guide.centre())
    if not len(coefficient):
        return torch.zeros_like(design[:, 0])
    border = routing.log_odds(LOG2 * torch.exp(-log_weight))
    activation = coefficient @ design.T - border[:, None]
    return (activation / coefficient[:, :-1].norm(dim=-1)[:, None]).amax(0).abs()


def distinct(fits: list[Fits], limit: int) -> list[Fits]:
    """The best fits, without those that are similar to a better one."""
    chosen: list[Fits] = []
    for fit in sorted(fits, key=lambda fit: -fit.best):
        alike = any(
            fit.guide.n_facets == other.guide.n_facets and abs(fit.best - other.best) < SAME_ELBO
            for other in chosen
        )
        if len(chosen) < limit and not alike:
            chosen.append(fit)
    return chosen


def prune(fit: Fits, problem: Problem, trace: list[str]) -> Fits:
    """Backward elimination, until no removal improves the ELBO."""
    fit = drop_negligible(refit(fit, problem, 40, 2), problem)
    while fit.guide.n_facets > 1:
        best = race([fit, *deletions(fit, problem, 4), *merges(fit, problem, 2)], problem)
        trace.append(f"prune {fit.guide.n_facets} -> {best.guide.n_facets} {best.best:.1f}")
        if best.guide.n_facets >= fit.guide.n_facets:
            return best if best.best > fit.best else fit
        fit = best
    return fit


def improve(fit: Fits, problem: Problem, trace: list[str]) -> Fits:
    """Moves of all kinds, until none is accepted."""
    for _ in range(problem.options.rounds):
        best = race([fit, *proposals(fit, problem)], problem)
        gain = best.best - fit.best
        trace.append(f"move {fit.guide.n_facets} -> {best.guide.n_facets} {best.best:.1f}")
        fit = best if gain > 0 else fit
        if gain <= problem.options.min_gain:
            break
    return fit


def finish(fit: Fits, problem: Problem) -> Fits:
    """Fit on all rows with more draws, to convergence."""
    rough = drop_negligible(refit(problem.adopt(fit.guide), problem, 40, 2, 0.1), problem)
    draws = even_draws(problem.options.final_draws, problem.prior.n_experts + 1, problem.generator)
    return refit(rough, problem._replace(draws=draws), 60, 6, 0.02)


def split_gain(elbo: float, problem: Problem) -> float:
    """Gain in nats of a node with that ELBO over the better of its two sides alone.

    The divergence of idle experts is added back: the exact posterior of an expert that affects no
    row is its prior, which the guide's family does not contain.
    """
    idle = idle_cost(problem.prior, problem.rows.design.shape[1])
    return elbo + idle - max(_one_sided_bound(problem, side) for side in (0, 1))


def _one_sided_bound(problem: Problem, side: int) -> float:
    """Bound where all rows go left (0) or right (1), after optimising the sides."""
    rows, value = problem.rows, -torch.inf
    share = torch.ones_like(rows.weights)[None]
    for _ in range(SIDE_STEPS):
        nothing = torch.zeros_like(share)
        left, right = (share, nothing) if side == 0 else (nothing, share)
        state = problem.sides.update(left, right, rows.weights)
        value_here = state[side]
        whole = value_here if rows.log_else is None else torch.logaddexp(value_here, rows.log_else)
        share = torch.exp(value_here - whole)
        value = float(whole[0] @ rows.weights + state.value[0])
    return value


@lru_cache(maxsize=32)
def idle_cost(prior: FacetPrior, width: int) -> float:
    """Minimum divergence from the prior of a node whose experts are all idle."""
    nothing = torch.zeros(1, width, dtype=torch.float64)
    rows = Rows(nothing, nothing[:, 0])
    flat = torch.zeros(1, 1, dtype=torch.float64)
    state = SideState(flat, flat, flat[0])
    guide = pool_slot(rows, prior)
    draws = even_draws(8, 1, torch.Generator().manual_seed(0))
    elbo = torch.zeros(1)
    for _ in range(CLIMBS):
        guide, elbo, _ = climb(guide, draws, rows, state, prior, iterations=60, tolerance=1e-4)
    return -float(elbo)
