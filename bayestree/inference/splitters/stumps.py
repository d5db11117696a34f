"""Gradient-based stumps: V nodes x R restarts x K experts in one batched problem."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from bayestree.inference.data import Data, padded, part_size
from bayestree.inference.splitters import FittedSplit
from bayestree.models.criteria import Criterion
from bayestree.models.leaves import Leaf
from bayestree.models.priors import HyperplanePrior
from bayestree.models.soft_tree import group_masks
from bayestree.models.splits import Split
from bayestree.routing import log_odds, score, vote

LOG2 = math.log(2.0)
SHARPNESS = 3.0  # slope of an initial facet per standard deviation of its projection
SCREEN = 40  # steps at the full rate, after which only the best restart is kept
REACH = 1e3  # thresholds farther from log 2 by this factor would give extreme weights
WINDOW = 20  # steps between new subsamples of nodes with too many rows, and tests of progress
FAST = 0.15  # least learning rate while groups of features are compared
STALLED = 0.1  # change of the log-likelihood between windows, in nats: far below any gain in use
NUMBERS = 2**18  # of statistics that are summed at a time
BETAS, EPS = (0.9, 0.99), 1e-8  # of Adam

Rule = Callable[[Tensor, Tensor], Tensor]


class _StumpRows(NamedTuple):
    """m rows of each of V nodes; smaller nodes are padded with rows of weight 0."""

    X: Tensor  # (V, m, d + 1), the last feature is 1
    statistics: Tensor
    present: Tensor
    share: Tensor  # (V,), of each node's rows in the batch


class Stumps(NamedTuple):
    """V x R stumps of K experts: hyperplane and intercept, in units of ``size``, and log-weight."""

    values: Tensor  # (V, R, K, d + 2)
    size: Tensor  # (V,)

    def score(self, X: Tensor) -> Tensor:
        """Compute scores of rows X (V, m, d + 1), shape (V, R, m)."""
        n_nodes, n_restarts, n_experts, width = self.values.shape
        plane = self.values[..., :-1].reshape(n_nodes, -1, width - 1) * self.size.view(-1, 1, 1)
        activation = torch.bmm(plane, X.mT).view(n_nodes * n_restarts, n_experts, -1)
        scores = vote(activation, self.values[..., -1].reshape(n_nodes * n_restarts, n_experts))
        return scores.T.reshape(n_nodes, n_restarts, -1)


class _StumpClimb(NamedTuple):
    """Stumps of V nodes under Adam, and how far each node has come; changed in place."""

    values: Tensor  # (V, R, K, d + 2), as in ``Stumps``
    mean: Tensor  # of gradients
    square: Tensor
    node: Tensor  # (V,), places in the batch at the start
    left: Tensor  # (V,), number of remaining steps
    value: Tensor  # (V,), sum of the log-likelihoods of the last window

    @classmethod
    def of(cls, stumps: Stumps, steps: int) -> "_StumpClimb":
        """Start before ``steps`` at a falling rate."""
        values = stumps.values.clone()
        node = torch.arange(len(values), device=values.device)
        left, value = (torch.full_like(stumps.size, start) for start in (steps, math.inf))
        return cls(values, torch.zeros_like(values), torch.zeros_like(values), node, left, value)

    def take(self, nodes: Tensor) -> "_StumpClimb":
        """Select nodes."""
        return _StumpClimb(*(part[nodes] for part in self))

    def keep_best(self, nats: Tensor, n_kept: int) -> "_StumpClimb":
        """Keep the restarts of largest log-likelihood (V, R)."""
        best = nats.topk(n_kept, dim=1).indices[:, :, None, None]
        values, mean, square = (part.take_along_dim(best, 1) for part in self[:3])
        return self._replace(values=values, mean=mean, square=square)

    def move(self, slope: Tensor, step: int, rate: Tensor) -> None:
        """Take step ``step`` of Adam, at a rate for each node (V,)."""
        self.mean.lerp_(slope, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(slope, slope, value=1 - BETAS[1])
        first, second = (1 - beta ** (step + 1) for beta in BETAS)
        root = self.square.sqrt().add_(EPS * math.sqrt(second))
        scale = rate * (math.sqrt(second) / first)
        self.values.addcdiv_(self.mean * scale.view(-1, 1, 1, 1), root)

    def reflect(self, signs: Tensor) -> None:
        """Mirror coefficients of the wrong sign, and their velocities, at zero; signs are (d,)."""
        wrong = self.values[..., :-2] * signs < 0
        for part in (self.values, self.mean):
            part[..., :-2] = torch.where(wrong, -part[..., :-2], part[..., :-2])

    def end_soon(self, value: Tensor) -> Tensor:
        """Let nodes that stall, by sums of a window, end soon; return which go on."""
        stalled = (value - self.value).abs() <= STALLED * WINDOW
        self.left.copy_(torch.where(stalled, self.left.clamp_max(WINDOW), self.left))
        self.value.copy_(value)
        return self.left > 0


@dataclass(frozen=True)
class StumpFitter:
    """Fits all stumps of a level; for the settings see :func:`bayestree.inference.growth.grow`."""

    split: Split
    leaf: Leaf
    prior: HyperplanePrior  # its log-density is added to the log-likelihood of a split
    steps: int
    n_restarts: int
    rows_per_node: int
    learning_rate: float
    min_leaf: int  # minimum number of rows on each side
    monotone: tuple[int, ...] = ()  # see ``SoftTree``, as for groups
    groups: tuple[tuple[int, ...], ...] = ()

    def numbers_per_row(self, n_features: int) -> int:
        return max(max(self.n_restarts, len(self.groups)) * self.split.n_experts, n_features)

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """Fit the best split of each node; None if no split separates its rows."""
        with torch.no_grad():
            batch = self._draw(data, rows)
            if not any(self.monotone):
                return self._fitted(data, rows, batch, None)
            # with larger predictions on the right, and on the left
            rises = data.X.new_tensor(self.monotone)
            both = [self._fitted(data, rows, batch, signs) for signs in (rises, -rises)]
            return [max(pair, key=_gain) for pair in zip(*both, strict=True)]

    def _fitted(
        self, data: Data, rows: list[Tensor], batch: _StumpRows, signs: Tensor | None
    ) -> list[FittedSplit | None]:
        """Fit the best split of each node, with the given signs (d,) of coefficients, if any."""
        start = self._start_in_groups if self.groups else self._start
        stumps = self._climb(data, rows, batch, start(batch, signs), signs)
        fits = None if signs is None else self._rule(signs)
        return [self._finish(data, rows[v], stumps, v, fits) for v in range(len(rows))]

    def _rule(self, signs: Tensor) -> Rule:
        """Return which splits have their larger prediction on the side that the signs demand."""
        rising = bool((signs * signs.new_tensor(self.monotone)).sum() > 0)

        def fits(left: Tensor, right: Tensor) -> Tensor:
            low, high = (self.leaf.level(sums)[1] for sums in (left, right))
            return low <= high if rising else high <= low

        return fits

    def _draw(self, data: Data, rows: list[Tensor]) -> _StumpRows:
        limit = self.rows_per_node
        drawn = [
            members[torch.randint(len(members), (limit,), device=members.device)]
            if len(members) > limit
            else members
            for members in rows
        ]
        index, used = padded(drawn)
        present = used.to(data.X)
        flat = index.flatten()
        statistics = []
        for own, one in zip(index, present, strict=True):
            y, weights = data.y[own], data.weights[own] * one
            statistics.append(self.leaf.growth_terms(y, weights)(y, weights))
        return _StumpRows(
            pad(data.X[flat], (0, 1), value=1.0).view(*index.shape, -1),
            torch.stack(statistics),
            present,
            present.sum(1) / present.new_tensor([len(members) for members in rows]),
        )

    def _start_in_groups(self, batch: _StumpRows, signs: Tensor | None) -> Stumps:
        """Fit all experts within each group of features, and combine those of the best groups.

        The first restart has the experts of the best group, and further ones those of more and more
        groups, best first. A split by one group can have either side on the right, but the facets
        of several groups need the same statistics there: these restarts are in pairs, with the best
        group as it is and turned around, and the others turned to agree with it. A single expert
        starts from another group in each restart.
        """
        start = self._start(batch, signs, group_masks(self.groups, batch.X[0, :, :-1]))
        climb = _StumpClimb.of(start, SCREEN)
        minus = batch.X * -start.size.view(-1, 1, 1)
        rate = torch.full_like(start.size, max(self.learning_rate, FAST))
        for step in range(SCREEN):
            nats, slope = self._ascent(batch, minus, climb.values)
            climb.move(slope, step, rate)
            if signs is not None:
                climb.reflect(signs)
        group = nats.argsort(dim=1, descending=True)
        n_experts, n_groups = self.split.n_experts, len(self.groups)
        if n_experts == 1:
            best = group[:, : self.n_restarts, None, None]
            return Stumps(climb.values.take_along_dim(best, 1), start.size)
        order = climb.values[..., -1].argsort(dim=2, descending=True)
        fitted = climb.values.take_along_dim(order.unsqueeze(-1), 2)
        turned = start.values.clone()
        facet = fitted[:, :, 0]  # of weight 1, below with the same border and the other side
        border = log_odds(LOG2 * torch.exp(-facet[..., -1]))  # the activation whose vote is log 2
        found = -facet
        found[..., -2] += border / start.size.unsqueeze(-1)
        found[..., -1] = 0.0
        turned[:, :, 0] = found
        rises = self._side_difference(batch, Stumps(fitted, start.size))
        agree = (rises * rises.take_along_dim(group[:, :1, None], 1)).sum(-1) >= 0
        n_used = np.unique(np.geomspace(1, min(n_experts, n_groups), self.n_restarts).round())
        pairs = [(count, side) for count in n_used.tolist() for side in (False, True)]
        used, around = (
            torch.tensor(one, device=nats.device)[:, None] for one in zip(*pairs, strict=True)
        )
        expert, used = torch.arange(n_experts, device=nats.device), used.long()
        rank, place = expert // used, expert % used
        node, group = torch.arange(len(nats), device=nats.device).view(-1, 1, 1), group[:, place]
        turn = (agree[node, group] == around).long()
        return Stumps(torch.stack((fitted, turned))[turn, node, group, rank], start.size)

    @staticmethod
    def _side_difference(batch: _StumpRows, stumps: Stumps) -> Tensor:
        """Return mean statistics on the right less those on the left, (V, R, c)."""
        left = torch.exp(-stumps.score(batch.X)) * batch.present.unsqueeze(1)
        right = batch.present.unsqueeze(1) - left
        sums = (torch.bmm(side, batch.statistics) for side in (right, left))
        means = (
            total / side.sum(-1, keepdim=True).clamp_min(1e-9)  # of a side without rows
            for total, side in zip(sums, (right, left), strict=True)
        )
        return torch.sub(*means)

    def _start(
        self, batch: _StumpRows, signs: Tensor | None = None, masks: Tensor | None = None
    ) -> Stumps:
        """Draw directions that cut off outer parts of the rows, and weights: half go right.

        Masks (R, d) are the features of each restart, whose other coefficients are 0.
        """
        X = batch.X[..., :-1]
        n_nodes, _, width = X.shape
        n_experts, n_restarts = self.split.n_experts, self.n_restarts
        if masks is not None:
            n_restarts = len(masks)
        count = n_restarts * n_experts
        direction = torch.randn(n_nodes, count, width, dtype=X.dtype, device=X.device)
        n_used: float = width
        if masks is not None:
            direction *= masks.repeat_interleave(n_experts, 0)
            n_used = float(masks.sum(1).mean())
        direction = direction / direction.norm(dim=-1, keepdim=True)
        if signs is not None:
            direction = torch.where(signs == 0, direction, signs * direction.abs())
        projection = torch.bmm(direction, X.mT)
        total = batch.present.sum(1).view(-1, 1)
        present = batch.present.unsqueeze(1)
        mean = (projection * present).sum(-1) / total
        square = ((projection - mean.unsqueeze(-1)) ** 2 * present).sum(-1) / total
        steep = SHARPNESS / square.sqrt().clamp_min(1e-4)  # finite if all projections are equal
        absent = present == 0
        # A single expert cuts at a central quantile; several keep at least half inside, each.
        lowest = 0.5 if n_experts > 1 else 0.25
        outer = lowest + 0.5 * torch.rand_like(mean)
        cut = _quantile(projection.masked_fill(absent, math.inf), outer, total)
        size = steep.mean(1) / math.sqrt(n_used)
        relative = (steep / size.unsqueeze(-1)).unsqueeze(-1)
        values = torch.cat((direction, -cut.unsqueeze(-1), torch.zeros_like(relative)), dim=-1)
        values = (values * relative).view(n_nodes, n_restarts, n_experts, -1)
        stumps = Stumps(values, size)
        if self.split.weighted:
            scores = stumps.score(batch.X).masked_fill(absent, math.inf)
            half = scores.new_full(scores.shape[:2], 0.5)
            values[..., -1] = (LOG2 / _quantile(scores, half, total)).log().unsqueeze(-1)
        return stumps

    def _climb(
        self,
        data: Data,
        rows: list[Tensor],
        batch: _StumpRows,
        stumps: Stumps,
        signs: Tensor | None = None,
    ) -> Stumps:
        """Raise the log-likelihoods of all restarts, then of the better half, then of the best.

        The rate is constant until ``SCREEN``, and then falls as a cosine over ``steps``. A node
        whose log-likelihood stalls skips to the end of the cosine, and then leaves the batch.
        """
        climb, found = _StumpClimb.of(stumps, self.steps), torch.empty_like(stumps.values[:, :1])
        larger = max(len(r) for r in rows) > self.rows_per_node
        minus = batch.X * -stumps.size.view(-1, 1, 1)
        value = torch.zeros_like(climb.value)
        for step in range(SCREEN + self.steps):
            if step > SCREEN and step % WINDOW == 0:
                going = climb.end_soon(value)
                value.zero_()
                if not going.all():
                    found[climb.node] = climb.values
                    climb, value = climb.take(going), value[going]
                    batch, minus = _StumpRows(*(part[going] for part in batch)), minus[going]
                    if not len(value):
                        break
            if larger and step and step % WINDOW == 0:
                batch = self._draw(data, [rows[v] for v in climb.node.tolist()])
                minus = batch.X * -stumps.size[climb.node].view(-1, 1, 1)
            nats, slope = self._ascent(batch, minus, climb.values)
            climb.move(slope, step, self.learning_rate * self._share(climb.left))
            if signs is not None:
                climb.reflect(signs)
            if step + 1 in (SCREEN // 2, SCREEN):
                climb = climb.keep_best(nats, 1 if step + 1 == SCREEN else (nats.shape[1] + 1) // 2)
            if step >= SCREEN:
                climb.left.sub_(1)
                value += nats[:, 0]
        found[climb.node] = climb.values
        return Stumps(found, stumps.size)

    def _share(self, left: Tensor) -> Tensor:
        """Return the factor of the learning rate: a cosine over the last ``steps``, nearly to 0."""
        return 0.02 + 0.49 * (1 - torch.cos(math.pi * left / self.steps))

    def _ascent(self, batch: _StumpRows, minus: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Compute log-likelihoods of soft splits (V, R), and the gradient with the prior's added.

        ``minus`` (V, m, d + 1) are the negative rows in the units of ``values``. With
        q_k = sigmoid(-a_k) = P(expert k does not vote),

            log P(left) = sum_k r_k log q_k,
            d log P(left) / d log r_k = r_k log q_k,
            d log P(left) / d(-a_k) = r_k (1 - q_k).
        """
        n_nodes, n_restarts, n_experts, width = values.shape
        flat, parts = (n_nodes * n_restarts, n_experts, -1), (n_nodes, n_restarts, -1)
        plane = values[..., :-1].reshape(n_nodes, -1, width - 1)
        silent = torch.bmm(plane, minus.mT).sigmoid_()
        # an underflowed probability would give 0 * inf
        log_silent = silent.clamp_min_(torch.finfo(silent.dtype).tiny).log().view(flat)
        weight = values[..., -1].exp()
        left = torch.bmm(weight.view(flat[0], 1, n_experts), log_silent).exp_().view(parts)
        side = torch.bmm(left, batch.statistics)
        nats, slope = self.leaf.criterion.ascent(side, batch.statistics.sum(1, keepdim=True))
        share = batch.share.unsqueeze(1)
        flow = torch.bmm(slope / share.unsqueeze(-1), batch.statistics.mT).mul_(left)
        flow = flow.view(flat[0], 1, -1)  # d log-likelihood / d log P(left)
        result = torch.empty_like(values)
        result[..., -1] = log_silent.mul_(flow).sum(-1).view(weight.shape)
        silent = silent.view(flat)
        active = torch.addcmul(flow, silent, flow, value=-1, out=silent)
        result[..., :-1] = torch.bmm(active.view(n_nodes, -1, active.shape[-1]), minus).view(
            *weight.shape, -1
        )
        result *= weight.unsqueeze(-1)
        if not self.split.weighted:
            result[..., -1] = 0.0
        result[..., :-2] += self._prior_slope(values[..., :-2])
        if self.groups:
            result[..., :-2] *= values[..., :-2] != 0
        return nats / share, result

    def _prior_slope(self, plane: Tensor) -> Tensor:
        """Differentiate the prior's log-density of hyperplanes divided by their rms.

        A stump is finally cut at the best threshold, so only the directions of its hyperplanes
        matter: the prior should make them sparse, which removes the noise of their random starts,
        but not limit their slopes.
        """
        # of the features that experts have, which are a part of all within groups
        used = (plane != 0).double().mean(-1, keepdim=True).to(plane) if self.groups else 1.0
        inverse = (plane.square().mean(-1, keepdim=True) / used).rsqrt_()
        unit = plane * inverse
        slope = self.prior.slope_or_derivative(unit)
        # without its component along the hyperplane, which only changes the slope
        along = (slope * unit).mean(-1, keepdim=True) / used
        return slope.addcmul(unit, along, value=-1).mul_(inverse)

    def _finish(
        self, data: Data, rows: Tensor, stumps: Stumps, node: int, fits: Rule | None
    ) -> FittedSplit | None:
        plane = stumps.values[node, 0, :, :-1] * stumps.size[node]
        sites = {
            "hyperplane": plane[:, :-1],
            "intercept": plane[:, -1],
            "log_weight": stumps.values[node, 0, :, -1],
        }
        single = [sites[name].unsqueeze(0) for name in ("log_weight", "hyperplane", "intercept")]
        scores = data.X.new_empty(len(rows))
        size = part_size(rows)
        for into, part in zip(scores.split(size), rows.split(size), strict=True):
            into.copy_(score(data.X[part], *single)[:, 0])
        if not self.split.weighted:
            del sites["log_weight"]

        y, weights = data.y[rows], data.weights[rows]
        terms = self.leaf.growth_terms(y, weights)

        def statistics(some: Tensor) -> Tensor:
            return terms(y[some], weights[some])

        found = best_threshold(scores, self.leaf.criterion, statistics, self.min_leaf, fits)
        if found is None:
            return None
        threshold, gain = found
        # The node splits at P(right) = 1/2 if the threshold t is absorbed. Free weights become
        # r log 2 / t. With weight 1, softplus(a) > t means a > log(e^t - 1).
        if "log_weight" in sites:
            shifted = {"log_weight": sites["log_weight"] + math.log(LOG2 / threshold)}
        else:
            shifted = {"intercept": sites["intercept"] - math.log(math.expm1(threshold))}
        return FittedSplit({**sites, **shifted}, scores > threshold, gain)


