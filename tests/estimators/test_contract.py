"""What every registered estimator must do; a new one needs a case here.

scikit-learn's own checks are in test_sklearn.py; interruptions in test_interrupted.py.
"""

import json
from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import bayestree
from bayestree import export_dot, export_json, export_text
from bayestree._utils.parameters import ParameterError, check_parameters
from bayestree.estimators._serialization import arrays_of, describe
from bayestree.estimators.registry import ESTIMATORS, estimator_class
from tests.fitted_cases import BY_MAP, CLASSIFIERS, QUICK, REGRESSORS, SMALL, rows, trained
from tests.short_checks import short_stages
from tests.unusual_state import unusual_state

#: Those that other tests of fitted trees leave out.
OTHERS = {
    "default": lambda: bayestree.ConvexPolytopeTreeClassifier(random_state=0),
    "default of numbers": lambda: bayestree.ConvexPolytopeTreeRegressor(random_state=0),
    "survival": lambda: bayestree.ConvexPolytopeTreeSurvival(
        inference=BY_MAP, n_experts=2, **SMALL
    ),
    "network signs of numbers": lambda: bayestree.LocallyConstantTreeRegressor(**QUICK),
    "bound of the tree of numbers": lambda: bayestree.NonGreedyTreeRegressor(**QUICK),
    "neural": lambda: bayestree.NeuralDecisionForestClassifier(2, **QUICK),
    "neural of numbers": lambda: bayestree.NeuralDecisionForestRegressor(1, **QUICK),
    "alternating forest": lambda: bayestree.AlternatingDecisionForestClassifier(
        2, max_depth=3, random_state=0
    ),
}
CASES = [
    *(("classes", name) for name in CLASSIFIERS),
    *(("numbers", name) for name in REGRESSORS),
    *(("others", name) for name in OTHERS),
]
# Most of these fits end early.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@cache
def fitted(kind, name):
    """A fitted estimator and its rows, which no test changes."""
    X, label, value = rows()
    if kind != "others":
        return trained(kind, name), X, label if kind == "classes" else value
    estimator = OTHERS[name]()
    y = label if hasattr(estimator, "predict_proba") else value
    y = np.exp(value) if name == "survival" else y
    return estimator.fit(X, y), X, y


@pytest.fixture(params=CASES, ids=" ".join, scope="module")
def case(request):
    with short_stages() if "default" in request.param[1] else nullcontext():
        yield fitted(*request.param)


def contents(estimator):
    """Everything that a model file holds."""
    arrays = {name: value.tobytes() for name, value in arrays_of(estimator).items()}
    return describe(estimator), arrays


def trees_of(estimator):
    return getattr(estimator, "estimators_", [estimator])


def test_every_estimator_has_a_case():
    kinds = {"classes": CLASSIFIERS, "numbers": REGRESSORS, "others": OTHERS}
    found = {type(kinds[kind][name]()).__name__ for kind, name in CASES}
    assert found == ESTIMATORS.keys()


def test_the_seed_decides_whatever_the_state_of_the_caller(case):
    estimator, X, y = case
    method = "predict_proba" if hasattr(estimator, "predict_proba") else "predict"
    expected = getattr(estimator, method)(X)
    with unusual_state():
        fitted = clone(estimator).fit(X, y)
        found = getattr(fitted, method)(X)
    assert contents(fitted) == contents(estimator)
    assert np.array_equal(found, expected)


def test_weights_of_one_are_no_weights(case):
    estimator, X, y = case
    weighted = clone(estimator).fit(X, y, np.ones(len(X)))
    np.testing.assert_allclose(weighted.predict(X), estimator.predict(X))


@pytest.mark.parametrize("weights", [-np.ones(240), np.ones(3), np.full(240, np.nan)])
def test_weights_that_are_none_are_refused(case, weights):
    estimator, X, y = case
    with pytest.raises(ValueError, match="weight"):
        clone(estimator).fit(X, y, weights)


def test_a_file_holds_all(case, tmp_path):
    estimator, X, _ = case
    estimator.save(tmp_path / "tree.safetensors")
    loaded = bayestree.load(tmp_path / "tree.safetensors")
    assert type(loaded) is type(estimator)
    assert contents(loaded) == contents(estimator)
    assert repr(loaded) == repr(estimator)
    for method in ("predict", "predict_proba", "predict_interval", "predict_median", "apply"):
        if hasattr(estimator, method):
            found, expected = (getattr(one, method)(X) for one in (loaded, estimator))
            np.testing.assert_array_equal(found, expected, err_msg=method)
    assert export_text(loaded) == export_text(estimator)


def test_exports_have_every_leaf(case):
    estimator, _, _ = case
    members = trees_of(estimator)
    described = json.loads(export_json(estimator))["trees"]
    assert [len(tree["leaves"]) for tree in described] == [one.tree_.n_leaves for one in members]
    for one in members:
        text, graph = export_text(one), export_dot(one)
        assert text.count(": leaf, ") == one.tree_.n_leaves
        assert graph.count("->") == 2 * one.tree_.topology.n_nodes


def test_a_single_leaf(case, tmp_path):
    estimator, X, y = case
    if "Ensemble" in type(estimator).__name__:  # of boosted trees, each with a split
        with pytest.raises(ParameterError, match="max_depth must be an integer of 1 or more"):
            clone(estimator).set_params(max_depth=0).fit(X, y)
        return
    whole = clone(estimator).set_params(max_depth=0).fit(X, y)
    assert {one.tree_.n_leaves for one in trees_of(whole)} == {1}
    modes = getattr(whole, "modes_", trees_of(whole))
    sloping = any(getattr(one.tree_, "slope", None) is not None for one in modes)
    assert sloping or len(np.unique(np.round(whole.predict(X), 9))) == 1
    whole.save(tmp_path / "leaf.safetensors")
    assert contents(bayestree.load(tmp_path / "leaf.safetensors")) == contents(whole)
    assert "leaf" in export_text(trees_of(whole)[0])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_before_a_fit(name, tmp_path):
    estimator = estimator_class(name)()
    with pytest.raises(NotFittedError):
        estimator.predict(np.zeros((1, 2)))
    with pytest.raises(NotFittedError):
        estimator.save(tmp_path / "tree.safetensors")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_parameter_of_the_wrong_kind_is_named(name):
    for wrong in (-1, 0.5, "deep"):
        with pytest.raises(ParameterError, match="max_depth must be"):
            check_parameters(estimator_class(name)(max_depth=wrong))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_numbers_are_levels_of_verbose(name):
    for verbose in (0, 1, 10, True, False, "auto"):
        check_parameters(estimator_class(name)(verbose=verbose))
    for verbose in (-1, 0.5, "loud"):
        with pytest.raises(ParameterError, match="verbose must be"):
            check_parameters(estimator_class(name)(verbose=verbose))
