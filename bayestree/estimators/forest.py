"""Forests of end-to-end trees with the face of scikit-learn."""

import warnings
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parallel import Call, in_order
from bayestree._utils.progress import Track, Verbose, fitting
from bayestree._utils.seed import RandomState, draw_seed
from bayestree._utils.threads import threads_for
from bayestree.estimators._base import DTYPES
from bayestree.estimators._classifier import LabelledClassifier
from bayestree.estimators._numbers import validated
from bayestree.estimators._subsets import CONSTRAINTS as SUBSETS
from bayestree.estimators._subsets import MaxFeatures
from bayestree.estimators._units import UnitRule
from bayestree.estimators.end_to_end import EndToEndTreeClassifier
from bayestree.inference import Data
from bayestree.inference.unsplit import SingleLeafWarning, warn_single_leaf, why_not_grown
from bayestree.models import Categorical

FINE_TUNING = 3  # times the epochs of a stump (E2EDT, section 3.5)
OWN = ("n_estimators", "max_features", "refine_epochs", "class_weight", "n_jobs", "random_state")


class EndToEndForestClassifier(LabelledClassifier, BaseEstimator):
    """Forest of oblique trees, each trained as a whole by EM on all rows.

    Hehn, Kooij and Hamprecht, "End-to-End Learning of Decision Trees and Forests" (IJCV, 2020),
    section 2.7: every split looks at a random subset of the features, or at a patch of an image,
    which is what makes the trees differ; the forest predicts the mean of its trees (eq. 20). At
    prediction each tree is deterministic.

    Parameters
    ----------
    n_estimators : int, default=10
        Trees.
    max_features : {"sqrt"}, int, float or None, default="sqrt"
        Features that each split may use, drawn at random for it: the square root of their number,
        so many, such a share of all, or all. Of no account with ``patch_size``.
    image_shape : (int, int), optional
        Height and width of the image that the features are, row by row.
    patch_size : (int, int), optional
        Each split uses a patch of the image of this height and width, at a random place.
    max_depth : int, default=10
        Most splits on a path from the root to a leaf.
    max_leaves : int, optional
        Most leaves of a tree.
    epochs : int, default=20
        E-steps of each stump.
    refine_epochs : int, optional
        E-steps of the whole tree, by default three times as many.
    steepness, steepness_step, batch_size, learning_rate, attempts, min_rows, min_leaf, min_gain
        As of :class:`~bayestree.EndToEndTreeClassifier`, whose defaults differ in
        ``steepness_step`` (0.1 here) and ``min_gain`` (0 here).
    scaling : {"variance", "standard", "common"}, default="variance"
        Units of the features inside.
    smoothing : float, default=1.0
        Rows that the Dirichlet prior of each leaf is worth, spread over the classes as the
        training rows are; with 0 a leaf predicts the shares of its own rows.
    class_weight : dict or "balanced", optional
        Factors of the row weights by class.
    dtype : {"float32", "float64"}, default="float64"
        float32 is twice as fast on wide data.
    n_jobs : int, optional
        Trees fitted at once, as joblib has it. The numbers are the same for any.
    random_state : int, RandomState, optional
    verbose : bool or "auto", default="auto"
        Show progress on a terminal or in a notebook: at once, not at all, or (``"auto"``) where the
        fit takes more than a second and is not one of several in parallel.

    Attributes
    ----------
    estimators_ : list of EndToEndTreeClassifier
        The trees; ``estimators_[t].tree_`` is the deterministic one.
    feature_subsets_ : list of bool arrays, shape (nodes of tree t, d)
        Features that each split of each tree uses.
    classes_ : array, shape (C,)
    n_features_in_, feature_names_in_

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        **SUBSETS,
        "max_depth": [Interval(Integral, 0, None, closed="left")],
        "max_leaves": [Interval(Integral, 1, None, closed="left"), None],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "refine_epochs": [Interval(Integral, 0, None, closed="left"), None],
        "steepness": [Interval(Real, 0, None, closed="neither")],
        "steepness_step": [Interval(Real, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "attempts": [Interval(Integral, 1, None, closed="left")],
        "min_rows": [Interval(Real, 0, None, closed="left")],
        "min_leaf": [Interval(Integral, 1, None, closed="left")],
        "min_gain": [Interval(Real, 0, None, closed="left")],
        "scaling": [StrOptions({"variance", "standard", "common"})],
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "dtype": [StrOptions(set(DTYPES))],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        n_estimators: int = 10,
        *,
        max_features: MaxFeatures = "sqrt",
        image_shape: tuple[int, int] | None = None,
        patch_size: tuple[int, int] | None = None,
        max_depth: int = 10,
        max_leaves: int | None = None,
        epochs: int = 20,
        refine_epochs: int | None = None,
        steepness: float = 1.0,
        steepness_step: float = 0.1,
        batch_size: int = 1000,
        learning_rate: float = 0.01,
        attempts: int = 5,
        min_rows: float = 2,
        min_leaf: int = 1,
        min_gain: float = 0.0,
        scaling: UnitRule = "variance",
        smoothing: float = 1.0,
        class_weight: Any = None,
        dtype: str = "float64",
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: Verbose = "auto",
    ) -> None:
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.image_shape = image_shape
        self.patch_size = patch_size
        self.max_depth = max_depth
        self.max_leaves = max_leaves
        self.epochs = epochs
        self.refine_epochs = refine_epochs
        self.steepness = steepness
        self.steepness_step = steepness_step
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.attempts = attempts
        self.min_rows = min_rows
        self.min_leaf = min_leaf
        self.min_gain = min_gain
        self.scaling = scaling
        self.smoothing = smoothing
        self.class_weight = class_weight
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _fit(
        self,
        X: FloatArray,
        y: NDArray[np.int64],
        weights: FloatArray,
        leaf: Categorical,
        class_names: tuple[str, ...],
    ) -> Self:
        """Grow and train every tree on all rows."""
        trees = self._trees()
        calls: list[Call[EndToEndTreeClassifier]] = [
            (_fitted, (tree, X, y, weights, class_names), {}) for tree in trees
        ]
        grown = _Grown()

        def rest() -> Iterator[EndToEndTreeClassifier]:
            yield from in_order(calls[len(grown.trees) :], n_jobs=self.n_jobs)

        found = rest()
        with fitting(self.verbose):
            track = Track(trees, "trees", show=bool(self.verbose), parts={"grown": grown})
            for _ in track:
                grown.trees.append(next(found))
        self.estimators_ = grown.trees
        if self.get_n_leaves() == len(trees):
            counted = weights > 0
            limits, data = trees[0]._limits(), Data.of(X[counted], y[counted], weights[counted])
            warn_single_leaf(data.y, limits, f"every tree: {why_not_grown(data, limits)}")
        return self

    def _in_parts(self) -> bool:
        return False

    def _in_place(self) -> bool:
        return self.image_shape is not None

    def _trees(self) -> list[EndToEndTreeClassifier]:
        """The trees before their fit, each with a seed of its own."""
        many = None if self.patch_size is not None else self.max_features
        epochs = FINE_TUNING * self.epochs if self.refine_epochs is None else self.refine_epochs
        shared = {k: v for k, v in self.get_params(deep=False).items() if k not in OWN}
        shared |= {"max_features": many, "refine_epochs": epochs, "verbose": False}
        seeds = check_random_state(draw_seed(self.random_state)).randint(
            2**31 - 1, size=self.n_estimators
        )
        trees = []
        for seed in seeds.tolist():
            tree = EndToEndTreeClassifier(random_state=seed, **shared)
            tree.classes_, tree.n_features_in_ = self.classes_, self.n_features_in_
            tree._source = self._source
            if hasattr(self, "feature_names_in_"):
                tree.feature_names_in_ = self.feature_names_in_
            trees.append(tree)
        return trees

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probability of each class, shape (n, C): the mean over the trees."""
        rows = self._check_rows(X)
        total = np.zeros((len(rows), len(self.classes_)))
        for tree in self.estimators_:
            total += tree.tree_.predict(rows)
        mean: FloatArray = total / len(self.estimators_)
        return mean

    def apply(self, X: ArrayLike) -> NDArray[np.int64]:
        """Number of the leaf that each row reaches in each tree, shape (n, n_estimators)."""
        rows = self._check_rows(X)
        return np.stack([tree.tree_.apply(rows) for tree in self.estimators_], axis=1)

    @property
    def feature_subsets_(self) -> list[NDArray[np.bool_]]:
        """Features that each split of each tree uses, by tree of shape (nodes, d)."""
        check_is_fitted(self)
        return [tree.tree_.arrays()["hyperplane"] != 0 for tree in self.estimators_]

    def get_depth(self) -> int:
        """Depth of the deepest tree."""
        check_is_fitted(self)
        return max(tree.get_depth() for tree in self.estimators_)

    def get_n_leaves(self) -> int:
        """Number of leaves of all trees together."""
        check_is_fitted(self)
        return sum(tree.get_n_leaves() for tree in self.estimators_)

    def save(self, path: str | Path) -> None:
        """Write the fitted forest to one file (see :func:`bayestree.load`)."""
        from bayestree.estimators.files import save  # noqa: PLC0415 - it knows all estimators

        save(self, path)

    def _check_rows(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        rows: FloatArray = validated(self, X, reset=False, dtype=np.float64)
        return rows


class _Grown:
    """The trees that are fitted, as a part of a loop: as their file has them."""

    def __init__(self) -> None:
        self.trees: list[EndToEndTreeClassifier] = []

    def state_dict(self) -> dict[str, Any]:
        from bayestree.estimators import _contents as contents  # noqa: PLC0415 - it knows forests

        return {"trees": [(contents.describe(t), contents.arrays_of(t)) for t in self.trees]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        from bayestree.estimators._contents import build  # noqa: PLC0415 - it knows forests

        self.trees = []
        for described, arrays in state["trees"]:
            tree = build(EndToEndTreeClassifier, described, arrays, None)
            assert isinstance(tree, EndToEndTreeClassifier)
            self.trees.append(tree)


def _fitted(
    tree: EndToEndTreeClassifier,
    X: FloatArray,
    y: NDArray[np.int64],
    weights: FloatArray,
    class_names: tuple[str, ...],
) -> EndToEndTreeClassifier:
    """The tree, fitted on one thread: sums are in the same order wherever it is."""
    with threads_for(0), threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", SingleLeafWarning)  # the forest warns if all of them are
        return tree._fit(X, y, weights, Categorical(len(class_names)), class_names)
