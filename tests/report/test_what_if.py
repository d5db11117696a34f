"""Rows that are edited in the page: what the browser computes is what the package predicts."""

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayestree as bt
from bayestree._utils.arrays import weighted_quantiles
from bayestree.description import features_of
from bayestree.inference import Svi
from bayestree.report import embedded_model
from bayestree.report.rows import rows_of
from bayestree.report.study import Study
from bayestree.report.study import number as written
from bayestree.report.what_if import what_if
from tests import fitted_cases

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the path"),
]

TEMPLATES = Path(bt.__file__).parent / "report" / "templates"
SVI = Svi(epochs=3, n_draws=4)
QUICK = {"inference": SVI, "max_depth": 1, "n_experts": 2, "random_state": 0}
WAIT = ".change[aria-busy=false]"  # for the end of the search

#: Predictions of rows by the script, as lists.
PREDICT = """([data, rows]) => {
  const model = new whatIfModel.Model(data);
  const list = (values) => values && Array.from(values);
  return rows.map((row) => {
    const { mean, low, high, survival, right } = model.predict(Float64Array.from(row));
    return { mean: list(mean), low, high, right, survival: survival && list(survival.mean) };
  });
}"""
#: Predictions of the rows to choose from.
LISTED = """(data) => {
  const model = new whatIfModel.Model(data);
  return data.fields[0].cells.map((_, number) => {
    const { mean, low, high, right } = model.predict(model.changed(number, model.cells(number)));
    return { mean: Array.from(mean), low, high, right };
  });
}"""
#: The features of edits of the first row.
CHANGED = """([data, edits]) => {
  const model = new whatIfModel.Model(data);
  return edits.map((cells) => Array.from(model.changed(0, cells)));
}"""
#: The features of all rows, with all columns taken from their cells.
ROWS = """(data) => {
  const model = new whatIfModel.Model(data);
  return data.fields[0].cells.map((_, number) => {
    const x = model.row(number);
    for (const field of model.fields) {
      const values = whatIfModel.encode(field, field.cells[number]);
      values.forEach((value, i) => { x[field.at[i]] = value; });
    }
    return Array.from(x);
  });
}"""
#: The nearest change of some rows, towards another class or a level.
NEAREST = """([data, numbers, wanted]) => {
  const model = new whatIfModel.Model(data);
  return numbers.map((number) => {
    const cells = model.cells(number);
    const { mean } = model.predict(model.changed(number, cells));
    const now = mean.indexOf(Math.max(...mean));
    const steps = whatIfSearch.nearest(model, number, cells, wanted || { now, label: null });
    let step = steps.next();
    while (!step.done) step = steps.next();
    const found = step.value;
    return found && { cells: found.cells, distance: found.distance, agree: found.agree,
                      row: Array.from(model.changed(number, found.cells)) };
  });
}"""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tab(browser):
    """A tab with the scripts of the section, but without a page."""
    page = browser.new_page()
    for name in ("what_if_model.js", "what_if_search.js"):
        page.add_script_tag(content=(TEMPLATES / name).read_text(encoding="utf-8"))
    return page


def carry(estimator, X, y=None):
    """Return the numbers that the page carries, and the variables of the template."""
    found = what_if(Study(estimator, rows_of(estimator, X, y, held_out=False)))
    assert found is not None
    shown = found[1]
    return json.loads(shown["payload"]), shown


def predicted(tab, payload, X):
    found = tab.evaluate(PREDICT, [payload, X.tolist()])
    known = [name for name, values in found[0].items() if values is not None]
    return {name: np.array([one[name] for one in found]) for name in known}


@cache
def drawn(kind):
    """A fit with draws, by its kind of leaves, or with several modes."""
    X, label, value = (part[:80] for part in fitted_cases.rows())
    if kind in ("modes", "logistic"):
        given = {"n_modes": 2} if kind == "modes" else {"n_modes": 1, "leaf": kind}
        return bt.ConvexPolytopeTreeClassifier(**QUICK, **given).fit(X, label)
    if kind == "survival":
        time = np.exp(value - value.min())
        tree = bt.ConvexPolytopeTreeSurvival(n_modes=1, **QUICK)
        return tree.fit(X, time, event=np.arange(80) % 3 > 0)
    leaf, y = ("constant", 100 + 9 * value) if kind == "normal" else (kind, value)
    y = np.round(np.exp(value.clip(-2, 2))) if kind == "poisson" else y
    return bt.ConvexPolytopeTreeRegressor(n_modes=1, leaf=leaf, **QUICK).fit(X, y)


