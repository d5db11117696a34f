"""Splits by one or two features for growth in the manner of CART."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree.inference.data import Data
from bayestree.inference.splitters.bivariate_search import SLACK, Line, LineSearch
from bayestree.inference.splitters.protocol import FittedSplit
from bayestree.models.criteria import Criterion
from bayestree.models.leaves import Leaf


@dataclass(frozen=True)
class BivariateSplitter:
    """The best cut of a feature, or of a pair of features at one of H orientations.

    Kairgeldin and Carreira-Perpinan, "Bivariate decision trees" (2024): the fast algorithm.

    Parameters
    ----------
    leaf : Categorical or Gaussian
    criterion : Criterion, optional
        What is gained by a split; by default that of the leaf (entropy, squared error).
    max_features : {1, 2}
        1 is CART itself.
    pair_penalty : float
        By how many nats a pair must gain more than a feature alone to be preferred.
    search : LineSearch
        Orientations, least rows of a side, and how much is searched.

    Raises
    ------
    ValueError
        If ``max_features`` is neither 1 nor 2, or ``pair_penalty`` is negative.
    """

    leaf: Leaf
    criterion: Criterion | None = None
    max_features: int = 2
    pair_penalty: float = 0.0
    search: LineSearch = field(default_factory=LineSearch)

    #: Nodes are searched one by one: nothing is padded.
    rows_per_node = 1

    def __post_init__(self) -> None:
        if self.max_features not in (1, 2):
            raise ValueError(f"max_features must be 1 or 2, got {self.max_features}.")
        if not self.pair_penalty >= 0:
            raise ValueError(f"pair_penalty must be 0 or more, got {self.pair_penalty}.")

    def numbers_per_row(self, n_features: int) -> int:
        return 1

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """The split of each node; None where no cut leaves enough rows on each side."""
        return [self._split(data.take(own)) for own in rows]

    def _split(self, data: Data) -> FittedSplit | None:
        statistics = self.leaf.statistics(data.y, data.weights).double()
        statistics = statistics[:, (statistics != 0).any(0)]  # of classes that are here
        criterion = self.criterion or self.leaf.criterion
        node = self.search.node(
            data.X.numpy(force=True),
            statistics.numpy(force=True),
            data.weights.double().numpy(force=True),
            lambda left, whole: _worth(criterion, left, whole),
        )
        single = node.single()
        if single is None:
            return None
        best = self._fitted(data, statistics, single)
        if self.max_features == 1 or best.gain + self.pair_penalty >= self._most(statistics):
            return best
        pair = node.pair()
        if pair is None:
            return best
        other = self._fitted(data, statistics, pair)
        return other if other.gain > best.gain + self.pair_penalty + node.slack else best

    def _most(self, statistics: Tensor) -> float:
        """What a split gains whose sides are pure, in nats, but for rounding."""
        pure, whole = statistics.new_zeros(()), statistics.sum(0)
        return float(self.leaf.criterion.gain(pure, whole)) * (1 - SLACK)

    def _fitted(self, data: Data, statistics: Tensor, line: Line) -> FittedSplit:
        """A line as sites, with its gain in nats."""
        plane = np.zeros((1, data.X.shape[1]))
        plane[0, line.features] = line.coefficient
        hyperplane = torch.as_tensor(plane).to(data.X)
        intercept = torch.tensor([line.intercept]).to(data.X)
        right = (data.X @ hyperplane[0] + intercept) > 0
        whole, side = statistics.sum(0), statistics[right].sum(0)
        criterion = self.leaf.criterion
        gain = criterion.gain(criterion.split_value(side, whole), whole)
        sites = {"hyperplane": hyperplane, "intercept": intercept}
        return FittedSplit(sites, right, float(gain))


def _worth(criterion: Criterion, left: FloatArray, whole: FloatArray) -> FloatArray:
    """Worth of splits by sums on their left (c, ...): the criterion, summed over both sides."""
    sums, total = torch.from_numpy(left).movedim(0, -1), torch.from_numpy(whole)
    worth: FloatArray = criterion.split_value(sums, total).numpy()
    return worth
