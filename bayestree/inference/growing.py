"""A growing tree: the rows of each node and the gain of each split."""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.inference.splitters.protocol import FittedSplit
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology

ALL = slice(None)


@dataclass(frozen=True)
class GrowthLimits:
    """Limits of a tree that is grown.

    Parameters
    ----------
    max_depth : int
        Maximum number of splits on a path.
    max_leaves : int, optional
        Maximum number of leaves; the splits of smallest gain are removed first.
    min_rows : float
        Minimum total weight of the rows of a node that is split.
    min_leaf : int
        Minimum number of rows on each side of a split.
    min_gain : float
        Minimum gain of a split in nats (N times the mutual information).
    """

    max_depth: int = 4
    max_leaves: int | None = None
    min_rows: float = 20
    min_leaf: int = 10
    min_gain: float = 2.0


@dataclass
class GrowingNode:
    """A node: indices of its rows, its depth and, if it is split, its split and children."""

    rows: Tensor
    depth: int
    split: FittedSplit | None = None
    children: tuple[int, int] = (0, 0)


class GrowingTree:
    """Nodes in the order of their creation; node 0 is the root.

    ``statistics`` (n, c) replace those of the leaves if each row of ``data`` represents several,
    whose number ``counts`` (n,) has.
    """

    def __init__(
        self,
        model: SoftTree,
        data: Data,
        statistics: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> None:
        self.model = model
        self.data = data.for_leaf(model.leaf)
        self._statistics, self._counts = statistics, counts
        self.nodes = self._root()
        self.refused = math.nan  # gain of a split of the root that was too small

    def _root(self) -> list[GrowingNode]:
        rows = torch.arange(len(self.data.X), device=self.data.X.device)
        return [GrowingNode(rows, 0)]

    def statistics(self, rows: Tensor | slice = ALL) -> Tensor:
        """Sufficient statistics of selected rows, shape (m, c)."""
        if self._statistics is not None:
            return self._statistics[rows]
        return self.model.leaf.statistics(self.data.y[rows], self.data.weights[rows])

    def count(self, rows: Tensor) -> float:
        """Number of rows that selected ones represent."""
        return len(rows) if self._counts is None else float(self._counts[rows].sum())

    def branch(self, i: int, split: FittedSplit) -> tuple[int, int]:
        """Split node ``i`` and return the numbers of its children."""
        node = self.nodes[i]
        node.split = split
        node.children = (len(self.nodes), len(self.nodes) + 1)
        for rows in (node.rows[~split.right], node.rows[split.right]):
            self.nodes.append(GrowingNode(rows, node.depth + 1))
        return node.children

    def state_dict(self) -> dict[str, Any]:
        order = sorted(self.split_nodes(), key=lambda i: self.nodes[i].children)
        splits = [tuple(split) for i in order if (split := self.nodes[i].split) is not None]
        return {"nodes": order, "splits": splits, "refused": self.refused}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the nodes of a tree of the same rows."""
        self.nodes = self._root()
        self.refused = state.get("refused", math.nan)
        for i, split in zip(state["nodes"], state["splits"], strict=True):
            self.branch(i, FittedSplit.restored(split, self.data.X.device))

    def can_split(self, i: int, limits: GrowthLimits) -> bool:
        """Whether a node has enough rows, and more than one value of y."""
        rows = self.nodes[i].rows
        if len(rows) < 2 * limits.min_leaf:
            return False
        leaf, y = self.model.leaf, self.data.y[rows]
        y = leaf.target(y) if leaf.regresses else y  # whose other columns are the features
        heavy = float(self.data.weights[rows].sum()) >= limits.min_rows
        return heavy and bool((y != y[0]).any())

    def gain(self, i: int) -> float:
        """Gain of the split of a node in nats."""
        split = self.nodes[i].split
        return -np.inf if split is None else split.gain

    def split_nodes(self) -> set[int]:
        return {i for i, node in enumerate(self.nodes) if node.split is not None}

    def cut(self, max_leaves: int | None, min_gain: float = 0.0) -> set[int]:
        """Merge pairs of leaves, smallest gain first; the nodes that remain split.

        Stops when at most ``max_leaves`` leaves and no pair with a gain below ``min_gain`` remain.
        """
        kept = self.split_nodes()
        parent = {child: i for i in kept for child in self.nodes[i].children}
        last = [(self.gain(i), i) for i in kept if not kept.intersection(self.nodes[i].children)]
        heapq.heapify(last)
        while last:
            gain, weakest = last[0]
            crowded = max_leaves is not None and len(kept) + 1 > max(max_leaves, 1)
            if not crowded and gain >= min_gain:
                break
            heapq.heappop(last)
            kept.remove(weakest)
            above = parent.get(weakest)
            if above is not None and not kept.intersection(self.nodes[above].children):
                heapq.heappush(last, (self.gain(above), above))
        return kept

    def breadth_first(self, kept: set[int]) -> list[int]:
        """The kept nodes in the order of their numbers in a topology."""
        order = [0] if 0 in kept else []
        for i in order:  # grows as it is read
            order += [child for child in self.nodes[i].children if child in kept]
        return order

    def assemble(
        self, kept: set[int], inference: str, by_row: Mapping[str, Tensor] | None = None
    ) -> Posterior:
        """Create a posterior of one draw from the kept splits and the rows of each leaf.

        ``by_row`` are sites (n, ...) of the leaf of each row, instead of the estimates from y.
        """
        order = self.breadth_first(kept)
        number = {i: v for v, i in enumerate(order)}
        leaves = [] if kept else [0]
        children = np.empty((len(kept), 2), dtype=np.int64)
        for v, i in enumerate(order):
            for side, child in enumerate(self.nodes[i].children):
                if child in kept:
                    children[v, side] = number[child]
                else:
                    children[v, side] = ~len(leaves)
                    leaves.append(child)
        found = [split for i in order if (split := self.nodes[i].split) is not None]
        grown = self.model.with_(topology=Topology(children))
        size = grown.size(self.data.X.shape[1])
        sites = {
            name: torch.stack([split.sites[name] for split in found])
            if found
            else self.data.X.new_zeros(shape)
            for name, shape in self.model.split.shapes(size).items()
        }
        leaf = torch.empty(len(self.data.X), dtype=torch.long, device=self.data.X.device)
        for position, i in enumerate(leaves):
            leaf[self.nodes[i].rows] = position
        statistics = self.statistics()
        sums = statistics.new_zeros(len(leaves), statistics.shape[1]).index_add_(
            0, leaf, statistics
        )
        found_leaves = self.model.leaf.estimate(sums)
        for name, values in (by_row or {}).items():
            found_leaves[name] = torch.zeros_like(found_leaves[name]).index_put((leaf,), values)
        sites |= {name: value.to(self.data.X) for name, value in found_leaves.items()}
        return Posterior.from_point(grown, sites, inference)
