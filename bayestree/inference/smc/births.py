"""Births and deaths of splits: a choice between M splits of a node, and none (see ``moves``).

Parameters that are not in use follow their priors, so that the ratio of two trees is that of the
probabilities of their topologies and of their tempered likelihoods. Leaves are proposed together
with the split (see ``Moves.propose_leaves``).
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.inference.nuts.density import Sites
from bayestree.inference.smc.moves import CANDIDATES, Moves

NamedTensors = dict[str, Tensor]


class Place(NamedTuple):
    """A node of the particles ``who`` in which it can split and its children do not."""

    node: int
    who: IntArray
    split: BoolArray  # whether it splits now
    leaves: tuple[int, int]  # the left-most leaves below its two sides
    reach: Tensor  # log P(a row reaches the node), (count, n)
    rest: Tensor  # log p(y_n, it does not)


class Splits(NamedTuple):
    """M candidates for the split of a node, (count, M, ...)."""

    sites: Sites
    left: Tensor
    right: Tensor
    leaves: NamedTensors  # (count, M, 2, ...)
    density: Tensor
    log_weight: FloatArray


class Wholes(NamedTuple):
    """The node as a leaf, (count, ...)."""

    leaf: NamedTensors
    density: Tensor
    log_weight: FloatArray


def births_and_deaths(moves: Moves, node: int) -> None:
    """Choose between M splits of a node and none."""
    who = np.flatnonzero(_free_to_split(moves, node))
    if not len(who):
        return
    reach, rest = moves.rows.above(moves.routed, moves.below(), node)
    now = moves.particles.splits[who, node]
    place = Place(node, who, now, _leaf_pair(moves, node), reach[who], rest[who])
    with torch.no_grad():
        splits, wholes = _splits(moves, place), _wholes(moves, place)
    topology, trees = moves.model.topology, moves.prior.trees
    chance = trees.probability(topology.node_depth[node])
    children = topology.children[node]
    below = np.log1p(-trees.probability(topology.node_depth[children[children >= 0]])).sum()
    split_weight = splits.log_weight + np.log(chance) + below - np.log(CANDIDATES)
    whole_weight = wholes.log_weight + np.log1p(-chance)
    chosen = moves.choose(np.column_stack((whole_weight, split_weight)))
    moves.record("birth", chosen[~now] > 0)
    moves.record("death", chosen[now] == 0)
    moves.record("split", chosen[now] > 1)
    _set(moves, place, splits, wholes, chosen)


def _splits(moves: Moves, place: Place) -> Splits:
    count, m = len(place.who), CANDIDATES
    drawn = moves.prior.nodes(count * m, moves.rng)
    sites = {name: value.reshape(count, m, *value.shape[1:]) for name, value in drawn.items()}
    for name, value in sites.items():
        value[place.split, 0] = moves.free[name][place.who[place.split], place.node]
    flat = {name: value.reshape(count * m, *value.shape[2:]) for name, value in sites.items()}
    left, right = (branch.view(count, m, -1) for branch in moves.rows.branches(flat))
    pairs = torch.stack((left, right), 2) + place.reach[:, None, None]  # (count, M, 2, n)
    leaves, excess = moves.propose_leaves(pairs, place.rest, place.who, place.leaves, place.split)
    density = moves.density(leaves, (count, m, 2))
    joint = pairs + density
    inner = torch.logaddexp(joint[:, :, 0], joint[:, :, 1])
    row = torch.logaddexp(place.rest[:, None], inner)
    log_weight = moves.power * moves.rows.total(row) + excess.sum(axis=-1)
    return Splits(sites, left, right, leaves, density, log_weight)


def _wholes(moves: Moves, place: Place) -> Wholes:
    share = place.reach[:, None, None]
    leaf, excess = moves.propose_leaves(
        share, place.rest, place.who, place.leaves[:1], ~place.split
    )
    density = moves.density(leaf, (len(place.who), 1, 1))[:, 0, 0]
    row = torch.logaddexp(place.rest, place.reach + density)
    log_weight = moves.power * moves.rows.total(row) + excess[:, 0, 0]
    return Wholes(leaf, density, log_weight)


def _set(moves: Moves, place: Place, splits: Splits, wholes: Wholes, chosen: IntArray) -> None:
    """Give each particle what was chosen: 0 for a leaf, m for split m - 1."""
    split, node, (first, second) = chosen > 0, place.node, place.leaves
    rank, slot = np.flatnonzero(split), chosen[split] - 1
    born, gone = place.who[split], place.who[~split]
    free, routed = moves.free, moves.routed
    for name, value in splits.sites.items():
        free[name][born, node] = value[rank, slot]
    pair = moves.prior.leaf_free({n: v[rank, slot] for n, v in splits.leaves.items()})
    single = moves.prior.leaf_free({n: v[~split, 0, 0] for n, v in wholes.leaf.items()})
    for name, value in pair.items():
        free[name][born[:, None], [first, second]] = value
        free[name][gone, first] = single[name]
    routed.left[born, node] = splits.left[rank, slot]
    routed.right[born, node] = splits.right[rank, slot]
    routed.density[born[:, None], [first, second]] = splits.density[rank, slot]
    routed.density[gone, first] = wholes.density[~split]
    moves.particles.splits[place.who, node] = split


def _free_to_split(moves: Moves, node: int) -> BoolArray:
    """Particles in which a node can split, and its children do not."""
    topology, splits = moves.model.topology, moves.particles.splits
    children = topology.children[node]
    able = ~splits[:, children[children >= 0]].any(axis=1)
    return np.asarray(able & splits[:, topology.node_parent[node]] if node else able)


def _leaf_pair(moves: Moves, node: int) -> tuple[int, int]:
    children, found = moves.model.topology.children, []
    for side in children[node]:
        child = int(side)
        while child >= 0:
            child = int(children[child, 0])
        found.append(~child)
    return found[0], found[1]
