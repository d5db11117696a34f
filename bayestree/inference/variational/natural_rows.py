"""The rows of a fit by natural gradients, with what all steps need of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from bayestree.inference.data import Data
from bayestree.models.leaves import Leaf

MOST_PRODUCTS = 5_000_000  # of columns, of all rows together, that are kept from step to step
BLOCK = 500_000  # products that are computed at a time if they are not kept


@dataclass(frozen=True)
class Rows:
    """Rows [X, 1] with their statistics for all steps."""

    X: Tensor  # (n, d + 1)
    y: Tensor
    weights: Tensor
    statistics: Tensor  # (n, c)
    kept: Tensor  # products of columns i <= j or, of the diagonal factors, squares; or (n, 0)

    @classmethod
    def of(cls, data: Data, leaf: Leaf, *, full: bool) -> Self:
        """Prepare rows for covariances that are ``full`` within experts, or diagonal."""
        X, statistics = data.with_ones().X, leaf.statistics(data.y, data.weights)
        if not full:
            kept = X.square()
        elif X.shape[1] * (X.shape[1] + 1) // 2 * len(X) <= MOST_PRODUCTS:
            kept = _products(X)
        else:
            kept = X[:, :0]
        return cls(X, data.y, data.weights, statistics, kept)

    def take(self, rows: Tensor) -> Self:
        """Select rows, weighted to represent all."""
        found, share = self._part(rows), len(self.X) / len(rows)
        weighted = {"weights": share * found.weights, "statistics": share * found.statistics}
        return replace(found, **weighted)

    def parts(self, size: int) -> Iterator[Self]:
        """Yield consecutive rows, ``size`` at a time."""
        for start in range(0, len(self.X), size):
            yield self._part(slice(start, start + size))

    def _part(self, own: Tensor | slice) -> Self:
        columns = (self.X, self.y, self.weights, self.statistics, self.kept)
        return type(self)(*(column[own] for column in columns))

    def second_moments(self, factor: Tensor) -> Tensor:
        """Sum x x' over the rows, with factors (V, K, n): (V, K, d + 1, d + 1)."""
        width = self.X.shape[1]
        if self.kept.shape[1]:
            sums = factor @ self.kept
        else:
            size = max(1, 2 * BLOCK // (width * (width + 1)))
            parts = zip(factor.split(size, -1), self.X.split(size), strict=True)
            sums = torch.stack([own @ _products(X) for own, X in parts]).sum(0)
        first, second = torch.triu_indices(width, width)
        place = torch.empty(width, width, dtype=torch.long)
        place[first, second] = place[second, first] = torch.arange(len(first))
        return sums[..., place]


def _products(X: Tensor) -> Tensor:
    """Return products of the columns i <= j, shape (n, (d + 1) (d + 2) / 2)."""
    first, second = torch.triu_indices(X.shape[1], X.shape[1])
    return X[:, first] * X[:, second]
