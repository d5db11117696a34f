"""What every fitted tree has, and how rows come to the scale of its draws."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from bayestree._seed import RandomState
from bayestree.diagnostics.reach import Reach
from bayestree.inference import Posterior
from bayestree.routed_tree import RoutedTree

Floats = NDArray[np.float64]


class FittedTree:
    """Results of a fit, for the methods that read them."""

    tree_: RoutedTree
    posterior_: Posterior
    n_features_in_: int
    random_state: RandomState
    validation_fraction: float
    _reach: Reach
    _center: Floats
    _scale: Floats

    def _check_rows(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        rows: NDArray[Any] = validate_data(self, X, reset=False, dtype=np.float64)
        return rows

    def _standardise(self, X: Floats) -> Floats:
        return (X - self._center) / self._scale
