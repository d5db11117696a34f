"""Base draws: fixed noise, given which the bound is a smooth function of the guide."""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from bayestree.distributions import EULER

WEIBULL_SD = math.pi / math.sqrt(6)  # of log E, E ~ Exponential(1)
EDGE = 1e-15  # minimum distance of a uniform draw from 0 and 1


class Draws(NamedTuple):
    """Base draws, of shape (slot, draw)."""

    log_exponential: Tensor  # log E, E ~ Exponential(1)
    normal: Tensor

    def of(self, slots: int) -> "Draws":
        """The draws of the first slots and, for the pool, of the last."""
        index = [*range(slots - 1), len(self.normal) - 1]
        return Draws(self.log_exponential[index], self.normal[index])

    @property
    def standard(self) -> Tensor:
        """Log-weights in standard deviations from their mean."""
        return (self.log_exponential + EULER) / WEIBULL_SD


def even_draws(draws: int, slots: int, generator: Generator) -> Draws:
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
    return Draws(shuffled(level).repeat(1, 2), torch.cat([normals, -normals], 1))


def fresh_draws(draws: int, slots: int, generator: Generator) -> Draws:
    """A Latin hypercube: every base draw has its exact distribution."""

    def uniform() -> Tensor:
        place = torch.rand(slots, draws, generator=generator, dtype=torch.float64)
        stratum = (_orders(draws, slots, generator) + place) / draws
        return stratum.clamp(EDGE, 1 - EDGE)

    return Draws(torch.log(-torch.log(uniform())), torch.special.ndtri(uniform()))


def _orders(length: int, slots: int, generator: Generator) -> Tensor:
    return torch.stack([torch.randperm(length, generator=generator) for _ in range(slots)])
