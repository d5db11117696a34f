"""The trees with the face of scikit-learn."""

from bayestree.estimators._columns import UnusedColumnsWarning
from bayestree.estimators.alternating import AlternatingTreeClassifier, AlternatingTreeRegressor
from bayestree.estimators.bivariate import BivariateTreeClassifier
from bayestree.estimators.cpt import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.estimators.end_to_end import EndToEndTreeClassifier
from bayestree.estimators.forest import EndToEndForestClassifier
from bayestree.estimators.weighted import WeightedObliqueTreeClassifier

__all__ = [
    "AlternatingTreeClassifier",
    "AlternatingTreeRegressor",
    "BivariateTreeClassifier",
    "ConvexPolytopeTreeClassifier",
    "ConvexPolytopeTreeRegressor",
    "EndToEndForestClassifier",
    "EndToEndTreeClassifier",
    "UnusedColumnsWarning",
    "WeightedObliqueTreeClassifier",
]
