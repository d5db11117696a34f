"""Scores of pairs of a node and a row, as batched matrix products of blocks, with gradients.

Shapes: V nodes, K experts of d + 1 coefficients, P pairs, B blocks of S rows of one node.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayestree import routing

NUMBERS = 2**22  # maximum number of feature values that are copied at a time without gradients


class Experts(NamedTuple):
    """The experts of all nodes, or normal factors of their coefficients."""

    log_weight: Tensor  # (V, K)
    coefficient: Tensor  # (V, K, d + 1), the intercept last
    variance: Tensor | None = None  # (V, K, d + 1)


class Part(NamedTuple):
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
        self.parts: list[Part] = []
        self.entries: list[Tensor] = []  # scores of all entries of the blocks of each part
        self.n_entries = 0

    @torch.no_grad()
    def log_odds(self, node: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """Log-odds of going right (P,), and the places of the pairs among all entries.

        Pairs of a node are adjacent.
        """
        block, block_row, slot = _blocks(node, row)
        numbers = block_row.shape[1] * self.X.shape[1]
        some = max(1, block.shape[0] if self.keep else NUMBERS // numbers)
        parts = zip(block.split(some), block_row.split(some), strict=True)
        entries = torch.cat([self._entries(*part) for part in parts])
        start, self.n_entries = self.n_entries, self.n_entries + entries.shape[0]
        return self.steepness * routing.log_odds(entries[slot]), slot + start

    def _entries(self, block: Tensor, block_row: Tensor) -> Tensor:
        """Scores of blocks of rows (B, S) of nodes (B,), shape (B S,)."""
        rows, scale, noise = self.X[block_row], None, None
        activation = torch.bmm(self.experts.coefficient[block], rows.mT)
        if self.experts.variance is not None:
            scale = torch.bmm(self.experts.variance[block], rows.square().mT).sqrt_()
            noise = self.draw(scale)
            activation.addcmul_(scale, noise)
        score, silent = routing.vote_and_silence(activation, self.experts.log_weight[block])
        if self.keep:
            self.parts.append(Part(block, rows, silent, scale, noise))
            self.entries.append(score.reshape(-1))
        return score.reshape(-1)

    def scores(self, slot: Tensor) -> Tensor:
        """Scores of the pairs at places (P,), differentiable in the experts."""
        return _Scores.apply(self, slot, *self.experts)


def _blocks(node: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs (P,), of which those of a node are adjacent, as B blocks of S rows of one node.

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
    """Consecutive integers from ``start``, one for each entry of a tensor."""
    return torch.arange(start, start + like.shape[0], device=like.device)
