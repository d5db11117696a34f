"""Alternating decision forests as scikit-learn estimators."""

from dataclasses import field
from typing import Annotated, ClassVar

from bayestree._utils.parameters import Model, declare
from bayestree.estimators._base import BaseTree
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._forest import ForestClassifier, JointForest
from bayestree.estimators._parameters import Depth, Limits, MaxFeatures, RandomRun
from bayestree.estimators._subsets import subset_rule
from bayestree.inference import Data, Posterior
from bayestree.inference.alternating_forest import alternating_forest
from bayestree.inference.splitters.feature_subsets import RandomFeatures
from bayestree.models import SoftTree


@declare
class AlternatingForestTree(TreeClassifier, RandomRun, Limits, Depth, BaseTree):
    """A tree of :class:`AlternatingDecisionForestClassifier`."""


@declare
class AlternatingDecisionForestClassifier(ForestClassifier, Limits, Depth, JointForest):
    """Forest of axis-aligned trees that grow together, weighting rows by their margin (ADF).

    Schulter, Wohlhart, Leistner, Saffari, Roth and Bischof, "Alternating Decision Forests" (CVPR,
    2013). After each depth of all trees, rows that the forest predicts with a small margin gain
    weight: the slope of the logistic loss, as in boosting. The forest averages its trees. It has
    nothing to do with alternating optimisation (:class:`AlternatingTreeClassifier`).

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import AlternatingDecisionForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AlternatingDecisionForestClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.95)
    True
    """

    n_estimators = field(default=50, kw_only=False)
    max_depth = 20
    min_rows = 2.0
    min_leaf = 1
    min_gain = 0.0

    max_features: Annotated[
        MaxFeatures,
        Model(
            "Features, drawn at random for each node, of which the best one splits it: the square "
            "root of their number, a number, a share of them, or all."
        ),
    ] = "sqrt"

    _tree: ClassVar[type[BaseTree]] = AlternatingForestTree

    def _infer(self, model: SoftTree, data: Data, first: BaseTree) -> list[Posterior]:
        n_features = data.X.shape[1]
        rule = subset_rule(n_features, self.max_features, None, None)
        return alternating_forest(
            model,
            data,
            n_trees=self.n_estimators,
            n_features=rule.count if isinstance(rule, RandomFeatures) else n_features,
            limits=first._limits(),
            random_state=self.random_state,
            progress=bool(self.verbose),
        )