DRAWN = ("modes", "logistic", "survival", "normal", "student", "linear", "poisson")
TREES = [
    *(("classes", name) for name in fitted_cases.CLASSIFIERS),
    *(("numbers", name) for name in fitted_cases.REGRESSORS),
]


@pytest.mark.parametrize(("kind", "name"), [*TREES, *(("draws", name) for name in DRAWN)])
def test_the_browser_predicts_as_the_package(tab, kind, name):
    model = drawn(name) if kind == "draws" else fitted_cases.trained(kind, name)
    X = np.random.default_rng(1).normal(3.0, 2.5, size=(40, 4))
    payload, _ = carry(model, X)
    found = predicted(tab, payload, X)
    expected = (model.predict_proba if hasattr(model, "classes_") else model.predict)(X)
    np.testing.assert_allclose(found["mean"], expected.reshape(40, -1), rtol=1e-9, atol=1e-9)
    if kind != "draws":
        return
    groups, weights = zip(*model.fitted_.drawn(features_of(model, X)), strict=True)
    ends = weighted_quantiles(np.concatenate(groups), np.concatenate(weights), [0.05, 0.95])
    both = np.stack([found["low"], found["high"]])
    np.testing.assert_allclose(both, ends.reshape(2, 40, -1), rtol=1e-9, atol=1e-9)
    if model.tree_.n_nodes:
        np.testing.assert_allclose(found["right"], model.split_uncertainty(X).mean, atol=1e-9)
    if name == "survival":
        survival = model.predict_survival_function(X, payload["times"])
        np.testing.assert_allclose(found["survival"], survival, atol=1e-9)


def test_some_of_the_draws_are_carried_where_all_would_be_too_large(tab, monkeypatch):
    model, X = drawn("modes"), fitted_cases.rows()[0][:30]
    numbers = sum(embedded_model._numbers(one, draws=True) for one in model.fitted_.trees)
    monkeypatch.setattr(embedded_model, "FEWEST", 6)
    monkeypatch.setattr(embedded_model, "BUDGET", 4 * 3 * numbers)  # three draws of each mode
    payload, shown = carry(model, X)
    own = embedded_model.embedded_model(model)
    assert own.n_draws == (6, 8)
    assert [one.tolist() for one in own.kept] == [[0, 2, 3]] * 2  # evenly spaced
    found, listed = tab.evaluate(LISTED, payload), shown["groups"][0][1]
    places = [int(text.split()[2].rstrip(":")) for _, text in listed]
    weights, error, side_error = own.balanced(X[places], model.fitted_.matches)
    values, _ = own.drawn(X[places])
    for row, one in enumerate(found):
        mean = np.tensordot(weights[row], values[:, row], 1)
        np.testing.assert_allclose(one["mean"], mean, atol=1e-6)
        ends = weighted_quantiles(values[:, [row]], weights[row], [0.05, 0.95])
        np.testing.assert_allclose([[one["low"]], [one["high"]]], ends, atol=1e-6)
    means, sides = (np.array([one[name] for one in found]) for name in ("mean", "right"))
    gap = np.abs(means - model.predict_proba(X[places])).max()
    side_gap = np.abs(sides - model.split_uncertainty(X[places]).mean).max()
    assert "6 evenly spaced draws of 8 of 2 modes" in shown["notes"][0]
    assert f"of a class differs by more than {written(gap, 2)} from" in shown["notes"][0]
    assert f"of a side by more than {written(side_gap, 2)}." in shown["notes"][0]
    assert (gap, side_gap) == pytest.approx((error, side_error), abs=1e-6)
    equal, every = own.drawn(X[places]), own.drawn(X[places], every=True)
    plain = np.abs(np.subtract(*(np.tensordot(w, v, 1) for v, w in (equal, every)))).max()
    assert 0 < gap < plain
    assert "single precision" in shown["notes"][1]


