"""Scores of nodes, log-probabilities of leaves, and the E-step, as pure tensor functions.

A score s >= 0 is the rate of a node's noisy-OR: P(right) = q = 1 - exp(-s) (CPT paper, eq. 2).
Shapes: n rows, V nodes, L leaves.

The E-step is the posterior over the leaf of a row given x and y (E2EDT, eq. 10). Let
u_v(n) = log p(y_n | x_n, row n is at node v), and f the log-odds of going right. Then
u_v = logaddexp(log P(left) + u_left, log P(right) + u_right), and a row at v went right with
log-odds f + u_right - u_left. One pass up the tree and one down suffice, in time proportional to
nodes rather than nodes x leaves. Its arrays are node-major, so that a level is a block of memory.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from bayestree._utils.state import cached
from bayestree.topology import Topology

FLOOR = 1e6  # minimum score, in multiples of the smallest normal number of its precision
LOG2 = math.log(2.0)
NEVER = -1e4  # log-probability of a branch not taken: exp gives 0, but multiples are finite


def score(X: Tensor, log_weight: Tensor, hyperplane: Tensor, intercept: Tensor) -> Tensor:
    """Compute the score of each row at each node, (n, V): s = sum_k r_k softplus(beta_k . x + b_k).

    For X (n, d), log_weight and intercept (V, K), and hyperplane (V, K, d). Scores are positive,
    so that their logarithms and log-odds are finite.
    """
    n_nodes, n_experts, n_features = hyperplane.shape
    plane = hyperplane.reshape(n_nodes * n_experts, n_features)
    activation = torch.addmm(intercept.reshape(-1, 1), plane, X.T)
    return vote(activation.view(n_nodes, n_experts, len(X)), log_weight)


def vote(activation: Tensor, log_weight: Tensor) -> Tensor:
    """Compute noisy-OR rates (n, V), sums of r softplus(activation), from (V, K, n)."""
    return _above_zero(_Vote.apply(activation, log_weight.exp())).T


def rates(activation: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Compute rates (V, n) and log P(no vote) of experts (V, K, n), without gradients."""
    rate, silent = _rate(activation, weight)
    return _above_zero(rate), silent


def _above_zero(rate: Tensor) -> Tensor:
    # Keeps the log-odds of an underflowed score, and their slope steepness / s, finite.
    return rate + FLOOR * torch.finfo(rate.dtype).tiny


def _rate(activation: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Compute sum_k weight_k softplus(activation_k), (V, n), and -softplus, (V, K, n)."""
    silent = logsigmoid(activation.neg())  # faster than softplus
    return torch.bmm(weight.unsqueeze(1), silent).squeeze(1).neg_(), silent


class _Vote(torch.autograd.Function):
    """The rates (V, n) in few passes over memory; the slope of softplus is 1 - exp(silent)."""

    @staticmethod
    def forward(ctx: Any, activation: Tensor, weight: Tensor) -> Tensor:
        rate, silent = _rate(activation, weight)
        ctx.save_for_backward(silent, weight)
        return rate

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        silent, weight = ctx.saved_tensors
        down = -grad
        grad_weight = torch.bmm(silent, down.unsqueeze(-1)).squeeze(-1)
        slope = torch.expm1(silent)
        return slope.mul_(down.unsqueeze(1)).mul_(weight.unsqueeze(-1)), grad_weight


def jitter(center: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """Return center + sqrt(variance) * noise, of equal shapes, with gradients."""
    return _Jitter.apply(center, variance, noise)


class _Jitter(torch.autograd.Function):
    """Gaussian noise on pre-activations, in few passes over memory."""

    @staticmethod
    def forward(ctx: Any, center: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        scale = variance.sqrt()
        ctx.save_for_backward(scale, noise)
        return torch.addcmul(center, scale, noise)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        scale, noise = ctx.saved_tensors
        return grad, torch.mul(grad, noise).div_(scale).mul_(0.5), None


def log_odds(score: Tensor) -> Tensor:
    """Return log-odds of going right, log(exp(s) - 1), stable for small and large s."""
    return score + torch.log(-torch.expm1(-score))


def branch_log_probs(score: Tensor, steepness: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of going left and right, each of the shape of ``score``.

    ``steepness`` multiplies the log-odds (E2EDT, section 3.3): 1 is the model itself,
    infinity the deterministic tree, whose split is at log 2.
    """
    if isinstance(steepness, float) and math.isinf(steepness):
        right = score > LOG2
        never = score.new_tensor(NEVER)
        return torch.where(right, never, 0.0), torch.where(right, 0.0, never)
    if isinstance(steepness, float | int) and steepness == 1:
        return -score, torch.log(-torch.expm1(-score))
    odds = steepness * log_odds(score)
    return logsigmoid(-odds), logsigmoid(odds)


@cached
def path_matrix(topology: Topology, *, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Mark the left turns, then the right turns, of each leaf, shape (2V, L)."""
    turns = topology.turns.reshape(2 * topology.n_nodes, topology.n_leaves)
    return torch.as_tensor(turns, dtype=dtype, device=device)


def leaf_log_probs(log_left: Tensor, log_right: Tensor, paths: Tensor) -> Tensor:
    """Sum branches (..., V) on the paths (2V, L): log P(leaf | x), (..., L) (CPT, eq. 8)."""
    return torch.cat((log_left, log_right), dim=-1) @ paths


def tree_log_probs(score: Tensor, steepness: float, topology: Topology) -> Tensor:
    """log P(leaf | x), shape (n, L), from the scores (n, V) of all nodes."""
    left, right = branch_log_probs(score, steepness)
    return leaf_log_probs(
        left, right, path_matrix(topology, dtype=score.dtype, device=score.device)
    )


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


@cached
def levels(topology: Topology, device: torch.device) -> tuple[Level, ...]:
    """Return the levels of a tree, from the root down."""
    children = topology.children
    below = np.where(children < 0, topology.n_nodes + ~children, children)
    depth = topology.node_depth
    return tuple(
        Level(*(torch.as_tensor(part, device=device) for part in (nodes, *below[nodes].T)))
        for nodes in (np.flatnonzero(depth == d) for d in range(topology.depth))
    )


def right_given_y(odds: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-odds of right given y, and log p(y | x), from ``odds`` and log p(y | side)."""
    given = odds + right - left
    # P(y) = P(y, side) / P(side | y); the likelier side minimises rounding errors.
    went = logsigmoid(odds)
    joint = torch.where(given > 0, right + went, left + (went - odds))
    return given, joint - logsigmoid(given.abs())


@torch.no_grad()
def expectation(odds: Tensor, log_density: Tensor, topology: Topology) -> Membership:
    """Compute the posterior of paths from log-odds (V, n) and log p(y | leaf) (L, n)."""
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


def expected_slope(odds: Tensor, membership: Membership) -> Tensor:
    """Return the gradient (V, n) of Q (eq. 14): mass x (P(right | x, y) - P(right | x))."""
    n_nodes = len(odds)
    return membership.mass[:n_nodes] * (membership.right - odds.sigmoid())
