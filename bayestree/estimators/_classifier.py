"""Base classes of the classifiers: labels, class weights, and probabilities."""

from collections.abc import Callable
from typing import Any, Literal, Self, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.parameters import check_parameters
from bayestree._utils.wording import warn
from bayestree.estimators._at_once import at_once
from bayestree.estimators._base import BaseTree, TrainingRows
from bayestree.estimators._columns import ColumnChoice
from bayestree.estimators._detached import drawn_in
from bayestree.estimators._numbers import check_labels, checked_weights
from bayestree.estimators._parameters import Classes
from bayestree.models import Categorical
from bayestree.models.leaves import Leaf


class LabelledClassifier(Classes, ColumnChoice, ClassifierMixin):
    """Encodes labels; a subclass fits (``_fit``) and predicts probabilities.

    Attributes
    ----------
    classes_ : array, shape (C,)
    """

    classes_: AnyArray
    _fit: Callable[..., Any]
    _in_parts: Callable[[], bool]

    @at_once
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Numbers, categories or dates, of which any may be missing (see ``encoding_``).
        y : array, shape (n,)
            Labels of any kind, two or more of them.
        sample_weight : array, shape (n,), optional
            Weight of each row, as a number of equal rows.

        Raises
        ------
        ValueError
            For infinite values, missing ones in y, other shapes, or a single class.
        """
        check_parameters(self)
        check_labels(y)
        rows, labels = self._checked_fit(X, y, sample_weight)
        check_classification_targets(labels)
        weights = self._row_weights(sample_weight, labels)
        self._check_several(np.unique(labels[weights > 0]).tolist())
        classes, encoded = self._numbered(labels)
        leaf = self._leaf_family(len(classes))
        if leaf.ordered:
            classes, encoded = _in_order(y, classes, encoded)
        if self._continues():
            self._check_same_classes(classes)
        self.classes_ = classes
        self._choose_columns(rows, weights)
        names = tuple(str(label) for label in self.classes_)
        return self._fit(TrainingRows(drawn_in(rows, weights), encoded, weights, names), leaf)

    def _check_several(self, classes: list[Any]) -> None:
        """Raise ValueError if the rows that count have a single class."""
        if len(classes) < 2:
            raise ValueError(
                f"the rows of positive weight have at most one class, {classes}; a classifier "
                "needs two classes or more."
            )

    def _numbered(self, labels: AnyArray) -> tuple[AnyArray, AnyArray]:
        """The sorted classes, and the number of the class of each label."""
        return np.unique(labels, return_inverse=True)

    def _leaf_family(self, n_classes: int) -> Leaf:
        """The distribution of y in a leaf, before its prior is calibrated."""
        return Categorical(n_classes)

    def predict(self, X: ArrayLike) -> AnyArray:
        """Most probable class, shape (n,)."""
        probability = self.predict_proba(X)
        return self.classes_[probability.argmax(axis=1)]

    def _row_weights(self, sample_weight: ArrayLike | None, y: AnyArray) -> FloatArray:
        weights = checked_weights(sample_weight, len(y))
        if self.class_weight is not None:
            weights = weights * compute_sample_weight(self.class_weight, y)
            if not ((weights >= 0) & np.isfinite(weights)).all():
                raise ValueError(f"class_weight must be zero or more, got {self.class_weight}.")
        return weights

    def _encode(self, values: AnyArray) -> IntArray:
        numbers = {label: number for number, label in enumerate(self.classes_.tolist())}
        unknown = sorted({str(label) for label in values.tolist() if label not in numbers})
        if unknown:
            raise ValueError(
                f"y holds classes that were absent from the fit, {unknown[:5]}; the fit had "
                f"{[str(label) for label in numbers]}."
            )
        return np.array([numbers[label] for label in values.tolist()], dtype=np.int64)

    def _decode(self, values: AnyArray) -> AnyArray:
        return self.classes_[values]


def _in_order(y: Any, classes: AnyArray, encoded: IntArray) -> tuple[AnyArray, IntArray]:
    """Sorted classes and the numbers of the rows in the order of y, if it is an ordered category.

    Warns if the order of text is that of the alphabet.
    """
    dtype = getattr(y.squeeze() if isinstance(y, pd.DataFrame) else y, "dtype", None)
    if isinstance(dtype, pd.CategoricalDtype) and dtype.ordered:
        place = {label: number for number, label in enumerate(dtype.categories.tolist())}
        order = np.argsort([place[label] for label in classes.tolist()])
        return classes[order], np.argsort(order)[encoded]
    if any(isinstance(label, str) for label in classes.tolist()):
        warn(
            f"the classes are ordered by the alphabet, {' < '.join(map(str, classes[:10]))}; give "
            "y as a pandas ordered categorical, or as numbers, for another order.",
            UserWarning,
        )
    return classes, encoded


class TreeClassifier(LabelledClassifier, BaseTree):
    """A tree with class probabilities in its leaves."""

    @overload
    def predict_proba(self, X: ArrayLike, *, return_std: Literal[False] = ...) -> FloatArray: ...
    @overload
    def predict_proba(
        self, X: ArrayLike, *, return_std: Literal[True]
    ) -> tuple[FloatArray, FloatArray]: ...
    def predict_proba(
        self, X: ArrayLike, *, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Probability of each class, shape (n, C).

        With ``return_std`` also its standard deviation over the posterior draws: zero for a
        point estimate and for ``prediction="tree"``.
        """
        if return_std:
            return self._by_parts(X, self._expectation)
        return self._by_parts(X, lambda rows: self._expectation(rows)[0])

    def predict(self, X: ArrayLike) -> AnyArray:
        """Most probable class, shape (n,)."""
        check_is_fitted(self)
        varies = getattr(self.tree_, "slope", None) is not None
        if not (self._averages() or varies):  # without writing the probabilities of every row
            return self.classes_[self.tree_.value.argmax(axis=1)][self.apply(X)]
        # The probabilities of all rows of a large file would not fit into memory.
        best = self._by_parts(X, lambda rows: self._expectation(rows)[0].argmax(axis=1))
        return self.classes_[best]

    def _in_units(self, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        # The probabilities of float32 fits sum to 1 in single precision only.
        return mean / mean.sum(axis=-1, keepdims=True), sd
