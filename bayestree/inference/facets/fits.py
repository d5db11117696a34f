"""Fits of one node's guide: refits to convergence, and races between candidates."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from bayestree.inference.facets.bound import FacetPrior, bound, climb
from bayestree.inference.facets.draws import Draws, even_draws, fresh_draws
from bayestree.inference.facets.guide import NodeGuide
from bayestree.inference.facets.likelihood import Planes, responsibilities
from bayestree.inference.facets.rows import Rows
from bayestree.inference.facets.sides import Sides, SideState

NEGLIGIBLE = 0.01 * math.log(2)  # contributions to scores below this affect no row
SIDE_STEPS = 10  # updates of the sides for a new guide
MEASURE_DRAWS, MEASURE_SEED = 512, 12_345

#: Stages of a race: iterations, segments, the gap in ELBO at which a candidate is dropped (for up
#: to ``RACE_ROWS`` rows; for more, in proportion), and the maximum number of survivors.
RACE = ((12, 1, 80.0, 8), (18, 1, 20.0, 4), (30, 1, 6.0, 2), (40, 3, 0.0, 1))
RACE_ROWS = 4_000


class SearchOptions(NamedTuple):
    """Effort of the search; the defaults suit all data."""

    restarts: int = 8  # number of over-complete starts
    start_facets: int = 12  # number of facets of each start
    keep_starts: int = 3  # number of starts that are pruned by the ELBO
    trial_draws: int = 8  # number of base draws during the search
    final_draws: int = 32  # number of base draws in the last fit
    #: Approximate number of rows used by the search where there are more (at least a third of
    #: all); the last fit uses all rows.
    core_rows: int = 5000
    rounds: int = 30  # maximum number of rounds of moves
    steepness: float = 6.0  # of the initial hyperplanes, per standard deviation of the rows
    min_gain: float = 0.3  # minimum increase of the ELBO, in nats, for another round


class Fits(NamedTuple):
    """Several fits: guides, their sides, and their ELBOs (fit,)."""

    guide: NodeGuide
    sides: SideState
    elbo: Tensor

    def take(self, which: Tensor) -> "Fits":
        return Fits(self.guide.take(which), self.sides.take(which), self.elbo[which])

    def each(self) -> list["Fits"]:
        """Every fit by itself."""
        return [self.take(torch.tensor([fit])) for fit in range(len(self.elbo))]

    @property
    def best(self) -> float:
        """ELBO of the first fit."""
        return float(self.elbo[0])


class Problem(NamedTuple):
    """The fixed parts of a search."""

    rows: Rows
    sides: Sides
    prior: FacetPrior
    draws: Draws
    options: SearchOptions
    generator: Generator

    @classmethod
    def of(
        cls,
        rows: Rows,
        sides: Sides,
        prior: FacetPrior,
        generator: Generator,
        options: SearchOptions = SearchOptions(),  # noqa: B008 - it is immutable
    ) -> "Problem":
        """The problem with the base draws of the trials."""
        draws = even_draws(options.trial_draws, prior.n_experts + 1, generator)
        return cls(rows, sides, prior, draws, options, generator)

    def on(self, index: Tensor, scale: Tensor) -> "Problem":
        """The problem on some of the rows, their weights multiplied by ``scale``."""
        rows = self.rows.take(index)
        rows = rows._replace(weights=rows.weights * scale)
        return self._replace(rows=rows, sides=self.sides.take(index))

    def routed(self, score: Tensor) -> SideState:
        """The sides given the probabilities of left and right at scores (fit, row)."""
        left, right = self.rows.split(score)
        return self.sides.update(left.exp(), right.exp(), self.rows.weights)

    def follow(self, planes: Planes, log_weight: Tensor, state: SideState) -> SideState:
        """One update of the sides given a split."""
        shares = responsibilities(planes, log_weight, self.rows, state)
        return self.sides.update(*shares, self.rows.weights)

    def adopt(self, guide: NodeGuide) -> Fits:
        """A fit of a guide from another problem, with new sides; its ELBO is not yet known."""
        mean, log_weight = guide.centre()
        state = self.routed(guide.score(self.rows.design))
        for _ in range(SIDE_STEPS):
            state = self.follow(Planes(mean), log_weight[..., None], state)
        return Fits(guide, state, torch.full_like(state.value, -torch.inf))


def join(fits: Sequence[Fits]) -> Fits:
    """All fits in one batch, widened to the same number of slots."""
    slots = max(fit.guide.n_slots for fit in fits)
    guides = [fit.guide.widen(slots) for fit in fits]
    sides = [fit.sides for fit in fits]
    return Fits(
        NodeGuide(*(torch.cat(parts) for parts in zip(*guides, strict=True))),
        SideState(*(torch.cat(parts) for parts in zip(*sides, strict=True))),
        torch.cat([fit.elbo for fit in fits]),
    )


def drop_negligible(fit: Fits, problem: Problem) -> Fits:
    """One fit without empty slots; experts with negligible votes join the pool."""
    used = fit.guide.contributions(problem.rows.design)[0] >= NEGLIGIBLE
    return fit._replace(guide=fit.guide.keep(used, problem.prior.n_experts))


def refit(
    fits: Fits, problem: Problem, iterations: int, segments: int, tolerance: float = 0.05
) -> Fits:
    """Maximise the ELBO, updating sides and renewing coordinates between segments."""
    draws = problem.draws.of(fits.guide.n_slots)
    before = torch.full_like(fits.elbo, -torch.inf)
    for _ in range(segments):
        guide, elbo, converged = climb(
            fits.guide,
            draws,
            problem.rows,
            fits.sides,
            problem.prior,
            iterations=iterations,
            tolerance=tolerance,
        )
        fits = Fits(guide, problem.follow(*guide.realise(draws), fits.sides), elbo)
        if bool((converged & (elbo - before < 2 * tolerance)).all()):
            break
        before = elbo
    return fits


def race(candidates: Sequence[Fits], problem: Problem) -> Fits:
    """Refit candidates with increasing effort, dropping those that fall behind."""
    field = join(candidates)
    scale = max(1.0, float(problem.rows.weights.sum()) / RACE_ROWS)
    for iterations, segments, gap, stay in RACE:
        field = refit(field, problem, iterations, segments)
        order = field.elbo.argsort(descending=True)[:stay]
        field = field.take(order[field.elbo[order] >= field.elbo.max() - gap * scale])
    return drop_negligible(field, problem)


@torch.no_grad()
def measure(fit: Fits, problem: Problem) -> float:
    """ELBO on fresh draws."""
    generator = torch.Generator().manual_seed(MEASURE_SEED)
    draws = fresh_draws(MEASURE_DRAWS, fit.guide.n_slots, generator)
    return float(bound(fit.guide, draws, problem.rows, fit.sides, problem.prior)[0])
