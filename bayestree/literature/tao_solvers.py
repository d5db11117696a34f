"""The reduced problem of a node: its split, and the solvers for each kind of split.

With all other nodes fixed, a node can only send a row left or right. The loss of the tree as a
function of one split is therefore, up to a constant, the weighted 0/1 loss of a binary
classifier: each row is labelled with the child of smaller loss and weighted by the difference of
the losses (Carreira-Perpinan and Tavallali, reduced problem theorem). Splits by one or two
features are found by exact search, and oblique splits by logistic regression.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree.inference import Posterior
from bayestree.literature.bivariate import Line, LineNode, LineSearch
from bayestree.literature.tao_logistic import fit_logistic
from bayestree.models import FeatureCount, Flat, Laplace, Oblique, SoftTree
from bayestree.topology import Topology
from bayestree.tree import Tree, facet_threshold


class NodeSplit(NamedTuple):
    """The split of one node: right iff hyperplane . x + intercept > 0."""

    hyperplane: AnyArray  # (d,), on the features passed to the solver
    intercept: float

    @classmethod
    def constant(cls, like: "NodeSplit", *, right: bool) -> "NodeSplit":
        """Return a split that sends every row to one side, with all coefficients 0."""
        return cls(np.zeros_like(like.hyperplane), 1.0 if right else -1.0)

    def cast(self, dtype: Any) -> "NodeSplit":
        """Convert the split to the precision of the rows."""
        return NodeSplit(self.hyperplane.astype(dtype), float(np.asarray(self.intercept, dtype)))

    def goes_right(self, X: AnyArray) -> BoolArray:
        """Return the side of each row, shape (n,)."""
        return X @ self.hyperplane + self.intercept > 0


class ReducedSolver(Protocol):
    """Finds the split of a node that best separates its labelled rows."""

    def penalty(self, split: NodeSplit) -> float:
        """Compute the penalty of this split in the objective of the tree."""

    def __call__(
        self, X: AnyArray, right: BoolArray, weight: FloatArray, current: NodeSplit
    ) -> NodeSplit:
        """Find a split for the rows X (m, d) whose side matters (the care set).

        ``right`` (m,) marks the rows for which the right child is better, and both sides occur;
        ``weight`` (m,) is the positive cost of the wrong side. ``current`` is a warm start, to be
        returned if nothing better is found.
        """


def reduced_loss(split: NodeSplit, X: AnyArray, right: BoolArray, weight: FloatArray) -> float:
    """Compute the weighted 0/1 loss of a split on its care set."""
    return float(weight[split.goes_right(X) != right].sum())


def splits_of(init: Tree | Posterior, model: SoftTree) -> tuple[Topology, list[NodeSplit]]:
    """Return the topology and splits of an initial tree, which has a hyperplane in each node."""
    parts: Iterable[tuple[AnyArray, AnyArray, AnyArray]]
    if isinstance(init, Posterior):
        parts = zip(init.point["hyperplane"], init.point["intercept"], init.weight(), strict=True)
        topology = init.model.topology
    elif isinstance(init, Tree):
        experts = map(init.experts, range(init.n_nodes))
        parts = ((init.hyperplane[s], init.intercept[s], init.weight[s]) for s in experts)
        topology = init.topology
    else:
        raise TypeError(f"init must be a Tree or a Posterior, got {type(init).__name__}.")
    limit = getattr(model.split, "max_features", None)
    return topology, [_linear(*part, limit) for part in parts]


def _linear(planes: AnyArray, offsets: AnyArray, weights: AnyArray, limit: int | None) -> NodeSplit:
    """Return the split of one expert, which uses at most ``limit`` features."""
    if len(weights) > 1:
        raise ValueError(
            f"init has a split with {len(weights)} experts, but the model allows at most 1; start "
            "from a tree of such splits."
        )
    plane, used = np.asarray(planes[0], dtype=np.float64), int(np.count_nonzero(planes))
    if limit is not None and used > limit:
        raise ValueError(
            f"init has a split with {used} features, but the model allows at most {limit}; start "
            "from a tree of such splits."
        )
    threshold = facet_threshold(np.asarray(weights[0], dtype=np.float64))
    return NodeSplit(plane, float(offsets[0] - threshold))


def sites_of(splits: list[NodeSplit], n_features: int) -> dict[str, torch.Tensor]:
    """Return the values of a model's sites for these splits."""
    plane, intercept = np.zeros((len(splits), 1, n_features)), np.zeros((len(splits), 1))
    for node, split in enumerate(splits):
        plane[node, 0], intercept[node, 0] = split
    return {"hyperplane": torch.as_tensor(plane), "intercept": torch.as_tensor(intercept)}


@dataclass(frozen=True)
class LogisticSolver:
    """Weighted logistic regression; with ``l1`` > 0 the splits of a sparse oblique tree."""

    #: lambda: penalty on |w|_1 in the objective, for a loss summed over rows (1/C in liblinear).
    l1: float = 0.0
    #: Penalty on |w|^2 / 2 in the surrogate only, which keeps it finite on separable rows; ignored
    #: if ``l1`` > 0.
    ridge: float = 0.1
    tolerance: float = 1e-3  # relative decrease below which a fit stops

    def penalty(self, split: NodeSplit) -> float:
        return self.l1 * float(np.abs(split.hyperplane).sum(dtype=np.float64))

    def __call__(
        self, X: AnyArray, right: BoolArray, weight: FloatArray, current: NodeSplit
    ) -> NodeSplit:
        fit = fit_logistic(
            X,
            right,
            weight,
            l1=self.l1,
            l2=0.0 if self.l1 else self.ridge,
            start=(current.hyperplane, float(current.intercept)),
            tolerance=self.tolerance,
        )
        return NodeSplit(fit.coefficients, fit.intercept)


