"""Greedy growth of a tree, level by level (CPT, section 3.3.2).

All stumps of a level are one batched problem: V nodes x R restarts x K experts on m rows each.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bayestree._progress import Track
from bayestree._seed import RandomState, draw_seed, seeded
from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.inference.stumps import FittedSplit, StumpFitter
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology

ELEMENTS = 6_000_000  # numbers in one batch of activations; bounds memory and suits the cache


@dataclass(frozen=True)
class GrowthLimits:
    """When a node is not split further.

    Parameters
    ----------
    max_depth : int
        Most splits on a path.
    max_leaves : int, optional
        Cut back to so many leaves, the splits of least gain first.
    min_rows : float
        Least weight of rows in a node to be split.
    min_leaf : float
        Least number of rows on each side of a split.
    min_gain : float
        Least gain of a split, in nats (N times the mutual information).
    """

    max_depth: int = 4
    max_leaves: int | None = None
    min_rows: float = 20.0
    min_leaf: int = 10
    min_gain: float = 10.0


@dataclass
class _Node:
    rows: Tensor
    depth: int
    split: FittedSplit | None = None
    children: tuple[int, int] = (0, 0)


def grow(
    model: SoftTree,
    data: Data,
    *,
    limits: GrowthLimits | None = None,
    validation: Data | None = None,
    steps: int = 120,
    n_restarts: int = 4,
    rows_per_node: int = 2000,
    learning_rate: float = 0.15,
    random_state: RandomState = None,
    progress: bool = False,
) -> Posterior:
    """Grow a tree of stumps, each fitted to the rows that reach it.

    Parameters
    ----------
    model : SoftTree
        Names split, priors and leaves; its topology is replaced by the one found.
    data : Data
        n rows; the weights count.
    limits : GrowthLimits, optional
    validation : Data, optional
        The tree is cut at the depth that predicts these rows best (CPT, section 4.2.1).
    steps : int
        Adam steps for each level.
    n_restarts : int
        Random starts of each stump, as part of the batch.
    rows_per_node : int
        Rows drawn for a stump; redrawn as it is fitted where a node has more.
    learning_rate : float
        Relative to the size of a starting hyperplane.
    random_state : int, RandomState or Generator, optional
    progress : bool

    Returns
    -------
    Posterior
        One draw: splits at 1/2, and leaves from the rows that reach them.
    """
    limits = limits or GrowthLimits()
    fit = StumpFitter(
        model.split,
        model.leaf,
        steps,
        n_restarts,
        rows_per_node,
        learning_rate,
        limits.min_leaf,
    )
    nodes = [_Node(torch.arange(len(data.X), device=data.X.device), 0)]
    frontier = [0]
    track = Track(range(limits.max_depth), "grow", show=progress)
    with seeded(draw_seed(random_state)):
        for _ in track:
            start = len(nodes)
            ready = [i for i in frontier if _can_split(data, nodes[i].rows, limits)]
            for group in _groups(nodes, ready, fit, data.X.shape[1]):
                splits = fit(data, [nodes[i].rows for i in group])
                for i, split in zip(group, splits, strict=True):
                    if split is not None and split.gain >= limits.min_gain:
                        _branch(nodes, i, split)
            frontier = list(range(start, len(nodes)))
            track.note(f"{len(nodes) // 2 + 1} leaves")
    kept = _cut_to(nodes, limits.max_leaves)
    if validation is not None:
        kept = _best_depth(model, nodes, kept, data, validation)
    settings = {
        "limits": limits,
        "steps": steps,
        "n_restarts": n_restarts,
        "rows_per_node": rows_per_node,
        "learning_rate": learning_rate,
    }
    return replace(_assemble(model, nodes, kept, data), settings=settings)


def _can_split(data: Data, rows: Tensor, limits: GrowthLimits) -> bool:
    y = data.y[rows]
    return (
        len(rows) >= 2 * limits.min_leaf
        and float(data.weights[rows].sum()) >= limits.min_rows
        and bool((y != y[0]).any())
    )


def _groups(nodes: list[_Node], ready: list[int], fit: StumpFitter, width: int) -> list[list[int]]:
    """Nodes of like size together, so that padding and memory stay small."""
    groups: list[list[int]] = []
    per_row = max(fit.n_restarts * fit.split.n_experts, width)
    for i in sorted(ready, key=lambda i: len(nodes[i].rows)):
        size = min(fit.rows_per_node, len(nodes[i].rows))
        if groups:
            least = min(fit.rows_per_node, len(nodes[groups[-1][0]].rows))
            if size <= 2 * least + 20 and (len(groups[-1]) + 1) * size * per_row <= ELEMENTS:
                groups[-1].append(i)
                continue
        groups.append([i])
    return groups


def _branch(nodes: list[_Node], i: int, split: FittedSplit) -> None:
    node = nodes[i]
    node.split = split
    node.children = (len(nodes), len(nodes) + 1)
    sides = (node.rows[~split.right], node.rows[split.right])
    nodes.extend(_Node(rows, node.depth + 1) for rows in sides)


def _cut_to(nodes: list[_Node], max_leaves: int | None) -> set[int]:
    """Nodes that stay split: pairs of leaves of the least gain are merged first."""
    kept = {i for i, node in enumerate(nodes) if node.split is not None}
    while max_leaves is not None and len(kept) + 1 > max(max_leaves, 1):
        last = [i for i in kept if not kept.intersection(nodes[i].children)]
        kept.remove(min(last, key=lambda i: _gain(nodes[i])))
    return kept


def _gain(node: _Node) -> float:
    return -np.inf if node.split is None else node.split.gain


def _best_depth(
    model: SoftTree, nodes: list[_Node], kept: set[int], data: Data, validation: Data
) -> set[int]:
    """The nodes above the depth whose deterministic tree predicts the validation rows best."""
    deepest = max((nodes[i].depth for i in kept), default=-1) + 1
    cuts = [{i for i in kept if nodes[i].depth < depth} for depth in range(deepest + 1)]
    scores = [_hard_score(_assemble(model, nodes, cut, data), validation) for cut in cuts]
    return cuts[int(np.argmax(scores))]


def _hard_score(posterior: Posterior, rows: Data) -> float:
    """Log-likelihood of rows under the tree with steep splits: nearly its deterministic form."""
    steep = posterior.model.with_(steepness=1e3)
    sites = {name: value.to(rows.X) for name, value in posterior.point_sites().items()}
    with torch.no_grad():
        return float(steep.log_likelihood(sites, *rows))


def _assemble(model: SoftTree, nodes: list[_Node], kept: set[int], data: Data) -> Posterior:
    """The splits of the kept nodes as one tree, with leaves from the rows that reach them."""
    order, leaves = [0] if 0 in kept else [], [] if 0 in kept else [0]
    children = np.empty((len(kept), 2), dtype=np.int64)
    for v, i in enumerate(order):  # order grows as it is read: breadth first
        for side, child in enumerate(nodes[i].children):
            target = order if child in kept else leaves
            children[v, side] = len(target) if child in kept else ~len(target)
            target.append(child)
    found = [split for i in order if (split := nodes[i].split) is not None]
    grown = model.with_(topology=Topology(children))
    size = grown.size(data.X.shape[1])
    names = ["hyperplane", "intercept"] + ["log_weight"] * model.split.weighted
    sites = {
        name: torch.stack([split.sites[name] for split in found])
        if found
        else data.X.new_zeros(size.shape(name))
        for name in names
    }
    leaf = torch.empty(len(data.X), dtype=torch.long, device=data.X.device)
    for number, i in enumerate(leaves):
        leaf[nodes[i].rows] = number
    statistics = model.leaf.statistics(data.y, data.weights)
    sums = statistics.new_zeros(len(leaves), statistics.shape[1]).index_add_(0, leaf, statistics)
    sites |= model.leaf.estimate(sums)
    return Posterior.from_point(grown, sites, "grow")
