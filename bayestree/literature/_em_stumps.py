"""End-to-end trees (E2EDT; Hehn, Kooij and Hamprecht, 2020): greedy growth and training by EM.

All stumps of a level are fitted in one batch (section 2.5). Each has two leaves with equal initial
values. The E-step is eq. 10 with two leaves, the M-step eq. 13 and 14. Each node has its own
minibatches and Adam state, because nodes with several minibatches take more steps per epoch than
others. A stump that sends all rows one way has failed and is refitted from another start. Splits
are accessed through :class:`~bayestree.models.splits.StumpSplit` only, so networks and hyperplanes
share the code. The whole tree is then trained by :class:`bayestree.inference.Em`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from bayestree.estimators._parameters import MaxFeatures, check_image, checked_pair
from bayestree.inference import Data
from bayestree.inference.data import padded
from bayestree.inference.splitters import FittedSplit
from bayestree.inference.training import at_prior_mean, check_counts
from bayestree.models.leaves import Leaf
from bayestree.models.priors import Flat, Priors
from bayestree.models.priors.base import Sites
from bayestree.models.splits import StumpSplit
from bayestree.routing import right_given_y

DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8  # Adam's settings in the paper

#: Features that each node may use: (n_nodes, n_features, generator) -> bool (V, d).
FeatureMask = Callable[[int, int, torch.Generator], Tensor]


@dataclass(frozen=True)
class EndToEndSplitter:
    """Fits stumps to the log-likelihood, for ``grow(splitter=...)``."""

    split: StumpSplit
    leaf: Leaf
    #: The log-density of the hyperplanes is added to Q.
    priors: Priors = field(default_factory=lambda: Priors(hyperplane=Flat()))
    epochs: int = 20  # E-steps per stump
    steepness: float = 1.0  # gamma of the first epoch
    steepness_step: float = 0.1  # increment of gamma per epoch
    batch_size: int = 1000  # rows of a node per Adam step
    learning_rate: float = 1e-3
    attempts: int = 5  # starts before a node becomes a leaf
    min_leaf: int = 1  # a stump with fewer rows on a side has failed
    features: FeatureMask | None = None  # coefficients of other features stay at 0

    def __post_init__(self) -> None:
        check_counts(
            epochs=self.epochs,
            batch_size=self.batch_size,
            attempts=self.attempts,
            min_leaf=self.min_leaf,
        )

    @property
    def rows_per_node(self) -> int:
        return self.batch_size

    def numbers_per_row(self, n_features: int) -> int:
        return n_features

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """Fit the stump of each node; None if every attempt failed."""
        found: list[FittedSplit | None] = [None] * len(rows)
        for _ in range(self.attempts):
            # Largest nodes first, as EmStumps requires.
            waiting = [i for i, split in enumerate(found) if split is None]
            waiting.sort(key=lambda i: -len(rows[i]))
            if not waiting:
                break
            stumps = self._fitted(data, [rows[i] for i in waiting])
            for node, i in enumerate(waiting):
                sites = {name: value[node : node + 1] for name, value in stumps.sites.items()}
                found[i] = self._finished(data, rows[i], sites)
        return found

    def _fitted(self, data: Data, rows: list[Tensor]) -> "EmStumps":
        absent = None
        if self.features is not None:
            seed = int(torch.randint(2**62, ()))  # from the global stream, seeded by the caller
            generator = torch.Generator().manual_seed(seed)
            absent = ~self.features(len(rows), data.X.shape[1], generator).to(data.X.device)
        stumps = EmStumps(self, data, rows, absent)
        for epoch in range(self.epochs):
            stumps.epoch(self.steepness + epoch * self.steepness_step)
        return stumps

    @torch.no_grad()
    def _finished(self, data: Data, rows: Tensor, sites: dict[str, Tensor]) -> FittedSplit | None:
        """Return the hard split of a node, or None if it has failed."""
        right = self.split.log_odds(sites, data.X[rows])[:, 0] > 0
        n_right = int(right.sum())
        if min(n_right, len(rows) - n_right) < self.min_leaf:
            return None
        own = (data.y[rows], data.weights[rows])
        terms = self.leaf.growth_terms(*own)(*own).double()
        gain = self.leaf.criterion.hard_gain(terms, right)
        return FittedSplit({name: site[0] for name, site in sites.items()}, right, gain)


class _StumpBatch(NamedTuple):
    """m rows of each of V nodes; smaller nodes are padded with rows of weight 0."""

    X: Tensor  # (V, m, d)
    y: Tensor  # (V, m), or more dimensions for leaves that regress on the features
    weights: Tensor  # (V, m)
    statistics: Tensor  # (V, m, c): weighted sufficient statistics of the leaves
    share: Tensor  # (V, 1): share of each node's rows in this batch


class EmStumps:
    """Parameters of V stumps during EM.

    ``rows`` are the row numbers of each node, the largest nodes first; ``absent`` (V, d) marks
    coefficients of linear splits that are fixed at 0.
    """

    def __init__(
        self,
        settings: EndToEndSplitter,
        data: Data,
        rows: list[Tensor],
        absent: Tensor | None = None,
    ) -> None:
        self.split, self.leaf, self.priors = settings.split, settings.leaf, settings.priors
        self.data, self.rows, self.batch_size = data, rows, settings.batch_size
        self.sites = self.split.start(len(rows), data.X.shape[1], data.X)
        self.absent = absent
        if absent is not None:
            if "hyperplane" not in self.sites:
                raise ValueError("features needs a linear split, such as Oblique().")
            # the start without absent coefficients, projected back onto the unit sphere
            self.sites["hyperplane"].masked_fill_(absent.unsqueeze(1), 0.0)
            square = self.sites["hyperplane"].square().sum(-1) + self.sites["intercept"].square()
            self.sites["hyperplane"] /= square.sqrt().unsqueeze(-1)
            self.sites["intercept"] /= square.sqrt()
        self.adam = NodeAdam(self.sites, settings.learning_rate)
        empty = self.leaf.statistics(data.y[:0], data.weights[:0])
        self.leaves = self._estimate(empty.new_zeros(len(rows), 2, empty.shape[1]))
        self.whole = self._gather(rows) if len(rows[0]) <= self.batch_size else None

    def epoch(self, steepness: float) -> None:
        """Take one E-step on all rows of every node, and one M-step on their minibatches."""
        e_step = {name: value.clone() for name, value in self.sites.items()}
        batches = self._batches() if self.whole is None else iter([self.whole])
        sums = self._step(next(batches), None, steepness)  # the first contains all nodes
        for batch in batches:
            part = self._step(batch, e_step, steepness)
            sums[: len(part)] += part
        self.leaves = self._estimate(sums)

    def _step(self, batch: _StumpBatch, e_step: Sites | None, steepness: float) -> Tensor:
        """Take a gradient step on Q for the first nodes; their leaf statistics (V, 2, c).

        ``e_step`` are the parameters of the E-step, None if they have not changed since.
        """
        n_active = len(batch.X)
        active = {name: v[:n_active].requires_grad_() for name, v in self.sites.items()}
        odds = self.split.node_log_odds(active, batch.X)
        with torch.no_grad():
            before = odds
            if e_step is not None:
                before = self.split.node_log_odds(_first(e_step, n_active), batch.X)
            leaves = _first(self.leaves, n_active)
            # With h = P(right | x, y) of the E-step, Q = sum w [h log q + (1 - h) log(1 - q)] for
            # q = sigmoid(gamma odds), so dQ/d odds = w gamma (h - q).
            left, right = self.leaf.node_log_density(leaves, batch.y).unbind(1)
            went_right = right_given_y(steepness * before, left, right)[0].sigmoid_()
            slope = steepness * (went_right - (steepness * odds).sigmoid_())
        odds.backward(-slope * batch.weights / batch.share)
        prior = self._log_prior(active)
        if prior.requires_grad:
            (-prior).backward()
        self.adam.step(active)
        if self.absent is not None:
            self.sites["hyperplane"].masked_fill_(self.absent.unsqueeze(1), 0.0)
        to_right = torch.bmm(went_right.unsqueeze(1), batch.statistics).squeeze(1)
        return torch.stack((batch.statistics.sum(1) - to_right, to_right), 1)

    def _log_prior(self, sites: Sites) -> Tensor:
        complete = {**sites, **at_prior_mean(self.priors.hyperplane, sites)}
        first, *others = self.split.log_priors(self.priors, complete).values()
        return sum(others, start=first)

    def _estimate(self, sums: Tensor) -> dict[str, Tensor]:
        """Estimate sites (V, 2, ...) of the leaves from sums (V, 2, c) of statistics (eq. 13)."""
        flat = self.leaf.estimate(sums.flatten(0, 1))
        return {name: value.unflatten(0, sums.shape[:2]) for name, value in flat.items()}

    def _batches(self) -> Iterator[_StumpBatch]:
        """Yield an epoch of shuffled minibatches; later ones contain only the first nodes."""
        parts = []
        for rows in self.rows:
            order = rows[torch.randperm(len(rows), device=rows.device)]
            parts.append(order.tensor_split(-(-len(rows) // self.batch_size)))
        for step in range(len(parts[0])):
            yield self._gather([part[step] for part in parts if step < len(part)])

    def _gather(self, parts: list[Tensor]) -> _StumpBatch:
        index, present = padded(parts)
        flat = self.data.take(index.flatten())
        weights = flat.weights.view(index.shape) * present
        total = weights.new_tensor([len(rows) for rows in self.rows[: len(parts)]])
        return _StumpBatch(
            flat.X.view(*index.shape, -1),
            flat.y.unflatten(0, index.shape),
            weights,
            self.leaf.statistics(flat.y, weights.flatten()).view(*index.shape, -1),
            present.sum(1, keepdim=True) / total.unsqueeze(1),
        )


class NodeAdam:
    """Adam with a separate step count per node; changes ``sites`` (nodes first) in place."""

    def __init__(self, sites: Sites, learning_rate: float) -> None:
        self.sites = sites
        self.rate = learning_rate
        self.mean = {name: torch.zeros_like(value) for name, value in sites.items()}
        self.square = {name: torch.zeros_like(value) for name, value in sites.items()}
        first = next(iter(sites.values()))
        self.steps = first.new_zeros(len(first))

    @torch.no_grad()
    def step(self, active: Sites) -> None:
        """Update the first nodes by the gradients of ``active``."""
        n_active = len(next(iter(active.values())))
        self.steps[:n_active] += 1
        steps = self.steps[:n_active]
        for name, moving in active.items():
            if moving.grad is None:
                continue
            mean, square = self.mean[name][:n_active], self.square[name][:n_active]
            mean.lerp_(moving.grad, 1 - DECAY)
            square.mul_(SQUARE_DECAY).addcmul_(moving.grad, moving.grad, value=1 - SQUARE_DECAY)
            shape = (-1,) + (1,) * (mean.ndim - 1)
            first = (1 - DECAY**steps).view(shape)
            second = (1 - SQUARE_DECAY**steps).view(shape)
            change = (mean / first) / ((square / second).sqrt_() + EPSILON)
            self.sites[name][:n_active].sub_(change, alpha=self.rate)


def _first(sites: Sites, count: int) -> dict[str, Tensor]:
    return {name: value[:count] for name, value in sites.items()}


def random_features(
    n_nodes: int, n_features: int, generator: torch.Generator, *, count: int
) -> Tensor:
    """Draw ``count`` features of each node (or all, if there are fewer), uniformly."""
    drawn = torch.rand(n_nodes, n_features, generator=generator, dtype=torch.float32)
    mask = torch.zeros(n_nodes, n_features, dtype=torch.bool)
    return mask.scatter_(1, drawn.argsort(1)[:, :count], value=True)


def random_patch(
    n_nodes: int, _: int, generator: torch.Generator, *, image: Sequence[int], patch: Sequence[int]
) -> Tensor:
    """Draw the pixels of a rectangle at a uniformly random position in the image of each node.

    Sizes are (height, width); the features are the pixels of the image, row by row.
    """
    sides = []
    for whole, part in zip(image, patch, strict=True):
        first = torch.randint(whole - part + 1, (n_nodes, 1), generator=generator)
        place = torch.arange(whole)
        sides.append((place >= first) & (place < first + part))
    rows, columns = sides
    return (rows.unsqueeze(2) & columns.unsqueeze(1)).flatten(1)


def subset_rule(
    n_features: int,
    max_features: MaxFeatures,
    image_shape: Sequence[int] | None,
    patch_size: Sequence[int] | None,
) -> FeatureMask | None:
    """Return the rule for the features that a split may use; None for all of them."""
    if patch_size is None:
        if max_features is None:
            return None
        return partial(random_features, count=feature_count(n_features, max_features))
    if max_features is not None:
        raise ValueError(
            f"patch_size={patch_size} and max_features={max_features!r} both select the features "
            "that a split may use; give one of them."
        )
    image = check_image(image_shape, n_features, f"patch_size={patch_size}")
    patch = checked_pair("patch_size", patch_size)
    if patch[0] > image[0] or patch[1] > image[1]:
        raise ValueError(
            f"patch_size must lie between (1, 1) and image_shape {image}, got {patch}."
        )
    return partial(random_patch, image=image, patch=patch)


def feature_count(n_features: int, max_features: MaxFeatures) -> int:
    """Return the number of random features that ``max_features`` asks for."""
    if max_features is None:
        return n_features
    if max_features == "sqrt":
        return max(1, math.isqrt(n_features))
    if isinstance(max_features, float):
        return max(1, int(max_features * n_features))
    return int(max_features)
