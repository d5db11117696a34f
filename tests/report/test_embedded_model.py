"""What the page carries, and what it cannot carry."""

from types import SimpleNamespace

import numpy as np
import pytest

from bayestree.report import embedded_model
from bayestree.report.rows import rows_of
from bayestree.report.study import Study
from bayestree.report.what_if import what_if
from tests import fitted_cases


def section(*given):
    found = what_if(Study(*given))
    assert found is not None
    return found[1]


def test_networks_are_not_carried():
    tree = SimpleNamespace(tree=fitted_cases.network_tree())
    mixture = SimpleNamespace(predicting=lambda _: [(tree, 1.0, False)])
    reason = embedded_model.why_not(SimpleNamespace(fitted_=mixture, prediction="tree"))
    assert "networks" in reason


def test_a_forest_that_is_too_large_is_left_out(monkeypatch):
    forest = fitted_cases.trained("classes", "forest")
    assert embedded_model.why_not(forest) == ""
    monkeypatch.setattr(embedded_model, "BUDGET", 100)
    shown = section(forest)
    assert shown["reason"] == embedded_model.why_not(forest)
    assert "3 trees" in shown["reason"]


def test_without_rows_the_means_can_be_edited():
    tree = fitted_cases.trained("classes", "axis")
    shown = section(tree)
    assert shown["groups"] == [("", [(0, "The means of the columns")])]
    for field in shown["fields"]:
        (cell,) = field.cells
        assert abs(cell - tree.tree_.center[field.features[0]]) <= 0.01


def test_rows_may_be_withheld():
    tree, (X, label, _) = fitted_cases.trained("classes", "axis"), fitted_cases.rows()
    study = Study(tree, rows_of(tree, X, label, held_out=False), example_rows=False)
    found = what_if(study)
    assert found is not None
    assert found[1]["groups"][0][1] == [(0, "The means of the columns")]


def test_rows_of_the_largest_errors_are_offered():
    tree, (X, label, _) = fitted_cases.trained("classes", "axis"), fitted_cases.rows()
    wrong = np.flatnonzero(tree.predict(X) != label)
    shown = section(tree, rows_of(tree, X, label, held_out=False))
    (even, spaced), (worst, errors) = shown["groups"]
    assert (even, worst) == ("Evenly spaced rows", "Rows with the largest errors")
    assert len(errors) == min(10, len(wrong))
    assert len(spaced) <= 20
    assert {int(text.split()[2].rstrip(":")) for _, text in errors} <= {*wrong}


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_columns_without_effect_are_left_out(kind):
    tree = fitted_cases.trained(kind, "bivariate")
    used = (tree.tree_.hyperplane != 0).any(axis=0)
    shown = section(tree)
    assert len(shown["fields"]) == used.sum()
    assert shown["unused"] == (~used).sum()
