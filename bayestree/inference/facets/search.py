"""Search for the number of facets of one polytope split.

An over-complete, accurate fit first; then moves (deletions, merges, births, exchanges, turns),
each refitted to convergence in a race of a batch of candidates, and accepted by the evidence
lower bound.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bayestree import routing
from bayestree.inference.facets.fits import Fits, Problem, bury, measure, race, refit
from bayestree.inference.facets.guide import NodeGuide
from bayestree.inference.facets.moves import deletions, merges, proposals
from bayestree.inference.facets.sides import SideState
from bayestree.inference.facets.starts import LN2, Points, over_complete
from bayestree.inference.facets.worth import worth

RESTS = 3  # times that the rows of the search are chosen anew
ALIKE = 0.5  # nats between two fits that are taken to be one
NEAR_SHARE = 0.75  # of the rows of the search
LARGEST_WEIGHT = 3.0  # a mislabelled row that stands for more buys a facet of its own


class FacetSearch(NamedTuple):
    """Outcome of :func:`search_facets`.

    Attributes
    ----------
    guide : NodeGuide
        One fit of at most ``n_experts + 1`` slots.
    sides : SideState
    elbo : float
        On fresh draws of all rows.
    worth : float
        Nats by which it beats sending all rows one way.
    trace : list of str
        What was tried, and the ELBO that it led to.
    """

    guide: NodeGuide
    sides: SideState
    elbo: float
    worth: float
    trace: list[str]


def search_facets(
    problem: Problem, *, present: Points | None = None, guide: NodeGuide | None = None
) -> FacetSearch:
    """Posterior of one polytope split, with as many facets as the evidence pays for.

    Parameters
    ----------
    problem : Problem
    present : Points, optional
        One more start, next to random ones: experts (slot, ...) without the dimension of fits.
    guide : NodeGuide, optional
        Where to go on from by moves, in place of all starts.

    Returns
    -------
    FacetSearch
    """
    trace: list[str] = []
    fit = _from_starts(problem, present, trace) if guide is None else problem.adopt(guide)
    fit = finish(_explore(fit, problem, trace), problem)
    elbo = measure(fit, problem)
    gain = worth(elbo, problem)
    trace.append(f"end {fit.guide.n_facets} {elbo:.1f}, worth {gain:.1f}")
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
    """Moves until none is accepted, on rows chosen by the fit where there are many."""
    core = core_rows([fit], problem)
    if core is problem:
        return improve(refit(problem.adopt(fit.guide), problem, 40, 2), problem, trace)
    for _ in range(RESTS):
        before = fit.guide.n_facets
        fit = improve(refit(core.adopt(fit.guide), core, 40, 2), core, trace)
        if fit.guide.n_facets == before:
            break
        core = core_rows([fit], problem)
    return prune(problem.adopt(fit.guide), problem, trace)


def core_rows(fits: list[Fits], problem: Problem) -> Problem:
    """The problem on the rows that serve the search, reweighted so that sums are unbiased.

    Three quarters are the rows nearest to a boundary of ``fits``, each for itself; the rest are
    drawn from the others and stand for several. Near is meant in space, not in the score: a steep
    facet that could step over its rows would meet mislabelled ones of great weight. Without fits,
    an even share of all.
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
        chance[:] = max(rest, 1 / LARGEST_WEIGHT)
        chance[nearest] = 1.0
    uniform = torch.rand(n, generator=problem.generator, dtype=torch.float64)
    index = torch.nonzero(uniform < chance)[:, 0]
    return problem.on(index, 1 / chance[index])


def boundary_distance(guide: NodeGuide, design: Tensor) -> Tensor:
    """Distance of each row from the border of the enclosing polytope, by its worst facet, (row,).

    Each facet lies where its expert alone sends half of the rows right.
    """
    coefficient, log_weight = (part[0, :-1] for part in guide.centre())
    if not len(coefficient):
        return torch.zeros_like(design[:, 0])
    border = routing.log_odds(LN2 * torch.exp(-log_weight))
    activation = coefficient @ design.T - border[:, None]
    return (activation / coefficient[:, :-1].norm(dim=-1)[:, None]).amax(0).abs()


def distinct(fits: list[Fits], most: int) -> list[Fits]:
    """The best fits, leaving out those that look like a better one."""
    chosen: list[Fits] = []
    for fit in sorted(fits, key=lambda fit: -fit.best):
        alike = any(
            fit.guide.n_facets == other.guide.n_facets and abs(fit.best - other.best) < ALIKE
            for other in chosen
        )
        if len(chosen) < most and not alike:
            chosen.append(fit)
    return chosen


def prune(fit: Fits, problem: Problem, trace: list[str]) -> Fits:
    """Backward elimination, until staying as it is wins."""
    fit = bury(refit(fit, problem, 40, 2), problem)
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
    rough = bury(refit(problem.adopt(fit.guide), problem, 40, 2, 0.1), problem)
    return refit(rough, problem.with_draws(problem.options.final_draws), 60, 6, 0.02)
