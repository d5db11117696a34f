"""What the page carries, and what it cannot carry."""

from types import SimpleNamespace

import numpy as np
import pytest

from bayestree.report import embedded_model
from bayestree.report.rows import rows_of
from bayestree.report.study import Study
from bayestree.report.what_if import what_if
from tests import fitted_cases
from tests.test_texts import N, X, fitted


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


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_means_of_carried_draws_are_those_of_all(kind, monkeypatch):
    """Of draws of two modes of unequal weights, and of their sides."""
    fit = fitted(kind)
    sizes, counts = embedded_model._sizes(embedded_model._members(fit))
    monkeypatch.setattr(embedded_model, "BUDGET", 0.7 * 4 * sizes @ counts)
    found, rows = embedded_model.embedded_model(fit), X[N : N + 9]
    assert found.n_draws == (22, 32)
    weights, error, side_error = found.balanced(rows.to_numpy(), fit.fitted_.matches)
    values, equal = found.drawn(rows.to_numpy())
    np.testing.assert_allclose(equal, np.repeat([0.7 / 11, 0.3 / 11], 11))
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    mean = fit.predict_proba(rows) if kind == "classes" else fit.predict(rows)
    apart = np.abs(np.einsum("ns,sn...->n...", weights, values) - mean)
    assert apart.max() == pytest.approx(error, abs=1e-6)
    unweighted = np.abs(np.tensordot(equal, values, axes=1) - mean)
    assert error < 0.1 * unweighted.max()
    draws = [*zip(found.members, fit.fitted_.matches, found.kept, strict=True)]
    right = np.concatenate(
        [embedded_model._right(one, nodes, rows.to_numpy())[kept] for one, nodes, kept in draws]
    )
    alike = np.concatenate([one.alike.reshape(16, -1)[kept] for _, one, kept in draws])
    among = np.einsum("ns,sv,snv->nv", weights, alike, right) / (weights @ alike)
    assert np.abs(among - fit.split_uncertainty(rows).mean).max() == pytest.approx(
        side_error, abs=1e-6
    )
    assert side_error < 0.03
