"""Weighted oblique trees with the face of scikit-learn."""

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from bayestree import inference
from bayestree._utils.progress import Verbose
from bayestree._utils.seed import RandomState
from bayestree.estimators._base import DTYPES
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._units import UnitRule
from bayestree.inference import Data, Posterior
from bayestree.inference.splitters.weighted_entropy import WeightedEntropySplitter
from bayestree.models import SoftTree, named
from bayestree.models.leaves import Leaf


class WeightedObliqueTreeClassifier(TreeClassifier):
    """Oblique decision tree grown by weighted entropy, from random starts.

    Yang, Shen and Gao, "Weighted oblique decision trees" (2019): each node's hyperplane minimises
    the entropy that is left when every row counts in both children, by how sure its side is
    (eq. 1), by a few iterations of L-BFGS from a random start. A node whose rows all go one way
    is a leaf. No setting has to be chosen, and growth is fast.

    Parameters
    ----------
    max_depth : int, default=50
        Most splits on a path from the root to a leaf.
    max_iter : int, default=20
        Most iterations of L-BFGS for a split. Few keep its coefficients small, which small sets
        like; large and wide ones gain a little by more, and get fewer leaves.
    max_leaves : int, optional
        Splits of the least gain are dropped until so many leaves are left.
    min_rows : float, default=2
        Least weight of rows in a node that is split.
    min_leaf : int, default=1
        Least number of rows on each side of a split.
    min_gain : float, default=3.0
        Least gain of a split in nats of log-likelihood; 0 grows to pure leaves, as the paper does.
    smoothing : float, default=1.0
        Rows that the Dirichlet prior of each leaf is worth, spread over the classes as the
        training rows are; with 0 a leaf predicts the shares of its own rows.
    class_weight : dict or "balanced", optional
        Factors of the row weights by class.
    dtype : {"float32", "float64"}, default="float64"
        Precision of the fit; float32 halves time and memory on wide data.
    random_state : int, RandomState, optional
        Of the starts.
    verbose : bool or "auto", default="auto"
        Show progress on a terminal or in a notebook: at once, not at all, or (``"auto"``) where the
        fit takes more than a second and is not one of several in parallel.

    Attributes
    ----------
    classes_ : array, shape (C,)
    tree_ : Tree
        The tree, in the units of the data.
    posterior_ : Posterior
        Its splits as one draw, on features scaled to [-1, 1].
    n_iter_ : int
        Most iterations that a split took; not kept in files.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import WeightedObliqueTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = WeightedObliqueTreeClassifier(random_state=0).fit(X, y)
    >>> float(clf.score(X, y))
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_depth": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_leaves": [Interval(Integral, 1, None, closed="left"), None],
        "min_rows": [Interval(Real, 0, None, closed="left")],
        "min_leaf": [Interval(Integral, 1, None, closed="left")],
        "min_gain": [Interval(Real, 0, None, closed="left")],
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "dtype": [StrOptions(set(DTYPES))],
        "random_state": ["random_state"],
        "verbose": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        *,
        max_depth: int = 50,
        max_iter: int = 20,
        max_leaves: int | None = None,
        min_rows: float = 2,
        min_leaf: int = 1,
        min_gain: float = 3.0,
        smoothing: float = 1.0,
        class_weight: Any = None,
        dtype: str = "float64",
        random_state: RandomState = None,
        verbose: Verbose = "auto",
    ) -> None:
        self.max_depth = max_depth
        self.max_iter = max_iter
        self.max_leaves = max_leaves
        self.min_rows = min_rows
        self.min_leaf = min_leaf
        self.min_gain = min_gain
        self.smoothing = smoothing
        self.class_weight = class_weight
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _model(self, leaf: Leaf) -> SoftTree:
        return named.deterministic(named.weighted_oblique(leaf))

    def _unit_rule(self) -> UnitRule:
        return "range"

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        splitter = WeightedEntropySplitter(self.max_iter, self.min_leaf)
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