def mixed(n=120):
    """A table with columns of every kind, some with gaps."""
    rng = np.random.default_rng(5)
    grades = pd.CategoricalDtype(["low", "middle", "high"], ordered=True)
    table = pd.DataFrame(
        {
            "income": rng.lognormal(3, 1, n),
            "age": rng.integers(18, 80, n),
            "region": rng.choice(["north", "south", "</script><west>"], n),
            "smoker": rng.choice([True, False], n),
            "grade": pd.Series(rng.choice(grades.categories, n)).astype(grades),
            "since": pd.Timestamp("2019-12-30 18:45")
            + pd.to_timedelta(rng.integers(0, 9e4, n), "h"),
            "sex": rng.choice(["f", "m"], n),
            "shop": rng.choice([f"shop {k}" for k in range(30)], n),
        }
    )
    label = np.where(table.age / 15 + 2 * (table.region == "south") + table.smoker > 4, "yes", "no")
    for name in ("income", "region", "since", "grade"):
        table.loc[rng.random(n) < 0.15, name] = None
    return table, label


@pytest.fixture(scope="module")
def tabular():
    X, y = mixed()
    settings = QUICK | {"inference": Svi(epochs=20, n_draws=4)}
    model = bt.ConvexPolytopeTreeClassifier(n_modes=1, **settings).fit(X, y)
    return model, X, y


def raw(field, cell):
    """The value of a column as a table has it."""
    if cell is None:
        return None
    if field["kind"] == "options":
        option = field["options"][cell]
        return {"True": True, "False": False}.get(option, option)
    return cell if field["kind"] == "number" else pd.Timestamp(0) + pd.Timedelta(days=cell)


def test_edited_cells_become_features_as_in_the_package(tab, tabular):
    model, X, y = tabular
    payload, shown = carry(model, X, y)
    fields = payload["fields"]
    assert {one["kind"] for one in fields} == {"number", "options", "date"}
    assert sum(one["missing"] is not None for one in fields) == 4
    cells = [one["cells"][0] for one in fields]
    edits = []
    for k, field in enumerate(fields):
        values = {"number": [20.0], "date": [18321.5, 20000.0]}.get(field["kind"])
        values = [*range(field["known"])] if values is None else values
        missing = [None] * (field["missing"] is not None)
        edits += [[*cells[:k], value, *cells[k + 1 :]] for value in [*values, *missing]]
    rows = [
        {field["name"]: raw(field, cell) for field, cell in zip(fields, edit, strict=True)}
        for edit in edits
    ]
    table = pd.DataFrame(rows)[list(X.columns)].astype({"smoker": bool, "grade": X.grade.dtype})
    found = tab.evaluate(CHANGED, [payload, edits])
    np.testing.assert_allclose(found, features_of(model, table), atol=1e-9)
    means = predicted(tab, payload, np.array(found))["mean"]
    np.testing.assert_allclose(means, model.predict_proba(table), atol=1e-9)
    assert "<" not in shown["payload"]


@pytest.mark.filterwarnings("ignore::bayestree.tables.UnknownCategoryWarning")
def test_rows_are_carried_as_they_are(tab, tabular):
    """Unknown categories as well, of which the page knows only the features."""
    model, X, y = tabular
    X = X.assign(region=X.region.where(X.index != 0, "nowhere"))
    payload, shown = carry(model, X, y)
    (region,) = (one for one in payload["fields"] if one["name"] == "region")
    labels = [text for _, group in shown["groups"] for _, text in group]
    places = [int(text.split()[2].rstrip(":")) for text in labels]
    assert [one is None for one in region["cells"]] == X.region.iloc[places].isna().tolist()
    assert region["options"][region["cells"][places.index(0)]] == "another value"
    found = tab.evaluate(ROWS, payload)
    np.testing.assert_allclose(found, features_of(model, X.iloc[places]), atol=1e-9)


