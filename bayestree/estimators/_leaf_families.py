"""Families of leaves by their names for the parameter ``leaf``, and what follows from them."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.utils.validation import check_array

from bayestree import inference
from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.parameters import Model, ParameterError, declare
from bayestree.estimators._base import BaseTree
from bayestree.estimators._numbers import check_numbers
from bayestree.inference import Data, Posterior
from bayestree.models import (
    Categorical,
    Gaussian,
    LinearGaussian,
    Logistic,
    Ordinal,
    Poisson,
    SoftTree,
    Student,
)
from bayestree.models.leaves import Leaf

#: The names that ``leaf`` of a regressor accepts; a new family is a name here and a line below.
NumericName = Literal["constant", "linear", "poisson", "student"]
NumericFamily = Annotated[
    NumericName,
    Model(
        "Distribution of y in a leaf: normal with a constant mean; normal with a mean that is "
        "a linear function of all features, with slopes shrunk towards 0, which suits smooth "
        "responses, for up to 50 features; a Poisson distribution of counts; or a Student-t "
        "distribution, for responses with outliers."
    ),
]
MeanFamily = Annotated[
    Literal["constant", "linear"],
    Model(
        "Mean of y in a leaf: a constant, or a linear function of all features with slopes "
        "shrunk towards 0, which suits smooth responses, for up to 50 features."
    ),
]
NUMERIC: Mapping[str, Callable[[], Leaf]] = {
    "constant": Gaussian,
    "linear": LinearGaussian,
    "poisson": Poisson,
    "student": Student,
}

ShareFamily = Annotated[
    Literal["constant", "logistic"],
    Model(
        "Class probabilities in a leaf: constant, or a multinomial logistic regression on all "
        "features, which suits probabilities that change smoothly, for up to 150 coefficients."
    ),
]

#: The same for classifiers, with families of a number of classes.
ClassName = Literal["constant", "logistic", "ordinal"]
CLASSES: dict[str, Callable[[int], Leaf]] = {
    "constant": Categorical,
    "logistic": Logistic,
    "ordinal": Ordinal,
}


class NamedLeaves(BaseTree):
    """A tree with a choice of families of leaves; all that differs is read from the family."""

    leaf: Any  # the name of a family
    refine: Any = None
    mode_tree: Any = None

    def _some_family(self) -> Leaf:
        """A family with the attributes of that in use, for any number of classes."""
        raise NotImplementedError

    def _check_combination(self, model: SoftTree) -> None:
        super()._check_combination(model)
        family, n_used = model.leaf, int(self._used.sum())
        if family.most_features is not None and n_used > family.most_features:
            raise ParameterError(
                f"leaf={self.leaf!r} is for at most {family.most_features} features that vary, got "
                f"{n_used}: its cost grows with the square of their number. Select features, or "
                "set leaf='constant'."
            )
        if family.needs_double and self.dtype == "float32":
            raise ParameterError(
                f"leaf={self.leaf!r} needs double precision, because its sums of squares "
                "cancel; set dtype='auto' or 'float64', got 'float32'."
            )
        if not family.averages and (self.refine == "tao" or self.mode_tree == "distilled"):
            name = "refine='tao'" if self.refine == "tao" else "mode_tree='distilled'"
            raise ParameterError(
                f"leaf={self.leaf!r} cannot be combined with {name}, which fits leaves of means; "
                "leave this parameter at its default."
            )

    def _in_parts(self) -> bool:
        return not self._some_family().regresses and super()._in_parts()

    def _needs_double(self) -> bool:
        return self._some_family().needs_double or super()._needs_double()


class ClassLeaves(NamedLeaves):
    """A classifier with a choice of families of leaves."""

    def _leaf_family(self, n_classes: int) -> Leaf:
        return CLASSES[self.leaf](n_classes)

    def _some_family(self) -> Leaf:
        return self._leaf_family(2)


class LeafFamilies(NamedLeaves):
    """A regressor with a choice of families of leaves.

    Attributes
    ----------
    tree_ : Tree
        The tree, in the units of the data; with linear leaves its ``slope`` is set.
    """

    families: ClassVar[Mapping[str, Callable[[], Leaf]]] = NUMERIC

    def _leaf_family(self) -> Leaf:
        """The distribution of y in a leaf, before its prior is calibrated."""
        return self.families[self.leaf]()

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


class RefittedLeaves(NamedLeaves):
    """A deterministic tree, whose leaves of a regression are refitted with a learned prior."""

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        found = super()._infer(model, data)
        return inference.recalibrated(found, data) if model.leaf.regresses else found


@declare
class MeanLeaves(RefittedLeaves, LeafFamilies):
    """A deterministic tree with means of y in its leaves, constant or linear in the features."""

    leaf: MeanFamily = "constant"


@declare
class ShareLeaves(RefittedLeaves, ClassLeaves):
    """A deterministic tree with class probabilities in its leaves, constant or logistic."""

    leaf: ShareFamily = "constant"
