"""Splits by weighted impurity (Yang, Shen and Gao, 2019: WODT).

A split theta = (coefficients, offset) minimises the impurity of two soft children, to which every
row belongs with weight sigmoid(theta . x) (right) and 1 - sigmoid(theta . x) (left): their entropy
(eq. 1) or, for other leaves than class probabilities, the criterion of the leaves.

Nodes are fitted one by one, by SciPy's L-BFGS-B: in the batched search of ``lbfgs`` problems wait
for the slowest.
"""

import sys
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated

import numpy as np
import torch
from scipy.optimize import fmin_l_bfgs_b
from threadpoolctl import ThreadpoolController
from torch import Tensor

from bayestree import inference
from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree._utils.parameters import Count, Inference, declare, takes
from bayestree.estimators import _parameters
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators._tree import BaseTree
from bayestree.fitted.training_rows import Scaling
from bayestree.fitting.plan import Task
from bayestree.inference import Data, Posterior
from bayestree.inference.splitters import FittedSplit
from bayestree.models import SoftTree, named
from bayestree.models.criteria import Criterion
from bayestree.models.leaves import Leaf

START = 0.5  # initial coefficients and offset are uniform on (-START, START)


@dataclass(frozen=True, eq=False)
class WeightedCriterion:
    """Minus the log-likelihood, in nats, of the rows of one node in two soft children.

    With class probabilities this is the entropy E of eq. 1, which the paper has in bits. With the
    squared error of normal leaves, N/2 log((W_L Var_L + W_R Var_R) / N): the weighted variance of
    the children. The logarithm does not move its minima.
    """

    X: AnyArray  # (m, d): the rows
    statistics: Tensor  # (m, c): weighted statistics of the leaves
    criterion: Criterion

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Compute the value E, and its gradient, shape (d + 1,).

        With the statistics t_i of row i, its probability p_i of the right side, and
        S = sum_i p_i t_i, dE/dtheta = sum_i (dE/dS . t_i) p_i (1 - p_i) x_i: for the entropy the
        penultimate line of the paper's derivation (eq. 2 as printed merges two sums).
        """
        # p = (1 + half) / 2, p (1 - p) = (1 - half^2) / 4
        half = np.tanh(_scores(self.X, theta) * 0.5)
        # Sums of the lighter side: a nearly empty one would only have rounding errors.
        sign = -1.0 if half.sum() > 0 else 1.0
        side = torch.from_numpy(0.5 + 0.5 * sign * half) @ self.statistics
        value, ascent = self.criterion.ascent(side, self.statistics.sum(0))
        slope = -sign * (self.statistics @ ascent).numpy() * (0.25 - 0.25 * half * half)
        return -float(value), _gradient(slope, self.X)

    def gain(self, right: BoolArray) -> float:
        """Compute the gain of a hard split in nats."""
        return self.criterion.hard_gain(self.statistics, torch.from_numpy(right))


def _scores(X: AnyArray, theta: FloatArray) -> FloatArray:
    """Compute theta . x of every row; the last entry of theta is the offset."""
    return X @ theta[:-1].astype(X.dtype, copy=False) + theta[-1]


def _gradient(slope: FloatArray, X: AnyArray) -> FloatArray:
    """Compute the sum over the rows of ``slope`` times (x, 1), shape (d + 1,)."""
    gradient = np.empty(X.shape[1] + 1)
    gradient[:-1] = slope.astype(X.dtype, copy=False) @ X
    gradient[-1] = slope.sum()
    return gradient


@dataclass(frozen=True)
class WeightedSplitter:
    """Oblique splits that minimise weighted impurity by L-BFGS from a random start.

    A row exactly on the hyperplane goes left, as everywhere in this package; in the paper it goes
    right (eq. 4).
    """

    leaf: Leaf
    #: Maximum number of L-BFGS iterations; few keep the coefficients small and thus regularise.
    max_iter: int = 20
    min_leaf: int = 1  # splits with fewer rows on a side are discarded
    n_starts: int = 1  # random starts of each split; the largest gain is kept
    #: Number of iterations from each start, in the order of fitting.
    iterations: list[int] = field(default_factory=list, init=False, compare=False)

    rows_per_node = sys.maxsize

    def numbers_per_row(self, n_features: int) -> int:
        return n_features

    def state_dict(self) -> dict[str, list[int]]:
        return {"iterations": list(self.iterations)}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        self.iterations[:] = state["iterations"]

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """Find the split of each node; None if a side has too few rows."""
        width = data.X.shape[1] + 1
        shape = (len(rows), self.n_starts, width)
        starts = (torch.rand(shape, dtype=torch.float64) - 0.5) * (2 * START)
        here = data.to(data.X.cpu())
        with _libraries().limit(limits=1, user_api="blas"):
            pairs = zip(starts.numpy(), rows, strict=True)
            return [self._best(each, here.take(members.cpu()), data.X) for each, members in pairs]

    def _best(self, starts: AnyArray, data: Data, like: Tensor) -> FittedSplit | None:
        """Find the split of largest gain of the rows of a node."""
        own = (data.y, data.weights)
        statistics = self.leaf.growth_terms(*own)(*own).double()
        criterion = WeightedCriterion(data.X.numpy(), statistics, self.leaf.criterion)
        found = []
        for start in starts:
            theta, _, record = fmin_l_bfgs_b(criterion, start, maxiter=self.max_iter)
            self.iterations.append(int(record["nit"]))
            split = self._split(criterion, theta, like)
            found += [] if split is None else [split]
        return max(found, key=lambda split: split.gain, default=None)

    def _split(
        self, criterion: WeightedCriterion, theta: FloatArray, like: Tensor
    ) -> FittedSplit | None:
        """Return the split at theta; None if a side has too few rows."""
        theta = theta.astype(criterion.X.dtype)  # round first: sides must match the stored numbers
        right = _scores(criterion.X, theta) > 0
        n_right = int(right.sum())
        if min(n_right, len(right) - n_right) < max(self.min_leaf, 1):
            return None
        kept = torch.as_tensor(theta).to(like)
        return FittedSplit(
            {"hyperplane": kept[None, :-1], "intercept": kept[-1:]},
            torch.as_tensor(right, device=like.device),
            criterion.gain(right),
        )


@cache
def _libraries() -> ThreadpoolController:
    """Return the control of BLAS threads, which make small nodes many times slower."""
    return ThreadpoolController()


@declare
@takes(_parameters.RandomRun, _parameters.Precision, _parameters.Limits, _parameters.Depth)
class BaseWeightedTree(BaseTree):
    """Grow a tree by weighted impurity; classifier and regressor add y.

    Attributes
    ----------
    posterior_ : Posterior
        Its splits as one draw, on features scaled to [-1, 1].
    n_iter_ : int
        Largest number of iterations that a split took; not stored in files.
    """

    max_depth = 50
    scaling = "range"
    dtype = "float64"
    min_rows = 2.0
    min_leaf = 1
    min_gain = 3.0  # 0 grows to pure leaves, as the paper does

    max_iter: Annotated[
        Count,
        Inference(
            "Maximum number of iterations of L-BFGS for a split. Few iterations keep coefficients "
            "small, which suits small data sets; large and wide ones gain a little from more "
            "iterations, and get fewer leaves."
        ),
    ] = 20
    n_starts: Annotated[
        Count, Inference("Number of random starts of a split; the split of largest gain is kept.")
    ] = 1

    def _model(self, task: Task) -> SoftTree:
        return named.deterministic(named.weighted_oblique(task.leaf))

    def _infer(self, model: SoftTree, data: Data, scaling: Scaling) -> Posterior:
        splitter = WeightedSplitter(model.leaf, self.max_iter, self.min_leaf, self.n_starts)
        grown = inference.grow(
            model,
            data,
            limits=self._limits(),
            splitter=splitter,
            random_state=self.random_state,
            progress=bool(self.verbose),
        )
        self.n_iter_ = max(splitter.iterations, default=0)
        return replace(grown, settings={**grown.settings, "max_iter": self.max_iter})


@declare
class WeightedObliqueTreeClassifier(TreeClassifier, BaseWeightedTree):
    """Oblique decision tree grown by weighted entropy, from random starts.

    Yang, Shen and Gao, "Weighted oblique decision trees" (2019): each node's hyperplane minimises
    the remaining entropy when every row counts in both children, weighted by the probability of
    each side (eq. 1), by a few iterations of L-BFGS from a random start. A node whose rows all go
    to one side becomes a leaf. Growth is fast, and no setting needs tuning.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import WeightedObliqueTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = WeightedObliqueTreeClassifier(random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    leaf: _parameters.ShareFamily = "constant"


@declare
class WeightedObliqueTreeRegressor(TreeRegressor, BaseWeightedTree):
    """Oblique regression tree grown by weighted variance, from random starts.

    Like :class:`WeightedObliqueTreeClassifier`, with the variance of y in place of the entropy:
    each node's hyperplane minimises W_L Var_L + W_R Var_R, where every row counts in both
    children, weighted by the probability of each side. With linear leaves these are the variances
    about a regression on the features. The variance has more local minima than the entropy, so
    that each split has several starts.

    {parameters}

    {attributes}
    posterior_ : Posterior
        Its splits as one draw, on features scaled to [-1, 1] and standardised y.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import WeightedObliqueTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = WeightedObliqueTreeRegressor(max_depth=3, random_state=0).fit(X, y)
    >>> bool(reg.score(X, y) > 0.4)
    True
    """

    min_leaf = 10
    n_starts = 4

    leaf: _parameters.MeanFamily = "constant"
