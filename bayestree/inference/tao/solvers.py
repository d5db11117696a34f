"""The reduced problem of a node: what its split is to decide, and who solves it.

With all other nodes fixed, a node can only send a row left or right. The loss of the tree as a
function of one split is therefore, up to a constant, the weighted 0/1 loss of a binary
classifier: each row is labelled by the child that serves it better and weighted by what the
other would cost more (Carreira-Perpinan and Tavallali, the theorem of the reduced problem).
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree.tree import LOG2


class NodeSplit(NamedTuple):
    """The split of one node: right iff sum_k weight_k softplus(hyperplane_k . x + b_k) > log 2.

    Attributes
    ----------
    hyperplane : array, shape (K, d)
        On the features that the solver was given.
    intercept : array, shape (K,)
    weight : array, shape (K,)
    """

    hyperplane: NDArray[np.floating]
    intercept: NDArray[np.floating]
    weight: FloatArray

    @classmethod
    def linear(cls, coefficients: FloatArray, intercept: float) -> "NodeSplit":
        """Right iff coefficients . x + intercept > 0; coefficients of shape (d,)."""
        return cls(coefficients[None], np.array([intercept], coefficients.dtype), np.ones(1))

    @classmethod
    def constant(cls, like: "NodeSplit", *, right: bool) -> "NodeSplit":
        """Every row to one side: no coefficient is other than zero."""
        n_experts = len(like.weight)
        # K experts that are all silent leave s near 0; one that is on exceeds log 2
        intercept = np.full(n_experts, 1.0 if right else -np.log(2.0 * n_experts) - 1.0)
        return cls(np.zeros_like(like.hyperplane), intercept, np.ones(n_experts))

    def cast(self, dtype: np.dtype) -> "NodeSplit":
        """The split for rows of another precision."""
        plane, offset = self.hyperplane.astype(dtype), self.intercept.astype(dtype)
        return self._replace(hyperplane=plane, intercept=offset)

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return self.hyperplane.shape[1]

    def goes_right(self, X: NDArray[np.floating]) -> BoolArray:
        """Side of each row, shape (n,)."""
        activation = X @ self.hyperplane.T + self.intercept
        if len(self.weight) == 1 and self.weight[0] == 1.0:
            return activation[:, 0] > 0
        return np.logaddexp(0.0, activation) @ self.weight > LOG2


class ReducedSolver(Protocol):
    """Finds the split of a node for the rows that it has to part.

    ``current`` is the split as it stands: the warm start, and what is to be returned where
    nothing better is found.
    """

    def penalty(self, split: NodeSplit) -> float:
        """What the objective of the tree adds for this split: 0 without a penalty."""

    def __call__(
        self,
        X: NDArray[np.floating],
        right: BoolArray,
        weight: FloatArray,
        current: NodeSplit,
    ) -> NodeSplit:
        """A split for the rows of a care-set.

        Parameters
        ----------
        X : array, shape (m, d)
            Rows of the care-set on the scale of the model; not to be changed.
        right : array of bool, shape (m,)
            Which rows are better served by the right child; both sides occur.
        weight : array, shape (m,)
            What the wrong side costs, > 0.
        current : NodeSplit
        """


def reduced_loss(
    split: NodeSplit, X: NDArray[np.floating], right: BoolArray, weight: FloatArray
) -> float:
    """Weighted 0/1 loss of a split on its care-set."""
    return float(weight[split.goes_right(X) != right].sum())
