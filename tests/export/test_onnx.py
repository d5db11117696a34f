"""The tree as ONNX, run by onnxruntime, is the tree."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree import export_onnx
from bayestree.export import onnx as export
from bayestree.export.onnx import OnnxMismatchError, check_onnx
from bayestree.topology import Topology
from bayestree.tree import LOG2, Tree, facet_threshold
from tests.fitted_cases import CLASSIFIERS, REGRESSORS, network_tree, rows, trained
from tests.strategies import seeds, topologies
from tests.test_tree import random_tree, rows_for


def run(content, X):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": np.asarray(X, dtype=float)}), strict=True))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_has_equal_leaves_labels_and_probabilities(name):
    X, label, _ = rows()
    y = np.array(["no", "so-so", "yes"])[label]
    clf = CLASSIFIERS[name]().fit(X, y)
    new = rows(seed=1)[0]
    found = run(export_onnx(clf), new)
    np.testing.assert_array_equal(found["leaf"], clf.apply(new))
    trees = getattr(clf, "estimators_", [clf])
    expected = np.mean([tree.tree_.predict(new) for tree in trees], axis=0)
    np.testing.assert_allclose(found["probabilities"], expected, rtol=1e-14)
    assert found["label"].tolist() == clf.classes_[expected.argmax(axis=1)].tolist()


@pytest.mark.parametrize("name", REGRESSORS)
def test_every_regressor_has_equal_leaves_and_predictions(name):
    reg = trained("numbers", name)
    new = rows(seed=1)[0]
    found = run(export_onnx(reg), new)
    np.testing.assert_array_equal(found["leaf"], reg.apply(new))
    trees = getattr(reg, "estimators_", [reg])
    expected = np.mean([tree.tree_.predict(new) for tree in trees], axis=0)
    np.testing.assert_allclose(found["prediction"], expected, rtol=1e-12)
    assert found.keys() == {"leaf", "prediction"}


@settings(max_examples=40, deadline=None)
@given(topologies(max_nodes=6), seeds(), st.integers(1, 4), st.sampled_from([-30.0, 0.0, 30.0]))
def test_any_tree_of_polytopes(topology, seed, n_experts, log_weight):
    """Weights so large and so small that votes lie where softplus has few digits."""
    tree, _ = random_tree(topology, seed, n_experts=n_experts, log_weight=log_weight)
    tree = replace(tree, intercept=tree.intercept - np.where(tree.weight > 1, log_weight, 0.0))
    X = rows_for(tree, seed)
    found = run(export_onnx(tree), X)
    np.testing.assert_array_equal(found["leaf"], tree.apply(X))
    np.testing.assert_array_equal(found["prediction"], tree.predict(X))


def test_votes_far_below_one_are_not_rounded_away():
    """With weights as large as exp(40), the 18th digit of 1 + exp(-41) determines the side."""
    weight = np.exp([[40.0, 40.0]])
    border = float(np.log(LOG2 / weight.sum()))
    tree = Tree.from_standardised(
        Topology.stump(),
        weight,
        np.ones((1, 2, 1)),
        np.full((1, 2), border),
        center=np.zeros(1),
        scale=np.ones(1),
    )
    X = np.array([[-1.0], [-1e-6], [1e-6], [1.0], [80.0]])
    assert tree.apply(X).tolist() == [0, 0, 1, 1, 1]
    assert run(export_onnx(tree), X)["leaf"].tolist() == [0, 0, 1, 1, 1]


def two_nodes():
    """A single hyperplane above a polytope of three facets: the tables have holes."""
    return Tree(
        Topology(np.array([[1, ~0], [~1, ~2]])),
        expert_start=np.array([0, 1, 4]),
        weight=np.array([0.3, 1.0, 2.0, 0.5]),
        hyperplane=np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.5]]),
        intercept=np.array([-0.5, -1.0, -2.0, 0.3]),
        value=np.array([[0.5, 0.5], [1.0, 0.0], [0.2, 0.8]]),
        leaf_rows=np.ones(3),
        center=np.zeros(2),
        scale=np.ones(2),
    )


def test_nodes_with_one_and_with_several_facets():
    tree = two_nodes()
    X = 2 * np.random.default_rng(0).normal(size=(500, 2))
    assert len(np.unique(tree.apply(X))) == 3
    np.testing.assert_array_equal(run(export_onnx(tree), X)["leaf"], tree.apply(X))


def test_a_row_on_the_border_of_a_single_facet_goes_left():
    """A single expert decides by its activation: its vote would round to log 2 on both sides."""
    tree = two_nodes()
    border = float(facet_threshold(tree.weight[:1])[0]) + 0.5
    X = np.array([[np.nextafter(border, side), 0.0] for side in (-9.0, 9.0)])
    X = np.vstack([X, [[border, 0.0]]])
    expected = tree.goes_right(0, X)
    assert set(expected.tolist()) == {False, True}
    found = run(export_onnx(tree), X)["leaf"]
    np.testing.assert_array_equal(found == 0, expected)


@pytest.mark.parametrize("labels", [[3, 7, 9], [True, False], [2.0, 5.0], ["b", "a"]])
def test_labels_keep_their_kind(labels):
    X, label, _ = rows()
    y = np.array(labels)[label % len(labels)]
    clf = CLASSIFIERS["bivariate"]().fit(X, y)
    found = run(export_onnx(clf), X)["label"]
    assert found.tolist() == clf.predict(X).tolist()
    assert type(found.tolist()[0]) is type(labels[0])


def test_labels_that_are_dates():
    X, label, _ = rows()
    y = np.array(["2024-01-31", "2025-02-28"], dtype="datetime64[D]")[label % 2]
    clf = CLASSIFIERS["bivariate"]().fit(X, y)
    found = run(export_onnx(clf), X)["label"]
    np.testing.assert_array_equal(found.astype("datetime64[D]"), clf.predict(X))


@pytest.mark.parametrize("first", [2**63 - 2, 2**63 - 1])
def test_labels_that_are_large(first):
    X, label, _ = rows()
    y = np.array([first, first + 1], dtype=np.uint64)[label % 2]
    clf = CLASSIFIERS["bivariate"]().fit(X, y)
    if first + 1 < 2**63:
        assert run(export_onnx(clf), X)["label"].tolist() == clf.predict(X).tolist()
    else:
        with pytest.raises(ValueError, match=f"label {2**63} is too large for an ONNX model"):
            export_onnx(clf)


def test_a_tree_by_itself_has_names_or_numbers_of_classes():
    tree, X = two_nodes(), np.zeros((1, 2))
    assert run(export_onnx(tree), X)["label"].tolist() == [1]
    named = replace(tree, class_names=("left", "right"))
    assert run(export_onnx(named), X)["label"].tolist() == ["right"]


def test_no_rows_and_a_tree_without_a_split():
    tree = two_nodes()
    assert run(export_onnx(tree), np.zeros((0, 2)))["leaf"].shape == (0,)
    leaf = random_tree(Topology.leaf(), 0)[0]
    found = run(export_onnx(leaf), np.zeros((3, 3)))
    assert found["leaf"].tolist() == [0, 0, 0]
    assert found["prediction"].tolist() == [float(leaf.value[0])] * 3


def test_the_file_says_what_it_is():
    tree = replace(two_nodes(), feature_names=("height", "breite"), class_names=("no", "yes"))
    model = onnx.load_from_string(export_onnx(tree))
    meta = {one.key: json.loads(one.value) for one in model.metadata_props}
    assert meta == {"features": ["height", "breite"], "classes": ["no", "yes"]}
    assert (model.producer_name, model.ir_version) == ("bayestree", 8)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 17)]
    assert export_onnx(tree) == export_onnx(tree)


def test_a_model_that_is_not_of_the_tree_is_found_out():
    tree, X = two_nodes(), np.random.default_rng(0).normal(size=(300, 2))
    assert check_onnx(export_onnx(tree), tree, X) == 0
    moved = replace(tree, intercept=tree.intercept + np.array([2.0, 0, 0, 0]))
    with pytest.raises(
        OnnxMismatchError, match=r"^onnxruntime and the tree send \d+ of 300 rows to different"
    ):
        check_onnx(export_onnx(moved), tree, X)
    other = replace(tree, value=tree.value[::-1])
    with pytest.raises(OnnxMismatchError, match="predicts differently"):
        check_onnx(export_onnx(other), tree, X)


def test_rows_on_a_border_may_fall_on_either_side():
    tree = two_nodes()
    border = float(facet_threshold(tree.weight[:1])[0]) + 0.5
    X = np.array([[border, 0.0], [border - 1, 0.0]])
    moved = replace(tree, intercept=tree.intercept + np.array([1e-12, 0, 0, 0]))
    assert abs(tree.score(0, X[:1])[0] / LOG2 - 1) < 1e-12
    assert check_onnx(export_onnx(moved), tree, X) == 1


def test_what_cannot_be_written_is_refused(monkeypatch):
    with pytest.raises(TypeError, match="tree must be a Tree or a fitted estimator"):
        export_onnx(3)
    with pytest.raises(TypeError, match="kind 'network'; export their modules with torch"):
        export_onnx(network_tree())
    monkeypatch.setattr(export, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="one ONNX file holds 2; grow smaller"):
        export_onnx(two_nodes())


def test_a_package_that_is_missing_is_named(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(export, "import_module", missing)
    with pytest.raises(ImportError, match=r"package onnx; .* 'bayestree\[export\]'"):
        export_onnx(two_nodes())
