"""Predictions that rise or fall with features: signs of coefficients, and an order of the leaves.

A split with q = P(right), and predictions L and R on its sides, predicts f = (1 - q) L + q R, so

    df / dx_j  =  dq / dx_j (R - L)  +  (1 - q) dL / dx_j  +  q dR / dx_j.

f rises in x_j if L and R do, and if q rises and L <= R, or q falls and L >= R. The noisy-OR q rises
if no expert has a negative coefficient of x_j, and falls if none has a positive one. Every node has
a side of larger predictions, which determines these signs, and all leaves on this side must be at
least as large as all on the other: a total order of the leaves.

A coefficient with such a sign is a *fold* of a free one, sign |b|. A symmetric prior of b becomes
twice its density on one half of the line, which changes the log joint density by a constant.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from torch import Tensor
from torch.nn.functional import pad

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.models.leaves import Leaf
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology

MIN_SHARE = 1e-9  # of all rows: leaves without rows follow their neighbours


@dataclass(frozen=True)
class Monotone:
    """What the constraints of a model demand of the coefficients and leaves of a tree.

    Parameters
    ----------
    signs : Tensor, shape (V, 1, d + 1)
        Sign of the coefficients of each feature at each node; 0 where they are free, as intercepts
        are.
    order : array of int, shape (L,)
        The leaves, from the smallest prediction to the largest.
    """

    signs: Tensor
    order: IntArray

    @classmethod
    def of(cls, model: SoftTree, hyperplane: Tensor) -> "Monotone | None":
        """The demands on a tree with these coefficients (V, K, d); None without constraints."""
        if not any(model.monotone):
            return None
        rises = hyperplane.new_tensor(model.monotone)
        side = larger_side((hyperplane * rises).sum((1, 2)).numpy(force=True))
        signs = pad(hyperplane.new_tensor(side).view(-1, 1, 1) * rises, (0, 1))
        return cls(signs, leaf_order(model.topology, side))

    def fold(self, coefficient: Tensor) -> Tensor:
        """Coefficients (V, K, d + 1) with their signs, from free ones."""
        return torch.where(self.signs == 0, coefficient, self.signs * coefficient.abs())

    def folded_mean(self, mean: Tensor, scale: Tensor) -> Tensor:
        """Means of the folds of normal coefficients, shape (V, K, d + 1).

        E|b| = m erf(m / (s sqrt 2)) + s sqrt(2 / pi) exp(-m^2 / (2 s^2)).
        """
        ratio = mean / (scale * 2**0.5)
        size = mean * torch.erf(ratio) + scale * (2 / torch.pi) ** 0.5 * torch.exp(-(ratio**2))
        return torch.where(self.signs == 0, mean, self.signs * size)

    def pooled(self, leaf: Leaf, sums: Tensor) -> Tensor:
        """Sums (L, c) of the statistics of the leaves, pooled where these are out of order.

        Such leaves share their rows in proportion to their masses: the maximum of the likelihood
        over leaves in this order.
        """
        mass, mean = (each.numpy(force=True).astype(np.float64) for each in leaf.level(sums))
        mean = np.nan_to_num(mean)  # of leaves without rows
        fitted = isotonic(mean, mass, self.order)[self.order]
        if (fitted == mean[self.order]).all():
            return sums
        block = torch.as_tensor(np.cumsum(np.diff(fitted, prepend=fitted[0]) != 0))
        same = (block[:, None] == block).to(sums)
        share = same * torch.as_tensor(mass[self.order]).to(sums)
        share = share / share.sum(1, keepdim=True).clamp_min(torch.finfo(sums.dtype).tiny)
        found = torch.empty_like(sums)
        found[self.order] = share.mT @ sums[self.order]
        return found


def larger_side(total: FloatArray) -> FloatArray:
    """1 for nodes whose predictions are larger on the right, -1 on the left, shape (V,).

    ``total`` (V,) are sums of the constrained coefficients of each node, times their directions.
    """
    return np.where(total < 0, -1.0, 1.0)


def leaf_order(topology: Topology, side: FloatArray) -> IntArray:
    """The leaves from the smallest prediction to the largest, given :func:`larger_side`."""
    children = topology.children
    mirrored = Topology(np.where(side[:, None] < 0, children[:, ::-1], children))
    return np.argsort(mirrored.left_to_right[0])


def isotonic(values: NDArray[Any], mass: FloatArray, order: IntArray) -> NDArray[Any]:
    """The nearest predictions (..., L) in this order, weighted by the masses (L,) of the leaves.

    Of posterior draws, this is the projection of Lin and Dunson, "Bayesian monotone regression
    using Gaussian process projection" (2014).
    """
    weights = np.maximum(mass, max(MIN_SHARE * mass.sum(), np.finfo(np.float64).tiny))[order]
    found = values.copy()
    for one, own in zip(found.reshape(-1, len(order)), values.reshape(-1, len(order)), strict=True):
        one[order] = isotonic_regression(own[order], weights=weights).x
    return found
