"""The tree as JSON contains everything that its predictions need."""

import json
import math

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bayestree import BivariateTreeClassifier, export_json
from bayestree.estimators.files import save
from bayestree.topology import Topology
from tests.fitted_cases import CLASSIFIERS, REGRESSORS, network_tree, rows
from tests.test_tree import random_tree, rows_for


def dot(terms, row):
    pairs = zip(terms["features"], terms["coefficients"], strict=True)
    return sum(coefficient * row[feature] for feature, coefficient in pairs)


def leaf_of(tree, row):
    """Route a row as the documentation of the format says."""
    at = tree["root"]
    while "node" in at:
        node = tree["nodes"][at["node"]]
        votes = (
            facet["weight"] * math.log1p(math.exp(min(dot(facet, row) + facet["intercept"], 700)))
            for facet in node["facets"]
        )
        at = node["right"] if sum(votes) > math.log(2) else node["left"]
    return at["leaf"]


@pytest.mark.parametrize("name", ["polytopes", "forest", "bivariate"])
def test_classes(name):
    X, label, _ = rows()
    clf = CLASSIFIERS[name]().fit(X, np.array(["no", "so-so", "yes"])[label])
    content = json.loads(export_json(clf))
    assert content["task"] == "classification"
    assert content["classes"] == ["no", "so-so", "yes"]
    leaves = [[leaf_of(tree, row) for tree in content["trees"]] for row in X.tolist()]
    np.testing.assert_array_equal(np.array(leaves), clf.apply(X).reshape(len(X), -1))
    members = getattr(clf, "estimators_", [clf])
    for tree, member in zip(content["trees"], members, strict=True):
        found = [leaf["probabilities"] for leaf in tree["leaves"]]
        assert found == member.tree_.value.tolist()
        assert [leaf["rows"] for leaf in tree["leaves"]] == member.tree_.leaf_rows.tolist()
        assert tree["nodes"][0]["rows"] == len(X)


def test_linear_leaves():
    X, _, y = rows()
    reg = REGRESSORS["linear leaves"]().fit(X, y)
    content = json.loads(export_json(reg))
    assert (content["task"], content["classes"]) == ("regression", None)
    center = [feature["center"] for feature in content["features"]]
    found = []
    for row in X.tolist():
        leaf = content["trees"][0]["leaves"][leaf_of(content["trees"][0], row)]
        moved = [value - middle for value, middle in zip(row, center, strict=True)]
        found.append(leaf["mean"] + dot(leaf["slope"], moved))
    np.testing.assert_allclose(found, reg.predict(X), rtol=1e-12)


def test_a_tree_by_itself_and_one_without_a_split():
    tree, _ = random_tree(Topology.stump(), 0, n_experts=1)
    content = json.loads(export_json(tree, indent=None))
    assert [feature["name"] for feature in content["features"]] == ["x0", "x1", "x2"]
    X = rows_for(tree, 0)
    assert [leaf_of(content["trees"][0], row) for row in X] == tree.apply(X).tolist()
    leaf = json.loads(export_json(random_tree(Topology.leaf(), 0)[0]))["trees"][0]
    assert (leaf["root"], leaf["nodes"], leaf["depth"]) == ({"leaf": 0}, [], 0)
    assert leaf["leaves"][0]["path"] == "root"


def test_networks_have_no_facets():
    content = json.loads(export_json(network_tree()))
    (tree,) = content["trees"]
    assert tree["split"] == "network"
    assert tree["nodes"] == [
        {"path": "root", "rows": 8.0, "left": {"leaf": 0}, "right": {"leaf": 1}}
    ]
    assert tree["leaves"][1] == {"path": "R", "rows": 5.0, "probabilities": [0.0, 1.0]}


def test_what_is_no_tree_is_refused():
    with pytest.raises(TypeError, match="tree must be a Tree or a fitted estimator"):
        export_json([])


@pytest.mark.parametrize(
    ("wrapped", "said"),
    [
        (
            lambda tree: make_pipeline(StandardScaler(), tree),
            r"Pipeline; pass its last step, \[-1\]",
        ),
        (lambda tree: GridSearchCV(tree, {"max_depth": [1]}, cv=2), "CV; pass its best_estimator_"),
    ],
)
def test_a_tree_inside_a_meta_estimator(wrapped, said):
    X, y = load_iris(return_X_y=True)
    model = wrapped(BivariateTreeClassifier(max_depth=1)).fit(X, y)
    with pytest.raises(TypeError, match=said):
        export_json(model)
    with pytest.raises(TypeError, match=said):
        save(model, "model.safetensors")
