"""Base classes of regressors: the units of y, counts with an exposure, and several outputs."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from inspect import Parameter, cleandoc, isfunction, signature
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.parameters import check_parameters
from bayestree._utils.state import RandomState, at_once
from bayestree._utils.wording import written
from bayestree.diagnostics.scores import count_scores, squared_scores
from bayestree.estimators._estimator import NO_UNITS, Estimator
from bayestree.estimators._parameters import NUMERIC, family_of
from bayestree.estimators._tree import BaseTree
from bayestree.fitted import explanations, predictions
from bayestree.fitted.predictions import interval, sampled
from bayestree.fitted.response import check_generated, check_numbers, checked_extra, separated
from bayestree.fitted.training_rows import TOO_LARGE, FileRows, TrainingRows, drawn_in
from bayestree.fitted.validation import checked_weights
from bayestree.fitting.plan import Task
from bayestree.fitting.rules import OUTPUTS
from bayestree.inference import Units
from bayestree.models import Gaussian, Outputs
from bayestree.models.leaves import Leaf
from bayestree.models.leaves.student import robust_units

FARTHEST = 1e15  # distance of y from its median, in robust units, that a fit can compute with


def _with_extra(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Let a method that takes y also take its auxiliary column, by the keyword ``name``."""
    known = signature(method)

    @wraps(method)
    def joining(estimator: "Regressor", *args: Any, **given: Any) -> Any:
        if (extra := given.pop(name, None)) is None:
            return method(estimator, *args, **given)
        bound = known.bind(estimator, *args, **given)
        bound.arguments["y"] = estimator._joined(bound.arguments.get("y"), extra)
        return method(*bound.args, **bound.kwargs)

    own = Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=ArrayLike | None)
    whole = known.replace(parameters=[*known.parameters.values(), own])
    vars(joining).update(__signature__=whole)
    about = f"Give the ``{name}`` (n,) as the second column of y (n, 2), or as a keyword."
    joining.__doc__ = _documented(method, about)
    return joining


def _documented(method: Callable[..., Any], about: str) -> str:
    """Return the docstring of a method with a paragraph below its first line."""
    first, _, rest = cleandoc(str(method.__doc__)).partition("\n\n")
    return f"{first}\n\n{about}\n\n{rest}"


