"""What every fitted tree has, and how rows come to the scale of its draws."""

from collections.abc import Callable
from typing import Any, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Seed
from bayestree.diagnostics.reach import Reach
from bayestree.estimators._file_rows import FileRows, checked
from bayestree.estimators._numbers import validated
from bayestree.inference import Posterior, Units
from bayestree.routed_tree import RoutedTree


class _Unmeasured:
    """Stands where a fit measured no polytopes, and says why."""

    def __get__(self, tree: "FittedTree", owner: type) -> Reach:
        kind = tree.tree_.split_name if hasattr(tree, "tree_") else "of this estimator"
        raise AttributeError(
            "this is measured of the polytopes of a soft tree with linear experts, and the fit "
            f"measured none: its splits are of the kind {kind!r}."
        )


class FittedTree:
    """Results of a fit, for the methods that read them."""

    tree_: RoutedTree
    posterior_: Posterior
    n_features_in_: int
    random_state: Seed
    validation_fraction: float
    _reach: Reach = cast(Reach, _Unmeasured())  # which a fit of linear experts replaces
    _units = Units(np.zeros(0), np.ones(0))

    def _check_rows(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        rows: NDArray[Any] = validated(self, X, reset=False, dtype=np.float64)
        return rows

    def _by_parts(self, X: ArrayLike, function: Callable[[FloatArray], Any]) -> Any:
        """What a function says of the rows: an array or several, a part of a large file at a time.

        The arrays have a row for each row of X.
        """
        check_is_fitted(self)
        rows = checked(self, X, in_parts=True, reset=False)
        if not isinstance(rows, FileRows):
            return function(rows)
        parts = [function(rows[part]) for part in rows.slices()]
        if not isinstance(parts[0], tuple):
            return np.concatenate(parts)
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    @overload
    def _standardise(self, X: FloatArray) -> FloatArray: ...
    @overload
    def _standardise(self, X: FileRows) -> FileRows: ...
    def _standardise(self, X: FloatArray | FileRows) -> FloatArray | FileRows:
        if isinstance(X, FileRows):
            return X.standardised(self._units.center, self._units.scale)
        return self._units.standardise(X)
