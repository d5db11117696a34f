"""Convex polytope splits: noisy-OR experts trained on the reduced problem."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree.inference.tao.solvers import NodeSplit

OUTER = 0.1  # share of the rows outside each facet of a random start
MIN_RATE = 1e-10  # added to s: right rows without any vote cost 23 nats


@dataclass(frozen=True)
class PolytopeSolver:
    """L-BFGS on the weighted log-loss of P(right) = 1 - exp(-s), from the current experts."""

    #: Penalty on half the squared change of all parameters, which keeps the experts close to the
    #: current ones where the rows are uninformative.
    ridge: float = 0.1
    iterations: int = 50  # maximum number of L-BFGS iterations

    def penalty(self, split: NodeSplit) -> float:
        return 0.0

    def __call__(
        self, X: AnyArray, right: BoolArray, weight: FloatArray, current: NodeSplit
    ) -> NodeSplit:
        if not current.hyperplane.any():
            current = _random_experts(current, X)
        n_experts, n_features = current.hyperplane.shape
        start = np.concatenate(
            [current.hyperplane.ravel(), current.intercept, np.log(current.weight)]
        ).astype(np.float64)
        split_at = (n_experts * n_features, n_experts * (n_features + 1))

        def unpack(point: FloatArray) -> list[FloatArray]:
            plane, *others = np.split(point, split_at)
            return [plane.reshape(n_experts, n_features), *others]

        def objective(point: FloatArray) -> tuple[float, FloatArray]:
            value, slopes = log_loss(X, right, weight, *unpack(point))
            change = point - start
            return value + self.ridge / 2 * float(change @ change), slopes + self.ridge * change

        found = minimize(
            objective, start, jac=True, method="L-BFGS-B", options={"maxiter": self.iterations}
        )
        plane, offset, log_weight = unpack(found.x)
        return NodeSplit(plane, offset, np.exp(log_weight))


def _random_experts(constant: NodeSplit, X: AnyArray) -> NodeSplit:
    """Experts in random directions, each with ``OUTER`` of the rows on its right side.

    The experts of a constant split are equal and would stay equal under gradient steps.
    """
    # A fixed seed: equal rows get equal splits, anywhere in a tree.
    plane = np.random.default_rng(0).standard_normal(constant.hyperplane.shape)
    plane /= np.linalg.norm(plane, axis=1, keepdims=True)
    offset = -np.quantile(X @ plane.T, 1 - OUTER, axis=0)
    return NodeSplit(plane, offset, np.ones(len(plane)))


def log_loss(
    X: AnyArray,
    right: BoolArray,
    weight: FloatArray,
    plane: FloatArray,
    offset: FloatArray,
    log_weight: FloatArray,
) -> tuple[float, FloatArray]:
    """-sum_n w_n log P(side_n) and its flat gradient in plane (K, d), offset and log-weight.

    With s = sum_k r_k softplus(a_k), the loss is s on the left and -log(1 - exp(-s)) on the right;
    ds/da_k = r_k sigmoid(a_k) and ds/d(log r_k) = r_k softplus(a_k).
    """
    activation = (X @ plane.T.astype(X.dtype)).astype(np.float64) + offset
    rate = np.exp(log_weight)
    votes = np.logaddexp(0.0, activation) * rate
    score = votes.sum(axis=1) + MIN_RATE
    each = np.where(right, -np.log(-np.expm1(-score)), score)
    slope = weight * np.where(right, -np.exp(-score) / -np.expm1(-score), 1.0)
    inner = slope[:, None] * expit(activation) * rate
    gradient = (inner.T.astype(X.dtype) @ X).astype(np.float64)
    flat = np.concatenate([gradient.ravel(), inner.sum(axis=0), slope @ votes])
    return float(weight @ each), flat
