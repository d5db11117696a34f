"""The reduced problem of a node: its split and the interface of solvers.

With all other nodes fixed, a node can only send a row left or right. The loss of the tree as a
function of one split is therefore, up to a constant, the weighted 0/1 loss of a binary
classifier: each row is labelled with the child of smaller loss and weighted by the difference of
the losses (Carreira-Perpinan and Tavallali, reduced problem theorem).
"""

from typing import NamedTuple, Protocol

import numpy as np
import torch

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree.inference import Posterior
from bayestree.models import SoftTree
from bayestree.topology import Topology
from bayestree.tree import LOG2, Tree, facet_threshold


class NodeSplit(NamedTuple):
    """The split of one node: right iff sum_k weight_k softplus(hyperplane_k . x + b_k) > log 2."""

    hyperplane: AnyArray  # (K, d), on the features passed to the solver
    intercept: AnyArray  # (K,)
    weight: FloatArray  # (K,)

    @classmethod
    def linear(cls, coefficients: FloatArray, intercept: float) -> "NodeSplit":
        """Make a split: right iff coefficients . x + intercept > 0, for coefficients (d,)."""
        return cls(coefficients[None], np.array([intercept], coefficients.dtype), np.ones(1))

    @classmethod
    def constant(cls, like: "NodeSplit", *, right: bool) -> "NodeSplit":
        """Return a split that sends every row to one side, with all coefficients 0."""
        n_experts = len(like.weight)
        # softplus(1) > log 2; softplus(-log 2K - 1) < 1 / (2 e K), so K experts sum to less
        intercept = np.full(n_experts, 1.0 if right else -np.log(2.0 * n_experts) - 1.0)
        return cls(np.zeros_like(like.hyperplane), intercept, np.ones(n_experts))

    def cast(self, dtype: np.dtype) -> "NodeSplit":
        """Convert the split to the precision of the rows."""
        plane, offset = self.hyperplane.astype(dtype), self.intercept.astype(dtype)
        return self._replace(hyperplane=plane, intercept=offset)

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return self.hyperplane.shape[1]

    def goes_right(self, X: AnyArray) -> BoolArray:
        """Return the side of each row, shape (n,)."""
        activation = X @ self.hyperplane.T + self.intercept
        if len(self.weight) == 1 and self.weight[0] == 1.0:
            return activation[:, 0] > 0
        return np.logaddexp(0.0, activation) @ self.weight > LOG2


class ReducedSolver(Protocol):
    """Finds the split of a node that best separates its labelled rows."""

    def penalty(self, split: NodeSplit) -> float:
        """Compute the penalty of this split in the objective of the tree."""

    def __call__(
        self, X: AnyArray, right: BoolArray, weight: FloatArray, current: NodeSplit
    ) -> NodeSplit:
        """Find a split for the rows X (m, d) whose side matters (the care set).

        ``right`` (m,) marks the rows for which the right child is better, and both sides occur;
        ``weight`` (m,) is the positive cost of the wrong side. ``current`` is a warm start, to be
        returned if nothing better is found.
        """


def reduced_loss(split: NodeSplit, X: AnyArray, right: BoolArray, weight: FloatArray) -> float:
    """Compute the weighted 0/1 loss of a split on its care set."""
    return float(weight[split.goes_right(X) != right].sum())


SILENT = -40.0  # log-weight of experts that only pad the arrays


def splits_of(init: Tree | Posterior, model: SoftTree) -> tuple[Topology, list[NodeSplit]]:
    """Return the topology and splits of an initial tree, with the model's number of experts."""
    if isinstance(init, Posterior):
        sites = init.point["hyperplane"], init.point["intercept"], init.weight()
        splits = [
            NodeSplit(*(np.asarray(part, dtype=np.float64) for part in parts))
            for parts in zip(*sites, strict=True)
        ]
        topology = init.model.topology
    elif isinstance(init, Tree):
        experts = [init.experts(node) for node in range(init.n_nodes)]
        splits = [NodeSplit(init.hyperplane[s], init.intercept[s], init.weight[s]) for s in experts]
        topology = init.topology
    else:
        raise TypeError(f"init must be a Tree or a Posterior, got {type(init).__name__}.")
    return topology, [_adapt(split, model) for split in splits]


def sites_of(splits: list[NodeSplit], model: SoftTree, n_features: int) -> dict[str, torch.Tensor]:
    """Return the values of the model's sites for these splits."""
    n_experts = model.split.n_experts
    plane = np.zeros((len(splits), n_experts, n_features))
    intercept, weight = np.zeros(plane.shape[:2]), np.ones(plane.shape[:2])
    for node, split in enumerate(splits):
        plane[node], intercept[node], weight[node] = split
    found: dict[str, FloatArray] = {"hyperplane": plane, "intercept": intercept}
    if model.split.weighted:
        found["log_weight"] = np.log(weight)
    return {name: torch.as_tensor(value) for name, value in found.items()}


def _adapt(split: NodeSplit, model: SoftTree) -> NodeSplit:
    """Bring a split into the shape of the model's splits."""
    limit = getattr(model.split, "max_features", None)
    used = int(np.count_nonzero(split.hyperplane, axis=1).max(initial=0))
    if limit is not None and used > limit:
        raise ValueError(
            f"init has a split with {used} features, but the model allows at most {limit}; start "
            "from a tree of such splits."
        )
    n_experts, missing = model.split.n_experts, model.split.n_experts - len(split.weight)
    if missing < 0:
        raise ValueError(
            f"init has a split with {len(split.weight)} experts, but the model allows at most "
            f"{n_experts}; start from a tree of such splits, or increase n_experts of the model."
        )
    if not model.split.weighted:
        return split._replace(
            intercept=split.intercept - facet_threshold(split.weight), weight=np.ones(1)
        )
    return NodeSplit(
        np.concatenate([split.hyperplane, np.zeros((missing, split.n_features))]),
        np.concatenate([split.intercept, np.zeros(missing)]),
        np.concatenate([split.weight, np.full(missing, np.exp(SILENT))]),
    )
