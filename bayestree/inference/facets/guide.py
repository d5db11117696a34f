"""The guide of one node: slots for experts, the last of them a pool.

The pool is one set of parameters shared by all unused experts. A slot's ``experts`` is the number
of experts that it represents: 1, 0 (empty), or the size of the pool.

Given base draws, which are fixed noise, the bound is a smooth function of the guide.
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from bayestree.distributions import EULER, LogWeibull
from bayestree.inference.facets.likelihood import Planes, votes

WEIBULL_SD = math.pi / math.sqrt(6)  # of log E, E ~ Exponential(1)
EDGE = 1e-15  # minimum distance of a uniform draw from 0 and 1
MAX_STEP = 3.0  # maximum change of a log-weight per unit of its coordinate


class BaseDraws(NamedTuple):
    """Base draws, of shape (slot, draw)."""

    log_exponential: Tensor  # log E, E ~ Exponential(1)
    normal: Tensor

    def of(self, slots: int) -> "BaseDraws":
        """The draws of the first slots and, for the pool, of the last."""
        index = [*range(slots - 1), len(self.normal) - 1]
        return BaseDraws(self.log_exponential[index], self.normal[index])

    @property
    def standard(self) -> Tensor:
        """Log-weights in standard deviations from their mean."""
        return (self.log_exponential + EULER) / WEIBULL_SD


def even_draws(draws: int, slots: int, generator: Generator) -> BaseDraws:
    """Stratified draws with exact means and variances, paired at random.

    Normals come in antithetic pairs that share their exponential, and are hence uncorrelated
    with it.
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
    """A Latin hypercube: every base draw has its exact distribution."""

    def uniform() -> Tensor:
        place = torch.rand(slots, draws, generator=generator, dtype=torch.float64)
        stratum = (_orders(draws, slots, generator) + place) / draws
        return stratum.clamp(EDGE, 1 - EDGE)

    return BaseDraws(torch.log(-torch.log(uniform())), torch.special.ndtri(uniform()))


def _orders(length: int, slots: int, generator: Generator) -> Tensor:
    return torch.stack([torch.randperm(length, generator=generator) for _ in range(slots)])


class NodeGuide(NamedTuple):
    """Weibull weights and normal hyperplanes given them, for each of several fits.

    The factors are those of ``PolytopeGuide`` with full covariance within an expert: with
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
        """Some of the fits."""
        return NodeGuide(*(part[which] for part in self))

    def slots(self, which: Tensor) -> "NodeGuide":
        """Some of the slots."""
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
        """Mean coefficients and log-weights; for the pool, the log of its total mean weight."""
        pool = pool_mask(self.loc)
        level = torch.where(pool, self.log_mean_weight, self.law.mean)
        return self.mean, level + self.experts.log()

    def score(self, design: Tensor) -> Tensor:
        """Scores at the centre, shape (fit, row)."""
        return votes(*self.centre(), design)

    def realise(self, draws: BaseDraws) -> tuple[Planes, Tensor]:
        """Hyperplanes and log-weights (fit, slot, draw) on base draws.

        The pool's weight is its exact mean, because its rare large values would be poorly
        represented by a few draws; see :meth:`OnePlanes.pool_mask`. Its experts share one draw of
        the hyperplane, which makes the ELBO within a search slightly optimistic; the ELBO that is
        reported is that of the whole guide, with separate experts.
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
        """Largest contribution of each slot to a score, shape (fit, slot)."""
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
        """Guide at coordinates (fit, coordinate) relative to this one, which is at zero.

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
