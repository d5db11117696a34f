"""Base classes of the classifiers: labels, class weights, and probabilities."""

from dataclasses import replace
from typing import Any, Literal, Self, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.parameters import check_parameters, declare, takes
from bayestree._utils.state import at_once
from bayestree._utils.wording import warn
from bayestree.estimators._estimator import REMEDY, Estimator
from bayestree.estimators._parameters import CLASSES, Classes, family_of
from bayestree.estimators._tree import BaseTree
from bayestree.fitted.response import check_labels
from bayestree.fitted.training_rows import TrainingRows, drawn_in
from bayestree.fitting.plan import Task
from bayestree.models.leaves import Leaf


@declare
@takes(Classes)
class Classifier(ClassifierMixin, Estimator):
    """Encodes labels; a subclass fits (``_fit``) and predicts probabilities.

    Attributes
    ----------
    classes_ : array, shape (C,)
    """

    @at_once
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Numbers, categories or dates; any may be missing (see ``encoding_``).
        y : array, shape (n,)
            Labels of any kind, two or more of them.
        sample_weight : array, shape (n,), optional
            Weight of each row, as a number of equal rows; or shares with a sum of 1.

        Raises
        ------
        ValueError
            For infinite values, missing ones in y, other shapes, or a single class.
        """
        return self._fit_task(self._task_of(X, y, sample_weight))

    def _task_of(
        self, X: Any, y: Any, sample_weight: Any, announced: ArrayLike | None = None
    ) -> Task:
        """Check the rows of a fit, to which later ones may add the ``announced`` classes."""
        check_parameters(self)
        check_labels(y)
        found = self._checked_fit(X, y, sample_weight, in_parts=self._in_parts())
        labels: AnyArray = found.y
        check_classification_targets(labels)
        weights = self._row_weights(sample_weight, labels)
        several = np.unique(labels[weights > 0] if announced is None else announced).tolist()
        if len(several) < 2:
            raise ValueError(
                f"the rows of positive weight have at most one class, {several}; a classifier "
                "needs two classes or more."
            )
        classes, encoded = _numbered(labels, announced)
        leaf = self._leaf_family(len(classes))
        if leaf.ordered:
            classes, encoded = _in_order(y, classes, encoded)
        if self._continues():
            self._check_same_classes(classes)
        scaling = replace(self._scaling_of(found, weights), labels=classes)
        names = tuple(str(label) for label in classes)
        rows = TrainingRows(drawn_in(found.X, weights), encoded, weights, names)
        return self._task_from(rows, leaf, scaling, found.encoding)

    def _leaf_family(self, n_classes: int | None = None) -> Leaf:
        """Return the distribution of y in a leaf, before its prior is calibrated."""
        return family_of(self.leaf, CLASSES, n_classes or int(getattr(self.leaf, "n_classes", 2)))

    def _check_same_classes(self, classes: AnyArray) -> None:
        """Refuse classes that the continued fit does not have."""
        if np.array_equal(classes, self.classes_):
            return
        old, new = self.classes_.tolist(), classes.tolist()
        added, missing = ([c for c in x if c not in z][:5] for x, z in ((new, old), (old, new)))
        changes = [f"has the new classes {added}"] * bool(added)
        changes += [f"lacks the classes {missing}"] * bool(missing)
        changes = changes or [f"has them in the order {new[:5]}"]
        raise ValueError(
            "warm_start=True needs the classes of the previous fit, but y "
            f"{' and '.join(changes)}: give rows of the same classes, or {REMEDY}."
        )

    def predict(self, X: ArrayLike) -> AnyArray:
        """Predict the most probable class, shape (n,)."""
        probability = self.predict_proba(X)
        return self.classes_[probability.argmax(axis=1)]

    @property
    def classes_(self) -> AnyArray:
        """The labels of the classes, shape (C,), in the order of their probabilities."""
        check_is_fitted(self)
        return np.asarray(self.fitted_.response.labels)


def _numbered(labels: AnyArray, announced: ArrayLike | None) -> tuple[AnyArray, AnyArray]:
    """Number the sorted classes, or the announced classes, and the labels."""
    if announced is None:
        return np.unique(labels, return_inverse=True)
    classes = np.unique(announced)
    unknown = sorted(set(labels.tolist()) - set(classes.tolist()))[:5]
    if unknown:
        raise ValueError(
            f"y holds {unknown}, which are not among classes={classes.tolist()}; add them."
        )
    return classes, np.searchsorted(classes, labels)


def _in_order(y: Any, classes: AnyArray, encoded: IntArray) -> tuple[AnyArray, IntArray]:
    """Order classes and the numbers of the rows as y does, if it is an ordered category.

    Warns if text is in alphabetical order.
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


class TreeClassifier(Classifier, BaseTree):
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
        """Predict the probability of each class, shape (n, C).

        With ``return_std`` also its standard deviation over the posterior draws: zero for a
        point estimate and for ``prediction="tree"``.
        """
        if return_std:
            return self._by_parts(X, self._expectation)
        return self._by_parts(X, lambda rows: self._expectation(rows)[0])

    def predict(self, X: ArrayLike) -> AnyArray:
        """Predict the most probable class, shape (n,)."""
        check_is_fitted(self)
        varies = getattr(self.tree_, "slope", None) is not None
        varies = varies or self.fitted_.averages(self.prediction)
        if not varies:  # without writing the probabilities of every row
            return self.classes_[self.tree_.value.argmax(axis=1)][self.apply(X)]
        # The probabilities of all rows of a large file would not fit into memory.
        best = self._by_parts(X, lambda rows: self._expectation(rows)[0].argmax(axis=1))
        return self.classes_[best]
