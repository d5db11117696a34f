"""What the page carries, and what it cannot carry."""

import base64
import json
from copy import copy
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, softmax

import bayestree as bt
from bayestree.report import embedded_model
from bayestree.report.rows import rows_of
from bayestree.report.study import Study
from bayestree.report.what_if import what_if
from tests import fitted_cases
from tests.estimators.modes import weighted
from tests.test_texts import N, X, Y, fitted, weights


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


def unpacked(array):
    return np.frombuffer(base64.b64decode(array["bytes"]), f"<{array['type']}").astype(float)


def predicted(part, x):
    """The mean of the draws that a part of the page holds, and of their survival."""
    n_draws, n_experts = part["draws"], len(part["first"]) - 1
    z = (x - unpacked(part["center"])) / unpacked(part["scale"])
    expert = np.repeat(np.arange(n_experts), np.diff(part["first"]))
    column = unpacked(part["column"]).astype(int)
    terms = unpacked(part["coefficient"]).reshape(n_draws, -1) * z[column]
    values = unpacked(part["intercept"]).reshape(n_draws, n_experts)
    values = values + terms @ (expert[:, None] == np.arange(n_experts))
    votes = unpacked(part["weight"]).reshape(n_draws, n_experts) * np.logaddexp(0, values)
    score = np.add.reduceat(votes, part["experts"][:-1], axis=1)
    odds = score + np.log(-np.expm1(-score))
    right = odds > 0 if part["steepness"] is None else expit(part["steepness"] * odds)
    reached, leaves = {0: 1.0}, {}
    for node, children in enumerate(np.reshape(part["children"], (-1, 2))):
        for child, share in zip(children, (1 - right[:, node], right[:, node]), strict=True):
            (reached if child >= 0 else leaves)[child] = reached[node] * share
    leaf = np.stack([leaves[~number] for number in range(len(leaves))], axis=1)
    own = unpacked(part["value"]).reshape(n_draws, len(leaves), part["outputs"])
    if "slope" in part:
        own = own + unpacked(part["slope"]).reshape(*own.shape, -1) @ z[part["sloping"]]
    own = softmax(own, axis=2) if part["softmax"] else own
    center, scale = part["y"]
    mean = center + scale * np.einsum("sl,slq->q", leaf, own) / n_draws
    if part["hazard"] is None:
        return mean, None
    return mean, np.einsum("sl,slt->t", leaf, np.exp(-own * part["hazard"])) / n_draws


@cache
def regressed(leaf):
    """A few draws of leaves with slopes, far from 0 and in small units."""
    features, label, value = fitted_cases.rows()
    kind = bt.ConvexPolytopeTreeClassifier if leaf == "logistic" else bt.ConvexPolytopeTreeRegressor
    given = {"inference": fitted_cases.BY_SVI, "n_modes": 1, "n_experts": 2, "max_depth": 1}
    return kind(leaf=leaf, sparsity=None, random_state=0, **given).fit(
        features, label if leaf == "logistic" else 100 + 9 * value
    )


FITS = {
    **{kind: (fitted, kind) for kind in ("classes", "numbers", "times")},
    **{leaf: (regressed, leaf) for leaf in ("linear", "logistic")},
    "forest": (fitted_cases.trained, "classes", "forest"),
    "polytopes": (fitted_cases.trained, "classes", "polytopes"),
    "linear tree": (fitted_cases.trained, "numbers", "linear leaves"),
}


