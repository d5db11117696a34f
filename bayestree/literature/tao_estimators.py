"""Trees by alternating optimisation (TAO) as scikit-learn estimators, and series of them."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parameters import Model, NonNegative, Positive, declare, takes
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._parameters import MeanName, Precision, ShareFamily, WarmStart
from bayestree.estimators._regressor import TreeRegressor
from bayestree.fitted.training_rows import Scaling, TrainingRows
from bayestree.fitting.engine import HardForm
from bayestree.fitting.plan import Task
from bayestree.inference import Data, Posterior
from bayestree.inference.growth.single_leaf import SingleLeafWarning, warn_single_leaf
from bayestree.literature.tao import Sweeps, Tao
from bayestree.literature.whole_trees import InitialTree, method_of
from bayestree.models import FeatureCount, Flat, Gaussian, Laplace, Oblique, SoftTree, named
from bayestree.models.likelihoods import LinearRule
from bayestree.models.priors import HyperplanePrior
from bayestree.tree import Tree

MAX_FEATURES = {"oblique": None, "bivariate": 2, "axis": 1}


@declare
@takes(WarmStart, Precision, Sweeps)
class BaseAlternatingTree(InitialTree):
    """Start from a tree and optimise its nodes in turn; classifier and regressor add y."""

    max_depth = 6
    dtype = "float64"

    split: Annotated[
        Literal["oblique", "bivariate", "axis"],
        Model(
            "Features in each node: all of them, at most two, or one. The last two kinds of split "
            "are found by exact search."
        ),
    ] = "oblique"
    l1: Annotated[
        NonNegative,
        Model(
            "Penalty lambda, relative to a loss of 1 for each misclassified row, or to the squared "
            "loss of y in units of its standard deviation. It applies to |w|_1 of oblique splits "
            "on the scaled features (1/C of liblinear), and to each feature that other splits use."
        ),
    ] = 0.0
    pair_cost: Annotated[
        Positive, Model("Penalty for two features in a bivariate split, relative to that for one.")
    ] = 1.2

    def _prior(self) -> HyperplanePrior:
        if self.l1 == 0:
            return Flat()
        if self.split == "oblique":
            return Laplace(self.l1)
        return FeatureCount(self.l1, self.pair_cost)

    def _max_features(self) -> int | None:
        return MAX_FEATURES[self.split]

    def _model(self, task: Task) -> SoftTree:
        split = Oblique(self._max_features())
        return named.alternating(task.leaf, split=split, prior=self._prior())

    def _infer(self, model: SoftTree, data: Data, scaling: Scaling) -> Posterior:
        start = self._start(data, model.leaf, scaling)
        method = method_of(Tao, self, leaf_ridge=self.leaf_ridge if self.leaf == "linear" else None)
        found = method.fit(model, data, init=start, progress=bool(self.verbose))
        reason = "no split lowers the loss of the training rows"
        if (start if isinstance(start, Tree) else start.model.topology).n_nodes == 0:
            reason = self._why_no_split(data)
        elif self.l1 > 0:
            reason += f" by more than its penalty l1={self.l1:g}; lower l1"
        if found.model.topology.n_nodes == 0:
            warn_single_leaf(data.y, model.leaf, self._limits(), reason)
        return found


@declare
class AlternatingTreeClassifier(TreeClassifier, BaseAlternatingTree):
    """Decision tree whose nodes are optimised in turn for the 0/1 loss of the whole tree (TAO).

    Carreira-Perpinan and Tavallali, "Alternating optimization of decision trees, with application
    to learning sparse oblique trees" (2018). From an initial tree, each node is trained in turn,
    the deepest first: it classifies its rows by the child that predicts them better. With ``l1``
    the splits use few features and the tree becomes smaller. It is much more accurate than the
    initial tree, and fast to fit.

    {parameters}

    {attributes}
    posterior_ : Posterior
        Its splits as one draw, on the scaled features; ``posterior_.stats["loss"]`` is the weight
        of the misclassified training rows by sweep.

    See Also
    --------
    bayestree.regularization_path : Fits for a series of penalties.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import AlternatingTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AlternatingTreeClassifier(max_depth=3, l1=2.0, random_state=0).fit(X, y)
    >>> clf.get_n_leaves()
    3
    """

    leaf: ShareFamily = "constant"


@declare
class AlternatingTreeRegressor(TreeRegressor, BaseAlternatingTree):
    """Regression tree whose nodes are optimised in turn for the squared loss of the tree (TAO).

    Like :class:`AlternatingTreeClassifier`, with means or linear functions in the leaves. In a
    node, a row is weighted by the additional loss that the wrong child would cause.

    {parameters}

    {attributes}
    tree_ : Tree
        The tree, in the units of the data; with linear leaves its ``slope`` is set.
    posterior_ : Posterior
        Its splits as one draw, on the scaled features; ``posterior_.stats["loss"]`` is the loss
        of the training rows by sweep.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import AlternatingTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = AlternatingTreeRegressor(max_depth=2, random_state=0).fit(X, y)
    >>> reg.get_n_leaves()
    4
    """

    l1 = 0.2
    min_leaf = 10

    _families = dict.fromkeys(get_args(MeanName), Gaussian)  # slopes are of the tree alone

    leaf: Annotated[
        MeanName, Model("Prediction of a leaf: a mean, or a ridge regression on all features.")
    ] = "constant"
    leaf_ridge: Annotated[
        Positive, Model("Penalty on |slope|^2 of linear leaves, added to the squared loss.")
    ] = 1.0

    def _form(self, task: Task) -> HardForm:
        return replace(super()._form(task), values=self._ridge if self.leaf == "linear" else None)

    def _ridge(
        self, tree: Any, posterior: Posterior, rows: TrainingRows, scaling: Scaling
    ) -> dict[str, FloatArray]:
        """Return the ridge regressions of the leaves."""
        X = scaling.standardise(rows.X[:])
        rule = LinearRule(X, rows.y, rows.weights, self.leaf_ridge)
        found = rule.fit(rule.start(tree.n_leaves), tree.apply(rows.X))
        return {"value": found[:, -1], "slope": found[:, :-1] / scaling.units.scale}


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Trees in order of increasing penalty.

    Attributes
    ----------
    lambdas : array, shape (m,)
    train_score, score : arrays, shape (m,)
        Accuracy, or R^2, on the training and on the validation rows.
    nonzeros : array of int, shape (m,)
        Number of non-zero coefficients of all splits.
    leaves, depth : arrays of int, shape (m,)
    seconds : array, shape (m,)
        Time of each fit.
    estimators : tuple of fitted estimators
    """

    lambdas: FloatArray
    train_score: FloatArray
    score: FloatArray
    nonzeros: IntArray
    leaves: IntArray
    depth: IntArray
    seconds: FloatArray
    estimators: tuple[BaseAlternatingTree, ...]

    @property
    def best(self) -> int:
        """Index of the best validation score; in a tie, the largest penalty."""
        return int(np.flatnonzero(self.score == self.score.max())[-1])

    @property
    def best_estimator(self) -> BaseAlternatingTree:
        """The fitted estimator at ``best``."""
        return self.estimators[self.best]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each penalty."""
        names = ("train_score", "score", "nonzeros", "leaves", "depth", "seconds")
        index = pd.Index(self.lambdas, name="lambda")
        return pd.DataFrame({name: getattr(self, name) for name in names}, index=index)


def regularization_path(
    estimator: BaseAlternatingTree,
    X: ArrayLike,
    y: ArrayLike,
    lambdas: Sequence[float],
    X_val: ArrayLike,
    y_val: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> RegularizationPath:
    """Fit trees for a series of increasing penalties, each starting from the previous tree.

    The first fit starts from the ``init`` of ``estimator``. Trees lose nodes and coefficients along
    the path, and removed nodes do not return.

    Parameters
    ----------
    estimator : AlternatingTreeClassifier or AlternatingTreeRegressor
        It is not changed.
    X, y : arrays, shapes (n, d) and (n,)
        Training rows.
    lambdas : sequence of float
        Values of ``l1``, in any order.
    X_val, y_val : arrays
        Rows by which to choose the penalty.
    sample_weight : array, shape (n,), optional
        Weights of the training rows.

    Returns
    -------
    RegularizationPath

    Raises
    ------
    TypeError
        If ``estimator`` is of another class.
    ValueError
        If ``lambdas`` is empty or has a number that is negative or not finite.
    """
    if not isinstance(estimator, BaseAlternatingTree):
        raise TypeError(
            "estimator must be an AlternatingTreeClassifier or AlternatingTreeRegressor, got "
            f"{type(estimator).__name__}."
        )
    series = np.sort(np.asarray(lambdas, dtype=np.float64).ravel())
    if len(series) == 0 or not (np.isfinite(series) & (series >= 0)).all():
        raise ValueError(f"lambdas must be one or more finite numbers >= 0, got {lambdas!r}.")
    fits: list[Any] = []
    seconds = []
    for value in series.tolist():
        one: Any = clone(estimator).set_params(l1=value)
        if fits:
            one.set_params(init=fits[-1].tree_)
        start = time.perf_counter()
        with warnings.catch_warnings():
            # The largest penalties are expected to leave a single leaf.
            warnings.simplefilter("ignore", SingleLeafWarning)
            fits.append(one.fit(X, y, sample_weight=sample_weight))
        seconds.append(time.perf_counter() - start)
    return RegularizationPath(
        lambdas=series,
        train_score=np.array([one.score(X, y, sample_weight) for one in fits]),
        score=np.array([one.score(X_val, y_val) for one in fits]),
        nonzeros=np.array([np.count_nonzero(one.tree_.hyperplane) for one in fits]),
        leaves=np.array([one.get_n_leaves() for one in fits]),
        depth=np.array([one.get_depth() for one in fits]),
        seconds=np.array(seconds),
        estimators=tuple(fits),
    )
