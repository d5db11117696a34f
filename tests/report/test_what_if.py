"""Rows that are edited in the page: what the browser computes is what the package predicts."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bayestree as bt
from bayestree._utils.arrays import weighted_quantiles
from bayestree.description import features_of
from bayestree.report import carried as carried_module
from bayestree.report.carried import why_not
from bayestree.report.rows import rows_of
from bayestree.report.study import Study
from bayestree.report.what_if import what_if
from tests import fitted_cases
from tests.report.test_browser import CHROMIUM, QUIET, sync_api

TEMPLATES = Path(bt.__file__).parent / "report" / "templates"
QUICK = {"max_depth": 2, "n_experts": 3, "epochs": 6, "n_draws": 6, "random_state": 0}
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the path")


@pytest.fixture(scope="module")
def tab():
    """A tab with the scripts of the section, but without a page."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page()
        for name in ("what_if_model.js", "what_if_search.js"):
            page.add_script_tag(content=(TEMPLATES / name).read_text(encoding="utf-8"))
        yield page
        browser.close()


def carry(estimator, X, y=None, **given):
    """What the page carries: the payload, and the variables of the template."""
    _, shown = what_if(Study(estimator, rows_of(estimator, X, y, held_out=False), **given))
    return json.loads(shown["payload"]), shown


PREDICT = """([data, rows]) => {
  const model = new whatIfModel.Model(data);
  return rows.map((row) => {
    const { mean, low, high, survival } = model.predict(Float64Array.from(row));
    const lists = { mean, low, high, survival: survival && survival.mean };
    for (const name of ["mean", "survival"]) if (lists[name]) lists[name] = Array.from(lists[name]);
    return lists;
  });
}"""


def predicted(tab, payload, X):
    """Predict rows in the browser."""
    found = tab.evaluate(PREDICT, [payload, X.tolist()])
    return {
        name: np.array([one[name] for one in found])
        for name in found[0]
        if found[0][name] is not None
    }


@cache
def drawn(kind):
    """A fit with draws, by its kind of response or leaves."""
    X, label, value = fitted_cases.rows()
    rng = np.random.default_rng(3)
    if kind == "modes":
        return bt.ConvexPolytopeTreeClassifier(n_modes=2, **QUICK).fit(X, label)
    if kind == "logistic":
        return bt.ConvexPolytopeTreeClassifier(n_modes=1, leaf="logistic", **QUICK).fit(X, label)
    if kind == "survival":
        time = rng.exponential(np.where(X[:, 0] > 3, 1.0, 5.0))
        return bt.ConvexPolytopeTreeSurvival(n_modes=2, **QUICK).fit(
            X, np.minimum(time, 6), event=time < 6
        )
    y = rng.poisson(np.exp(0.5 * value.clip(-3, 3))) if kind == "poisson" else 100 + 9 * value
    leaf = "constant" if kind == "normal" else kind
    return bt.ConvexPolytopeTreeRegressor(n_modes=2, leaf=leaf, **QUICK).fit(X, y)


def fitted(kind, name):
    return drawn(name) if kind == "draws" else fitted_cases.trained(kind, name)


CASES = [
    *(("classes", name) for name in fitted_cases.CLASSIFIERS),
    *(("numbers", name) for name in fitted_cases.REGRESSORS),
    *(("draws", name) for name in ("modes", "logistic", "survival", "normal", "student", "linear", "poisson")),
]  # fmt: skip


@in_browser
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_the_browser_predicts_as_the_package(tab, kind, name):
    model = fitted(kind, name)
    X = np.random.default_rng(1).normal(3.0, 2.5, size=(40, 4))
    payload, _ = carry(model, X)
    found = predicted(tab, payload, X)
    expected = (model.predict_proba if hasattr(model, "classes_") else model.predict)(X)
    np.testing.assert_allclose(found["mean"], expected.reshape(40, -1), rtol=1e-9, atol=1e-9)
    if kind == "draws":
        groups, weights = zip(*model.fitted_.drawn(features_of(model, X)), strict=True)
        ends = weighted_quantiles(np.concatenate(groups), np.concatenate(weights), [0.05, 0.95])
        both = np.stack([found["low"], found["high"]])
        np.testing.assert_allclose(both, ends.reshape(2, 40, -1), rtol=1e-9, atol=1e-9)
    if name == "survival":
        survival = model.predict_survival_function(X, payload["times"])
        np.testing.assert_allclose(found["survival"], survival, atol=1e-9)
