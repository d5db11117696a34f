"""The nodes and leaves that matter for each row, found level by level, and sums over them.

Shapes: n rows, V nodes, L leaves, P pairs of a node and a row, Q pairs of a leaf and a row.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from bayestree import routing
from bayestree.inference.expectation import levels, right_given_y
from bayestree.inference.pairs import Evaluation, count_from
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology

ABSENT = -1e30  # log p(y | x) of a branch that is left out: exp gives 0, differences are finite


class Table(NamedTuple):
    """log p(y | leaf) of every row, and the maximum over the leaves below each node."""

    value: Tensor  # (V + L, c), the leaves last; c classes, or one column for each row
    column: Tensor  # (n,), the column of each row

    @classmethod
    def of(
        cls,
        log_density: Callable[[Tensor], Tensor],
        y: Tensor | None,
        model: SoftTree,
        like: Tensor,
    ) -> Self:
        """From the log-densities (n, L) of values of y; class numbers are evaluated once each.

        Without y densities are 1, and what matters is P(leaf | x). ``like`` is X.
        """
        topology = model.topology
        # without regression, all rows of a class have the same density
        n_classes = 0 if model.leaf.regresses else model.leaf.n_classes
        if y is None:
            value = like.new_zeros(topology.n_nodes + topology.n_leaves, 1)
            return cls(value, torch.zeros(like.shape[0], dtype=torch.long, device=like.device))
        values = torch.arange(n_classes, device=y.device) if n_classes else y
        # A finite minimum keeps differences finite.
        leaves = log_density(values).T.clamp_min(ABSENT)
        value = torch.cat((leaves.new_empty(topology.n_nodes, leaves.shape[1]), leaves))
        for level in reversed(levels(topology, value.device)):
            value[level.nodes] = torch.maximum(value[level.left], value[level.right])
        return cls(value, y if n_classes else torch.arange(y.shape[0], device=y.device))

    def at(self, node: Tensor, row: Tensor) -> Tensor:
        return self.value[node, self.column[row]]


class Paths(NamedTuple):
    """The pairs of nodes and rows that matter, one level after the other, and the leaves."""

    node: Tensor  # (P,)
    row: Tensor  # (P,); the first n pairs are the rows at the root
    log_odds: Tensor  # (P,), of going right
    slot: Tensor  # (P,), the places of the pairs in the evaluation
    levels: tuple[slice, ...]
    #: Left and right child of each pair, (2, P): the number of a pair, P if the branch is left
    #: out, and P + 1 + q for entry q of the following leaves.
    below: Tensor
    leaf: Tensor  # (Q,), numbered after the nodes
    leaf_row: Tensor  # (Q,)


class _Level(NamedTuple):
    """Pairs of one level, those of a node adjacent."""

    node: Tensor
    row: Tensor
    log_mass: Tensor  # log P(node | x)
    log_odds: Tensor
    slot: Tensor


class _Step(NamedTuple):
    """A level of the paths that give the lower bounds."""

    pairs: _Level
    side: Tensor  # 1 where the path goes right
    goes_on: Tensor  # the pairs whose child is a node, in the order of the next level


@torch.no_grad()
def route(evaluation: Evaluation, table: Table, topology: Topology, tolerance: float) -> Paths:
    """Find the pairs that matter for p(y | x).

    P(node | x) times the largest density below a node bounds the contribution of the branch to
    p(y | x) from above; the leaf at the end of one path bounds p(y | x) from below. Branches are
    left out while the sum of the former stays below ``tolerance`` times the latter: up to rounding,
    at most this share of the likelihood of each row is lost. At each level the allowance of a row
    grows by an equal part of the tolerance, and what remains is divided equally among the branches
    of the row.
    """
    child = _children(topology, table.value.device)
    main, lower = _descend(evaluation, table, child, topology)
    lost = torch.zeros_like(lower)
    fresh = _Level(*(part[:0] for part in main[0].pairs))
    found: list[_Level] = []
    below: list[Tensor] = []
    leaves: list[tuple[Tensor, Tensor]] = []
    start = n_leaves = 0
    for depth, (path, path_side, goes_on) in enumerate(main, 1):
        level = _Level(*(torch.cat(both) for both in zip(path, fresh, strict=True)))
        found.append(level)
        node, row, log_mass, odds, _ = level
        start += node.shape[0]
        right = logsigmoid(odds)
        mass = log_mass + torch.stack((right - odds, right))
        kid = child[:, node]
        inner = kid < topology.n_nodes
        pointer = torch.full_like(kid, -1)
        pointer[path_side[goes_on], goes_on] = count_from(start, goes_on)
        branch = inner & (pointer < 0)
        share = (mass + table.at(kid, row) - lower[row]).exp_().masked_fill_(~branch, 0.0)
        several = torch.bincount(row.expand(2, -1)[branch], minlength=lower.shape[0])
        allowed = (tolerance * depth / len(main) - lost) / several
        keep = share > allowed[row]
        lost.index_add_(0, row, share.masked_fill(keep, 0.0).sum(0))
        side, at = keep.nonzero(as_tuple=True)
        pointer[side, at] = count_from(start + goes_on.shape[0], at)
        ends, leaf_of = (~inner).nonzero(as_tuple=True)
        pointer[ends, leaf_of] = -2 - count_from(n_leaves, ends)
        n_leaves += ends.shape[0]
        leaves.append((kid[ends, leaf_of], row[leaf_of]))
        below.append(pointer)
        next_node, next_row = kid[side, at], row[at]
        evaluated = evaluation.log_odds(next_node, next_row)
        fresh = _Level(next_node, next_row, mass[side, at], *evaluated)
    node, row, _, odds, slot = (torch.cat(column) for column in zip(*found, strict=True))
    pointer = torch.cat(below, dim=1)
    bounds = accumulate((level.node.shape[0] for level in found), initial=0)
    return Paths(
        node,
        row,
        odds,
        slot,
        tuple(slice(a, b) for a, b in pairwise(bounds)),
        torch.where(pointer < 0, start - 1 - pointer, pointer),
        *(torch.cat(column) for column in zip(*leaves, strict=True)),
    )


@lru_cache(maxsize=32)
def _children(topology: Topology, device: torch.device) -> Tensor:
    """Left and right child of each node, shape (2, V); leaf l has number V + l."""
    plan = levels(topology, device)
    nodes, left, right = (torch.cat(part) for part in zip(*plan, strict=True))
    child = nodes.new_empty(2, nodes.shape[0])
    child[:, nodes] = torch.stack((left, right))
    return child


def _descend(
    evaluation: Evaluation, table: Table, child: Tensor, topology: Topology
) -> tuple[list[_Step], Tensor]:
    """Follow one path of each row, always to the side that may contribute more to p(y | x).

    Returns the levels of the paths, and the log of what the leaf at their end contributes (n,).
    """
    n_rows = table.column.shape[0]
    row = torch.arange(n_rows, device=child.device)
    node = torch.zeros_like(row)
    log_mass = table.value.new_zeros(n_rows)
    lower = torch.empty_like(log_mass)
    steps: list[_Step] = []
    for _ in range(topology.depth):
        odds, slot = evaluation.log_odds(node, row)
        kid = child[:, node]
        bound = table.at(kid, row)
        right = odds + bound[1] > bound[0]
        side = right.long()
        at = torch.arange(row.shape[0], device=row.device)
        here = log_mass + logsigmoid(torch.where(right, odds, -odds))
        after, best = kid[side, at], bound[side, at]
        lower[row] = here + best  # final where the child is a leaf
        inner = after < topology.n_nodes
        goes_on = torch.cat([(inner & half).nonzero().squeeze(1) for half in (~right, right)])
        steps.append(_Step(_Level(node, row, log_mass, odds, slot), side, goes_on))
        node, row, log_mass = after[goes_on], row[goes_on], here[goes_on]
    return steps, lower


class Membership(NamedTuple):
    """Posterior over the paths, as in ``expectation``."""

    log_likelihood: Tensor  # log p(y | x), (n,)
    right: Tensor  # P(went right | the row passed the node, y), (P,)
    nodes: Tensor  # P(passed the node | x, y), (P,)
    leaves: Tensor  # P(reached the leaf | x, y), (Q,)


@torch.no_grad()
def memberships(odds: Tensor, paths: Paths, table: Table) -> Membership:
    """Posterior over the paths from log-odds of going right (P,): a pass up and a pass down."""
    n_pairs, n_rows = odds.shape[0], table.column.shape[0]
    ends = table.at(paths.leaf, paths.leaf_row)
    value = torch.cat((torch.empty_like(odds), odds.new_full((1,), ABSENT), ends))
    right = torch.empty_like(odds)
    for level in reversed(paths.levels):
        right[level], value[level] = right_given_y(odds[level], *value[paths.below[:, level]])
    right.sigmoid_()
    log_likelihood = value[:n_rows].masked_fill(value[:n_rows] < ABSENT / 2, -torch.inf)
    mass = value
    mass[:n_rows] = 1.0
    for level in paths.levels:
        here = mass[level]
        to_right = here * right[level]
        mass[paths.below[:, level]] = torch.stack((here - to_right, to_right))
    return Membership(log_likelihood, right, mass[:n_pairs], mass[n_pairs + 1 :])


def log_likelihood(
    score: Tensor, paths: Paths, table: Table, weights: Tensor, steepness: float
) -> tuple[Tensor, Tensor]:
    """Sum over rows of log p(y | x), a scalar, and P(leaf | x, y) of the leaves, shape (Q,).

    From the scores (P,) of the pairs; the sum is differentiable in them.
    """
    return _LogLikelihood.apply(score, paths, table, weights, steepness)


class _LogLikelihood(torch.autograd.Function):
    """The slope along the log-odds is that of the expected log-likelihood of EM (E2EDT, eq. 14)."""

    @staticmethod
    def forward(
        ctx: Any, score: Tensor, paths: Paths, table: Table, weights: Tensor, steepness: float
    ) -> tuple[Tensor, Tensor]:
        odds = steepness * routing.log_odds(score)
        member = memberships(odds, paths, table)
        slope = member.nodes * (member.right - odds.sigmoid()) * weights[paths.row]
        # d log(e^s - 1) / ds = 1 / (1 - e^-s)
        ctx.save_for_backward(slope * (-steepness / torch.expm1(-score)))
        ctx.mark_non_differentiable(member.leaves)
        return member.log_likelihood @ weights, member.leaves

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None, None, None


def summed_by_leaf(paths: Paths, member: Tensor, statistics: Tensor, topology: Topology) -> Tensor:
    """Sums (L, c) of statistics (n, c) over rows with memberships (Q,)."""
    sums = statistics.new_zeros(topology.n_leaves, statistics.shape[1])
    share = member.unsqueeze(1) * statistics[paths.leaf_row]
    return sums.index_add_(0, paths.leaf - topology.n_nodes, share)
