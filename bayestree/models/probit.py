"""Ordered probit models: classes as intervals of a latent normal response."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree.models.criteria import Criterion

ELSEWHERE = 0.02  # share of rows distributed as in all leaves: no class is impossible in a leaf
LOCATIONS = np.linspace(-3, 3, 49)  # means and noises among which the criterion looks for the best
NOISES = np.geomspace(0.1, 1.0, 7)
SETS = 8_192  # sets of rows compared at a time


def class_probabilities(cuts: tuple[float, ...], location: FloatArray, noise: float) -> FloatArray:
    """P(class) for latent normals of mean ``location`` (G,) and deviation ``noise``, (G, C).

    A share ``ELSEWHERE`` of the rows has a standard normal response instead.
    """
    ends = np.array([-np.inf, *cuts, np.inf])
    away = (ends - location[:, None]) / noise
    # the difference of the smaller pair of tails keeps its digits
    found = np.where(away[:, 1:] < 0, np.diff(ndtr(away)), -np.diff(ndtr(-away)))
    return (1 - ELSEWHERE) * found + ELSEWHERE * np.diff(ndtr(ends))


@dataclass(frozen=True)
class OrderedProbit(Criterion):
    """Log-likelihood of an ordered probit model at the best mean and noise of each set of rows.

    Two parameters describe the classes of a set, whatever their number: a split that only
    separates neighbouring classes by chance gains less than by the entropy. The best pair is looked
    for on a grid, so that the value is a maximum of linear functions of the counts.
    """

    cuts: tuple[float, ...]

    def value(self, sums: Tensor) -> Tensor:
        return self._best(sums)[0]

    def ascent(self, side: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        # the gradient of a maximum of linear functions is that of the largest
        value, slope = self._best(torch.stack((side, whole - side)))
        return value.sum(0), slope[0] - slope[1]

    def _best(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Log-likelihood (...), and log-probabilities of the classes (..., C)."""
        table = torch.as_tensor(_table(self.cuts)).to(sums)
        parts = [(some @ table.T).max(-1) for some in sums.reshape(-1, len(table.T)).split(SETS)]
        value = torch.cat([part.values for part in parts]).view(sums.shape[:-1])
        chosen = torch.cat([part.indices for part in parts])
        return value, table[chosen].view(sums.shape)


@lru_cache
def _table(cuts: tuple[float, ...]) -> FloatArray:
    """Log-probabilities of the classes at each point of the grid, shape (G, C)."""
    return np.log(np.concatenate([class_probabilities(cuts, LOCATIONS, s) for s in NOISES]))
