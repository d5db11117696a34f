"""The E-step of a tree: the posterior over the leaf of a row given x and y (E2EDT, eq. 10).

With u_v(n) = log p(y_n | x_n, row n is at node v) and f the log-odds of going right,
u_v = logaddexp(log P(left) + u_left, log P(right) + u_right), and a row at v went right with
log-odds f + u_right - u_left. One pass up the tree and one down suffice, in time proportional to
nodes rather than nodes x leaves. Shapes: n rows, V nodes, L leaves; arrays are node-major, so
that a level is a block of memory.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bayestree.topology import Topology


class Level(NamedTuple):
    """The nodes of one depth and their children; leaf l has number V + l."""

    nodes: Tensor
    left: Tensor
    right: Tensor


class Membership(NamedTuple):
    """Posterior over the paths of rows given x and y."""

    log_likelihood: Tensor  # log p(y_n | x_n), (n,)
    right: Tensor  # P(went right at a node | the row passed it, y_n), (V, n)
    mass: Tensor  # P(passed a node), then P(reached a leaf), h of eq. 10, (V + L, n)


@lru_cache(maxsize=32)
def levels(topology: Topology, device: torch.device) -> tuple[Level, ...]:
    """The levels of a tree from the root down."""
    children = topology.children
    below = np.where(children < 0, topology.n_nodes + ~children, children)
    depth = topology.node_depth
    return tuple(
        Level(*(torch.as_tensor(part, device=device) for part in (nodes, *below[nodes].T)))
        for nodes in (np.flatnonzero(depth == d) for d in range(topology.depth))
    )


def right_given_y(odds: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Log-odds of having gone right given y, and log p(y | x), of rows at a node.

    ``odds`` are the log-odds of going right, ``left`` and ``right`` log p(y | x) on either side.
    """
    given = odds + right - left
    # P(y) = P(y, side) / P(side | y); the likelier side minimises rounding errors.
    went = logsigmoid(odds)
    joint = torch.where(given > 0, right + went, left + (went - odds))
    return given, joint - logsigmoid(given.abs())


@torch.no_grad()
def expectation(odds: Tensor, log_density: Tensor, topology: Topology) -> Membership:
    """Posterior over the paths, from log-odds of going right (V, n) and log p(y | leaf) (L, n)."""
    plan = levels(topology, odds.device)
    value = torch.cat((torch.empty_like(odds), log_density))
    right = torch.empty_like(odds)
    for level in reversed(plan):
        given, total = right_given_y(odds[level.nodes], value[level.left], value[level.right])
        right[level.nodes] = given
        value[level.nodes] = total
    log_likelihood = value[0].clone()
    right.sigmoid_()
    mass = value
    mass[0] = 1.0
    for level in plan:
        here = mass[level.nodes]
        to_right = here * right[level.nodes]
        mass[level.right] = to_right
        mass[level.left] = here.sub_(to_right)
    return Membership(log_likelihood, right, mass)


def slope(odds: Tensor, membership: Membership) -> Tensor:
    """Gradient (V, n) of Q (eq. 14) in the log-odds: mass x (P(right | x, y) - P(right | x))."""
    n_nodes = len(odds)
    return membership.mass[:n_nodes] * (membership.right - odds.sigmoid())
