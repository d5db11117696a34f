"""The trees with the face of scikit-learn."""

from bayestree.estimators.cpt import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor

__all__ = ["ConvexPolytopeTreeClassifier", "ConvexPolytopeTreeRegressor"]
