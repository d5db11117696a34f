"""Trees with one or two features in each node, grown like CART (Kairgeldin and others, 2024)."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bayestree._utils.parameters import (
    Count,
    Inference,
    Model,
    NonNegativeOrInf,
    declare,
)
from bayestree.estimators._leaf_families import MeanLeaves
from bayestree.estimators._regressor import TreeRegressor
from bayestree.inference import Data
from bayestree.inference.splitters.cuts import SLACK, RowClasses, quality_of, statistics_of
from bayestree.inference.splitters.protocol import FittedSplit, NodeByNode
from bayestree.literature._impurity import ImpurityClassifier, ImpurityTree
from bayestree.literature._line_search import FEW, Line, LineNode, LineSearch
from bayestree.models import SoftTree, named
from bayestree.models.criteria import Criterion
from bayestree.models.leaves import Leaf


@dataclass(frozen=True)
class BivariateSplitter(NodeByNode):
    """The best cut of a feature, or of a pair of features at one of H orientations.

    Kairgeldin and Carreira-Perpinan, "Bivariate decision trees" (2024): the fast algorithm.
    """

    leaf: Leaf
    criterion: Criterion | None = None  # by default the leaf's (entropy, squared error)
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
        node = LineNode(
            self.search,
            data.X.numpy(force=True),
            statistics.numpy(force=True),
            data.weights.double().numpy(force=True),
            quality_of(criterion),
            sparse=criterion.costly,
            classes=RowClasses.of(statistics.numpy(force=True).T, criterion, FEW),
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
        """Compute the gain of a split into pure sides, in nats, less a tolerance for rounding."""
        pure, whole = statistics.new_tensor(self.leaf.criterion.pure), statistics.sum(0)
        return float(self.leaf.criterion.gain(pure, whole)) * (1 - SLACK)

    def _fitted(self, data: Data, statistics: Tensor, line: Line) -> FittedSplit:
        """Convert a line to sites, with its gain in nats."""
        plane = np.zeros((1, data.X.shape[1]))
        plane[0, line.features] = line.coefficient
        hyperplane = torch.as_tensor(plane).to(data.X)
        intercept = torch.tensor([line.intercept]).to(data.X)
        right = (data.X @ hyperplane[0] + intercept) > 0
        gain = self.leaf.criterion.hard_gain(statistics, right)
        return FittedSplit({"hyperplane": hyperplane, "intercept": intercept}, right, gain)


@declare
class BaseBivariateTree(ImpurityTree):
    """Grow a tree by search over pairs of features; classifier and regressor add y."""

    n_orientations: Annotated[
        int,
        Field(ge=2),
        Inference(
            "Number of slopes searched for each pair of features, which are standardised at each "
            "node."
        ),
    ] = 30
    pair_penalty: Annotated[
        NonNegativeOrInf,
        Model(
            "Additional gain, in nats of log-likelihood, required to use two features instead of "
            "one. Larger values give a tree with fewer pairs; infinity gives CART."
        ),
    ] = 2.0
    budget: Annotated[
        NonNegativeOrInf,
        Inference(
            "Maximum size (pairs x slopes x distinct rows x classes, or, if leaves have slopes, "
            "x sums of products) of an exact search of all pairs of a node. In larger ones, pairs "
            "are screened at a few slopes on 1,000 rows, and the best 20 are searched on all rows."
        ),
    ] = 1e6
    max_pairs: Annotated[
        Count,
        Inference(
            "Maximum number of pairs of features searched; features that split best alone come "
            "first."
        ),
    ] = 20_000

    def _model(self, leaf: Leaf) -> SoftTree:
        return named.bivariate(leaf)

    def _splitter(self, leaf: Leaf) -> BivariateSplitter:
        return BivariateSplitter(
            leaf,
            self._impurity(leaf),
            pair_penalty=self.pair_penalty,
            search=LineSearch(
                n_orientations=self.n_orientations,
                min_leaf=self.min_leaf,
                budget=self.budget,
                max_pairs=self.max_pairs,
            ),
        )


@declare
class BivariateTreeClassifier(ImpurityClassifier, BaseBivariateTree):
    """Decision tree with one or two features in each node, grown like CART.

    Kairgeldin and Carreira-Perpinan, "Bivariate decision trees: smaller, interpretable, more
    accurate" (2024), the fast algorithm: in each node the best of all cuts of a feature, and of
    all pairs of features at ``n_orientations`` slopes. The algorithm is deterministic. For joint
    optimisation of such splits see
    :class:`~bayestree.AlternatingTreeClassifier` with ``split="bivariate"``.

    {parameters}

    {attributes}

    See Also
    --------
    bayestree.export_rules : The tree as rules.
    bayestree.plots.node_scatter : Each node as a scatter plot with its line.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import BivariateTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BivariateTreeClassifier(max_depth=2).fit(X, y)
    >>> clf.get_n_leaves()
    3
    >>> bool(clf.score(X, y) > 0.97)
    True
    """


@declare
class BivariateTreeRegressor(MeanLeaves, TreeRegressor, BaseBivariateTree):
    """Regression tree with one or two features in each node, grown like CART.

    Like :class:`BivariateTreeClassifier`, with the squared error in place of the entropy, and
    means or linear functions in the leaves. With linear leaves a split is compared by the squared
    error about a regression on each side, for about 3 sqrt(n) thresholds of n.

    {parameters}

    {attributes}
    posterior_ : Posterior
        Its splits as one draw, on the standardised features and standardised y.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import BivariateTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = BivariateTreeRegressor(max_depth=2).fit(X, y)
    >>> reg.get_n_leaves()
    4
    """