@pytest.mark.parametrize("name", FITS)
def test_the_numbers_of_the_page_predict_as_the_estimator(name):
    fit, *given = FITS[name]
    fit = fit(*given)
    rows = X[N : N + 9] if name in Y else fitted_cases.rows()[0][:9]
    times = np.array([0.5, 2.0]) if name == "times" else None
    model = embedded_model.embedded_model(fit).with_hazards(times)
    parts = [one.described(model.dtype) for one in model.parts]
    assert sum(one["share"] for one in parts) == pytest.approx(1)
    found = [[predicted(one, x) for one in parts] for x in np.asarray(rows)]
    share = [one["share"] for one in parts]
    mean = np.array([share @ np.array([one for one, _ in each]) for each in found])
    expected = (fit.predict_proba if hasattr(fit, "classes_") else fit.predict)(rows)
    np.testing.assert_allclose(mean, np.reshape(expected, mean.shape), rtol=1e-5, atol=1e-6)
    if times is not None:
        survival = np.array([share @ np.array([one for _, one in each]) for each in found])
        expected = fit.predict_survival_function(rows, times)
        np.testing.assert_allclose(survival, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("prediction", ["auto", "tree"])
def test_the_numbers_that_a_page_holds_are_counted(prediction):
    """All of those of each draw, but for modes without weight; centers keep all digits."""
    fit = weighted(fitted("classes"), [1.0, 0.0])
    fit.prediction = prediction
    (size,), (count,) = embedded_model._sizes(embedded_model._members(fit))
    (part,) = embedded_model.embedded_model(fit).parts
    held = part.described(embedded_model.SINGLE)
    names = ("weight", "intercept", "coefficient", "value")
    assert sum(len(unpacked(held[name])) for name in names) == size * count
    assert count == (16 if prediction == "auto" else 1)
    np.testing.assert_array_equal(unpacked(held["center"]), part.center)
    drawn = fit.fitted_.trees[0]
    planes = drawn.posterior.draws["hyperplane"] / drawn.scaling.units.scale
    planes = planes.reshape(16, -1, 3) if prediction == "auto" else fit.tree_.hyperplane[None]
    np.testing.assert_allclose(part.used, np.abs(planes).sum(axis=1).mean(axis=0), rtol=1e-5)


def test_the_page_asks_what_the_tree_asks():
    """The tree that is shown, its facets as they are written, and what can be reached."""
    fit = fitted("numbers")
    tree, payload = fit.tree_, json.loads(section(fit)["payload"])
    shown, rows = payload["shown"], X.to_numpy()
    assert shown["all"] == tree.is_conjunction.tolist()
    assert len(shown["facets"]) == tree.n_experts_total
    for k, (_, _, bound, divisor) in enumerate(shown["facets"]):
        beyond = rows @ tree.hyperplane[k] / divisor - bound
        outside = beyond > 0 if divisor > 0 else beyond < 0
        alone = rows @ tree.hyperplane[k] > tree.facet_limit[k]
        assert (outside == alone).all()
    mean = np.array([predicted(shown["part"], x)[0] for x in rows])
    np.testing.assert_allclose(mean[:, 0], tree.predict(rows), rtol=1e-9)
    target = np.average(tree.predict(rows[:N]), weights=weights[:N])
    assert payload["target"] == pytest.approx(target, rel=5e-3)  # of three digits
    assert payload["times"] is None


def test_survival_is_shown_up_to_the_last_time():
    """Of the rows of the fit, else of those that are scored."""
    fit, time = fitted("times"), Y["times"][:, 0]
    short = np.argsort(time)[:9]
    train = rows_of(fit, X, Y["times"], held_out=False)
    held = rows_of(fit, X.iloc[short], Y["times"][short], held_out=True)
    last = {(train, held): time.max(), (None, held): time[short].max()}
    last[()] = 2 * fit.fitted_.response.leaf.unit
    for rows, end in last.items():
        times = json.loads(section(fit, *rows)["payload"])["times"]
        np.testing.assert_allclose(times, np.linspace(0, end, len(times)))


def test_a_single_draw_has_no_doubt_about_its_sides():
    fit = copy(fitted_cases.trained("classes", "polytopes"))
    fit.prediction = "posterior"
    payload = json.loads(section(fit)["payload"])
    assert (payload["parts"][0]["draws"], payload["belief"]) == (1, None)
