"""Splits by weighted entropy (Yang, Shen and Gao, 2019: WODT).

A split theta = (coefficients, offset) of a node's rows is as good as the entropy that is left when
every row counts sigmoid(theta . x) in the right child and the rest in the left one (eq. 1).

One node at a time: SciPy's L-BFGS-B on the rows of one node took 0.8 ms a node on Letter, which
the batched search of ``lbfgs`` did not reach on any set (its problems wait for the longest).
"""

import math
import sys
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import fmin_l_bfgs_b
from scipy.special import xlogy
from threadpoolctl import ThreadpoolController
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree.inference.data import Data
from bayestree.inference.splitters.protocol import FittedSplit

TINY = np.finfo(np.float64).tiny  # keeps log 0 finite where 0 log 0 = 0
START = 0.5  # coefficients and offset start uniform on (-START, START)


@dataclass(frozen=True, eq=False)
class WeightedEntropy:
    """E(theta) of the rows of one node (eq. 1), in bits.

    Parameters
    ----------
    X : array, shape (m, d)
        The rows, those of one class together.
    weights : array, shape (m,)
        Each row counts so many times.
    first, counts : arrays of int, shape (c,)
        Of the classes that are present: number of the first row, and of rows.
    totals : array, shape (c,)
        Weight of each of these classes.
    """

    X: NDArray[Any]
    weights: FloatArray
    first: NDArray[np.int64]
    counts: NDArray[np.int64]
    totals: FloatArray

    @classmethod
    def of(cls, X: NDArray[Any], y: NDArray[np.int64], weights: FloatArray | None = None) -> Self:
        """The criterion of rows X (m, d) of classes y (m,), in any order."""
        order = np.argsort(y, kind="stable")
        weight = np.ones(len(y)) if weights is None else weights[order]
        return cls.sorted(X[order], y[order], weight)

    @classmethod
    def sorted(cls, X: NDArray[Any], y: NDArray[np.int64], weights: FloatArray) -> Self:
        """The same for rows in the order of their classes."""
        first = np.concatenate([[0], np.flatnonzero(y[1:] != y[:-1]) + 1])
        counts = np.diff(first, append=len(y))
        return cls(X, weights, first, counts, np.add.reduceat(weights, first))

    def scores(self, theta: FloatArray) -> FloatArray:
        """theta . x of every row, with the last entry of theta as the offset."""
        coefficients = theta[:-1].astype(self.X.dtype, copy=False)
        return self.X @ coefficients + theta[-1]

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """E and its gradient g, shape (d + 1,).

        With beta_i = p_i (1 - p_i) x_i, g = log2(W_R / W_L) sum_i beta_i
        + sum_i beta_i log2(W_L^{y_i} / W_R^{y_i}). That is the last line but one of the paper's
        derivation; eq. 2 as printed has run the two sums into one product.
        """
        turn = np.tanh(self.scores(theta) * 0.5)
        right = np.add.reduceat(self.weights * (0.5 + 0.5 * turn), self.first)
        left = np.maximum(self.totals - right, 0.0)  # rounding leaves an empty side below zero
        all_left, all_right = left.sum(), right.sum()
        value = (
            xlogy(all_left, all_left)
            + xlogy(all_right, all_right)
            - xlogy(left, left).sum()
            - xlogy(right, right).sum()
        )
        of_class = np.log(np.maximum(left, TINY)) - np.log(np.maximum(right, TINY))
        of_class += math.log(max(all_right, TINY)) - math.log(max(all_left, TINY))
        slope = self.weights * (0.25 - 0.25 * turn * turn) * np.repeat(of_class, self.counts)
        gradient = np.empty(len(theta))
        gradient[:-1] = slope.astype(self.X.dtype, copy=False) @ self.X
        gradient[-1] = slope.sum()
        return float(value) / math.log(2), gradient / math.log(2)

    def gain(self, right: NDArray[np.bool_]) -> float:
        """What a split of the rows gains in nats: weight times mutual information."""
        inside = np.add.reduceat(np.where(right, self.weights, 0.0), self.first)
        sides = _purity(inside) + _purity(self.totals - inside)
        # convexity makes it 0 or more; rounding does not
        return max(sides - _purity(self.totals), 0.0)


def _purity(weights: FloatArray) -> float:
    """Minus the entropy of classes of such weights, times their sum, in nats."""
    total = weights.sum()
    return float(xlogy(weights, weights).sum() - xlogy(total, total))


@dataclass(frozen=True)
class WeightedEntropySplitter:
    """The oblique split of least weighted entropy from a random start, by L-BFGS.

    Where theta . x = 0, which only a row that lies exactly on the hyperplane meets, a row goes
    left as everywhere in this package; the paper sends it right (eq. 4).

    Parameters
    ----------
    max_iter : int
        Iterations of L-BFGS. Few of them keep the coefficients small, and regularise.
    min_leaf : int
        Least number of rows on each side; a split that leaves fewer is none.

    Attributes
    ----------
    iterations : list of int
        What each split took, in the order in which they were fitted.
    """

    max_iter: int = 20
    min_leaf: int = 1
    iterations: list[int] = field(default_factory=list, init=False, compare=False)

    @property
    def rows_per_node(self) -> int:
        """All rows count."""
        return sys.maxsize

    def numbers_per_row(self, n_features: int) -> int:
        return n_features

    def state_dict(self) -> dict[str, list[int]]:
        """What it remembers of the splits so far."""
        return {"iterations": list(self.iterations)}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        """Remember what another did."""
        self.iterations[:] = state["iterations"]

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """The split of each node; None where all its rows go one way."""
        width = data.X.shape[1] + 1
        starts = (torch.rand(len(rows), width, dtype=torch.float64) - 0.5) * (2 * START)
        X, y, weights = (part.numpy(force=True) for part in data)
        found = []
        with _libraries().limit(limits=1, user_api="blas"):
            for start, own in zip(starts.numpy(), rows, strict=True):
                number = own.numpy(force=True)
                order = np.argsort(y[number], kind="stable")
                number = number[order]
                criterion = WeightedEntropy.sorted(
                    X[number], y[number], weights[number].astype(np.float64, copy=False)
                )
                theta, _, record = fmin_l_bfgs_b(criterion, start, maxiter=self.max_iter)
                self.iterations.append(int(record["nit"]))
                found.append(self._split(criterion, theta, order, data.X))
        return found

    def _split(
        self, criterion: WeightedEntropy, theta: FloatArray, order: NDArray[np.int64], like: Tensor
    ) -> FittedSplit | None:
        """The split at theta of rows that were put in ``order``."""
        theta = theta.astype(criterion.X.dtype)  # the side is to be that of the numbers kept
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
    """The BLAS libraries: threads that wait for each other make small nodes many times slower."""
    return ThreadpoolController()
