"""Conversion of trees and posteriors to the initial splits of TAO, and back."""

import numpy as np
import torch

from bayestree._utils.arrays import FloatArray
from bayestree.inference.posterior import Posterior
from bayestree.inference.tao.solvers import NodeSplit
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology
from bayestree.tree import Tree, facet_threshold

SILENT = -40.0  # log-weight of experts that only pad the arrays


def splits_of(init: Tree | Posterior, model: SoftTree) -> tuple[Topology, list[NodeSplit]]:
    """Topology and splits of an initial tree, with as many experts per node as in the model."""
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
    """The values of the model's sites for these splits."""
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
    """The same split in the shape of the model's splits."""
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
