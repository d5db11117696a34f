"""The guide of one node, its evidence lower bound, smooth on fixed base draws, and fits of it.

The guide has slots for experts, the last of them a pool: one set of parameters shared by all
unused experts. A slot's ``experts`` is the number of experts that it represents: 1, 0 (empty), or
the size of the pool. Given base draws, which are fixed noise, the bound is a smooth function of the
guide. Fits are refitted to convergence, or as candidates of a race.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from bayestree.distributions import EULER, LogWeibull
from bayestree.inference.variational.facets.lbfgs import minimise
from bayestree.inference.variational.facets.likelihood import (
    Planes,
    Sides,
    SideState,
    SplitRows,
    log_likelihood,
    responsibilities,
    votes,
)
from bayestree.inference.variational.guides import divergence_from_flat
from bayestree.models.priors import GammaProcess, InverseGammaScale, WeightPrior
from bayestree.models.soft_tree import SoftTree

WEIBULL_SD = math.pi / math.sqrt(6)  # of log E, E ~ Exponential(1)
EDGE = 1e-15  # minimum distance of a uniform draw from 0 and 1
MAX_STEP = 3.0  # maximum change of a log-weight per unit of its coordinate
NEGLIGIBLE = 0.01 * math.log(2)  # contributions to scores below this affect no row
SIDE_STEPS = 10  # updates of the sides for a new guide
MEASURE_DRAWS, MEASURE_SEED = 512, 12_345
#: Stages of a race: iterations, segments, the gap in ELBO at which a candidate is dropped (for up
#: to ``RACE_ROWS`` rows; for more, in proportion), and the maximum number of survivors.
RACE = ((12, 1, 80.0, 8), (18, 1, 20.0, 4), (30, 1, 6.0, 2), (40, 3, 0.0, 1))
RACE_ROWS = 4_000


class BaseDraws(NamedTuple):
    """Base draws, of shape (slot, draw)."""

    log_exponential: Tensor  # log E, E ~ Exponential(1)
    normal: Tensor

    def of(self, slots: int) -> "BaseDraws":
        """Select the draws of the first slots and, for the pool, of the last."""
        index = [*range(slots - 1), len(self.normal) - 1]
        return BaseDraws(self.log_exponential[index], self.normal[index])

    @property
    def standard(self) -> Tensor:
        """Log-weights in standard deviations from their mean."""
        return (self.log_exponential + EULER) / WEIBULL_SD


def even_draws(draws: int, slots: int, generator: Generator) -> BaseDraws:
    """Draw strata with exact means and variances, paired at random.

    Normals come in antithetic pairs that share their exponential, and are hence uncorrelated with
    it.
    """
    half = draws // 2
    u = (torch.arange(half, dtype=torch.float64) + 0.5) / half
    level = torch.log(-torch.log1p(-u))
    level = (level - level.mean()) / level.std(correction=0) * WEIBULL_SD - EULER
    normal = torch.special.ndtri((1 + u) / 2)
    normal = normal / normal.square().mean().sqrt()

    def shuffled(values: Tensor) -> Tensor:
        return values[_orders(half, slots, generator)]

    signs = 2.0 * torch.randint(0, 2, (slots, half), generator=generator) - 1
    normals = signs * shuffled(normal)
    return BaseDraws(shuffled(level).repeat(1, 2), torch.cat([normals, -normals], 1))


def fresh_draws(draws: int, slots: int, generator: Generator) -> BaseDraws:
    """Draw a Latin hypercube: every base draw has its exact distribution."""

    def uniform() -> Tensor:
        place = torch.rand(slots, draws, generator=generator, dtype=torch.float64)
        stratum = (_orders(draws, slots, generator) + place) / draws
        return stratum.clamp(EDGE, 1 - EDGE)

    return BaseDraws(torch.log(-torch.log(uniform())), torch.special.ndtri(uniform()))


def _orders(length: int, slots: int, generator: Generator) -> Tensor:
    return torch.stack([torch.randperm(length, generator=generator) for _ in range(slots)])


class NodeGuide(NamedTuple):
    """Weibull weights and normal hyperplanes given them, for each of several fits.

    The factors are as in ``PolytopeGuide`` with full covariance within an expert: with
    E ~ Exponential(1) and g = log E, standardised, log weight = loc + log E / concentration and
    coefficient = mean + tilt g + factor eps.
    """

    mean: Tensor  # (fit, slot, feature + 1)
    tilt: Tensor  # (fit, slot, feature + 1)
    factor: Tensor  # (fit, slot, feature + 1, feature + 1), lower triangular, diagonal positive
    loc: Tensor  # (fit, slot), as are the following
    log_concentration: Tensor
    log_rate: Tensor  # of the gamma factor of the shrinkage
    experts: Tensor

    def take(self, which: Tensor) -> "NodeGuide":
        """Select fits."""
        return NodeGuide(*(part[which] for part in self))

    def slots(self, which: Tensor) -> "NodeGuide":
        """Select slots."""
        return NodeGuide(*(part[:, which] for part in self))

    @property
    def n_slots(self) -> int:
        """Number of slots of each fit, pool included."""
        return self.loc.shape[1]

    @property
    def n_facets(self) -> int:
        """Number of slots of the first fit that represent an expert in use."""
        return int(self.experts[0, :-1].sum())

    @property
    def law(self) -> LogWeibull:
        """Factor of the log-weights, shape (fit, slot)."""
        return LogWeibull(self.log_concentration.exp(), self.loc, validate_args=False)

    @property
    def second_moment(self) -> Tensor:
        """Second moments of the coefficients, shape (fit, slot, feature + 1)."""
        return self.mean.square() + self.tilt.square() + self.factor.square().sum(-1)

    @property
    def log_mean_weight(self) -> Tensor:
        """Logarithm of the mean weight of a single expert of each slot."""
        return self.loc + torch.lgamma(1 + torch.exp(-self.log_concentration))

    def centre(self) -> tuple[Tensor, Tensor]:
        """Return mean coefficients and log-weights; for the pool, of its total mean weight."""
        pool = pool_mask(self.loc)
        level = torch.where(pool, self.log_mean_weight, self.law.mean)
        return self.mean, level + self.experts.log()

    def score(self, design: Tensor) -> Tensor:
        """Compute scores at the centre, shape (fit, row)."""
        return votes(*self.centre(), design)

    def realise(self, draws: BaseDraws) -> tuple[Planes, Tensor]:
        """Draw hyperplanes and log-weights (fit, slot, draw) by base draws.

        The pool's weight is its exact mean, because its rare large values would be poorly
        represented by a few draws; see :meth:`OnePlanes.pool_mask`. Its experts share one draw of
        the hyperplane, which makes the ELBO within a search slightly optimistic; the ELBO that is
        reported is the whole guide's, with separate experts.
        """
        standard = draws.standard
        nodes = torch.stack([torch.ones_like(standard), standard, draws.normal], -1)
        width = torch.exp(-self.log_concentration)[..., None]
        log_weight = self.loc[..., None] + draws.log_exponential * width
        level = self.log_mean_weight[..., None].expand_as(log_weight)
        log_weight = torch.where(pool_mask(self.loc)[:, None], level, log_weight)
        log_weight = log_weight + self.experts.log()[..., None]
        return Planes(self.mean, nodes, self.tilt, self.factor), log_weight

    def contributions(self, design: Tensor) -> Tensor:
        """Return the largest contribution of each slot to a score, shape (fit, slot)."""
        coefficient, log_weight = self.centre()
        top = torch.stack([softplus(one @ design.T).amax(-1) for one in coefficient])
        return log_weight.exp() * top

    # Changes of the slots of a guide of one fit.

    def keep(self, which: Tensor, n_experts: int) -> "NodeGuide":
        """Keep the slots ``which`` (bool, slot) that are in use; the others join the pool."""
        active = torch.nonzero(which[:-1] & (self.experts[0, :-1] > 0))[:, 0]
        index = torch.cat([active, active.new_tensor([self.n_slots - 1])])
        return self.slots(index).with_pool(n_experts)

    def without(self, which: list[int], n_experts: int) -> "NodeGuide":
        """Move the slots ``which`` to the pool."""
        stay = torch.ones(self.n_slots, dtype=torch.bool)
        stay[which] = False
        return self.keep(stay, n_experts)

    def add(self, new: "NodeGuide", n_experts: int) -> "NodeGuide":
        """Add the slots of ``new``, which has no pool, at the expense of the pool."""
        parts = [
            torch.cat([old[:, :-1], fresh, old[:, -1:]], 1)
            for old, fresh in zip(self, new, strict=True)
        ]
        return NodeGuide(*parts).with_pool(n_experts)

    def with_pool(self, n_experts: int) -> "NodeGuide":
        """Set ``experts`` to 1 for every slot and to the number of the others for the pool."""
        experts = torch.ones_like(self.experts)
        experts[:, -1] = n_experts - (self.n_slots - 1)
        return self._replace(experts=experts)

    def widen(self, slots: int) -> "NodeGuide":
        """Insert empty slots before the pool until there are ``slots``."""
        pool = self.n_slots - 1
        wide = self.slots(torch.arange(slots).clamp_max(pool))
        experts = wide.experts.clone()
        experts[:, pool:-1] = 0.0
        return wide._replace(experts=experts)

    # Coordinates for an optimiser.

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates of one fit."""
        width = self.mean.shape[-1]
        return self.n_slots * (3 * width + width * (width - 1) // 2 + 3)

    def at(self, flat: Tensor) -> "NodeGuide":
        """Return the guide at coordinates (fit, coordinate) relative to this one, which is at zero.

        Means and tilts are in units of this guide's standard deviations, and the Cholesky factor
        is multiplied by a triangle: the coordinates have no units.
        """
        fits, slots, width = self.mean.shape
        flat = flat.view(fits, slots, -1)
        mean, tilt, log_diagonal, lower, rest = flat.split(
            [width, width, width, width * (width - 1) // 2, 3], -1
        )
        triangle = torch.diag_embed(log_diagonal.exp())
        row, column = torch.tril_indices(width, width, -1)
        triangle = triangle.index_put(
            (torch.arange(fits)[:, None, None], torch.arange(slots)[:, None], row, column), lower
        )
        pool = pool_mask(self.loc)[:, None]
        shifted_tilt = self.tilt + (self.factor @ tilt[..., None])[..., 0]
        sd = torch.exp(-self.log_concentration).clamp_max(MAX_STEP)
        return NodeGuide(
            mean=self.mean + (self.factor @ mean[..., None])[..., 0],
            tilt=torch.where(pool, 0.0, shifted_tilt),
            factor=self.factor @ triangle,
            loc=self.loc + sd * rest[..., 0],
            log_concentration=self.log_concentration + rest[..., 1],
            log_rate=self.log_rate + rest[..., 2],
            experts=self.experts,
        )


def pool_mask(like: Tensor) -> Tensor:
    """Mask of the slots (the last dimension of ``like``) that are the pool."""
    mask = torch.zeros(like.shape[-1], dtype=torch.bool)
    mask[-1] = True
    return mask


class FacetPrior(NamedTuple):
    """The priors of the ``n_experts`` experts of a node."""

    weight: WeightPrior = GammaProcess()
    hyperplane: InverseGammaScale = InverseGammaScale()
    n_experts: int = 20

    @classmethod
    def of(cls, model: SoftTree) -> "FacetPrior":
        """Take the priors of a model; ValueError for priors under which facets have no cost."""
        weight, hyperplane = model.priors.weight, model.priors.hyperplane
        known = weight.implements("law") and hyperplane.implements("expected_log_prior")
        if not (known and model.split.weighted and not weight.sites):
            raise ValueError(
                "The search for facets needs a Polytope split, a GammaProcess without hyper-priors "
                f"and InverseGammaScale hyperplanes, got {model.split}, {weight} and {hyperplane}."
            )
        return cls(weight, cast(InverseGammaScale, hyperplane), model.split.n_experts)

    def log_rate(self, square: Tensor, steps: int = 20) -> Tensor:
        """Compute the optimal log-rate of q(b) given E coefficient^2 (..., feature + 1), (...)."""
        shape = self.hyperplane.shrinkage_factor_shape(square.shape[-1])
        rate = torch.full_like(square[..., 0], shape)
        for _ in range(steps):
            rate = self.hyperplane.updated_rate(rate, square)
        return rate.log()


def divergence(guide: NodeGuide, prior: FacetPrior) -> Tensor:
    """Compute the KL divergence of each slot's expert from the prior, (fit, slot)."""
    log_scale = guide.factor.diagonal(dim1=-2, dim2=-1).log()
    log_weight = guide.law, prior.weight.law(prior.n_experts, guide.loc)
    shrinkage = prior.hyperplane.shrinkage_factor(guide.log_rate.exp(), guide.mean.shape[-1])
    expected, _ = prior.hyperplane.expected_log_prior(guide.second_moment, shrinkage)
    return divergence_from_flat(log_scale, log_weight) - expected


def bound(
    guide: NodeGuide, draws: BaseDraws, rows: SplitRows, state: SideState, prior: FacetPrior
) -> Tensor:
    """Compute the ELBO of each fit on the base draws, shape (fit,)."""
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
    rows: SplitRows,
    state: SideState,
    prior: FacetPrior,
    *,
    iterations: int,
    tolerance: float,
) -> BoundAscent:
    """Run L-BFGS once with fixed sides."""

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
        """Separate the fits."""
        return [self.take(torch.tensor([fit])) for fit in range(len(self.elbo))]

    @property
    def best(self) -> float:
        """ELBO of the first fit."""
        return float(self.elbo[0])


class Problem(NamedTuple):
    """The fixed parts of a search."""

    rows: SplitRows
    sides: Sides
    prior: FacetPrior
    draws: BaseDraws
    options: SearchOptions
    generator: Generator

    @classmethod
    def of(
        cls,
        rows: SplitRows,
        sides: Sides,
        prior: FacetPrior,
        generator: Generator,
        options: SearchOptions = SearchOptions(),  # noqa: B008 - it is immutable
    ) -> "Problem":
        """Create the problem with the base draws of the trials."""
        draws = even_draws(options.trial_draws, prior.n_experts + 1, generator)
        return cls(rows, sides, prior, draws, options, generator)

    def on(self, index: Tensor, scale: Tensor) -> "Problem":
        """Restrict the problem to some rows, their weights multiplied by ``scale``."""
        rows = self.rows.take(index)
        rows = rows._replace(weights=rows.weights * scale)
        return self._replace(rows=rows, sides=self.sides.take(index))

    def routed(self, score: Tensor) -> SideState:
        """Update the sides by the probabilities of left and right at scores (fit, row)."""
        left, right = self.rows.split(score)
        return self.sides.update(left.exp(), right.exp(), self.rows.weights)

    def follow(self, planes: Planes, log_weight: Tensor, state: SideState) -> SideState:
        """Update the sides once, given a split."""
        shares = responsibilities(planes, log_weight, self.rows, state)
        return self.sides.update(*shares, self.rows.weights)

    def adopt(self, guide: NodeGuide) -> Fits:
        """Fit new sides to a guide from another problem; its ELBO is not yet known."""
        mean, log_weight = guide.centre()
        state = self.routed(guide.score(self.rows.design))
        for _ in range(SIDE_STEPS):
            state = self.follow(Planes(mean), log_weight[..., None], state)
        return Fits(guide, state, torch.full_like(state.value, -torch.inf))


def join(fits: Sequence[Fits]) -> Fits:
    """Join all fits in one batch, widened to the same number of slots."""
    slots = max(fit.guide.n_slots for fit in fits)
    guides = [fit.guide.widen(slots) for fit in fits]
    sides = [fit.sides for fit in fits]
    return Fits(
        NodeGuide(*(torch.cat(parts) for parts in zip(*guides, strict=True))),
        SideState(*(torch.cat(parts) for parts in zip(*sides, strict=True))),
        torch.cat([fit.elbo for fit in fits]),
    )


def drop_negligible(fit: Fits, problem: Problem) -> Fits:
    """Drop the empty slots of a fit; experts with negligible votes join the pool."""
    used = fit.guide.contributions(problem.rows.design)[0] >= NEGLIGIBLE
    return fit._replace(guide=fit.guide.keep(used, problem.prior.n_experts))


def refit(
    fits: Fits, problem: Problem, iterations: int, segments: int, tolerance: float = 0.05
) -> Fits:
    """Raise the ELBO, updating sides and renewing coordinates between segments."""
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
    """Compute the ELBO on fresh draws."""
    generator = torch.Generator().manual_seed(MEASURE_SEED)
    draws = fresh_draws(MEASURE_DRAWS, fit.guide.n_slots, generator)
    return float(bound(fit.guide, draws, problem.rows, fit.sides, problem.prior)[0])
