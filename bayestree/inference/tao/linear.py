"""Oblique splits by logistic regression: the surrogate of the reduced problem's 0/1 loss."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree.inference.tao.logistic import fit_logistic
from bayestree.inference.tao.solvers import NodeSplit


@dataclass(frozen=True)
class LogisticSolver:
    """Weighted logistic regression; with ``l1`` > 0 the splits of a sparse oblique tree.

    Parameters
    ----------
    l1 : float
        lambda: penalty of the objective on |w|_1, against a loss summed over the rows (1/C of
        liblinear).
    ridge : float
        Penalty on |w|^2 / 2 of the surrogate only, which keeps it finite on separable rows; not
        used beside ``l1``.
    tolerance : float
        Relative decrease below which a fit stops.
    """

    l1: float = 0.0
    ridge: float = 0.1
    tolerance: float = 1e-3

    def penalty(self, split: NodeSplit) -> float:
        return self.l1 * float(np.abs(split.hyperplane).sum(dtype=np.float64))

    def __call__(
        self,
        X: NDArray[np.floating],
        right: BoolArray,
        weight: FloatArray,
        current: NodeSplit,
    ) -> NodeSplit:
        fit = fit_logistic(
            X,
            right,
            weight,
            l1=self.l1,
            l2=0.0 if self.l1 else self.ridge,
            start=(current.hyperplane[0], float(current.intercept[0])),
            tolerance=self.tolerance,
        )
        return NodeSplit.linear(fit.coefficients, fit.intercept)
