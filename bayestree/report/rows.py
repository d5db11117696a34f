"""Rows with what is known of them, as an estimator takes them."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.draws import spread

SAMPLE = 2000  # rows in pictures, and of which splits are asked how sure they are


class Rows(NamedTuple):
    """Rows with what is known of them.

    Attributes
    ----------
    X : DataFrame or array, shape (n, d)
        As the estimator takes it.
    y : array, shape (n,), optional
    weights : array, shape (n,)
    held_out : bool
        Whether the fit has not seen them.
    """

    X: Any
    y: NDArray[Any] | None
    weights: FloatArray
    held_out: bool

    @property
    def name(self) -> str:
        """What they are called."""
        return "held-out rows" if self.held_out else "training rows"

    @property
    def counted(self) -> str:
        """How many they are, and what they are called, as in ``"40 held-out rows"``."""
        return f"{len(self):,} {self.name[:-1] if len(self) == 1 else self.name}"

    def __len__(self) -> int:
        return len(self.weights)

    def sample(self, most: int = SAMPLE) -> "Rows":
        """At most so many of them, evenly spread."""
        if len(self) <= most:
            return self
        kept = spread(len(self), most)
        X = self.X.iloc[kept] if isinstance(self.X, pd.DataFrame) else self.X[kept]
        y = None if self.y is None else self.y[kept]
        return Rows(X, y, self.weights[kept], self.held_out)

    @property
    def matrix(self) -> FloatArray:
        """The features as numbers, shape (n, d)."""
        return np.asarray(self.X, dtype=np.float64)


def rows_of(
    estimator: Any, X: Any, y: Any = None, weights: Any = None, *, held_out: bool
) -> Rows | None:
    """Rows as the estimator takes them; None if there are none.

    Raises
    ------
    ValueError
        If X, y and weights do not have as many rows, or X not the features of the fit.
    """
    if X is None:
        return None
    name = "X_held" if held_out else "X"
    frame = getattr(X, "shape", None)
    shape = np.shape(X) if frame is None else frame
    if len(shape) != 2 or shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"{name} must have shape (n, {estimator.n_features_in_}), as the rows of the fit, "
            f"got {shape}."
        )
    n = shape[0]
    given = {"y": y, "weights": weights}
    arrays = {key: None if one is None else np.asarray(one) for key, one in given.items()}
    for key, one in arrays.items():
        if one is not None and one.shape != (n,):
            end = "_held" if held_out else ""
            raise ValueError(f"{key}{end} must have shape ({n},) as {name}, got {one.shape}.")
    classes = getattr(estimator, "classes_", None)
    own = arrays["y"]
    if classes is not None and own is not None and n and not np.isin(own, classes).any():
        raise ValueError(
            f"y of {name} holds none of the classes of the fit, {classes[:5].tolist()}; it holds "
            f"{own[:1].tolist()[0]!r}."
        )
    counted = np.ones(n) if arrays["weights"] is None else arrays["weights"].astype(np.float64)
    return Rows(_named(estimator, X), arrays["y"], counted, held_out)


def _named(estimator: Any, X: Any) -> Any:
    """With the names of the fit, or without where it had none, so that it does not warn."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return np.asarray(X)
    if isinstance(X, pd.DataFrame):
        return X
    return pd.DataFrame(np.asarray(X), columns=list(names))