MAX_ELEMENTS = 4_000_000  # maximum size of the arrays sorted at a time


@dataclass(frozen=True)
class AxisSolver:
    """The best feature, cut and direction: the exact minimum of the reduced problem.

    The children are given, so x_j > t may go right or left. In a tie, the current split is kept;
    next, a split that sends all rows to one side is preferred.
    """

    rate: float = 0.0  # penalty of a split that uses a feature

    def penalty(self, split: NodeSplit) -> float:
        return self.rate if split.hyperplane.any() else 0.0

    def __call__(
        self, X: AnyArray, right: BoolArray, weight: FloatArray, current: NodeSplit
    ) -> NodeSplit:
        signed = np.where(right, weight, -weight)
        one_side = float(min(weight[right].sum(), weight[~right].sum()))
        loss, feature, cut, direction = best_cut(X, right, signed)
        lowest = min(loss + self.rate, one_side)
        current_value = reduced_loss(current, X, right, weight) + self.penalty(current)
        margin = 1e-12 * float(weight.sum())  # rounding of sums in different orders
        if current_value <= lowest + margin:
            return current
        if one_side <= loss + self.rate + margin:
            return NodeSplit.constant(current, right=bool(signed.sum() > 0))
        coefficients = np.zeros(X.shape[1], X.dtype)
        coefficients[feature] = direction
        return NodeSplit(coefficients, -direction * cut)


def best_cut(X: AnyArray, right: BoolArray, signed: FloatArray) -> tuple[float, int, float, float]:
    """Find the least weighted 0/1 loss of direction * (x_j - cut) > 0: loss, j, cut, direction.

    ``signed`` are the weights of the rows, negative for the left class. The loss is infinite if
    all features are constant.
    """
    best = (np.inf, 0, 0.0, 1.0)
    wide = max(1, MAX_ELEMENTS // len(X))
    all_right = -float(signed[~right].sum())  # loss of sending every row right
    for start in range(0, X.shape[1], wide):
        part = X[:, start : start + wide]
        order = np.argsort(part, axis=0, kind="stable")
        values = np.take_along_axis(part, order, axis=0)
        # Sending the rows below the cut left adds the sum of their signed weights to this loss.
        left = np.cumsum(signed[order], axis=0)[:-1]
        possible = values[1:] > values[:-1]
        for direction in (1.0, -1.0):
            base = all_right if direction > 0 else float(signed[right].sum())
            loss = np.where(possible, base + direction * left, np.inf)
            if loss.size == 0:
                continue
            row, column = np.unravel_index(int(loss.argmin()), loss.shape)
            if loss[row, column] < best[0]:
                cut = _between(values[row, column], values[row + 1, column], direction)
                best = (float(loss[row, column]), start + int(column), cut, direction)
    return best


def _between(low: np.floating, high: np.floating, direction: float) -> float:
    """Return a cut such that direction * (x - cut) > 0 for exactly one value.

    The midpoint, except for adjacent floating-point numbers.
    """
    middle = low + (high - low) / 2
    if low < middle < high:
        return float(middle)
    return float(low if direction > 0 else high)


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
        node = LineNode(self.search, X, signed[:, None], weight, agreement)
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
    """Compute half the difference in weight between correctly and incorrectly separated rows.

    The statistic is the weight, negative for rows labelled left. With L and W its sums over the
    left side and all rows, correct minus incorrect is (W - L) - L, or minus that if the sides are
    exchanged.
    """
    return np.abs(whole[0] / 2 - left[0])


def _directed(
    line: Line, X: AnyArray, right: BoolArray, weight: FloatArray
) -> tuple[NodeSplit, float]:
    """Return a line in the direction with the smaller loss, and this loss."""
    coefficients = np.zeros(X.shape[1])
    coefficients[line.features] = line.coefficient
    split = NodeSplit(coefficients, line.intercept).cast(X.dtype)
    loss, whole = reduced_loss(split, X, right, weight), float(weight.sum())
    if 2 * loss <= whole:
        return split, loss
    return NodeSplit(-split.hyperplane, -split.intercept), whole - loss


#: (max_features of an oblique split, class of prior) -> ``(prior, ridge) -> solver``.
SOLVERS: dict[tuple[int | None, type], Callable[[Any, float], ReducedSolver]] = {
    (None, Flat): lambda _, ridge: LogisticSolver(ridge=ridge),
    (None, Laplace): lambda prior, _: LogisticSolver(l1=prior.rate),
    (1, Flat): lambda *_: AxisSolver(),
    (1, FeatureCount): lambda prior, _: AxisSolver(rate=prior.rate),
    (2, Flat): lambda *_: BivariateSolver(),
    (2, FeatureCount): lambda prior, _: BivariateSolver(prior.rate, prior.pair),
}


def solver_for(model: SoftTree, ridge: float) -> ReducedSolver:
    """Find the solver of a model's reduced problems; ``ridge`` keeps surrogate losses finite."""
    split, prior = model.split, model.priors.hyperplane
    key = (split.max_features, type(prior)) if isinstance(split, Oblique) else None
    if key not in SOLVERS:
        known = ", ".join(
            "Oblique" + (f"(max_features={k})" if k else "") + f" x {law.__name__}"
            for k, law in SOLVERS
        )
        raise ValueError(
            f"no solver for split {split!r} with prior {prior!r}; supported are {known}. Choose "
            "one of these or pass a solver to tao."
        )
    return SOLVERS[key](prior, ridge)
