"""Conversion of a soft tree to the splits of its deterministic form."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayestree import routing
from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.inference.data import Data, part_size
from bayestree.inference.growth.grow import SUMMED, GrowingTree
from bayestree.inference.growth.single_leaf import ONE_WAY, too_small, warn_single_leaf
from bayestree.inference.posterior import Arrays, Posterior
from bayestree.inference.splitters import FittedSplit
from bayestree.inference.stage import GrowthLimits
from bayestree.inference.training import check_linear
from bayestree.models.priors.base import Sites
from bayestree.models.soft_tree import SoftTree
from bayestree.models.splits import joined
from bayestree.topology import Topology

LOG2 = math.log(2.0)
SUPPORT = 0.5  # share of the draws that must separate the rows of a node for its split to stay
MIN_EXPERTS, SPARE = 4, 2.0  # experts that remain: at least, and in units of the facets in use
MOST_DRAWS, MOST_ROWS = 25, 2_000  # from which this share is estimated


class Hardened(NamedTuple):
    """The deterministic form of a soft tree: one draw, with the topology of its V nodes."""

    posterior: Posterior
    sources: NDArray[np.int64]  # node of the soft tree from which each node comes


def harden(posterior: Posterior, data: Data, *, limits: GrowthLimits) -> Hardened:
    """Split at probability 1/2 under the point estimate; remove splits without support.

    A split needs ``limits.min_leaf`` rows on each side, under the point estimate and in half of the
    draws; without them, its node is replaced by the child on the side of most rows. Pairs of leaves
    are merged if their split gains less than ``limits.min_gain``, and, smallest gain first, while
    there are more than ``limits.max_leaves`` leaves.

    Parameters
    ----------
    posterior : Posterior
    data : Data
        The training rows.
    limits : GrowthLimits

    Returns
    -------
    Hardened

    Raises
    ------
    TypeError
        If the splits have no hyperplanes.
    """
    check_linear(posterior.model, data, "harden")
    data = data.for_leaf(posterior.model.leaf)
    sites = posterior.point_sites(data.X)
    with torch.no_grad():
        tree, sources, kept = _cut(posterior, sites, data, limits, drawn=True)
        if len(sites["intercept"]) and not kept:
            reason = ONE_WAY
            if tree.split_nodes():
                reason = f"after the refinement {too_small(tree.gain(0), limits)}"
            warn_single_leaf(data.y, posterior.model.leaf, limits, reason)
        return _assembled(tree, kept, sources)


def harden_sums(
    posterior: Posterior, sums: Tensor, counts: Tensor, *, limits: GrowthLimits
) -> tuple[Hardened, Tensor]:
    """Harden as :func:`harden` does, from the sums (L, c) of the rows' statistics in each leaf.

    ``counts`` (L,) are the numbers of these rows. Draws are not compared, which needs the rows.
    Also returns the number of the leaf in which the rows of each leaf end, shape (L,), 0 for leaves
    without rows.
    """
    model = posterior.model
    reached = (sums != 0).any(1).nonzero()[:, 0]
    held = sums[reached]
    size = model.size(posterior.point["hyperplane"].shape[-1])
    X = sums.new_zeros(len(reached), size.n_features)
    rows = Data(X, sums.new_zeros(len(reached)).long(), sums.new_ones(len(reached)))
    to_right = torch.as_tensor(model.topology.turns[1])[:, reached].T
    with torch.no_grad():
        tree = GrowingTree(model, rows, held, counts[reached])
        sources = _route(tree, posterior.point_sites(X), to_right > 0, limits.min_leaf)
        kept = tree.cut(limits.max_leaves, limits.min_gain)
        hard = _assembled(tree, kept, sources)
    order = tree.breadth_first(kept)
    ends = [child for i in order for child in tree.nodes[i].children if child not in kept] or [0]
    leaf = torch.zeros(len(sums), dtype=torch.long)
    for number, i in enumerate(ends):
        leaf[reached[tree.nodes[i].rows]] = number
    return hard, leaf


def _cut(
    posterior: Posterior, sites: Sites, data: Data, limits: GrowthLimits, *, drawn: bool = False
) -> tuple[GrowingTree, dict[int, int], set[int]]:
    """Cut the tree; return it, the source of each split, and the splits kept.

    With ``drawn`` the draws must support the splits, too, unless the rows are mapped.
    """
    model = posterior.model
    if data.mapped:
        tree, right = _condensed(model, sites, data)
    else:
        # filled in place: small results between large temporaries would fragment the memory
        right = torch.empty(
            len(data.X), model.topology.n_nodes, dtype=torch.bool, device=data.X.device
        )
        size = part_size(data.X)
        for part, X in zip(right.split(size), data.X.split(size), strict=True):
            torch.gt(model.scores(sites, X), LOG2, out=part)
        tree = GrowingTree(model, data)
    support = posterior if drawn and not data.mapped else None
    sources = _route(tree, sites, right, limits.min_leaf, support)
    return tree, sources, tree.cut(limits.max_leaves, limits.min_gain)


def _assembled(tree: GrowingTree, kept: set[int], sources: dict[int, int]) -> Hardened:
    nodes = np.array([sources[i] for i in tree.breadth_first(kept)], dtype=np.int64)
    return Hardened(tree.assemble(kept, "harden"), nodes)


def _condensed(model: SoftTree, sites: Sites, data: Data) -> tuple[GrowingTree, Tensor]:
    """Grow from one representative row per leaf; also return the sides of these rows, (n, V)."""
    n_leaves = model.topology.n_leaves
    statistics = model.leaf.statistics(data.y[:0], data.weights[:0]).double()
    sums = statistics.new_zeros(n_leaves, statistics.shape[1])
    counts = sums.new_zeros(n_leaves)
    first: dict[int, tuple[Data, Tensor]] = {}
    for part in data.parts():
        scores = model.scores(sites, part.X)
        leaf = routing.tree_log_probs(scores, math.inf, model.topology).argmax(-1)
        sums.index_add_(0, leaf, model.leaf.statistics(part.y, part.weights).double())
        counts += leaf.bincount(minlength=n_leaves)
        for number in set(leaf.tolist()) - set(first):
            row = torch.nonzero(leaf == number)[0]
            first[number] = part.take(row), scores[row] > LOG2
    reached = sorted(first)
    rows = Data(
        *(torch.cat(column) for column in zip(*(first[i][0] for i in reached), strict=True))
    )
    tree = GrowingTree(model, rows, sums[reached], counts[reached])
    return tree, torch.cat([first[i][1] for i in reached])


def _route(
    tree: GrowingTree,
    sites: Sites,
    goes_right: Tensor,
    min_leaf: int,
    posterior: Posterior | None = None,
) -> dict[int, int]:
    """Split the tree as its rows are routed; return the source node of each split.

    A node with fewer than ``min_leaf`` rows on a side, by the sides of the rows (n, V) or by most
    of the draws of ``posterior``, is replaced by its child on the other side.
    """
    children = tree.model.topology.children
    places = {0: 0} if len(children) else {}
    sources: dict[int, int] = {}
    for node in range(len(children)):
        if node not in places:
            continue
        i = places[node]
        rows = tree.nodes[i].rows
        right = goes_right[rows, node]
        sides = tree.count(rows[~right]), tree.count(rows[right])
        supported = posterior is None or _has_support(posterior, node, tree.data.X, rows, min_leaf)
        if min(sides) < min_leaf or not supported:
            places[int(children[node, int(sides[1] > sides[0])])] = i
            continue
        split = FittedSplit(_of_node(sites, node), right, _gain(tree, i, right))
        sources[i] = node
        for child, place in zip(children[node], tree.branch(i, split), strict=True):
            places[int(child)] = place
    return sources


def _has_support(posterior: Posterior, node: int, X: Tensor, rows: Tensor, min_leaf: int) -> bool:
    """Return whether enough draws of a split separate ``min_leaf`` of its rows of X."""
    model, draws = posterior.model, posterior.draws
    every = posterior.n_chains * posterior.n_draws
    some = X[rows[:: math.ceil(len(rows) / MOST_ROWS)]]
    as_nodes = {}  # whose scores are computed together
    for name in model.split.parameters(draws):
        own = draws[name][:, :, node].reshape(every, *draws[name].shape[3:])
        as_nodes[name] = torch.as_tensor(own[:: math.ceil(every / MOST_DRAWS)]).to(some)
    n_right = (model.scores(as_nodes, some) > LOG2).sum(0)
    least = min_leaf * len(some) / len(rows)
    separates = torch.minimum(n_right, len(some) - n_right) >= least
    return float(separates.double().mean()) >= SUPPORT


def _of_node(sites: Sites, node: int) -> dict[str, Tensor]:
    names = [name for name in ("hyperplane", "intercept", "log_weight") if name in sites]
    return {name: sites[name][node] for name in names}


def _gain(tree: GrowingTree, i: int, right: Tensor) -> float:
    rows = tree.nodes[i].rows
    terms = tree.growth_terms(rows)
    whole, side = (
        torch.stack([terms(part).double().sum(0) for part in some.split(SUMMED)]).sum(0)
        for some in (rows, rows[right])
    )
    criterion = tree.model.leaf.criterion
    return float(criterion.gain(criterion.split_value(side, whole), whole))


def without_idle(posterior: Posterior, data: Data) -> Posterior:
    """Drop the nodes and experts that the point estimate of a posterior does not use.

    A node that the deterministic tree would not keep is replaced by the child that receives more
    rows. The number of experts in a node falls to twice the largest number of facets in use, but at
    least 4, with the same gamma process truncated there; experts of the largest votes remain. The
    posterior is returned unchanged if its tree needs no node.
    """
    model, sites = posterior.model, posterior.point_sites(data.X)
    limits = GrowthLimits(max_depth=model.topology.depth, min_leaf=1)
    with torch.no_grad():
        _, sources, kept = _cut(posterior, sites, data, limits)
    if not kept:
        return posterior
    needed = np.isin(np.arange(model.topology.n_nodes), [sources[i] for i in kept])
    topology, nodes, leaves = collapsed(model, sites, data, needed)
    coefficient = joined(sites)
    tops = [coefficient.flatten(0, 1) @ part.X.T for part in data.parts(ones=True)]
    top = torch.stack([each.amax(1) for each in tops]).amax(0).view(coefficient.shape[:2])
    weight = torch.as_tensor(posterior.weight()).to(top)
    # the largest vote r softplus(beta . x + b) of each expert over the rows, (V, K)
    votes: FloatArray = (weight * torch.nn.functional.softplus(top)).numpy(force=True)
    votes = votes.astype(np.float64)[nodes]
    in_use = int((votes > routing.LOG2).sum(1).max())
    n_experts = min(model.split.n_experts, max(MIN_EXPERTS, int(SPARE * in_use)))
    experts = np.sort(np.argsort(-votes, axis=1, kind="stable")[:, :n_experts], axis=1)
    split: Any = model.split  # a split of one expert has no such field
    if n_experts < split.n_experts:
        split = replace(split, n_experts=n_experts)

    def selected(arrays: Arrays, lead: int) -> dict[str, NDArray[Any]]:
        known = model.dimensions.items()
        return {
            name: _selected(arrays[name], dimensions, lead, nodes, experts, leaves)
            for name, dimensions in known
            if name in arrays
        }

    return replace(
        posterior,
        model=model.with_(topology=topology, split=split),
        draws=selected(posterior.draws, 2),
        point=selected(posterior.point, 0),
    )


def collapsed(
    model: SoftTree, sites: Sites, data: Data, needed: BoolArray
) -> tuple[Topology, IntArray, IntArray]:
    """Replace nodes that are not needed by their heavier sides; also return what remains.

    The numbers of the nodes and leaves that remain are in the order of the new topology.
    """
    with torch.no_grad():
        parts = [part.weights @ model.leaf_log_probs(sites, part.X).exp() for part in data.parts()]
    sides = model.topology.turns @ torch.stack(parts).sum(0).numpy(force=True)
    return model.topology.collapse(np.where(needed, -1, sides.argmax(0)))


def _selected(
    values: NDArray[Any],
    dimensions: Sequence[str],
    lead: int,
    nodes: IntArray,
    experts: IntArray,
    leaves: IntArray,
) -> NDArray[Any]:
    """Select entries of a site of these dimensions, after ``lead`` others."""
    if "node" in dimensions:
        values = values.take(nodes, axis=lead)
    if "leaf" in dimensions:
        values = values.take(leaves, axis=lead)
    if "expert" in dimensions:
        after = values.ndim - lead - 2
        places = experts.reshape((1,) * lead + experts.shape + (1,) * after)
        values = np.take_along_axis(values, places, axis=lead + 1)
    return values
