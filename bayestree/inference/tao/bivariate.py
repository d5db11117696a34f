"""Bivariate splits by exact search over splits with up to two penalised features."""

from dataclasses import dataclass, field

import numpy as np

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree.inference.splitters.bivariate_search import Line, LineSearch, Node
from bayestree.inference.tao.solvers import NodeSplit, reduced_loss

ROUNDING = 1e-12  # relative rounding of sums in different orders


@dataclass(frozen=True)
class BivariateSolver:
    """Minimises weighted 0/1 loss + rate phi(w) over splits by zero, one or two features.

    Kairgeldin and Carreira-Perpinan (2024), eq. 2: phi is 0, 1 and C. The children are given, so
    either side of a line may go right. In a tie, the split with fewer features is preferred, then
    the current one.
    """

    rate: float = 0.0  # lambda: cost of a feature, in units of the weights of the rows
    pair: float = 1.0  # C: cost of two features relative to one
    search: LineSearch = field(default_factory=LineSearch)

    def __post_init__(self) -> None:
        for name in ("rate", "pair"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}.")

    def penalty(self, split: NodeSplit) -> float:
        return self._price(int(np.count_nonzero(split.hyperplane)))

    def _price(self, n_features: int) -> float:
        return self.rate * (0.0, 1.0, self.pair)[n_features] if n_features <= 2 else np.inf

    def __call__(
        self, X: AnyArray, right: BoolArray, weight: FloatArray, current: NodeSplit
    ) -> NodeSplit:
        rounding = ROUNDING * float(weight.sum())
        signed = np.where(right, weight, -weight)
        one_side = float(min(weight[right].sum(), weight[~right].sum()))
        lowest = one_side
        best = NodeSplit.constant(current, right=bool(signed.sum() > 0))
        node = Node(self.search, X, signed[:, None], weight, agreement)
        for n_features, find in ((1, node.single), (2, node.pair)):
            price = self._price(n_features)
            if price >= lowest - rounding:
                continue  # even a split without errors would not be better
            line = find()
            if line is None:
                break
            split, loss = _directed(line, X, right, weight)
            if loss + price < lowest - rounding:
                lowest, best = loss + price, split
        value = reduced_loss(current, X, right, weight) + self.penalty(current)
        no_larger = np.count_nonzero(current.hyperplane) <= np.count_nonzero(best.hyperplane)
        if value < lowest - rounding or (no_larger and value <= lowest + rounding):
            return current
        return best


def agreement(left: FloatArray, whole: FloatArray) -> FloatArray:
    """Half the difference in weight between correctly and incorrectly separated rows.

    The statistic is the weight, negative for rows labelled left. With L and W its sums over the
    left side and all rows, correct minus incorrect is (W - L) - L, or minus that if the sides are
    exchanged.
    """
    return np.abs(whole[0] / 2 - left[0])


def _directed(
    line: Line, X: AnyArray, right: BoolArray, weight: FloatArray
) -> tuple[NodeSplit, float]:
    """A line in the direction with the smaller loss, and this loss."""
    coefficients = np.zeros(X.shape[1])
    coefficients[line.features] = line.coefficient
    split = NodeSplit.linear(coefficients, line.intercept).cast(X.dtype)
    loss, whole = reduced_loss(split, X, right, weight), float(weight.sum())
    if 2 * loss <= whole:
        return split, loss
    other = split._replace(hyperplane=-split.hyperplane, intercept=-split.intercept)
    return other, whole - loss
