"""Functions of fitted estimators raise a clear error for unfitted ones."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import bayestree
from bayestree import plots

X, Y = np.zeros((3, 2)), np.zeros(3, dtype=int)
READERS = {
    "text": bayestree.export_text,
    "rules": bayestree.export_rules,
    "json": bayestree.export_json,
    "dot": bayestree.export_dot,
    "onnx": bayestree.export_onnx,
    "tree": plots.tree,
    "boundary": plots.boundary,
    "elbo": plots.elbo,
    "polytope_size": plots.polytope_size,
    "shrinkage": plots.shrinkage,
    "shrinkage_factors": plots.shrinkage_factors,
    "split_uncertainty": lambda estimator: plots.split_uncertainty(estimator, X),
    "node_scatter": lambda estimator: plots.node_scatter(estimator, X, Y),
    "node_images": lambda estimator: plots.node_images(estimator, (1, 2)),
    "facet_image": lambda estimator: plots.facet_image(estimator, "root", (1, 2)),
}


@pytest.mark.parametrize("name", READERS)
def test_an_estimator_that_was_not_fitted(name):
    with pytest.raises(NotFittedError, match=r"ConvexPolytopeTreeClassifier.* is not fitted yet"):
        READERS[name](bayestree.ConvexPolytopeTreeClassifier())


@pytest.mark.parametrize("name", ["text", "rules", "json", "dot", "onnx", "tree", "boundary"])
def test_a_forest_that_was_not_fitted(name):
    with pytest.raises(NotFittedError, match=r"EndToEndForestClassifier.* is not fitted yet"):
        READERS[name](bayestree.EndToEndForestClassifier())
