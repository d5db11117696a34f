"""Forests of end-to-end trees (E2EDF; Hehn, Kooij and Hamprecht, 2020, section 2.7)."""

from typing import Any, ClassVar

from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import BoolArray
from bayestree._utils.parameters import declare
from bayestree.estimators._forest import ForestClassifier, ForestRegressor, IndependentForest
from bayestree.estimators._leaf_families import CLASSES, NUMERIC, MeanFamily, ShareFamily
from bayestree.literature.end_to_end import (
    BaseEndToEndTree,
    EndToEndTraining,
    EndToEndTreeClassifier,
    EndToEndTreeRegressor,
)
from bayestree.models.leaves import Leaf

FINE_TUNING = 3  # times the epochs of a stump (E2EDT, section 3.5)


@declare
class BaseEndToEndForest(EndToEndTraining, IndependentForest):
    """Fit the trees of a forest; classifier and regressor add y.

    Attributes
    ----------
    estimators_ : list of EndToEndTreeClassifier or EndToEndTreeRegressor
        The trees; ``estimators_[t].tree_`` is the deterministic one.
    feature_subsets_ : list of bool arrays, shape (nodes of tree t, d)
        Features that each split of each tree uses.
    """

    _tree: ClassVar[type[BaseEndToEndTree]]

    max_features = "sqrt"
    max_depth = 10
    epochs = 20
    steepness_step = 0.1
    min_gain = 0.0

    def _in_place(self) -> bool:
        return self.image_shape is not None

    def _shared(self) -> dict[str, Any]:
        max_features = None if self.patch_size is not None else self.max_features
        epochs = FINE_TUNING * self.epochs if self.refine_epochs is None else self.refine_epochs
        return super()._shared() | {"max_features": max_features, "refine_epochs": epochs}

    @property
    def feature_subsets_(self) -> list[BoolArray]:
        """Features that each split of each tree uses, by tree of shape (nodes, d)."""
        check_is_fitted(self)
        return [tree.tree_.arrays()["hyperplane"] != 0 for tree in self.estimators_]


@declare
class EndToEndForestClassifier(ForestClassifier, BaseEndToEndForest):
    """Forest of oblique trees, each trained as a whole by EM on all rows.

    Hehn, Kooij and Hamprecht, "End-to-End Learning of Decision Trees and Forests" (IJCV, 2020),
    section 2.7: every split uses a random subset of the features, or a patch of an image, so that
    the trees differ; the forest predicts the mean of its deterministic trees (eq. 20).

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import EndToEndForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = EndToEndForestClassifier(
    ...     n_estimators=3, max_depth=3, epochs=10, learning_rate=0.05, random_state=0
    ... ).fit(X, y)
    >>> clf.apply(X).shape
    (150, 3)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    leaf: ShareFamily = "constant"

    _tree = EndToEndTreeClassifier

    def _leaf_family(self, n_classes: int) -> Leaf:
        return CLASSES[self.leaf](n_classes)


@declare
class EndToEndForestRegressor(ForestRegressor, BaseEndToEndForest):
    """Forest of oblique regression trees, each trained as a whole by EM on all rows.

    Like :class:`EndToEndForestClassifier`; the forest predicts the mean of its deterministic
    trees, and intervals of y from the mixture of its soft trees.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import EndToEndForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = EndToEndForestRegressor(n_estimators=3, max_depth=3, epochs=20, random_state=0)
    >>> reg.fit(X, y).apply(X).shape
    (442, 3)
    >>> low, high = reg.predict_interval(X, 0.9)
    """

    learning_rate = 0.05

    leaf: MeanFamily = "constant"

    _tree = EndToEndTreeRegressor

    def _leaf_family(self) -> Leaf:
        return NUMERIC[self.leaf]()
