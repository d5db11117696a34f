"""Families of leaves by their names for the parameter ``leaf``."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from bayestree._utils.parameters import Model
from bayestree.models import (
    Categorical,
    Gaussian,
    LinearGaussian,
    Logistic,
    Ordinal,
    Poisson,
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
