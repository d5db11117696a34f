"""Sparse routing: the experts of a node are evaluated only for the rows that may reach it.

In a large tree a row reaches few nodes with noticeable probability, so most pairs of a node and a
row do not matter. Those that do are found level by level; their scores are batched matrix products
of blocks, with gradients.

Shapes: n rows, V nodes, K experts of d + 1 coefficients, L leaves, P pairs of a node and a row,
Q pairs of a leaf and a row, B blocks of S rows of one node.
"""

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from bayestree import routing
from bayestree._utils.state import cached
from bayestree.models.soft_tree import SoftTree
from bayestree.routing import levels, right_given_y
from bayestree.topology import Topology

NUMBERS = 2**22  # maximum number of feature values that are copied at a time without gradients
ABSENT = -1e30  # log p(y | x) of a branch that is left out: exp gives 0, differences are finite


class Experts(NamedTuple):
    """The experts of all nodes, or normal factors of their coefficients."""

    log_weight: Tensor  # (V, K)
    coefficient: Tensor  # (V, K, d + 1), the intercept last
    variance: Tensor | None = None  # (V, K, d + 1)


class PairBlocks(NamedTuple):
    """Pairs as B blocks of S rows of one node, and what the gradient of their scores needs."""

    node: Tensor  # (B,)
    rows: Tensor  # X of the blocks, (B, S, d + 1)
    silent: Tensor  # log P(no vote) of each expert, (B, K, S)
    scale: Tensor | None  # standard deviations of the pre-activations, (B, K, S)
    noise: Tensor | None  # standard normals, (B, K, S)


