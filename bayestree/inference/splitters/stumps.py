"""Gradient-based stumps: V nodes x R restarts x K experts in one batched problem."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bayestree.inference.data import PART, Data
from bayestree.inference.splitters.protocol import FittedSplit, padded
from bayestree.inference.training import at_prior_mean
from bayestree.models.criteria import Criterion
from bayestree.models.leaves import Leaf
from bayestree.models.priors import HyperplanePrior
from bayestree.models.splits import Split
from bayestree.routing import score, vote

LOG2 = math.log(2.0)
SHARPNESS = 3.0  # slope of an initial facet per standard deviation of its projection
SCREEN = 40  # steps after which only the best restart is kept
REACH = 1e3  # thresholds farther from log 2 by this factor would give extreme weights
REDRAW = 20  # steps between new subsamples of nodes with too many rows


class Batch(NamedTuple):
    """m rows of each of V nodes; smaller nodes are padded with rows of weight 0.

    ``share`` (V,) is the share of each node's rows in the batch.
    """

    X: Tensor
    statistics: Tensor
    present: Tensor
    share: Tensor


class Experts(NamedTuple):
    """Parameters of V x R stumps of K experts; coefficients in units of ``size`` (V,)."""

    coefficient: Tensor
    offset: Tensor
    log_weight: Tensor
    size: Tensor

    def score(self, X: Tensor) -> Tensor:
        """Scores of rows X (V, m, d), shape (V, R, m)."""
        n_nodes, n_restarts, n_experts, width = self.coefficient.shape
        size = self.size.view(-1, 1, 1)
        plane = self.coefficient.reshape(n_nodes, -1, width) * size
        offset = self.offset.reshape(n_nodes, -1, 1) * size
        activation = torch.baddbmm(offset, plane, X.transpose(1, 2))
        activation = activation.view(n_nodes * n_restarts, n_experts, -1)
        scores = vote(activation, self.log_weight.view(n_nodes * n_restarts, n_experts))
        return scores.T.reshape(n_nodes, n_restarts, -1)


@dataclass(frozen=True)
class StumpFitter:
    """Fits all stumps of a level; for the settings see :func:`bayestree.inference.grow`."""

    split: Split
    leaf: Leaf
    prior: HyperplanePrior  # its log-density is added to the log-likelihood of a split
    steps: int
    n_restarts: int
    rows_per_node: int
    learning_rate: float
    min_leaf: int  # minimum number of rows on each side

    def numbers_per_row(self, n_features: int) -> int:
        return max(self.n_restarts * self.split.n_experts, n_features)

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """The best split of each node, or None if no split separates its rows."""
        batch = self._draw(data, rows)
        experts = self._start(batch)
        experts = self._descend(data, rows, batch, experts, SCREEN, cosine=False)
        experts = self._best_restart(batch, experts)
        experts = self._descend(data, rows, batch, experts, self.steps, cosine=True)
        return [self._finish(data, rows[v], experts, v) for v in range(len(rows))]

    def _draw(self, data: Data, rows: list[Tensor]) -> Batch:
        limit = self.rows_per_node
        drawn = [
            members[torch.randint(len(members), (limit,), device=members.device)]
            if len(members) > limit
            else members
            for members in rows
        ]
        index, used = padded(drawn)
        present = used.to(data.X)
        flat = data.take(index.flatten())
        statistics = self.leaf.statistics(flat.y, flat.weights)
        return Batch(
            flat.X.view(*index.shape, -1),
            statistics.view(*index.shape, -1) * present.unsqueeze(-1),
            present,
            present.sum(1) / present.new_tensor([len(members) for members in rows]),
        )

    def _start(self, batch: Batch) -> Experts:
        """Uniformly random directions, each cutting off an outer part of the rows.

        The weights are chosen such that half of the rows go right.
        """
        n_nodes, _, width = batch.X.shape
        n_experts = self.split.n_experts
        count = self.n_restarts * n_experts
        direction = torch.randn(n_nodes, count, width, dtype=batch.X.dtype, device=batch.X.device)
        direction = direction / direction.norm(dim=-1, keepdim=True)
        projection = torch.bmm(direction, batch.X.transpose(1, 2))
        total = batch.present.sum(1).view(-1, 1)
        present = batch.present.unsqueeze(1)
        mean = (projection * present).sum(-1) / total
        square = ((projection - mean.unsqueeze(-1)) ** 2 * present).sum(-1) / total
        steep = SHARPNESS / square.sqrt().clamp_min(1e-4)  # finite if all projections are equal
        absent = present == 0
        # A single expert cuts at a central quantile; one of several keeps at least half inside.
        lowest = 0.5 if n_experts > 1 else 0.25
        outer = lowest + 0.5 * torch.rand_like(mean)
        cut = _quantile(projection.masked_fill(absent, math.inf), outer, total)
        size = steep.mean(1) / math.sqrt(width)
        shape = (n_nodes, self.n_restarts, n_experts)
        relative = (steep / size.unsqueeze(-1)).unsqueeze(-1)
        experts = Experts(
            coefficient=(direction * relative).view(*shape, width),
            offset=(-cut.unsqueeze(-1) * relative).view(shape),
            log_weight=cut.new_zeros(shape),
            size=size,
        )
        if not self.split.weighted:
            return experts
        scores = experts.score(batch.X).masked_fill(absent, math.inf)
        half = scores.new_full(scores.shape[:2], 0.5)
        log_weight = (LOG2 / _quantile(scores, half, total)).log()
        return experts._replace(log_weight=log_weight.unsqueeze(-1).expand(shape).contiguous())

    def _descend(
        self,
        data: Data,
        rows: list[Tensor],
        batch: Batch,
        experts: Experts,
        steps: int,
        *,
        cosine: bool,
    ) -> Experts:
        free = ["coefficient", "offset"] + ["log_weight"] * self.split.weighted
        leaves = {name: getattr(experts, name).detach().requires_grad_() for name in free}
        experts = experts._replace(**leaves)
        optimiser = torch.optim.Adam(leaves.values(), lr=self.learning_rate, betas=(0.9, 0.99))
        larger = max(len(r) for r in rows) > self.rows_per_node
        for step in range(steps):
            if larger and step and step % REDRAW == 0:
                batch = self._draw(data, rows)
            if cosine:
                rate = 0.02 + 0.5 * (1 + math.cos(math.pi * step / steps))
                optimiser.param_groups[0]["lr"] = self.learning_rate * rate
            optimiser.zero_grad(set_to_none=True)
            (-self._objective(batch, experts)).backward()
            optimiser.step()
        return Experts(*(value.detach() for value in experts))

    def _objective(self, batch: Batch, experts: Experts) -> Tensor:
        """Log-likelihood of all soft splits and log-density of their hyperplanes, in nats."""
        value, whole = self._split_value(batch, -torch.expm1(-experts.score(batch.X)))
        nats = self.leaf.criterion.nats(value, whole) / batch.share.unsqueeze(1)
        return nats.sum() + self._log_prior(experts)

    def _log_prior(self, experts: Experts) -> Tensor:
        """Log-density of the hyperplanes, each divided by its root mean square.

        A stump is finally cut at the best threshold, so only the directions of its hyperplanes
        matter: the prior should make them sparse, which removes the noise of their random starts,
        but not limit their slopes.
        """
        unit = experts.coefficient.square().mean(-1, keepdim=True).sqrt()
        sites = {
            "hyperplane": experts.coefficient / unit,
            "intercept": torch.zeros_like(experts.offset),
        }
        return self.prior.log_prob(sites | at_prior_mean(self.prior, sites))

    def _split_value(self, batch: Batch, right: Tensor) -> tuple[Tensor, Tensor]:
        """Criterion of splits with P(right) (V, R, m), and the sums over all rows (V, 1, c)."""
        whole = batch.statistics.sum(1, keepdim=True)
        return self.leaf.criterion.split_value(torch.bmm(right, batch.statistics), whole), whole

    @torch.no_grad()
    def _best_restart(self, batch: Batch, experts: Experts) -> Experts:
        """For each node, the restart with the best split at P(right) = 1/2."""
        right = (experts.score(batch.X) > LOG2).to(batch.X.dtype)
        best = self._split_value(batch, right)[0].argmax(1)
        node = torch.arange(len(best), device=best.device)
        coefficient, offset, log_weight = (part[node, best].unsqueeze(1) for part in experts[:3])
        return Experts(coefficient, offset, log_weight, experts.size)

    @torch.no_grad()
    def _finish(self, data: Data, rows: Tensor, experts: Experts, node: int) -> FittedSplit | None:
        size = experts.size[node]
        sites = {
            "hyperplane": experts.coefficient[node, 0] * size,
            "intercept": experts.offset[node, 0] * size,
            "log_weight": experts.log_weight[node, 0],
        }
        single = [sites[name].unsqueeze(0) for name in ("log_weight", "hyperplane", "intercept")]
        scores = torch.cat([score(data.X[part], *single)[:, 0] for part in rows.split(PART)])
        statistics = self.leaf.statistics(data.y[rows], data.weights[rows])
        found = best_threshold(scores, self.leaf.criterion, statistics, self.min_leaf)
        if found is None:
            return None
        threshold, gain = found
        if not self.split.weighted:
            del sites["log_weight"]
        return FittedSplit(absorb(sites, threshold), scores > threshold, gain)


def absorb(sites: Mapping[str, Tensor], threshold: float) -> dict[str, Tensor]:
    """Absorb a score threshold t into the parameters, so that the node splits at P(right) = 1/2.

    Free weights become r log 2 / t. With weight 1, softplus(a) > t means a > log(e^t - 1), which
    is subtracted from the intercept.
    """
    if "log_weight" in sites:
        shifted = {"log_weight": sites["log_weight"] + math.log(LOG2 / threshold)}
    else:
        shifted = {"intercept": sites["intercept"] - math.log(math.expm1(threshold))}
    return {**sites, **shifted}


def best_threshold(
    scores: Tensor, criterion: Criterion, statistics: Tensor, min_leaf: int
) -> tuple[float, float] | None:
    """Threshold with the largest gain in nats, by exact search over the sorted scores (n,).

    None if no threshold leaves ``min_leaf`` rows of ``statistics`` (n, c) on each side.
    """
    n = len(scores)
    value, order = scores.sort()
    left = statistics[order].double().cumsum(0)
    whole = left[-1]
    low, high = max(min_leaf, 1) - 1, n - max(min_leaf, 1) - 1
    position = torch.arange(n - 1, device=scores.device)
    middle = (value[:-1].double() + value[1:].double()) / 2
    rounded = middle.to(value.dtype)  # must still separate the two scores
    allowed = (position >= low) & (position <= high)
    allowed &= (value[:-1] <= rounded) & (rounded < value[1:])
    allowed &= (rounded > LOG2 / REACH) & (rounded < LOG2 * REACH)
    if not allowed.any():
        return None
    split = criterion.split_value(left[:-1], whole)
    best = int(split.masked_fill(~allowed, -math.inf).argmax())
    return float(rounded[best]), float(criterion.gain(split[best], whole))


def _quantile(values: Tensor, level: Tensor, total: Tensor) -> Tensor:
    """Quantiles of ``values`` (V, r, m) over the last axis; absent entries are infinite."""
    position = (level * (total - 1)).long().unsqueeze(-1)
    return values.sort(-1).values.gather(-1, position).squeeze(-1)
