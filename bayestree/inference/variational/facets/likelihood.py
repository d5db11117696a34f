"""Expected log-likelihood of one node's rows on base draws, with hand-coded gradients.

With z_k(x) the pre-activation and r_k the weight of expert k, and s = sum_k r_k softplus(z_k), the
derivatives follow from l(s), the log-likelihood of a row (``SplitRows.log_likelihood_and_slope``):

    dl / d log r_k = l'(s) r_k softplus(z_k),        dl / dz_k = l'(s) r_k sigmoid(z_k).

z = x.mean + g x.tilt + e |factor' x| is linear in the first two fields; for the third,
d|factor' x| / d factor = x (factor' x)' / |factor' x|.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid, softplus

from bayestree import routing
from bayestree.models.leaves import Leaf

#: Added to scores, so that the logarithm of an underflowed score is finite.
SCORE_FLOOR = routing.FLOOR * torch.finfo(torch.float64).tiny
#: Above this value softplus(z) = z in double precision.
SOFTPLUS_LINEAR = 35.0
CHUNK = 60_000  # pre-activations per piece of the rows: they fit the cache
MIN_PIECE = 64  # minimum number of rows per piece


class SplitRows(NamedTuple):
    """Rows that reach one node.

    Row n's likelihood is ``else + P(left) left + P(right) right``; the likelihoods on the two sides
    may be updated.
    """

    design: Tensor  # (row, feature + 1), ends with a column of ones
    weights: Tensor  # (row,)
    log_else: Tensor | None = None  # (row,): log-likelihood by the leaves not below the node
    steepness: float = 1.0  # multiplies the log-odds of the split

    @property
    def x(self) -> Tensor:
        """The features, shape (row, feature)."""
        return self.design[:, :-1]

    def take(self, index: Tensor | slice) -> "SplitRows":
        """Select rows."""
        other = None if self.log_else is None else self.log_else[index]
        return SplitRows(self.design[index], self.weights[index], other, self.steepness)

    def split(self, score: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities of going left and right at scores (..., row)."""
        return routing.branch_log_probs(score + SCORE_FLOOR, self.steepness)

    def log_likelihood(self, score: Tensor, log_left: Tensor, log_right: Tensor) -> Tensor:
        """Compute the log-likelihood of each row, shape (..., row)."""
        left, right = self.split(score)
        value = torch.logaddexp(log_left + left, log_right + right)
        return value if self.log_else is None else torch.logaddexp(self.log_else, value)

    def log_likelihood_and_slope(
        self, score: Tensor, log_left: Tensor, log_right: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute :meth:`log_likelihood` and its derivative in the score, in few passes."""
        rise = -torch.expm1(-(score + SCORE_FLOOR))  # 1 / the slope of the log-odds in the score
        odds = score + rise.log()
        if self.steepness == 1:
            to_left, to_right, stays, goes = -score, rise.log(), 1 / rise - 1, None
        else:
            odds = self.steepness * odds
            to_left, to_right = logsigmoid(-odds), logsigmoid(odds)
            per_score = self.steepness / rise
            stays, goes = torch.sigmoid(-odds) * per_score, torch.sigmoid(odds) * per_score
        sent = log_right + to_right
        lead = log_left + to_left - sent
        value = sent + softplus(lead, threshold=SOFTPLUS_LINEAR)
        kept = torch.sigmoid(lead)
        slope = torch.sigmoid(-lead) * stays - (kept if goes is None else kept * goes)
        if self.log_else is None:
            return value, slope
        whole = torch.logaddexp(self.log_else, value)
        return whole, slope * torch.exp(value - whole)


def votes(coefficient: Tensor, log_weight: Tensor, design: Tensor) -> Tensor:
    """Compute scores (..., row) of experts (..., slot, feature + 1) of log-weights (..., slot)."""
    activation = coefficient @ design.T
    weight = log_weight.exp().unsqueeze(-2)
    return (weight @ softplus(activation, threshold=SOFTPLUS_LINEAR)).squeeze(-2)


class SideState(NamedTuple):
    """Log-likelihoods of the rows on the two sides, reaching the node included, of several fits."""

    log_left: Tensor  # (fit, row)
    log_right: Tensor  # (fit, row)
    value: Tensor  # (fit,): minus the divergence of the leaves from their prior

    def take(self, which: Tensor) -> "SideState":
        """Select fits."""
        return SideState(*(part[which] for part in self))


class Sides(Protocol):
    """The two sides of a split."""

    def update(self, left: Tensor, right: Tensor, weights: Tensor) -> SideState:
        """Return the state given responsibilities (fit, row) of the sides and the rows' weights."""

    def take(self, index: Tensor) -> "Sides":
        """Select rows."""


class FixedSides(NamedTuple):
    """Subtrees with fixed log-likelihoods of the rows (row,)."""

    log_left: Tensor
    log_right: Tensor

    def update(self, left: Tensor, right: Tensor, weights: Tensor) -> SideState:
        shape = left.shape
        return SideState(
            self.log_left.expand(shape), self.log_right.expand(shape), left.new_zeros(len(left))
        )

    def take(self, index: Tensor) -> "FixedSides":
        return FixedSides(self.log_left[index], self.log_right[index])


class LeafSides(NamedTuple):
    """Two leaves, updated in closed form."""

    leaf: Leaf
    y: Tensor  # (row,)
    log_reach: Tensor | None = None  # (row,): log-probability of reaching the node

    def update(self, left: Tensor, right: Tensor, weights: Tensor) -> SideState:
        statistics = self.leaf.statistics(self.y, weights)
        log_left, left_kl = self._leaf(left @ statistics)
        log_right, right_kl = self._leaf(right @ statistics)
        return SideState(log_left, log_right, -left_kl - right_kl)

    def _leaf(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return expected log-densities (fit, row) and divergences (fit,) of a leaf."""
        density = self.leaf.posterior(sums).expected_log_density(self.y).T
        divergence = torch.stack([self.leaf.posterior(one).kl() for one in sums.split(1)])
        return density if self.log_reach is None else density + self.log_reach, divergence

    def take(self, index: Tensor) -> "LeafSides":
        reach = None if self.log_reach is None else self.log_reach[index]
        return LeafSides(self.leaf, self.y[index], reach)


class Planes(NamedTuple):
    """Pre-activations of experts, normal at each row: z = x.mean + g x.tilt + e |factor' x|.

    The expected log-likelihood depends only on the distribution of the votes at each row. One
    scalar e per draw and expert therefore serves all rows, however many features there are. Planes
    without ``nodes``, tilt and factor are points, of one draw.
    """

    mean: Tensor  # (fit, slot, feature + 1)
    nodes: Tensor | None = None  # (slot, draw, 3): (1, g, e) of each draw
    tilt: Tensor | None = None  # (fit, slot, feature + 1)
    factor: Tensor | None = None  # (fit, slot, feature + 1, feature + 1)

    def one(self, fit: int) -> "OnePlanes":
        """Select a fit."""
        mean = self.mean[fit]
        if self.nodes is None or self.tilt is None or self.factor is None:
            return OnePlanes(mean, mean.new_ones(len(mean), 1, 1), None)
        return OnePlanes(mean, self.nodes, (self.tilt[fit], self.factor[fit]))


class OnePlanes(NamedTuple):
    """:class:`Planes` of one fit; ``spread`` holds tilt and factor, None for points."""

    mean: Tensor
    nodes: Tensor
    spread: tuple[Tensor, Tensor] | None

    def fields(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (mean, tilt, sd) of the pre-activations, for points only means, and factor' x."""
        mean = self.mean @ x.T
        if self.spread is None:
            return mean[:, None], mean
        tilt, factor = self.spread
        half = factor.mT @ x.T
        sd = (half.square().sum(1) + torch.finfo(half.dtype).tiny).sqrt()
        return torch.stack([mean, tilt @ x.T, sd], 1), half

    def pieces(self, n_rows: int) -> list[slice]:
        """Slice the rows that are processed together."""
        slots, draws, _ = self.nodes.shape
        size = max(CHUNK // (draws * slots), MIN_PIECE)
        return [slice(start, start + size) for start in range(0, n_rows, size)]

    def votes(self, weight: Tensor, x: Tensor, pool: Tensor | None = None) -> "Votes":
        """Compute votes at some rows; ``pool`` (row,) multiplies the pool's."""
        fields, half = self.fields(x)
        activation = torch.bmm(self.nodes, fields)
        soft = softplus(activation, threshold=SOFTPLUS_LINEAR)
        if pool is not None:
            soft[-1].mul_(pool)
        score = torch.bmm(weight.T[:, None], soft.transpose(0, 1))[:, 0]
        return Votes(score, activation, soft, fields, half)

    def pool_mask(self, log_left: Tensor, log_right: Tensor) -> Tensor | None:
        """Mark the rows where the pool's mean vote gives a lower bound by 1, others by 0.

        At steepness 1 the log-likelihood is convex and decreasing in the score where the left side
        has the greater likelihood: Jensen's inequality allows the mean. Elsewhere it increases,
        and omitting the pool gives the bound. (It is concave there, and the mean vote, which stems
        from rare large weights, would overstate the effect.) Points have no pool.
        """
        return None if self.spread is None else (log_left > log_right).to(log_left)


class Votes(NamedTuple):
    """Scores (draw, row), and their intermediate results."""

    score: Tensor
    activation: Tensor
    soft: Tensor
    fields: Tensor
    half: Tensor


def log_likelihood(planes: Planes, log_weight: Tensor, rows: SplitRows, state: SideState) -> Tensor:
    """Average the log-likelihood (fit,) over draws, given log-weights (fit, slot, draw)."""
    return _ExpectedLogLikelihood.apply(
        planes.mean, log_weight, planes.tilt, planes.factor, planes.nodes, rows, state
    )


def responsibilities(
    planes: Planes, log_weight: Tensor, rows: SplitRows, state: SideState
) -> tuple[Tensor, Tensor]:
    """Average the responsibilities of the two sides over draws: twice (fit, row)."""
    left, right = torch.empty_like(state.log_left), torch.empty_like(state.log_left)
    for fit in range(len(left)):
        one, weight = planes.one(fit), log_weight[fit].exp()
        for cut in one.pieces(left.shape[1]):
            part = rows.take(cut)
            low, high = state.log_left[fit, cut], state.log_right[fit, cut]
            score = one.votes(weight, part.design, one.pool_mask(low, high)).score
            value = part.log_likelihood(score, low, high)
            to_left, to_right = part.split(score)
            left[fit, cut] = torch.exp(low + to_left - value).mean(0)
            right[fit, cut] = torch.exp(high + to_right - value).mean(0)
    return left, right


class _Sums:
    """Log-likelihood of one fit and its gradients, summed over pieces of the rows."""

    def __init__(self, planes: OnePlanes, log_weight: Tensor) -> None:
        self.planes, self.weight = planes, log_weight.exp()
        self.loaded = (planes.nodes * self.weight[:, :, None]).mT
        mean = planes.mean
        self.total = mean.new_zeros(())
        self.d_weight, self.d_mean = torch.zeros_like(self.weight), torch.zeros_like(mean)
        self.d_tilt = torch.zeros_like(mean)
        self.d_factor = mean.new_zeros(*mean.shape, mean.shape[-1])

    def add(self, rows: SplitRows, log_left: Tensor, log_right: Tensor) -> None:
        pool = self.planes.pool_mask(log_left, log_right)
        votes = self.planes.votes(self.weight, rows.design, pool)
        value, slope = rows.log_likelihood_and_slope(votes.score, log_left, log_right)
        self.total += (value @ rows.weights).sum()
        g = slope * rows.weights
        self.d_weight += torch.bmm(votes.soft.transpose(0, 1), g[:, :, None])[:, :, 0].T
        pull = votes.activation.sigmoid_().mul_(g)
        if pool is not None:
            pull[-1].mul_(pool)
        d_fields = torch.bmm(self.loaded, pull)
        self.d_mean += d_fields[:, 0] @ rows.design
        if self.planes.spread is not None:
            self.d_tilt += d_fields[:, 1] @ rows.design
            half = votes.half.mul_((d_fields[:, 2] / votes.fields[:, 2])[:, None])
            self.d_factor += (half @ rows.design).mT

    def mean(self) -> tuple[Tensor, ...]:
        draws = self.planes.nodes.shape[1]
        parts = (self.total, self.d_mean, self.d_weight * self.weight, self.d_tilt, self.d_factor)
        return tuple(part / draws for part in parts)


class _ExpectedLogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - as autograd wants it
        ctx: Any,
        mean: Tensor,
        log_weight: Tensor,
        tilt: Tensor | None,
        factor: Tensor | None,
        nodes: Tensor | None,
        rows: SplitRows,
        state: SideState,
    ) -> Tensor:
        planes = Planes(mean, nodes, tilt, factor)
        parts = []
        for fit in range(len(mean)):
            sums = _Sums(planes.one(fit), log_weight[fit])
            for cut in sums.planes.pieces(len(rows.weights)):
                sums.add(rows.take(cut), state.log_left[fit, cut], state.log_right[fit, cut])
            parts.append(sums.mean())
        total, *gradients = (torch.stack(part) for part in zip(*parts, strict=True))
        ctx.save_for_backward(*gradients)
        ctx.points = tilt is None
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_mean, d_weight, d_tilt, d_factor = ctx.saved_tensors
        g = grad[:, None, None]
        spread = (None, None) if ctx.points else (g * d_tilt, g[..., None] * d_factor)
        return g * d_mean, g * d_weight, *spread, None, None, None