def _gain(split: FittedSplit | None) -> float:
    return -math.inf if split is None else split.gain


def best_threshold(
    scores: Tensor,
    criterion: Criterion,
    statistics: Callable[[Tensor], Tensor],
    min_leaf: int,
    fits: Rule | None = None,
) -> tuple[float, float] | None:
    """Find the threshold of largest gain in nats, by exact search over the sorted scores (n,).

    None if no threshold leaves ``min_leaf`` rows on each side. ``statistics`` are those (m, c) of
    rows, given their numbers (m,), and ``fits`` says which splits are allowed, given the sums
    (..., c) of their left and right sides. Sums are formed in pieces, for bounded memory, and the
    result is read once, for which a GPU waits.
    """
    value, order = scores.sort()
    whole = torch.zeros_like(statistics(order[:1])[0], dtype=torch.float64)
    pieces = order.split(max(1, NUMBERS // len(whole)))
    for rows in pieces:
        whole = _running_sums(statistics(rows), whole)[-1]
    found = whole.new_tensor([-math.inf, math.nan])  # value of the split, and threshold
    before, start = torch.zeros_like(whole), 0
    for rows in pieces:
        left = _running_sums(statistics(rows), before)
        before = left[-1]
        here = value[start : start + len(rows) + 1]  # with the first score of the next piece
        left = left[: len(here) - 1]
        position = torch.arange(start + 1, start + len(here), device=scores.device)
        middle = (here[:-1].double() + here[1:].double()) / 2
        rounded = middle.to(here.dtype)  # must still separate the two scores
        allowed = (position >= min_leaf) & (position <= len(scores) - max(min_leaf, 1))
        allowed &= (here[:-1] <= rounded) & (rounded < here[1:])
        allowed &= (rounded > LOG2 / REACH) & (rounded < LOG2 * REACH)
        if fits is not None:
            allowed &= fits(left, whole - left)
        if len(left):
            split = criterion.split_value(left, whole).masked_fill_(~allowed, -math.inf)
            best = split.argmax()
            new = torch.stack((split.take(best), rounded.take(best).double()))
            found = torch.where(new[0] > found[0], new, found)
        start += len(rows)
    best_value, threshold, gain = torch.cat((found, criterion.gain(found[:1], whole))).tolist()
    return (threshold, gain) if best_value > -math.inf else None


def _running_sums(statistics: Tensor, before: Tensor) -> Tensor:
    """Add statistics (m, c) of one row after another to the sums ``before``, (m, c)."""
    found = statistics.double()
    found[0] += before
    return found.cumsum_(0)


def _quantile(values: Tensor, level: Tensor, total: Tensor) -> Tensor:
    """Compute quantiles of ``values`` (V, r, m) over the last axis; absent entries are infinite."""
    position = (level * (total - 1)).long().unsqueeze(-1)
    return values.sort(-1).values.gather(-1, position).squeeze(-1)