class Regressor(Estimator):
    """Put y, which are numbers, into the units of the fit; a subclass fits (``_fit``)."""

    _extra: ClassVar[str | None] = None  # keyword of the auxiliary column of y (``Leaf.extra``)
    _families: ClassVar[Mapping[str, Callable[[], Leaf]]] = NUMERIC

    def __init_subclass__(cls, **given: Any) -> None:
        name = cls._extra
        for member in [] if name is None else dir(cls):
            method = getattr(cls, member)
            if isfunction(method) and not member.startswith("_"):
                parameters = signature(method).parameters
                if "y" in parameters and name not in parameters:
                    setattr(cls, member, _with_extra(method, str(name)))
        super().__init_subclass__(**given)

    @at_once
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Numbers, categories or dates; any may be missing (see ``encoding_``).
        y : array, shape (n,)
            Real values.
        sample_weight : array, shape (n,), optional
            Weight of each row, as a number of equal rows; or shares with a sum of 1.

        Raises
        ------
        ValueError
            For infinite values, missing ones in y, or other shapes.
        """
        return self._fit_task(self._task_of(X, y, sample_weight))

    def _task_of(self, X: Any, y: Any, sample_weight: Any) -> Task:
        """Check the rows of a fit."""
        check_parameters(self)
        y, extra = separated(y, self._leaf_family().extra)
        check_numbers(y, "y", "; use a classifier")
        checks = self._y_checks(y) | {"y_numeric": True, "in_parts": self._in_parts()}
        found = self._checked_fit(X, y, sample_weight, **checks)
        target = found.y.astype(np.float64)
        if self._continues():
            self.fitted_.response.check_outputs(target)
        weights = self._row_weights(sample_weight, target)
        check_generated(self._leaf_family(), target, extra)
        of_y = NO_UNITS if self._continues() else self._units_of(target, weights)
        scaling, rows = self._scaling_of(found, weights, of_y), found.X
        # slopes follow values however far away; TAO's are of the tree alone
        if self.leaf != "linear" and not self._leaf_family().regresses:
            rows = drawn_in(rows, weights)
        training = TrainingRows(rows, scaling.units.encode(target), weights, extra=extra)
        task = self._task_from(training, self._family_of(target), scaling, found.encoding)
        moved = rows is not found.X and not isinstance(rows, FileRows)
        return replace(task, detached=(rows != found.X).any(axis=0) if moved else None)

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
        """Return the distribution of y (n,) or (n, q) in a leaf, before its prior is calibrated."""
        return self._leaf_family()

    def _leaf_family(self) -> Leaf:
        """Return the distribution of y in a leaf, before its prior is calibrated."""
        return family_of(self.leaf, self._families)

    def _joined(self, y: Any, extra: Any) -> Any:
        """Return y, with its auxiliary column as the second one (n, 2) if that is an argument."""
        if extra is None:
            return y
        if y is None:
            raise ValueError(f"{self._extra} belongs to y; give y as well.")
        values, own = separated(y, self._leaf_family().extra)
        if own is not None:
            raise ValueError(
                f"the {self._extra} is given twice, as an argument and with y; leave one out."
            )
        check_numbers(values, "y")
        extra = self._checked_extra(extra, len(values))
        return np.column_stack((values, extra))

    def _checked_extra(self, extra: Any, n_rows: int) -> FloatArray | None:
        """Return the auxiliary column as an array (n,); None if the family has none.

        ValueError if it is given to another family, or has another shape or missing values.
        """
        name = self._leaf_family().extra
        if extra is None:
            return None
        if name is None:
            remedy = f"; the {self._extra} is for counts, with leaf='poisson'"
            raise ValueError(
                f"leaf={self.leaf!r} takes y alone, without a number for each row"
                f"{remedy if self._extra == 'exposure' else ''}."
            )
        return checked_extra(extra, name, n_rows)


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
        """Predict the expected value, shape (n,).

        With ``return_std`` also its standard deviation over the posterior draws (of the
        expectation, not of y): zero for a point estimate and for ``prediction="tree"``.
        """
        if return_std:
            return self._by_parts(X, self._expectation)
        return self._by_parts(X, lambda rows: self._expectation(rows)[0])


ALONE = ("auto", "constant")  # the leaves that may have several outputs


EXPOSURE = "For counts, the ``exposure`` (n,) of the rows is 1 by default."


class NumericRegressor(TreeRegressor):
    """A regressor that takes an ``exposure`` of counts, and y of shape (n, q).

    Methods that take y also take its exposure, by a keyword or as the second column of y (n, 2);
    scikit-learn routes it to them without being asked. ``output`` has the methods for a single
    output.
    """

    inference: Any
    _rules = OUTPUTS
    _takes_outputs = False  # whether y may have several columns
    _extra = "exposure"
    __metadata_request__fit = __metadata_request__partial_fit = {"exposure": True}
    __metadata_request__predict = __metadata_request__score = {"exposure": True}
    in_interval = predictions.in_interval

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        exposure: ArrayLike | None = None,
    ) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Numbers, categories or dates; any may be missing (see ``encoding_``).
        y : array, shape (n,)
            Real values; counts for ``leaf="poisson"``.
        sample_weight : array, shape (n,), optional
            Weight of each row, as a number of equal rows; or shares with a sum of 1.
        exposure : array, shape (n,), optional
            For ``leaf="poisson"``: the time, area or population in which the events of each row
            were counted, by default 1. The tree predicts events per unit of it. It may also be
            the second column of y (n, 2), here and in the other methods that take y.

        Raises
        ------
        ValueError
            For infinite values, missing ones in y, other shapes, or, with ``leaf="poisson"``, y
            other than counts, or an exposure that is not positive or given twice.
        """
        check_parameters(self)
        return super().fit(X, self._joined(y, exposure), sample_weight)

    @overload
    def predict(
        self, X: ArrayLike, *, return_std: Literal[False] = ..., exposure: ArrayLike | None = ...
    ) -> FloatArray: ...
    @overload
    def predict(
        self, X: ArrayLike, *, return_std: Literal[True], exposure: ArrayLike | None = ...
    ) -> tuple[FloatArray, FloatArray]: ...
    def predict(
        self, X: ArrayLike, *, return_std: bool = False, exposure: ArrayLike | None = None
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the expected value, shape (n,); of counts for an ``exposure`` (n,), by default 1.

        With ``return_std`` also its standard deviation over the posterior draws (of the
        expectation, not of y): zero for a point estimate and for ``prediction="tree"``.
        """
        mean, sd = self._by_parts(X, self._expectation)
        known = self._known(exposure, len(mean))
        if known is not None:
            mean, sd = mean * known, sd * known
        return (mean, sd) if return_std else mean

    def predict_interval(
        self, X: ArrayLike, level: float = 0.9, *, exposure: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray]:
        return interval(self, X, level, self._known(exposure, np.shape(X)[0]))

    predict_interval.__doc__ = _documented(predictions.predict_interval, EXPOSURE)

    def sample_posterior_predictive(
        self,
        X: ArrayLike,
        draws: int | None = None,
        *,
        random_state: RandomState = None,
        exposure: ArrayLike | None = None,
    ) -> AnyArray:
        return sampled(self, X, draws, random_state, self._known(exposure, np.shape(X)[0]))

    sample_posterior_predictive.__doc__ = _documented(
        predictions.sample_posterior_predictive, EXPOSURE
    )

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R^2 or, for counts, the share of the deviance that is explained.

        The share is 1 - D / D_0, with the Poisson deviances D of the predictions and D_0 of a
        constant rate. Where all rows have the same rate, it is 1 for perfect predictions and 0 for
        others, as R^2 is where y is constant; of a single row, neither is defined (NaN).
        """
        if self._leaf_family().extra is None:
            return float(super().score(X, y, sample_weight))
        weights = checked_weights(sample_weight, len(np.asarray(y)))
        scores = self.scores(y, self.predict(X), weights)
        constant = float(scores["mean_deviance"] == 0) if len(weights) > 1 else np.nan
        return scores.get("explained_deviance", constant)

    def scores(self, y: ArrayLike, predicted: FloatArray, weights: FloatArray) -> dict[str, float]:
        """Score predictions (n,), of counts for an exposure of 1; return scores by name.

        They are ``rmse`` and ``r2``; of counts also ``mean_deviance``, and the
        ``explained_deviance`` of ``score``.
        """
        response = self.fitted_.response
        values, extra = response.separate(y)
        truth = np.asarray(values, dtype=np.float64)
        if response.extra is None:
            return squared_scores(truth, predicted, weights)
        exposure = np.ones(len(truth)) if extra is None else extra
        check_generated(response.leaf, truth, exposure)
        return count_scores(truth, predicted, weights, exposure)

    def _known(self, exposure: ArrayLike | None, n_rows: int) -> FloatArray | None:
        found = self._checked_extra(exposure, n_rows)
        if found is not None:
            check_generated(self._leaf_family(), np.zeros(n_rows), found)
        return found

    def output(self, number: int) -> Self:
        """Return the fitted regressor of a single output, from 0, which has all methods.

        It has the tree and the draws of this regressor, without the other outputs.

        Raises
        ------
        ValueError
            If there is no such output, or only one.
        """
        n_outputs = self.n_outputs_
        if n_outputs == 1:
            raise ValueError("the regressor has a single output: use it without output().")
        if number not in range(n_outputs):
            raise ValueError(
                f"number must be an output from 0 to {n_outputs - 1}, got {written(number)}."
            )
        found = copy.copy(self)
        found.fitted_ = self.fitted_.output(number)
        return found

    @property
    def feature_importances_(self) -> FloatArray:
        """Importance of each column for the splits, shape (d,), the mean over the outputs."""
        if self.n_outputs_ == 1:
            return explanations.feature_importances(self)
        each = [self.output(number).feature_importances_ for number in range(self.n_outputs_)]
        return np.mean(each, axis=0)

    def _y_checks(self, y: Any) -> dict[str, bool]:
        if not self._takes_outputs:
            return {}
        shape = np.asarray(y).shape
        n_columns = shape[1] if len(shape) > 1 else 1
        several = n_columns > 1
        if several and self.leaf not in ALONE:
            raise ValueError(
                f"y must have one column for leaf={self.leaf!r}, got {n_columns}: several "
                f"outputs need leaf={ALONE[-1]!r}, or a regressor for each."
            )
        return {"multi_output": True} if several else {}

    def _family_of(self, y: FloatArray) -> Leaf:
        return Outputs((Gaussian(),) * y.shape[1]) if y.ndim == 2 else super()._family_of(y)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._takes_outputs and self.leaf in ALONE
        return tags
