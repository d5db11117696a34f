"""Stumps by expectation-maximisation, all nodes of a level in one batch (E2EDT, section 2.5).

Each node has its own minibatches and Adam state, and two leaves with equal initial values. A
stump that sends all rows one way has failed and is refitted from another start. Splits are
accessed through :class:`~bayestree.models.splits.StumpSplit` only, so networks and hyperplanes
share the code.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bayestree.inference.data import Data
from bayestree.inference.splitters.em_stumps import Stumps
from bayestree.inference.splitters.protocol import FittedSplit
from bayestree.inference.training import check_counts
from bayestree.models.leaves import Leaf
from bayestree.models.priors import Flat, Priors
from bayestree.models.splits import StumpSplit

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
        """The stump of each node, or None if every attempt failed."""
        found: list[FittedSplit | None] = [None] * len(rows)
        for _ in range(self.attempts):
            # Largest nodes first, as Stumps requires.
            waiting = [i for i, split in enumerate(found) if split is None]
            waiting.sort(key=lambda i: -len(rows[i]))
            if not waiting:
                break
            stumps = self._fitted(data, [rows[i] for i in waiting])
            for node, i in enumerate(waiting):
                found[i] = self._finished(data, rows[i], stumps.of(node))
        return found

    def _fitted(self, data: Data, rows: list[Tensor]) -> Stumps:
        absent = None
        if self.features is not None:
            seed = int(torch.randint(2**62, ()))  # from the global stream, seeded by the caller
            generator = torch.Generator().manual_seed(seed)
            absent = ~self.features(len(rows), data.X.shape[1], generator).to(data.X.device)
        stumps = Stumps(
            self.split,
            self.leaf,
            self.priors,
            data,
            rows,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            absent=absent,
        )
        for epoch in range(self.epochs):
            stumps.epoch(self.steepness + epoch * self.steepness_step)
        return stumps

    @torch.no_grad()
    def _finished(self, data: Data, rows: Tensor, sites: dict[str, Tensor]) -> FittedSplit | None:
        """The hard split of a node, or None if it has failed."""
        right = self.split.log_odds(sites, data.X[rows])[:, 0] > 0
        n_right = int(right.sum())
        if min(n_right, len(rows) - n_right) < self.min_leaf:
            return None
        statistics = self.leaf.statistics(data.y[rows], data.weights[rows]).double()
        gain = self.leaf.criterion.hard_gain(statistics, right)
        # Rounding can make the gain negative.
        return FittedSplit({name: site[0] for name, site in sites.items()}, right, max(gain, 0.0))
