"""Univariate and bivariate splits for greedy growth as in CART."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from bayestree.inference.data import Data
from bayestree.inference.splitters.bivariate_rows import FEW
from bayestree.inference.splitters.bivariate_search import Line, LineSearch, Node
from bayestree.inference.splitters.cuts import SLACK, Classes, quality_of, statistics_of
from bayestree.inference.splitters.protocol import FittedSplit, NodeByNode
from bayestree.models.criteria import Criterion
from bayestree.models.leaves import Leaf


@dataclass(frozen=True)
class BivariateSplitter(NodeByNode):
    """The best cut of a feature, or of a pair of features at one of H orientations.

    Kairgeldin and Carreira-Perpinan, "Bivariate decision trees" (2024): the fast algorithm.
    """

    leaf: Leaf
    criterion: Criterion | None = None  # by default that of the leaf (entropy, squared error)
    max_features: int = 2  # 1 is CART
    pair_penalty: float = 0.0  # extra gain in nats that a pair needs over the best single feature
    search: LineSearch = field(default_factory=LineSearch)

    def __post_init__(self) -> None:
        if self.max_features not in (1, 2):
            raise ValueError(f"max_features must be 1 or 2, got {self.max_features}.")
        if not self.pair_penalty >= 0:
            raise ValueError(f"pair_penalty must be 0 or more, got {self.pair_penalty}.")

    def split(self, data: Data) -> FittedSplit | None:
        statistics = statistics_of(self.leaf, data)
        criterion = self.criterion or self.leaf.criterion
        node = Node(
            self.search,
            data.X.numpy(force=True),
            statistics.numpy(force=True),
            data.weights.double().numpy(force=True),
            quality_of(criterion),
            sparse=criterion.costly,
            classes=Classes.of(statistics.numpy(force=True).T, criterion, FEW),
        )
        single = node.single()
        if single is None:
            return None
        best = self._fitted(data, statistics, single)
        if self.max_features == 1 or best.gain + self.pair_penalty >= self._max_gain(statistics):
            return best
        pair = node.pair()
        if pair is None:
            return best
        other = self._fitted(data, statistics, pair)
        return other if other.gain > best.gain + self.pair_penalty + node.slack else best

    def _max_gain(self, statistics: Tensor) -> float:
        """Gain of a split into pure sides, in nats, less a tolerance for rounding."""
        pure, whole = statistics.new_tensor(self.leaf.criterion.pure), statistics.sum(0)
        return float(self.leaf.criterion.gain(pure, whole)) * (1 - SLACK)

    def _fitted(self, data: Data, statistics: Tensor, line: Line) -> FittedSplit:
        """A line as sites, with its gain in nats."""
        plane = np.zeros((1, data.X.shape[1]))
        plane[0, line.features] = line.coefficient
        hyperplane = torch.as_tensor(plane).to(data.X)
        intercept = torch.tensor([line.intercept]).to(data.X)
        right = (data.X @ hyperplane[0] + intercept) > 0
        gain = self.leaf.criterion.hard_gain(statistics, right)
        return FittedSplit({"hyperplane": hyperplane, "intercept": intercept}, right, gain)
