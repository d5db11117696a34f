"""Greedy growth of a tree, level by level or best first (CPT, section 3.3.2)."""

import copy
import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.parameters import Count, Inference, Positive, declare
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree._utils.wording import counted
from bayestree.inference.data import Data
from bayestree.inference.growth.single_leaf import warn_single_leaf, why_not_grown
from bayestree.inference.posterior import Posterior
from bayestree.inference.splitters import FittedSplit, Splitter
from bayestree.inference.splitters.stumps import StumpFitter
from bayestree.inference.stage import GrowthLimits, Stage, as_function
from bayestree.inference.training import HARD, check_linear, recalibrated
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology

ALL = slice(None)
SUMMED = 2**15  # rows whose statistics are in memory at a time
ELEMENTS = 6_000_000  # maximum number of activations in a batch; bounds memory, suits the cache


@dataclass
class GrowingNode:
    """A node: indices of its rows, its depth and, if it is split, its split and children."""

    rows: Tensor
    depth: int
    split: FittedSplit | None = None
    children: tuple[int, int] = (0, 0)


class GrowingTree:
    """Nodes in the order of their creation; node 0 is the root.

    Several trees of the same rows may grow together: nodes 0 to ``n_trees - 1`` are then their
    roots, and :meth:`one` gives each of them. If each row of ``data`` represents several, they have
    ``statistics`` (n, c) and numbers ``counts`` (n,).
    """

    def __init__(
        self,
        model: SoftTree,
        data: Data,
        statistics: Tensor | None = None,
        counts: Tensor | None = None,
        n_trees: int = 1,
    ) -> None:
        self.model, self.n_trees, self.root = model, n_trees, 0
        self.data = data.for_leaf(model.leaf)
        self._statistics, self._counts = statistics, counts
        self.nodes = self._root()
        self.refused = math.nan  # gain of a split of the root that was too small

    def _root(self) -> list[GrowingNode]:
        rows = torch.arange(len(self.data.X), device=self.data.X.device)
        return [GrowingNode(rows, 0) for _ in range(self.n_trees)]

    def one(self, root: int) -> Self:
        """Return one of the trees that grew together, by its root; the nodes are shared."""
        found = copy.copy(self)
        found.root = root
        return found

    def statistics(self, rows: Tensor | slice = ALL) -> Tensor:
        """Return sufficient statistics of selected rows, shape (m, c)."""
        if self._statistics is not None:
            return self._statistics[rows]
        return self.model.leaf.statistics(self.data.y[rows], self.data.weights[rows])

    def growth_terms(self, rows: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function of some ``rows`` of a node that the criterion of growth adds up."""
        if self._statistics is not None:
            return self.statistics
        y, weights = self.data.y, self.data.weights
        terms = self.model.leaf.growth_terms(y[rows], weights[rows])
        return lambda some: terms(y[some], weights[some])

    def count(self, rows: Tensor) -> float:
        """Count the rows that selected rows represent."""
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
        order = [i for i, node in enumerate(self.nodes) if node.split is not None]
        order.sort(key=lambda i: self.nodes[i].children)
        splits = [tuple(split) for i in order if (split := self.nodes[i].split) is not None]
        return {"nodes": order, "splits": splits, "refused": self.refused}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the nodes of a tree of the same rows."""
        self.nodes = self._root()
        self.refused = state.get("refused", math.nan)
        for i, split in zip(state["nodes"], state["splits"], strict=True):
            self.branch(i, FittedSplit.restored(split, self.data.X.device))

    def can_split(self, i: int, limits: GrowthLimits) -> bool:
        """Return whether a node has enough rows, and more than one value of y."""
        rows = self.nodes[i].rows
        if len(rows) < 2 * limits.min_leaf:
            return False
        leaf, y = self.model.leaf, self.data.y[rows]
        y = leaf.target(y) if leaf.regresses else y  # whose other columns are the features
        heavy = self.data.weights[rows].sum().double() >= limits.min_rows
        return bool(heavy & (y != y[0]).any())  # read once, for which a GPU waits

    def gain(self, i: int) -> float:
        """Return the gain of the split of a node in nats."""
        split = self.nodes[i].split
        return -np.inf if split is None else split.gain

    def split_nodes(self) -> set[int]:
        """Return the nodes below the root that are split, with the root."""
        below = [self.root]
        for i in below:  # grows as it is read
            below += self.nodes[i].children if self.nodes[i].split is not None else ()
        return {i for i in below if self.nodes[i].split is not None}

    def cut(self, max_leaves: int | None, min_gain: float = 0.0) -> set[int]:
        """Merge pairs of leaves, smallest gain first; return the nodes that remain split.

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
        """Order the kept nodes by their numbers in a topology."""
        order = [self.root] if self.root in kept else []
        for i in order:  # grows as it is read
            order += [child for child in self.nodes[i].children if child in kept]
        return order

    def assemble(self, kept: set[int], inference: str) -> Posterior:
        """Create a posterior of one draw from the kept splits and the rows of each leaf."""
        order = self.breadth_first(kept)
        number = {i: v for v, i in enumerate(order)}
        leaves = [] if kept else [self.root]
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
        sums = torch.zeros_like(self.statistics(slice(1))).repeat(len(leaves), 1)
        for start in range(0, len(leaf), SUMMED):  # for bounded memory
            part = slice(start, start + SUMMED)
            sums.index_add_(0, leaf[part], self.statistics(part))
        estimates = self.model.leaf.estimate(sums)
        sites |= {name: value.to(self.data.X) for name, value in estimates.items()}
        return Posterior.from_point(grown, sites, inference)


Pruning = Callable[[GrowingTree, set[int]], set[int]]


@declare
class Growth(Stage):
    """Settings of greedy growth.

    {parameters}
    """

    refines = False
    linear_only = False
    keeps_signs = keeps_groups = True

    order: Annotated[
        Literal["level", "best"],
        Inference(
            "Grow level by level, then remove the splits with the smallest gain until max_leaves "
            "leaves remain; or always split the leaf with the largest gain, up to max_leaves."
        ),
    ] = "level"
    steps: Annotated[
        Count, Inference("Adam steps after the first 40; a stump that converges takes fewer.")
    ] = 120
    n_restarts: Annotated[
        Count,
        Inference("Random starts of each stump; half remain after 20 steps, the best after 40."),
    ] = 4
    rows_per_node: Annotated[
        Count, Inference("Rows drawn for a stump, and redrawn during its fit if a node has more.")
    ] = 2000
    learning_rate: Annotated[
        Positive, Inference("Learning rate, relative to the size of an initial hyperplane.")
    ] = 0.15

    default_steepness = 20.0
    in_chunks = True

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        limits: GrowthLimits | None = None,
        splitter: Splitter | None = None,
        validation: Data | None = None,
        prune: Pruning | None = None,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> Posterior:
        """Grow a tree of stumps, each fitted to the rows that reach it.

        Parameters
        ----------
        model : SoftTree
            Specifies split, priors and leaves; its topology is replaced by the one found.
        data : Data
            n rows. If they are mapped, the tree is grown on as many as fit in memory, and its
            gains and limits refer to these.
        limits : GrowthLimits, optional
        splitter : Splitter, optional
            Fits the splits (see ``bayestree.inference.splitters``); by default
            ``StumpFitter`` with the last four settings below, which other splitters ignore.
        validation : Data, optional
            The tree is cut at the depth that predicts these rows best (CPT, section 4.2.1).
        prune : callable, optional
            Selects the splits to keep, given the grown tree and the numbers of its split nodes.
        {parameters}

        Returns
        -------
        Posterior
            One draw: splits at probability 1/2, and leaves from the rows that reach them.

        Raises
        ------
        ValueError
            For invalid settings.
        TypeError
            For splits without hyperplanes and no ``splitter`` for them.
        """
        common: dict[str, Any] = {"limits": limits, "splitter": splitter, "progress": progress}
        common |= {"validation": validation, "prune": prune, "random_state": random_state}
        return self.fit_several(model, data, 1, **common)[0]

    def fit_several(
        self,
        model: SoftTree,
        data: Data,
        n_trees: int,
        *,
        limits: GrowthLimits | None = None,
        splitter: Splitter | None = None,
        validation: Data | None = None,
        prune: Pruning | None = None,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> list[Posterior]:
        """Grow several trees together, from different random starts; see :meth:`fit`.

        The stumps of a level of all trees are fitted as one batch, which takes far less time than
        one tree after the other. Only with ``order="level"``, unless there is one tree.
        """
        self.check(model)
        if n_trees > 1 and self.order != "level":
            raise ValueError(f"several trees grow by order='level', got order={self.order!r}.")
        data = data.for_leaf(model.leaf)
        model.leaf.check(data.y)
        limits = limits or GrowthLimits()
        settings: dict[str, Any] = {"limits": limits, "order": self.order}
        if splitter is None:
            check_linear(model, data, "StumpFitter, the default splitter,")
            stumps = {name: value for name, value in vars(self).items() if name != "order"}
            splitter = StumpFitter(
                model.split,
                model.leaf,
                model.priors.hyperplane,
                min_leaf=limits.min_leaf,
                monotone=model.monotone,
                groups=model.groups,
                **stumps,
            )
            settings |= stumps
        elif any(model.monotone) or model.groups:
            raise ValueError(
                f"{splitter!r} cannot keep predictions monotone, or facets within groups of "
                "columns; omit splitter."
            )
        expand = _by_level if self.order == "level" else _best_first
        with seeded(draw_seed(random_state)):
            trees = GrowingTree(model, data.held(), n_trees=n_trees)
            expand(trees, splitter, limits, progress=progress)
        found = [
            _finished(trees.one(root), limits, data, validation, prune) for root in range(n_trees)
        ]
        return [replace(one, settings=settings) for one in found]


def _finished(
    tree: GrowingTree,
    limits: GrowthLimits,
    data: Data,
    validation: Data | None,
    prune: Pruning | None,
) -> Posterior:
    """Choose the splits to keep; warn if there are none."""
    kept = tree.cut(limits.max_leaves)
    reason = "" if kept else why_not_grown(tree.data, limits, tree.refused)
    if prune is not None and kept:
        kept = prune(tree, kept)
        reason = "pruning merged all leaves; lower its penalty (ccp_alpha)"
    if validation is not None and kept:
        # at the depth whose deterministic tree predicts the validation rows best
        deepest = max((tree.nodes[i].depth for i in kept), default=-1) + 1
        cuts = [{i for i in kept if tree.nodes[i].depth < depth} for depth in range(deepest + 1)]
        grown = (recalibrated(tree.assemble(cut, "grow"), tree.data) for cut in cuts)
        scores = [_hard_score(posterior, validation) for posterior in grown]
        kept = cuts[int(np.argmax(scores))]
        reason = (
            f"the {len(validation.X)} validation rows are predicted best without a split; hold "
            "out more rows or none (validation_fraction)"
        )
    if not kept:
        warn_single_leaf(data.y, tree.model.leaf, limits, reason)
    return tree.assemble(kept, "grow")


grow = as_function(Growth, "grow")


def _by_level(
    tree: GrowingTree, splitter: Splitter, limits: GrowthLimits, *, progress: bool
) -> None:
    """Split the nodes of one level after the other, fitted in batches."""
    frontier = [*range(tree.n_trees)]
    parts = {"tree": tree, "frontier": frontier} | _state_of(splitter)
    track = Track(range(limits.max_depth), "grow", show=progress, parts=parts)
    for _ in track:
        found = fitted_splits(tree, splitter, frontier, limits)
        frontier[:] = [child for i, split in found.items() for child in tree.branch(i, split)]
        track.note(counted(len(tree.nodes) // 2 + 1, "leaf"))
        if not frontier:
            track.finish()
            break


def _best_first(
    tree: GrowingTree, splitter: Splitter, limits: GrowthLimits, *, progress: bool
) -> None:
    """Split the node of largest gain until there are ``max_leaves``; each is fitted once."""
    max_leaves = len(tree.data.X) if limits.max_leaves is None else limits.max_leaves
    waiting, leaves = _SplitQueue(tree.data.X.device), [0]
    parts = {"tree": tree, "waiting": waiting, "fresh": leaves} | _state_of(splitter)
    track = Track(range(1, max_leaves), "grow", show=progress, parts=parts)
    for n_leaves in track:
        for i, split in fitted_splits(tree, splitter, leaves, limits).items():
            waiting.push(i, split)
        if not waiting.order:
            track.finish()
            break
        i, split = waiting.pop()
        leaves[:] = tree.branch(i, split)
        track.note(counted(n_leaves + 1, "leaf"))


class _SplitQueue:
    """Priority queue of fitted splits of leaves, largest gain first."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.order: list[tuple[float, int]] = []
        self.splits: dict[int, FittedSplit] = {}

    def push(self, i: int, split: FittedSplit) -> None:
        self.splits[i] = split
        heapq.heappush(self.order, (-split.gain, i))

    def pop(self) -> tuple[int, FittedSplit]:
        """Remove and return the number of a node and its split."""
        _, i = heapq.heappop(self.order)
        return i, self.splits.pop(i)

    def state_dict(self) -> dict[str, Any]:
        return {"splits": {i: tuple(split) for i, split in self.splits.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.splits = {
            i: FittedSplit.restored(split, self.device) for i, split in state["splits"].items()
        }
        # a sorted list is a heap
        self.order = sorted((-split.gain, i) for i, split in self.splits.items())


def _state_of(splitter: Splitter) -> dict[str, Any]:
    """Return the splitter as a part of the loop's state, if it has state."""
    return {"splitter": splitter} if hasattr(splitter, "state_dict") else {}


def fitted_splits(
    tree: GrowingTree,
    splitter: Splitter,
    nodes: list[int],
    limits: GrowthLimits,
    data: Data | None = None,
) -> dict[int, FittedSplit]:
    """Fit the nodes, by ``data`` of other weights if given; return splits of sufficient gain."""
    ready = [
        i for i in nodes if tree.nodes[i].depth < limits.max_depth and tree.can_split(i, limits)
    ]
    found: dict[int, FittedSplit] = {}
    for group in _groups(tree, ready, splitter):
        splits = splitter(data or tree.data, [tree.nodes[i].rows for i in group])
        for i, split in zip(group, splits, strict=True):
            if split is not None and split.gain >= limits.min_gain:
                found[i] = split
            elif split is not None and i < tree.n_trees:
                tree.refused = split.gain
    return {i: found[i] for i in ready if i in found}


def _groups(tree: GrowingTree, ready: list[int], splitter: Splitter) -> list[list[int]]:
    """Group nodes of similar size in batches, which limits padding and memory."""
    groups: list[list[int]] = []
    per_row = splitter.numbers_per_row(tree.data.X.shape[1])
    for i in sorted(ready, key=lambda i: len(tree.nodes[i].rows)):
        size = min(splitter.rows_per_node, len(tree.nodes[i].rows))
        if groups:
            smallest = min(splitter.rows_per_node, len(tree.nodes[groups[-1][0]].rows))
            if size <= 2 * smallest + 20 and (len(groups[-1]) + 1) * size * per_row <= ELEMENTS:
                groups[-1].append(i)
                continue
        groups.append([i])
    return groups


def _hard_score(posterior: Posterior, rows: Data) -> float:
    """Compute the log-likelihood of rows under practically deterministic splits."""
    steep = posterior.model.with_(steepness=HARD)
    sites = posterior.point_sites(rows.X)
    with torch.no_grad():
        parts = rows.parts(whole=not steep.likelihood.additive)
        return sum(float(steep.log_likelihood(sites, *part)) for part in parts)