def test_the_nearest_change_alters_the_prediction(tab, tabular):
    model, X, y = tabular
    payload, _ = carry(model, X, y)
    found = tab.evaluate(NEAREST, [payload, [*range(8)], None])
    assert sum(one is not None for one in found) >= 4
    scale = model.tree_.scale
    for number, one in enumerate(found):
        if one is None:
            continue
        before = [field["cells"][number] for field in payload["fields"]]
        row = {f["name"]: raw(f, c) for f, c in zip(payload["fields"], before, strict=True)}
        after = {f["name"]: raw(f, c) for f, c in zip(payload["fields"], one["cells"], strict=True)}
        table = pd.DataFrame([row, after])[list(X.columns)].astype(
            {"smoker": bool, "grade": X.grade.dtype}
        )
        first, second = model.predict(table)
        assert first != second
        cost = 0.0
        for field, old, new in zip(payload["fields"], before, one["cells"], strict=True):
            if old == new:
                continue
            assert None not in (old, new)
            assert field["kind"] != "date"
            if field["kind"] == "number":
                assert field["low"] <= new <= field["high"]
                cost += abs(new - old) / scale[field["at"][0]]
            else:
                cost += abs(new - old) if field["ordered"] else 1
        assert one["distance"] == pytest.approx(cost)
        assert 0 < one["agree"] <= 1


def test_a_level_is_reached(tab):
    model, X = drawn("normal"), fitted_cases.rows()[0][:10]
    level = float(np.median(model.predict(X)))
    payload, _ = carry(model, X)
    numbers = [k for k in range(10) if model.predict(X[[k]])[0] > level]
    found = tab.evaluate(NEAREST, [payload, numbers, {"sign": -1, "level": level}])
    rows = np.array([one["row"] for one in found])
    assert (model.predict(rows) <= level + 1e-9).all()


@pytest.fixture
def page(browser, page_of):
    """The page of a tree with draws, on a wide screen."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(page_of("drawn").as_uri())
    page.wait_for_selector(WAIT)
    yield page
    page.close()


def probability(page):
    return page.inner_text(".probabilities tr:first-child td:last-child .of:first-child")


def test_an_edit_is_predicted_at_once(page, drawn):
    before = probability(page)
    page.fill(".field input[type=number] >> nth=0", "0")
    page.fill(".field input[type=number] >> nth=1", "0.1")
    names = [one.inner_text() for one in page.locator(".field > label:first-child").all()]
    clf = drawn[0]
    row = pd.DataFrame([dict(zip(names, (0.0, 0.1), strict=True))])[["east", "north"]]
    expected = clf.predict_proba(row)[0]
    assert page.inner_text(".predicted") == clf.classes_[expected.argmax()]
    assert f"{100 * expected[0]:.1f}" in probability(page).replace("\N{NO-BREAK SPACE}", " ")
    page.wait_for_selector(WAIT)
    assert clf.classes_[expected.argmax()] in page.inner_text("#what-if [role=status]")
    assert page.locator(".tree .link.of-row").count() >= 1
    page.click(".undo")
    assert probability(page) == before
    assert page.is_disabled(".undo")


def test_the_nearest_change_is_applied(page):
    first = page.inner_text(".predicted")
    page.click(".apply")
    assert page.inner_text(".predicted") != first
    assert page.locator(".field.edited").count() >= 1
    assert page.evaluate("document.activeElement.className") == "undo"


def test_keys_move_a_slider(page):
    page.focus(".field [type=range] >> nth=0")
    old = page.input_value(".field input[type=number] >> nth=0")
    page.keyboard.press("ArrowRight")
    assert page.input_value(".field input[type=number] >> nth=0") != old


def test_another_row_is_chosen(page):
    options = page.locator("#what-if-row option")
    assert "held-out row" in options.first.inner_text().lower()
    values = page.input_value(".field input[type=number] >> nth=0")
    page.select_option("#what-if-row", options.nth(1).get_attribute("value"))
    assert page.input_value(".field input[type=number] >> nth=0") != values


def test_without_javascript_the_section_says_so(browser, page_of):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(page_of("drawn").as_uri())
    assert page.locator(".unscripted").is_visible()
    assert not page.locator("#what-if").is_visible()


def test_paper_has_no_controls(page):
    page.emulate_media(media="print")
    assert page.locator(".probabilities").is_visible()
    assert not page.locator(".apply").is_visible()
    assert not page.locator(".field [type=range]").first.is_visible()
