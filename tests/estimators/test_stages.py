"""Inference methods as settings objects of an estimator."""

import pickle
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris

from bayestree import ConvexPolytopeTreeClassifier, EndToEndTreeClassifier, load
from bayestree.inference import Em, Growth, Map, Nuts, Svi, Tao, map, svi  # noqa: A004
from bayestree.models import Network

QUICK = {"n_modes": 1, "max_depth": 1, "n_experts": 2, "random_state": 0}


def test_a_parameter_and_a_setting_of_the_same_name_fit_the_same(tmp_path):
    X, y = load_iris(return_X_y=True)
    plain = ConvexPolytopeTreeClassifier(**QUICK, inference=Svi(epochs=5, n_draws=4)).fit(X, y)
    stages = [Map(epochs=5), Svi(epochs=5, n_draws=4)]
    fitted = clone(ConvexPolytopeTreeClassifier(**QUICK, inference=stages)).fit(X, y)
    np.testing.assert_array_equal(plain.predict_proba(X), fitted.predict_proba(X))
    fitted.save(tmp_path / "tree.safetensors")
    assert load(tmp_path / "tree.safetensors").inference == stages


@pytest.mark.parametrize("setting", ["epochs", "batch_size"])
def test_settings_of_a_method_are_checked(setting):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=f"{setting} must be an integer of 1 or more"):
        ConvexPolytopeTreeClassifier(**QUICK, inference=Svi(**{setting: 0})).fit(X, y)


def test_parameters_of_the_stumps_are_used_beside_a_method():
    X, y = load_iris(return_X_y=True)
    settings = {"learning_rate": 0.05, "epochs": 3, "max_depth": 1, "random_state": 0}
    EndToEndTreeClassifier(**settings, inference=Em(epochs=2)).fit(X, y)


@pytest.mark.parametrize(
    "estimator",
    [
        ConvexPolytopeTreeClassifier(inference=Tao()),
        EndToEndTreeClassifier(inference=Growth()),
    ],
)
def test_methods_that_continue_from_no_tree_are_refused(estimator):
    with pytest.raises(ValueError, match="or a method that continues from a grown soft tree"):
        estimator.fit(*load_iris(return_X_y=True))


def test_a_method_keeps_the_zeros_of_feature_subsets_or_is_refused():
    X, y = load_iris(return_X_y=True)
    settings = {"max_features": 2, "max_depth": 2, "epochs": 3, "random_state": 0}
    tree = EndToEndTreeClassifier(**settings, inference=Em(epochs=2)).fit(X, y).tree_
    assert ((tree.hyperplane != 0).sum(axis=1) <= 2).all()
    with pytest.raises(ValueError, match="fix coefficients at 0"):
        EndToEndTreeClassifier(**settings, inference=Map(epochs=2)).fit(X, y)


def linear(n_features):
    return torch.nn.Linear(n_features, 1)


def test_networks_take_methods_that_do_not_need_hyperplanes():
    X, y = load_iris(return_X_y=True)
    settings = {"split": Network(linear), "max_depth": 1, "epochs": 2, "random_state": 0}
    EndToEndTreeClassifier(**settings, inference=Em(epochs=2)).fit(X, y)
    with pytest.raises(ValueError, match="need split='oblique'"):
        EndToEndTreeClassifier(**settings, inference=Map(epochs=2)).fit(X, y)


def test_a_subclass_takes_the_place_of_its_base():
    class Longer(Nuts):
        """No settings of its own."""

    stages = ConvexPolytopeTreeClassifier(inference=Longer())._before_rows().stages
    assert [type(stage).__name__ for stage in stages] == ["Growth", "Map", "Svi", "Longer"]


def test_unknown_settings_are_those_of_the_function():
    with pytest.raises(TypeError, match=r"^map\(\) got an unexpected keyword argument 'epoch'"):
        map(None, None, init=None, epoch=3)


@pytest.mark.parametrize(
    ("inference", "steepness", "stages"),
    [
        ("grow", None, ["Growth"]),
        ("map", None, ["Growth", "Map"]),
        ("svi", 6.0, ["Growth", "Map", "Svi"]),
        ("nuts", 6.0, ["Growth", "Map", "Svi", "Nuts"]),
        ("auto", None, ["Growth", "Vi"]),
        ("mcmc", None, ["Growth", "Vi", "Mcmc"]),
        ("smc", None, ["Growth", "Smc"]),
        (Growth(steps=3), None, ["Growth"]),
        (Nuts(n_chains=2), 6.0, ["Growth", "Map", "Svi", "Nuts"]),
        (Svi(steepness=1.0), 1.0, ["Growth", "Map", "Svi"]),
    ],
)
def test_stages(inference, steepness, stages):
    found: Any = ConvexPolytopeTreeClassifier(inference=inference)._before_rows().stages
    assert [type(stage).__name__ for stage in found] == stages
    assert steepness is None or found[1].steepness == (1.0, steepness)


def test_draws_are_those_of_the_last_stage():
    stages: Any = ConvexPolytopeTreeClassifier(inference=Nuts(n_draws=7))._before_rows().stages
    assert [stage.n_draws for stage in stages[-2:]] == [50, 7]
    assert ConvexPolytopeTreeClassifier(inference="nuts")._before_rows().last.n_draws == 250
    assert [type(s) for s in EndToEndTreeClassifier(refine_epochs=0)._before_rows().stages] == [
        Growth
    ]


def test_a_function_has_the_settings_of_its_class():
    known = signature(svi).parameters
    assert known["n_draws"].default == Svi().n_draws == 50
    assert [*known][:3] == ["model", "data", "init"]
    assert "kl_weight : float, default=1.0" in svi.__doc__
    assert repr(Map(epochs=3)) == "Map(epochs=3)"
    assert {Map(), Map(epochs=3), Map()} == {Map(epochs=3), Map()}
    with pytest.raises(TypeError, match="unexpected keyword argument 'steps'"):
        svi(None, None, init=None, steps=3)


def test_settings_are_immutable():
    settings = Svi(epochs=3)
    for name in ("epochs", "epocs"):
        with pytest.raises(AttributeError, match=f"cannot set '{name}'"):
            setattr(settings, name, 5)
    assert replace(settings, epochs=5) == Svi(epochs=5)
    assert pickle.loads(pickle.dumps(settings)) == settings
