"""Base classes of trees that predict numbers: the scale of y, and means."""

from collections.abc import Callable
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.parameters import check_parameters
from bayestree.estimators._at_once import at_once
from bayestree.estimators._base import BaseTree, TrainingRows
from bayestree.estimators._columns import ColumnChoice
from bayestree.estimators._detached import drawn_in
from bayestree.estimators._fitted import FittedTree
from bayestree.estimators._numbers import check_numbers, checked_weights
from bayestree.estimators._units import TOO_LARGE
from bayestree.models import Gaussian
from bayestree.models.leaves import Leaf
from bayestree.models.leaves.student import robust_units

FARTHEST = 1e15  # distance of y from its median, in robust units, that a fit can compute with


class NumberTarget(ColumnChoice, FittedTree):
    """Puts y, which are numbers, into the units of the fit; a subclass fits (``_fit``)."""

    _fit: Callable[..., Any]

    @at_once
    def _fit_values(self, X: Any, y: Any, extra: Any, sample_weight: Any) -> Self:
        """Fit y (n,), with the ``extra`` number of each row that the family takes."""
        check_parameters(self)
        check_numbers(y, "y", "; use a classifier")
        checks = self._y_checks(y)
        rows, target = self._checked_fit(X, y, sample_weight, y_numeric=True, **checks)
        target = target.astype(np.float64)
        if self._continues():
            self._check_outputs(target)
        weights = self._row_weights(sample_weight, target)
        extra = self._checked_extra(extra, len(target))
        self._check_response(target, extra)
        if not self._continues():
            self._measure(target, weights)
        self._choose_columns(rows, weights)
        if getattr(self, "leaf", "constant") != "linear":  # slopes follow values however far away
            rows = drawn_in(rows, weights)
        training = TrainingRows(rows, self._encode(target), weights, extra=extra)
        return self._fit(training, self._family_of(target))

    def _measure(self, y: FloatArray, weights: FloatArray) -> None:
        """Choose the units of y."""
        center = np.average(y, weights=weights, axis=0)
        with np.errstate(over="ignore"):
            spread = np.sqrt(np.average((y - center) ** 2, weights=weights, axis=0))
        if not np.isfinite(spread).all():
            raise ValueError(f"y {TOO_LARGE}")
        family = self._leaf_family()
        if not family.standardised:
            center, spread = np.zeros(()), np.ones(())
        elif family.robust:
            center, spread = map(np.asarray, robust_units(y, weights))
            _refuse_extreme(y, center, spread)
        self._units = self._units.with_y(center, np.where(spread > 0, spread, 1.0))

    def _family_of(self, y: FloatArray) -> Leaf:
        """The distribution of y (n,) or (n, q) in a leaf, before its prior is calibrated."""
        return self._leaf_family()

    def _leaf_family(self) -> Leaf:
        """The distribution of y in a leaf, before its prior is calibrated."""
        return Gaussian()

    def _checked_extra(self, extra: Any, n_rows: int) -> FloatArray | None:
        """The extra number of each row, of families that have one."""
        return None

    def _row_weights(self, sample_weight: ArrayLike | None, y: AnyArray) -> FloatArray:
        return checked_weights(sample_weight, len(y))

    def _encode(self, values: AnyArray) -> FloatArray:
        return self._units.encode(np.asarray(values, dtype=np.float64))

    def _decode(self, values: AnyArray) -> FloatArray:
        return self._units.decode(values)

    def _in_units(self, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._units.decode(mean), sd * self._units.y_scale


def _refuse_extreme(y: FloatArray, center: FloatArray, spread: FloatArray) -> None:
    """Refuse y whose squares, in units of its middle half, are too large for single precision."""
    away = np.abs(y - center)
    if (away > FARTHEST * spread).any():
        raise ValueError(
            f"y holds {y[away.argmax()]:g}, more than {FARTHEST:g} times as far from its median, "
            f"{center:g}, as most other values; correct or drop such rows, or take logarithms."
        )


class NumberRegressor(NumberTarget, RegressorMixin):
    """A regressor of real values or counts."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Numbers, categories or dates, of which any may be missing (see ``encoding_``).
        y : array, shape (n,)
            Real values.
        sample_weight : array, shape (n,), optional
            Weight of each row, as a number of equal rows.

        Raises
        ------
        ValueError
            For infinite values, missing ones in y, or other shapes.
        """
        return self._fit_values(X, y, None, sample_weight)


class TreeRegressor(NumberRegressor, BaseTree):
    """A tree with means in its leaves."""

    @overload
    def predict(self, X: ArrayLike, *, return_std: Literal[False] = ...) -> FloatArray: ...
    @overload
    def predict(
        self, X: ArrayLike, *, return_std: Literal[True]
    ) -> tuple[FloatArray, FloatArray]: ...
    def predict(
        self, X: ArrayLike, *, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Expected value, shape (n,).

        With ``return_std`` also its standard deviation over the posterior draws (of the
        expectation, not of y): zero for a point estimate and for ``prediction="tree"``.
        """
        if return_std:
            return self._by_parts(X, self._expectation)
        return self._by_parts(X, lambda rows: self._expectation(rows)[0])
