"""The evidence lower bound of one node, smooth on fixed base draws, and fits that maximise it.

Fits are refitted to convergence, or as candidates of a race.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Generator, Tensor

from bayestree.inference.facets.guide import BaseDraws, NodeGuide, even_draws, fresh_draws
from bayestree.inference.facets.lbfgs import minimise
from bayestree.inference.facets.likelihood import (
    NodeRows,
    Planes,
    Sides,
    SideState,
    log_likelihood,
    responsibilities,
)
from bayestree.inference.guides import divergence_from_flat
from bayestree.models.priors import GammaProcess, InverseGammaScale, WeightPrior
from bayestree.models.soft_tree import SoftTree

NEGLIGIBLE = 0.01 * math.log(2)  # contributions to scores below this affect no row
SIDE_STEPS = 10  # updates of the sides for a new guide
MEASURE_DRAWS, MEASURE_SEED = 512, 12_345
#: Stages of a race: iterations, segments, the gap in ELBO at which a candidate is dropped (for up
#: to ``RACE_ROWS`` rows; for more, in proportion), and the maximum number of survivors.
RACE = ((12, 1, 80.0, 8), (18, 1, 20.0, 4), (30, 1, 6.0, 2), (40, 3, 0.0, 1))
RACE_ROWS = 4_000


class FacetPrior(NamedTuple):
    """The priors of the ``n_experts`` experts of a node."""

    weight: WeightPrior = GammaProcess()
    hyperplane: InverseGammaScale = InverseGammaScale()
    n_experts: int = 20

    @classmethod
    def of(cls, model: SoftTree) -> "FacetPrior":
        """The priors of a model; ValueError for priors under which facets have no cost."""
        weight, hyperplane = model.priors.weight, model.priors.hyperplane
        known = weight.implements("law") and hyperplane.implements("expected_log_prior")
        if not (known and model.split.weighted and not weight.sites):
            raise ValueError(
                "The search for facets needs a Polytope split, a GammaProcess without hyper-priors "
                f"and InverseGammaScale hyperplanes, got {model.split}, {weight} and {hyperplane}."
            )
        return cls(weight, cast(InverseGammaScale, hyperplane), model.split.n_experts)

    def log_rate(self, square: Tensor, steps: int = 20) -> Tensor:
        """Optimal log-rate of q(b) given E coefficient^2 (..., feature + 1), shape (...)."""
        shape = self.hyperplane.shrinkage_factor_shape(square.shape[-1])
        rate = torch.full_like(square[..., 0], shape)
        for _ in range(steps):
            rate = self.hyperplane.updated_rate(rate, square)
        return rate.log()


def divergence(guide: NodeGuide, prior: FacetPrior) -> Tensor:
    """KL divergence of each slot's expert from the prior, scales integrated, (fit, slot)."""
    log_scale = guide.factor.diagonal(dim1=-2, dim2=-1).log()
    log_weight = guide.law, prior.weight.law(prior.n_experts, guide.loc)
    shrinkage = prior.hyperplane.shrinkage_factor(guide.log_rate.exp(), guide.mean.shape[-1])
    expected, _ = prior.hyperplane.expected_log_prior(guide.second_moment, shrinkage)
    return divergence_from_flat(log_scale, log_weight) - expected


def bound(
    guide: NodeGuide, draws: BaseDraws, rows: NodeRows, state: SideState, prior: FacetPrior
) -> Tensor:
    """ELBO of each fit on the base draws, shape (fit,)."""
    planes, log_weight = guide.realise(draws)
    cost = (divergence(guide, prior) * guide.experts).sum(-1)
    return log_likelihood(planes, log_weight, rows, state) + state.value - cost


class BoundAscent(NamedTuple):
    """Result of a climb: guide, ELBO (fit,), and which fits converged (fit,)."""

    guide: NodeGuide
    elbo: Tensor
    converged: Tensor


def climb(
    guide: NodeGuide,
    draws: BaseDraws,
    rows: NodeRows,
    state: SideState,
    prior: FacetPrior,
    *,
    iterations: int,
    tolerance: float,
) -> BoundAscent:
    """One run of L-BFGS with fixed sides."""

    def objective(flat: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        flat = flat.detach().requires_grad_(True)
        at = guide.take(which).at(flat)
        value = -bound(at, draws, rows, state.take(which), prior)
        (gradient,) = torch.autograd.grad(value.sum(), flat)
        return value.detach(), gradient

    start = guide.mean.new_zeros(len(guide.mean), guide.n_coordinates)
    found = minimise(objective, start, max_iterations=iterations, tolerance=tolerance)
    with torch.no_grad():
        guide = NodeGuide(*(part.detach() for part in guide.at(found.point)))
    return BoundAscent(guide, -found.value, found.converged)


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

    rows: NodeRows
    sides: Sides
    prior: FacetPrior
    draws: BaseDraws
    options: SearchOptions
    generator: Generator

    @classmethod
    def of(
        cls,
        rows: NodeRows,
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
