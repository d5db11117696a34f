"""Base classes of trees that predict numbers: the scale of y, and means."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.parameters import check_parameters
from bayestree.estimators._base import BaseTree
from bayestree.estimators._estimator import NO_UNITS, Estimator, at_once
from bayestree.estimators._leaf_families import NUMERIC
from bayestree.fitted.rows import TrainingRows
from bayestree.fitted.scaling import TOO_LARGE, drawn_in
from bayestree.fitted.validation import check_numbers, checked_weights
from bayestree.inference import Units
from bayestree.models.leaves import Leaf
from bayestree.models.leaves.student import robust_units

FARTHEST = 1e15  # distance of y from its median, in robust units, that a fit can compute with


class Regressor(Estimator):
    """Put y, which are numbers, into the units of the fit; a subclass fits (``_fit``)."""

    _families: ClassVar[Mapping[str, Callable[[], Leaf]]] = NUMERIC

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
        of_y = NO_UNITS if self._continues() else self._units_of(target, weights)
        self._choose_columns(rows, weights, of_y)
        if self.leaf != "linear":  # slopes follow values however far away
            rows = drawn_in(rows, weights)
        training = TrainingRows(rows, self._encode(target), weights, extra=extra)
        return self._fit(training, self._family_of(target))

    def _units_of(self, y: FloatArray, weights: FloatArray) -> Units:
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
        return NO_UNITS.with_y(center, np.where(spread > 0, spread, 1.0))

    def _family_of(self, y: FloatArray) -> Leaf:
        """The distribution of y (n,) or (n, q) in a leaf, before its prior is calibrated."""
        return self._leaf_family()

    def _leaf_family(self) -> Leaf:
        """The distribution of y in a leaf, before its prior is calibrated."""
        return self._families[self.leaf]()

    def _some_family(self) -> Leaf:
        return self._leaf_family()

    def _given(self, y: Any, extra: Any) -> tuple[Any, Any]:
        """y alone, and the extra number of each row, which is an argument or comes with y."""
        values, own = self._separate(y)
        if own is not None and extra is not None:
            name = self._leaf_family().extra
            raise ValueError(
                f"the {name} is given twice, as an argument and with y; leave one out."
            )
        return values, own if extra is None else extra

    def _checked_extra(self, extra: Any, n_rows: int) -> FloatArray | None:
        """The extra number of each row as an array (n,); None if the family has none.

        ValueError if it is given to another family, or has another shape or missing values.
        """
        name = self._leaf_family().extra
        if extra is None:
            return None
        if name is None:
            raise ValueError(f"leaf={self.leaf!r} takes y alone, without a number for each row.")
        check_numbers(extra, name)
        if np.shape(extra) != (n_rows,):
            raise ValueError(
                f"{name} must have shape ({n_rows},), one number for each row of X, got "
                f"{np.shape(extra)}."
            )
        found = check_array(extra, ensure_2d=False, dtype=np.float64, input_name=name)
        return np.array(found)

    def _check_response(self, y: AnyArray, extra: FloatArray | None) -> None:
        """Refuse y that the family cannot generate."""
        family, y = self._leaf_family(), np.asarray(y, dtype=np.float64)
        if not family.regresses:  # whose response needs the features
            family.check(torch.tensor(y if extra is None else np.column_stack((y, extra))))

    def _row_weights(self, sample_weight: ArrayLike | None, y: AnyArray) -> FloatArray:
        return checked_weights(sample_weight, len(y))

    def _encode(self, values: AnyArray) -> FloatArray:
        return self._scaling.units.encode(np.asarray(values, dtype=np.float64))

    def _decode(self, values: AnyArray) -> FloatArray:
        return self._scaling.units.decode(values)


def _refuse_extreme(y: FloatArray, center: FloatArray, spread: FloatArray) -> None:
    """Refuse y whose squares, in units of its middle half, are too large for single precision."""
    away = np.abs(y - center)
    if (away > FARTHEST * spread).any():
        raise ValueError(
            f"y holds {y[away.argmax()]:g}, more than {FARTHEST:g} times as far from its median, "
            f"{center:g}, as most other values; correct or drop such rows, or take logarithms."
        )


class TreeRegressor(RegressorMixin, Regressor, BaseTree):
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
