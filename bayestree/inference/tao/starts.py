"""From trees and posteriors to the splits that TAO begins with, and back."""

import numpy as np
import torch

from bayestree._utils.arrays import FloatArray
from bayestree.inference.posterior import Posterior
from bayestree.inference.tao.solvers import NodeSplit
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology
from bayestree.tree import Tree, facet_threshold

SILENT = -40.0  # log-weight of an expert that is there for the shape of the arrays only


def splits_of(init: Tree | Posterior, model: SoftTree) -> tuple[Topology, list[NodeSplit]]:
    """Topology and splits of a start, with as many experts a node as the model's split has.

    Parameters
    ----------
    init : Tree or Posterior
        On the features of the rows to be fitted.
    model : SoftTree

    Raises
    ------
    TypeError
        If ``init`` is neither.
    ValueError
        If a node of it has more experts, or uses more features, than the model's splits may.
    """
    if isinstance(init, Posterior):
        point = init.point
        weight = init.weight()
        splits = [
            NodeSplit(*(np.asarray(part, dtype=np.float64) for part in parts))
            for parts in zip(point["hyperplane"], point["intercept"], weight, strict=True)
        ]
        topology = init.model.topology
    elif isinstance(init, Tree):
        own = [init.experts(node) for node in range(init.n_nodes)]
        splits = [NodeSplit(init.hyperplane[s], init.intercept[s], init.weight[s]) for s in own]
        topology = init.topology
    else:
        raise TypeError(f"init must be a Tree or a Posterior, got {type(init).__name__}.")
    return topology, [_fitting(split, model) for split in splits]


def sites_of(splits: list[NodeSplit], model: SoftTree, n_features: int) -> dict[str, torch.Tensor]:
    """The sites of the model that say these splits."""
    n_experts = model.split.n_experts
    plane = np.zeros((len(splits), n_experts, n_features))
    intercept, weight = np.zeros(plane.shape[:2]), np.ones(plane.shape[:2])
    for node, split in enumerate(splits):
        plane[node], intercept[node], weight[node] = split
    found: dict[str, FloatArray] = {"hyperplane": plane, "intercept": intercept}
    if model.split.weighted:
        found["log_weight"] = np.log(weight)
    return {name: torch.as_tensor(value) for name, value in found.items()}


def _fitting(split: NodeSplit, model: SoftTree) -> NodeSplit:
    """The same split in the shape that the model's have."""
    most = getattr(model.split, "max_features", None)
    used = int(np.count_nonzero(split.hyperplane, axis=1).max(initial=0))
    if most is not None and used > most:
        raise ValueError(
            f"init has a split of {used} features, and the model's splits have {most} at most; "
            "start from a tree of such splits."
        )
    n_experts, missing = model.split.n_experts, model.split.n_experts - len(split.weight)
    if missing < 0:
        raise ValueError(
            f"init has a split of {len(split.weight)} experts, and the model's splits have "
            f"{n_experts} at most; start from a tree of such splits, or give the model more."
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
