"""Splits by weighted entropy (Yang, Shen and Gao, 2019: WODT).

A split theta = (coefficients, offset) minimises the entropy of two soft children, to which every
row belongs with weight sigmoid(theta . x) (right) and 1 - sigmoid(theta . x) (left) (eq. 1).

Nodes are fitted one by one: SciPy's L-BFGS-B took 0.8 ms per node on Letter, and the batched
search of ``lbfgs``, whose problems wait for the slowest, was slower on every data set.
"""

import math
import sys
from dataclasses import dataclass, field
from functools import cache
from typing import Self

import numpy as np
import torch
from scipy.optimize import fmin_l_bfgs_b
from scipy.special import xlogy
from threadpoolctl import ThreadpoolController
from torch import Tensor

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree.inference.data import Data
from bayestree.inference.splitters.protocol import FittedSplit

TINY = np.finfo(np.float64).tiny  # keeps log 0 finite where it is multiplied by 0
START = 0.5  # initial coefficients and offset are uniform on (-START, START)


@dataclass(frozen=True, eq=False)
class WeightedEntropy:
    """E(theta) of the rows of one node (eq. 1), in bits."""

    X: AnyArray  # (m, d): the rows, sorted by class
    weights: FloatArray  # (m,)
    first: IntArray  # (c,): first row of each class present
    counts: IntArray  # (c,): number of rows of each of these classes
    totals: FloatArray  # (c,): total weight of each of these classes

    @classmethod
    def of_sorted(cls, X: AnyArray, y: IntArray, weights: FloatArray) -> Self:
        """The criterion of rows sorted by class."""
        first = np.concatenate([[0], np.flatnonzero(y[1:] != y[:-1]) + 1])
        counts = np.diff(first, append=len(y))
        return cls(X, weights, first, counts, np.add.reduceat(weights, first))

    def scores(self, theta: FloatArray) -> FloatArray:
        """theta . x of every row; the last entry of theta is the offset."""
        coefficients = theta[:-1].astype(self.X.dtype, copy=False)
        return self.X @ coefficients + theta[-1]

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """E and its gradient g, shape (d + 1,).

        E = W_L log2 W_L + W_R log2 W_R - sum_y (W_L^y log2 W_L^y + W_R^y log2 W_R^y), where W are
        the weights of a side and of its classes. With beta_i = p_i (1 - p_i) x_i,
        g = log2(W_R / W_L) sum_i beta_i + sum_i beta_i log2(W_L^{y_i} / W_R^{y_i}): the
        penultimate line of the paper's derivation (eq. 2 as printed merges the two sums).
        """
        half = np.tanh(self.scores(theta) * 0.5)  # p = (1 + half) / 2, p (1 - p) = (1 - half^2) / 4
        right = np.add.reduceat(self.weights * (0.5 + 0.5 * half), self.first)
        left = np.maximum(self.totals - right, 0.0)  # rounding can make an empty side negative
        all_left, all_right = left.sum(), right.sum()
        value = (
            xlogy(all_left, all_left)
            + xlogy(all_right, all_right)
            - xlogy(left, left).sum()
            - xlogy(right, right).sum()
        )
        of_class = np.log(np.maximum(left, TINY)) - np.log(np.maximum(right, TINY))
        of_class += math.log(max(all_right, TINY)) - math.log(max(all_left, TINY))
        slope = self.weights * (0.25 - 0.25 * half * half) * np.repeat(of_class, self.counts)
        gradient = np.empty(len(theta))
        gradient[:-1] = slope.astype(self.X.dtype, copy=False) @ self.X
        gradient[-1] = slope.sum()
        return float(value) / math.log(2), gradient / math.log(2)

    def gain(self, right: BoolArray) -> float:
        """Gain of a hard split in nats: total weight times mutual information."""
        on_right = np.add.reduceat(np.where(right, self.weights, 0.0), self.first)
        sides = _purity(on_right) + _purity(self.totals - on_right)
        return max(sides - _purity(self.totals), 0.0)  # rounding can make it negative


def _purity(weights: FloatArray) -> float:
    """Minus the entropy of classes with these weights, times their sum, in nats."""
    total = weights.sum()
    return float(xlogy(weights, weights).sum() - xlogy(total, total))


@dataclass(frozen=True)
class WeightedEntropySplitter:
    """Oblique splits that minimise weighted entropy by L-BFGS from a random start.

    A row exactly on the hyperplane goes left, as everywhere in this package; in the paper it goes
    right (eq. 4).
    """

    #: Maximum number of L-BFGS iterations; few keep the coefficients small and thus regularise.
    max_iter: int = 20
    min_leaf: int = 1  # splits with fewer rows on a side are discarded
    #: Number of iterations of each split, in the order of fitting.
    iterations: list[int] = field(default_factory=list, init=False, compare=False)

    rows_per_node = sys.maxsize

    def numbers_per_row(self, n_features: int) -> int:
        return n_features

    def state_dict(self) -> dict[str, list[int]]:
        return {"iterations": list(self.iterations)}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        self.iterations[:] = state["iterations"]

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """The split of each node; None if a side has too few rows."""
        width = data.X.shape[1] + 1
        starts = (torch.rand(len(rows), width, dtype=torch.float64) - 0.5) * (2 * START)
        X, y, weights = (part.numpy(force=True) for part in data)
        found = []
        with _libraries().limit(limits=1, user_api="blas"):
            for start, members in zip(starts.numpy(), rows, strict=True):
                number = members.numpy(force=True)
                order = np.argsort(y[number], kind="stable")
                number = number[order]
                criterion = WeightedEntropy.of_sorted(
                    X[number], y[number], weights[number].astype(np.float64, copy=False)
                )
                theta, _, record = fmin_l_bfgs_b(criterion, start, maxiter=self.max_iter)
                self.iterations.append(int(record["nit"]))
                found.append(self._split(criterion, theta, order, data.X))
        return found

    def _split(
        self, criterion: WeightedEntropy, theta: FloatArray, order: IntArray, like: Tensor
    ) -> FittedSplit | None:
        """The split at theta, with sides in the original order of rows sorted by ``order``."""
        theta = theta.astype(criterion.X.dtype)  # round first: sides must match the stored numbers
        right = criterion.scores(theta) > 0
        n_right = int(right.sum())
        if min(n_right, len(right) - n_right) < max(self.min_leaf, 1):
            return None
        side = np.empty_like(right)
        side[order] = right
        kept = torch.as_tensor(theta).to(like)
        return FittedSplit(
            {"hyperplane": kept[None, :-1], "intercept": kept[-1:]},
            torch.as_tensor(side, device=like.device),
            criterion.gain(right),
        )


@cache
def _libraries() -> ThreadpoolController:
    """Control of BLAS threads, which make small nodes many times slower."""
    return ThreadpoolController()
