"""A series of trees by alternating optimisation, from dense to sparse."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.estimators.alternating import BaseAlternatingTree
from bayestree.inference.unsplit import SingleLeafWarning


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
        """Index of the best validation score; of equal scores, that of the largest penalty."""
        return int(np.flatnonzero(self.score == self.score.max())[-1])

    @property
    def best_estimator(self) -> BaseAlternatingTree:
        """The fitted estimator at ``best``."""
        return self.estimators[self.best]

    def to_frame(self) -> pd.DataFrame:
        """A row for each penalty."""
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
