"""A series of trees by alternating optimisation, from dense to sparse."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from bayestree._utils.arrays import FloatArray
from bayestree.estimators.alternating import BaseAlternatingTree
from bayestree.inference.unsplit import SingleLeafWarning
from bayestree.tree import Tree


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Trees by penalty, from the least to the greatest.

    Attributes
    ----------
    lambdas : array, shape (m,)
    train_score, score : arrays, shape (m,)
        Accuracy, or R^2, on the training and on the validation rows.
    nonzeros : array of int, shape (m,)
        Coefficients of all splits that are not 0.
    leaves, depth : arrays of int, shape (m,)
    seconds : array, shape (m,)
        Of each fit.
    estimators : tuple of fitted estimators
    """

    lambdas: FloatArray
    train_score: FloatArray
    score: FloatArray
    nonzeros: NDArray[np.int64]
    leaves: NDArray[np.int64]
    depth: NDArray[np.int64]
    seconds: FloatArray
    estimators: tuple[BaseAlternatingTree, ...]

    @property
    def best(self) -> int:
        """Place of the best validation score; of equal ones the greatest penalty."""
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
    """Fit trees for a series of penalties, each from the tree before it.

    From the least penalty, whose tree starts as ``estimator`` says, to the greatest: a tree can
    lose nodes and coefficients on the way, and nodes that are gone do not come back.

    Parameters
    ----------
    estimator : AlternatingTreeClassifier or AlternatingTreeRegressor
        Is left as it is.
    X, y : arrays, shapes (n, d) and (n,)
        Training rows.
    lambdas : sequence of float
        Values of ``l1``, in any order.
    X_val, y_val : arrays
        Rows to choose the penalty by.
    sample_weight : array, shape (n,), optional
        Of the training rows.

    Returns
    -------
    RegularizationPath

    Raises
    ------
    TypeError
        If ``estimator`` has no ``l1`` to vary.
    ValueError
        If ``lambdas`` is empty or holds a number that is negative or not finite.
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
        began = time.perf_counter()
        with warnings.catch_warnings():
            # the greatest penalties are expected to leave a single leaf
            warnings.simplefilter("ignore", SingleLeafWarning)
            fits.append(one.fit(X, y, sample_weight=sample_weight))
        seconds.append(time.perf_counter() - began)
    return RegularizationPath(
        lambdas=series,
        train_score=np.array([one.score(X, y, sample_weight) for one in fits]),
        score=np.array([one.score(X_val, y_val) for one in fits]),
        nonzeros=np.array([_nonzeros(one.tree_) for one in fits]),
        leaves=np.array([one.get_n_leaves() for one in fits]),
        depth=np.array([one.get_depth() for one in fits]),
        seconds=np.array(seconds),
        estimators=tuple(fits),
    )


def _nonzeros(tree: Tree) -> int:
    return int(np.count_nonzero(tree.hyperplane))
