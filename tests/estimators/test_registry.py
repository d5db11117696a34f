"""The registry of estimators, which the package and model files share."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import bayestree
from bayestree import BivariateTreeClassifier, estimators, inference
from bayestree._utils.parameters import parameters_of
from bayestree.estimators import registry
from bayestree.estimators.registry import (
    ESTIMATORS,
    METHODS,
    TREES,
    estimator_class,
    method,
    register,
)
from bayestree.inference.splitters import searches


def test_every_estimator_is_public():
    for name in ESTIMATORS:
        assert getattr(bayestree, name) is getattr(estimators, name) is estimator_class(name)
        assert name in bayestree.__all__


def test_public_names_of_estimators_are_parameters_or_documented():
    own = [estimator_class(name) for name, home in ESTIMATORS.items() if isinstance(home, str)]
    parameters = {name for kind in own for name in parameters_of(kind)}
    for kind in own:
        for name in dir(kind):
            if name.startswith(("_", "set_")) or name in parameters:
                continue
            found = inspect.getattr_static(kind, name)
            called = callable(getattr(kind, name, None))  # a method, also if it is conditional
            assert called or isinstance(found, property), (kind, name)
            assert found.__doc__, (kind, name)


def test_type_checkers_know_every_public_name():
    tree = ast.parse(Path(bayestree.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    known = {
        name.asname for one in block.body if isinstance(one, ast.ImportFrom) for name in one.names
    }
    assert known == set(bayestree.__all__)


def test_names_are_known_without_torch():
    code = "import bayestree.estimators.registry, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_named_trees_have_registered_estimators():
    named = [
        name
        for tree in TREES.values()
        for name in (tree.classifier, tree.regressor, tree.survival)
        if name
    ]
    assert set(named) == ESTIMATORS.keys()


def test_an_estimator_from_outside(monkeypatch):
    class Own(BivariateTreeClassifier):
        """Not part of the package."""

    monkeypatch.setattr(registry, "ESTIMATORS", dict(ESTIMATORS))
    register(Own)
    assert estimator_class("Own") is Own
    with pytest.raises(AttributeError, match="no attribute 'Own'"):
        _ = estimators.Own


def test_names_of_the_package_cannot_be_taken():
    own = type("BivariateTreeClassifier", (BivariateTreeClassifier,), {})
    register(BivariateTreeClassifier)
    with pytest.raises(ValueError, match="BivariateTreeClassifier is an estimator of the package"):
        register(own)
    assert estimator_class("BivariateTreeClassifier") is BivariateTreeClassifier


def test_methods_of_other_trees_are_public_in_inference():
    public = (inference, searches)
    for name in METHODS:
        (found,) = [getattr(home, name) for home in public if hasattr(home, name)]
        assert found is method(name)
    for home in public:
        with pytest.raises(AttributeError, match="other"):
            _ = home.other
