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
from scipy.optimize import fmin_l_bfgs_b
from scipy.special import expit

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree.inference import Posterior
from bayestree.literature.bivariate import Line, LineNode, LineSearch
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


STEPS = 500  # maximum number of steps of L-BFGS


def fit_logistic(
    X: AnyArray,
    right: BoolArray,
    weight: FloatArray,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    start: tuple[FloatArray, float] | None = None,
    tolerance: float = 1e-6,
) -> NodeSplit:
    """Fit a weighted logistic regression to rows (m, d); ``right`` (m,) marks the positive ones.

    It minimises sum_i c_i log(1 + exp(-t_i (w . x_i + b))) + l1 |w|_1 + l2/2 |w|^2 over w and an
    unpenalised intercept b, with t_i = +-1, by L-BFGS-B. Under l1, w is the difference of two
    vectors that are bounded below by 0, so that its zeros are exact. One of the penalties must be
    positive if the classes may be separable. ``start`` is (coefficients, intercept). A step that
    lowers the objective by less than ``tolerance``, relative to that of a constant split, is the
    last one. Rows may be float32; sums over coefficients are in double precision.
    """
    sign, d = np.where(right, 1.0, -1.0), X.shape[1]
    parts = np.array([1.0, -1.0] if l1 else [1.0])  # signs of the vectors whose sum is w

    def objective(point: FloatArray, unit: float = 1.0) -> tuple[float, FloatArray]:
        w = parts @ point[:-1].reshape(-1, d)
        margin = (X @ w.astype(X.dtype)).astype(np.float64) + point[-1]
        value = weight @ np.logaddexp(0.0, -sign * margin) + l2 / 2 * (w @ w)
        first = weight * (expit(margin) - right)
        slope = (first.astype(X.dtype) @ X).astype(np.float64) + l2 * w
        whole = np.append(l1 + np.outer(parts, slope), first.sum())
        return float(value + l1 * point[:-1].sum()) / unit, whole / unit

    # Summed separately: the weights of one side may vanish next to the other side's.
    odds = float(np.log(weight[right].sum()) - np.log(weight[~right].sum()))
    first = np.append(np.zeros(len(parts) * d), odds)
    unit = objective(first)[0]  # since L-BFGS-B compares decreases of less than 1 with 1
    if start is not None:
        halves = np.outer(parts, start[0])
        warm = np.append(np.maximum(halves, 0.0) if l1 else halves, start[1])
        first = min(first, warm, key=lambda point: objective(point)[0])
    point, *_ = fmin_l_bfgs_b(
        objective,
        first,
        args=(unit,),
        bounds=[(0.0 if l1 else None, None)] * (len(first) - 1) + [(None, None)],
        factr=tolerance / np.finfo(np.float64).eps,
        pgtol=0.0,
        maxiter=STEPS,
    )
    return NodeSplit(parts @ point[:-1].reshape(-1, d), float(point[-1]))


@dataclass(frozen=True)
class LogisticSolver:
    """Weighted logistic regression; with ``l1`` > 0 the splits of a sparse oblique tree."""

    #: lambda: penalty on |w|_1 in the objective, for a loss summed over rows (1/C in liblinear).
    l1: float = 0.0
    #: Penalty on |w|^2 / 2 in the surrogate only, which keeps it finite on separable rows; ignored
    #: if ``l1`` > 0.
    ridge: float = 0.1
    tolerance: float = 1e-5  # of fit_logistic

    def penalty(self, split: NodeSplit) -> float:
        return self.l1 * float(np.abs(split.hyperplane).sum(dtype=np.float64))

    def __call__(
        self, X: AnyArray, right: BoolArray, weight: FloatArray, current: NodeSplit
    ) -> NodeSplit:
        return fit_logistic(
            X,
            right,
            weight,
            l1=self.l1,
            l2=0.0 if self.l1 else self.ridge,
            start=(current.hyperplane, float(current.intercept)),
            tolerance=self.tolerance,
        )


ROUNDING = 1e-12  # relative rounding of sums in different orders


@dataclass(frozen=True)
class LineSolver:
    """Minimises weighted 0/1 loss + rate phi(w) over splits by zero, one or two features.

    Kairgeldin and Carreira-Perpinan (2024), eq. 2: phi is 0, 1 and C. The children are given, so
    either side of a line may go right. In a tie, the split with fewer features is preferred, then
    the current one. With ``max_features=1`` the splits of an axis-aligned tree, by exact search.
    """

    rate: float = 0.0  # lambda: cost of a feature, in units of the weights of the rows
    pair: float = 1.0  # C: cost of two features relative to one
    search: LineSearch = field(default_factory=LineSearch)
    max_features: int = 2

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
        for n_features, find in ((1, node.single), (2, node.pair))[: self.max_features]:
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
    (1, Flat): lambda *_: LineSolver(max_features=1),
    (1, FeatureCount): lambda prior, _: LineSolver(prior.rate, max_features=1),
    (2, Flat): lambda *_: LineSolver(),
    (2, FeatureCount): lambda prior, _: LineSolver(prior.rate, prior.pair),
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
