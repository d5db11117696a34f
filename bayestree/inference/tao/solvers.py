"""The reduced problem of a node: its split and the interface of solvers.

With all other nodes fixed, a node can only send a row left or right. The loss of the tree as a
function of one split is therefore, up to a constant, the weighted 0/1 loss of a binary
classifier: each row is labelled with the child of smaller loss and weighted by the difference of
the losses (Carreira-Perpinan and Tavallali, reduced problem theorem).
"""

from typing import NamedTuple, Protocol

import numpy as np

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree.tree import LOG2


class NodeSplit(NamedTuple):
    """The split of one node: right iff sum_k weight_k softplus(hyperplane_k . x + b_k) > log 2."""

    hyperplane: AnyArray  # (K, d), on the features passed to the solver
    intercept: AnyArray  # (K,)
    weight: FloatArray  # (K,)

    @classmethod
    def linear(cls, coefficients: FloatArray, intercept: float) -> "NodeSplit":
        """Right iff coefficients . x + intercept > 0; coefficients of shape (d,)."""
        return cls(coefficients[None], np.array([intercept], coefficients.dtype), np.ones(1))

    @classmethod
    def constant(cls, like: "NodeSplit", *, right: bool) -> "NodeSplit":
        """A split that sends every row to one side, with all coefficients 0."""
        n_experts = len(like.weight)
        # softplus(1) > log 2; softplus(-log 2K - 1) < 1 / (2 e K), so K experts sum to less
        intercept = np.full(n_experts, 1.0 if right else -np.log(2.0 * n_experts) - 1.0)
        return cls(np.zeros_like(like.hyperplane), intercept, np.ones(n_experts))

    def cast(self, dtype: np.dtype) -> "NodeSplit":
        """The split in the precision of the rows."""
        plane, offset = self.hyperplane.astype(dtype), self.intercept.astype(dtype)
        return self._replace(hyperplane=plane, intercept=offset)

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return self.hyperplane.shape[1]

    def goes_right(self, X: AnyArray) -> BoolArray:
        """Side of each row, shape (n,)."""
        activation = X @ self.hyperplane.T + self.intercept
        if len(self.weight) == 1 and self.weight[0] == 1.0:
            return activation[:, 0] > 0
        return np.logaddexp(0.0, activation) @ self.weight > LOG2


class ReducedSolver(Protocol):
    """Finds the split of a node that best separates its labelled rows."""

    def penalty(self, split: NodeSplit) -> float:
        """Penalty of this split in the objective of the tree."""

    def __call__(
        self, X: AnyArray, right: BoolArray, weight: FloatArray, current: NodeSplit
    ) -> NodeSplit:
        """A split for the rows X (m, d) whose side matters (the care set).

        ``right`` (m,) marks the rows for which the right child is better, and both sides occur;
        ``weight`` (m,) is the positive cost of the wrong side. ``current`` is a warm start, to be
        returned if nothing better is found.
        """


def reduced_loss(split: NodeSplit, X: AnyArray, right: BoolArray, weight: FloatArray) -> float:
    """Weighted 0/1 loss of a split on its care set."""
    return float(weight[split.goes_right(X) != right].sum())