class Evaluation:
    """Scores of pairs as :func:`route` asks for them, and later their gradients.

    ``X`` ends with a column of ones. If experts have variances, their coefficients are drawn afresh
    for every row, with the standard normals that ``draw`` returns in the shape of a tensor. Without
    ``keep`` there are no gradients, and memory is bounded.
    """

    def __init__(
        self,
        experts: Experts,
        X: Tensor,
        steepness: float,
        draw: Callable[[Tensor], Tensor] = torch.randn_like,
        *,
        keep: bool = True,
    ) -> None:
        self.experts, self.X, self.steepness, self.draw = experts, X, steepness, draw
        self.keep = keep
        self.parts: list[PairBlocks] = []
        self.entries: list[Tensor] = []  # scores of all entries of the blocks of each part
        self.n_entries = 0

    @torch.no_grad()
    def log_odds(self, node: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-odds of going right (P,) of pairs, and their places among all entries."""
        block, block_row, slot = _blocks(node, row)
        numbers = block_row.shape[1] * self.X.shape[1]
        some = max(1, block.shape[0] if self.keep else NUMBERS // numbers)
        parts = zip(block.split(some), block_row.split(some), strict=True)
        entries = torch.cat([self._entries(*part) for part in parts])
        start, self.n_entries = self.n_entries, self.n_entries + entries.shape[0]
        return self.steepness * routing.log_odds(entries[slot]), slot + start

    def _entries(self, block: Tensor, block_row: Tensor) -> Tensor:
        """Compute scores of blocks of rows (B, S) of nodes (B,), shape (B S,)."""
        rows, scale, noise = self.X[block_row], None, None
        activation = torch.bmm(self.experts.coefficient[block], rows.mT)
        if self.experts.variance is not None:
            scale = torch.bmm(self.experts.variance[block], rows.square().mT).sqrt_()
            noise = self.draw(scale)
            activation.addcmul_(scale, noise)
        score, silent = routing.rates(activation, self.experts.log_weight[block].exp())
        if self.keep:
            self.parts.append(PairBlocks(block, rows, silent, scale, noise))
            self.entries.append(score.reshape(-1))
        return score.reshape(-1)

    def scores(self, slot: Tensor) -> Tensor:
        """Return scores of the pairs at places (P,), differentiable in the experts."""
        return _Scores.apply(self, slot, *self.experts)


def _blocks(node: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Arrange pairs (P,), adjacent if they share a node, as B blocks of S rows of a node.

    Returns the nodes (B,), the rows (B, S), padded with row 0, and the place of each pair (P,)
    among the B S entries.
    """
    nodes, group, count = torch.unique_consecutive(node, return_inverse=True, return_counts=True)
    # Smaller blocks cost more copies of the coefficients, larger ones more padding.
    typical = node.shape[0] // max(nodes.shape[0], 1)
    size = min(64, max(8, 2 ** typical.bit_length() // 2))
    blocks = (count + (size - 1)).div_(size, rounding_mode="floor")
    # The entries of a node begin where the blocks of the nodes before it end.
    shift = size * (blocks.cumsum(0) - blocks) - (count.cumsum(0) - count)
    slot = shift[group] + count_from(0, node)
    block = nodes.repeat_interleave(blocks)
    padded = row.new_zeros(block.shape[0] * size).index_copy_(0, slot, row)
    return block, padded.view(-1, size), slot


class _Scores(torch.autograd.Function):
    """The scores found by an evaluation; their gradients go back part by part.

    With a = m + sqrt(v) z and s = sum_k r_k softplus(a_k): ds/da = r (1 - exp(silent)),
    da/dv = z / (2 sqrt(v)), and ds/d log r = -r silent.
    """

    @staticmethod
    def forward(
        ctx: Any,
        evaluation: Evaluation,
        slot: Tensor,
        log_weight: Tensor,
        coefficient: Tensor,
        variance: Tensor | None,
    ) -> Tensor:
        ctx.evaluation = evaluation
        ctx.save_for_backward(slot, log_weight, coefficient, variance)
        return torch.cat(evaluation.entries)[slot]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        slot, log_weight, coefficient, variance = ctx.saved_tensors
        evaluation: Evaluation = ctx.evaluation
        down = grad.new_zeros(evaluation.n_entries).index_copy_(0, slot, -grad)
        sizes = [entries.shape[0] for entries in evaluation.entries]
        weight = log_weight.exp()
        of_weight, of_coefficient = torch.zeros_like(log_weight), torch.zeros_like(coefficient)
        of_variance = None if variance is None else torch.zeros_like(variance)
        for part, entries in zip(evaluation.parts, down.split(sizes), strict=True):
            node, rows, silent, scale, noise = part
            slope = entries.view(rows.shape[0], 1, rows.shape[1])
            of_weight.index_add_(0, node, (silent * slope).sum(-1))
            of_activation = torch.expm1(silent).mul_(slope).mul_(weight[node].unsqueeze(-1))
            of_coefficient.index_add_(0, node, torch.bmm(of_activation, rows))
            if of_variance is not None and scale is not None and noise is not None:
                of_spread = of_activation.mul_(noise).div_(scale).mul_(0.5)
                of_variance.index_add_(0, node, torch.bmm(of_spread, rows.square()))
        return None, None, of_weight * weight, of_coefficient, of_variance


def count_from(start: int, like: Tensor) -> Tensor:
    """Return consecutive integers from ``start``, one for each entry of a tensor."""
    return torch.arange(start, start + like.shape[0], device=like.device)


class DensityTable(NamedTuple):
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
        """Tabulate the log-densities (n, L) of values of y; class numbers are evaluated once each.

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
    """Pairs of one level, adjacent if they share a node."""

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
def route(
    evaluation: Evaluation, table: DensityTable, topology: Topology, tolerance: float
) -> Paths:
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


@cached
def _children(topology: Topology, device: torch.device) -> Tensor:
    """Return the left and right child of each node, (2, V); leaf l has number V + l."""
    plan = levels(topology, device)
    nodes, left, right = (torch.cat(part) for part in zip(*plan, strict=True))
    child = nodes.new_empty(2, nodes.shape[0])
    child[:, nodes] = torch.stack((left, right))
    return child


def _descend(
    evaluation: Evaluation, table: DensityTable, child: Tensor, topology: Topology
) -> tuple[list[_Step], Tensor]:
    """Follow one path of each row, always to the side that may contribute more to p(y | x).

    Returns the paths by levels, and the log of what the leaf at their end contributes (n,).
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


class PathMembership(NamedTuple):
    """Posterior over the paths, as in ``expectation``."""

    log_likelihood: Tensor  # log p(y | x), (n,)
    right: Tensor  # P(went right | the row passed the node, y), (P,)
    nodes: Tensor  # P(passed the node | x, y), (P,)
    leaves: Tensor  # P(reached the leaf | x, y), (Q,)


@torch.no_grad()
def memberships(odds: Tensor, paths: Paths, table: DensityTable) -> PathMembership:
    """Compute the posterior over the paths from log-odds (P,): a pass up and a pass down."""
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
    return PathMembership(log_likelihood, right, mass[:n_pairs], mass[n_pairs + 1 :])


def path_log_likelihood(
    score: Tensor, paths: Paths, table: DensityTable, weights: Tensor, steepness: float
) -> tuple[Tensor, Tensor]:
    """Sum log p(y | x), differentiably in the scores (P,); also return P(leaf | x, y), (Q,)."""
    return _PathLogLikelihood.apply(score, paths, table, weights, steepness)


class _PathLogLikelihood(torch.autograd.Function):
    """The slope along the log-odds is the one that EM follows (E2EDT, eq. 14)."""

    @staticmethod
    def forward(
        ctx: Any,
        score: Tensor,
        paths: Paths,
        table: DensityTable,
        weights: Tensor,
        steepness: float,
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
