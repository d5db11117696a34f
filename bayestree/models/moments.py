"""Sums of products of y and the features: the sufficient statistics of a linear regression."""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Sums over rows, with the row x = (1, features): x x' (..., p, p), x y (..., p), y^2 (...)."""

    gram: Tensor
    cross: Tensor
    square: Tensor

    def solve(self, precision: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ridge regression with ``precision`` (p, p) added to the Gram matrix.

        Returns the coefficients (..., p), the minimum of the penalised sum of squares, and the
        Cholesky factor of the sum of both matrices.
        """
        root = torch.linalg.cholesky(self.gram + precision)
        half = torch.linalg.solve_triangular(root, self.cross.unsqueeze(-1), upper=False)
        loc = torch.linalg.solve_triangular(root.mT, half, upper=True).squeeze(-1)
        return loc, self.square - half.square().sum((-2, -1)), root


def products(y: Tensor, weights: Tensor) -> Tensor:
    """Weighted products of (1, y, features) for each row of ``y`` (n, 1 + d), shape (n, c).

    Each product occurs once. The first three columns are those of a normal distribution:
    w, w y, w y^2.
    """
    row = torch.cat((torch.ones_like(y[:, :1]), y), dim=1)
    first, second = torch.tril_indices(row.shape[1], row.shape[1], device=y.device)
    return row[:, first] * row[:, second] * weights.unsqueeze(-1)


def moments(sums: Tensor) -> Moments:
    """Unpack sums (..., c) of :func:`products`."""
    gram, cross = (index.to(sums.device) for index in _places(sums.shape[-1]))
    return Moments(sums[..., gram], sums[..., cross], sums[..., 2])


@lru_cache
def _places(count: int) -> tuple[Tensor, Tensor]:
    """Positions of the entries of ``gram`` and ``cross`` among ``count`` products."""
    width = (math.isqrt(8 * count + 1) - 1) // 2
    place = torch.zeros(width, width, dtype=torch.long)
    first, second = torch.tril_indices(width, width)
    place[first, second] = place[second, first] = torch.arange(count)
    own = torch.tensor([0, *range(2, width)])  # all but y
    return place[own][:, own], place[own, 1]
