"""Rows with their target and weights, checked against an estimator."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.wording import counted
from bayestree.diagnostics.draws import spread
from bayestree.protocols import FittedModel, features_of
from bayestree.tables import Features

SAMPLE = 2000  # maximum number of rows in pictures and in measures of the splits


class Rows(NamedTuple):
    """Rows (n, d) as the estimator takes them, with their weights and, if known, their target.

    ``extra`` is the exposure or event of each row, if the target comes with one.
    """

    X: Any
    y: AnyArray | None
    weights: FloatArray
    held_out: bool
    estimator: FittedModel | None = None
    extra: FloatArray | None = None

    @property
    def response(self) -> AnyArray | None:
        """The target as the methods of the estimator take it."""
        if self.y is None or self.extra is None:
            return self.y
        return np.column_stack((self.y, self.extra))

    @property
    def kind(self) -> str:
        return "held-out rows" if self.held_out else "training rows"

    @property
    def counted(self) -> str:
        """Number and kind of the rows, such as ``"40 held-out rows"``."""
        return counted(len(self), self.kind.removesuffix("s"))

    def __len__(self) -> int:
        return len(self.weights)

    def sample(self, most: int = SAMPLE) -> "Rows":
        """At most ``most`` of the rows, evenly spaced."""
        if len(self) <= most:
            return self
        kept = spread(len(self), most)
        X = self.X.iloc[kept] if isinstance(self.X, pd.DataFrame) else self.X[kept]
        y = None if self.y is None else self.y[kept]
        extra = None if self.extra is None else self.extra[kept]
        return Rows(X, y, self.weights[kept], self.held_out, self.estimator, extra)

    @property
    def matrix(self) -> FloatArray:
        """The features as numbers, shape (n, d)."""
        return features_of(self.estimator, self.X)


def rows_of(
    estimator: FittedModel, X: Any, y: Any = None, weights: Any = None, *, held_out: bool
) -> Rows | None:
    """Check rows and convert them to the form that the estimator takes; None if X is None."""
    if X is None:
        return None
    end = "_held" if held_out else ""
    shape = getattr(X, "shape", None) or np.shape(X)
    width = X.shape[1] if isinstance(X, Features) else estimator.n_features_in_
    if len(shape) != 2 or shape[1] != width:
        raise ValueError(
            f"X{end} must have shape (n, {width}) like the rows of the fit, got {shape}."
        )
    n = shape[0]
    target, weight = (None if given is None else np.asarray(given) for given in (y, weights))
    extra = None
    if target is not None and hasattr(estimator, "_separate"):
        target, extra = estimator._separate(target)
    for name, array in (("y", target), ("weights", weight)):
        if array is not None and array.shape != (n,):
            raise ValueError(f"{name}{end} must have shape ({n},) like X{end}, got {array.shape}.")
    classes = getattr(estimator, "classes_", None)
    if classes is not None and target is not None and n and not np.isin(target, classes).any():
        raise ValueError(
            f"y{end} has none of the classes of the fit, {classes[:5].tolist()}; its first value "
            f"is {target[:1].tolist()[0]!r}."
        )
    weight = np.ones(n) if weight is None else weight.astype(np.float64)
    return Rows(_with_names(estimator, X), target, weight, held_out, estimator, extra)


def _with_names(estimator: FittedModel, X: Any) -> Any:
    """X with feature names if and only if the fit had them, which avoids warnings."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return np.asarray(X)
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X), columns=list(names))
