"""The page as text: complete, self-contained, and consistent with the estimator."""

import re
import warnings
from copy import copy
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup

import bayestree as bt
from bayestree.diagnostics.sparsity import NearOptimalTrees
from bayestree.inference import Map, Smc, Svi, Vi
from bayestree.models import Network
from bayestree.report import figures
from bayestree.report.comparison import html_comparison
from bayestree.report.findings import _depends as depends
from bayestree.report.page import html_report
from bayestree.report.rows import Range
from bayestree.report.study import MINUS, percent, study_of
from tests.fitted_cases import CLASSIFIERS, REGRESSORS, linear, rows
from tests.report.conftest import rings
from tests.report.page import Page, plain


def fitted(kind, name):
    X, label, value = rows()
    made = (CLASSIFIERS if kind == "class" else REGRESSORS)[name]()
    y = label if kind == "class" else value
    return made.fit(X[:200], y[:200]), {
        "X": X[:200], "y": y[:200], "X_held": X[200:], "y_held": y[200:]
    }  # fmt: skip


def check_whole(page, trees):
    """Every link target exists exactly once, and all figures have alternative texts."""
    ids = page.ids()
    assert len(ids) == len(set(ids))
    links = [one["attrs"]["href"] for one in page.all("a")]
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    for one in page.all("svg"):
        assert one["attrs"]["role"] in ("img", "group")
        assert len(one["attrs"]["aria-label"]) > 5
    for place, tree in enumerate(trees):
        prefix = f"t{place + 1}-" if len(trees) > 1 else ""
        for label in (*tree.topology.node_labels, *tree.topology.leaf_labels):
            assert page.at(prefix + label)["tag"] == "article"
            drawn = [one for one in page.all("a") if one["attrs"].get("data-at") == prefix + label]
            assert sum("tree" in one["inside"] or "svg" in one["inside"] for one in drawn) >= 2


CASES = [*(("class", name) for name in CLASSIFIERS), *(("value", name) for name in REGRESSORS)]


@pytest.fixture
def sketched(monkeypatch):
    """Figures that take no time."""
    sketch = Markup('<svg role="img" aria-label="a figure"></svg>')
    monkeypatch.setattr(figures, "picture", lambda *_, **__: sketch)


@pytest.mark.usefixtures("sketched")
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_every_tree_has_a_page(kind, name):
    estimator, given = fitted(kind, name)
    trees = [one.tree_ for one in getattr(estimator, "estimators_", [estimator])]
    for more in ({}, given):
        page = Page(html_report(estimator, **more))
        check_whole(page, trees)
        assert ("scores" in page.ids()) == bool(more)
    assert type(estimator).__name__ in plain(page.at("main")["text"])


@pytest.mark.parametrize(("kind", "name"), [("class", "bivariate"), ("value", "linear leaves")])
def test_figures_are_part_of_the_page(kind, name):
    estimator, given = fitted(kind, name)
    page = Page(html_report(estimator, **given))
    check_whole(page, [estimator.tree_])
    assert len(page.all("svg", "plot")) >= 3
    assert not page.all("style")[1:]


@pytest.mark.usefixtures("sketched")
def test_networks_have_a_page():
    X, label, _ = rows()
    clf = bt.EndToEndTreeClassifier(split=Network(linear), max_depth=2, epochs=2, random_state=0)
    clf.fit(X, label)
    check_whole(Page(html_report(clf, X=X, y=label)), [clf.tree_])


@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
@pytest.mark.usefixtures("sketched")
@pytest.mark.parametrize("inference", [Svi(epochs=2, n_draws=8), Map(epochs=2, steepness=None)])
def test_a_tree_without_a_split_has_a_page(inference):
    X, y = np.zeros((20, 2)), np.arange(20) % 2
    clf = bt.ConvexPolytopeTreeClassifier(inference=inference, n_modes=1, random_state=0).fit(X, y)
    page = Page(html_report(clf, X=X, y=y))
    assert page.at("root")["attrs"]["class"].split() == ["card", "leaf-card"]
    assert "one leaf" in page.at("findings")["text"]


@pytest.mark.usefixtures("sketched")
def test_the_modes_are_compared():
    X, label, _ = rows(80)
    clf = bt.ConvexPolytopeTreeClassifier(
        n_modes=4, max_depth=1, n_experts=2, inference=Svi(epochs=2, n_draws=8), random_state=0
    )
    sizes = clf.fit(X, label).polytope_size(8)
    markup = html_report(clf, X=X, y=label, sizes=sizes)
    page = Page(markup)
    check_whole(page, [clf.tree_])
    said = plain(page.at("modes")["text"])
    head = plain(page.at("main")["text"])
    assert "a mixture of 4 trees" in head
    assert "8 posterior draws of the tree shown" in head
    assert f"{clf.fitted_.medoid + 1} (shown)" in said
    assert said.count("The tree of mode") == 3
    assert "Measured on 80 training rows" in said
    assert "What the trees share" in said
    assert "Where they differ" in said
    drawn = markup.split('class="tree still"')[1:]
    assert len(drawn) == 3
    assert all("<a " not in one[: one.index("</svg>")] for one in drawn)
    assert "grouped alike" not in plain(Page(html_report(clf, sizes=sizes)).at("modes")["text"])


@pytest.mark.usefixtures("sketched")
@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")  # a draw may have
@pytest.mark.parametrize("n_chains", [2, 1])
def test_evidence_and_size_of_sampled_topologies(n_chains):
    X, label, value = rows(60)
    made = {2: bt.ConvexPolytopeTreeClassifier, 1: bt.ConvexPolytopeTreeRegressor}[n_chains]
    fitted = made(
        inference=Smc(n_chains=n_chains, n_draws=20), max_depth=1, n_experts=1, random_state=0
    ).fit(X, {2: label, 1: value}[n_chains])
    own = fitted.evidence()
    page = Page(html_report(fitted))
    said = plain(page.at("evidence")["text"])
    assert f"is {own.log_evidence:,.2f}".replace("-", MINUS) in said
    assert (f"a standard error of {own.standard_error:.2f}" in said) == (n_chains == 2)
    assert ("Standard error" in said) == (n_chains == 2)
    assert ("for standardised y" in said) == (n_chains == 1)
    inside = [one for one in page.elements if "evidence" in one["inside"]]
    assert sum(one["tag"] == "svg" for one in inside) == 2
    counts = [own.leaf_probabilities, own.depth_probabilities]
    lines = [one for one in inside if one["tag"] == "tr" and "tbody" in one["inside"]]
    assert len(lines) == sum(map(len, counts))
    for line, share in zip(lines, pd.concat(counts)["probability"], strict=True):
        assert percent(share) in line["text"]
    assert "nan" not in said


@pytest.mark.usefixtures("sketched")
def test_few_epochs_fail():
    X, label, _ = rows(120)
    clf = bt.ConvexPolytopeTreeClassifier(
        n_modes=1, max_depth=1, n_experts=2, inference=Svi(epochs=2, n_draws=8), random_state=0
    )
    clf.fit(X, label)
    assert "The inference has not converged" in html_report(clf)


def test_nothing_is_loaded_from_elsewhere(page_of):
    for name in ("drawn", "choice"):
        text = page_of(name).read_text(encoding="utf-8")
        names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
        assert set(re.findall(r"https?://[^\"'\s<]+", text)) <= names
        assert not re.search(r"@import|url\((?!#)", text)
        assert "default-src 'none'" in text
        assert not Page(text).all("link")
        assert all(
            "src" not in one["attrs"] for one in Page(text).elements if one["tag"] != "image"
        )


def test_a_large_tree_makes_a_page_that_can_be_sent(page_of, large):
    assert large[0].get_n_leaves() > 100
    assert page_of("large").stat().st_size < 2_000_000


@pytest.mark.usefixtures("sketched")
def test_names_are_text_and_never_markup():
    X, label, _ = rows()
    evil = "<script>alert(1)</script>"
    frame = pd.DataFrame(X, columns=[evil, '"><img src=x>', "&amp;", "]]>"])
    classes = np.array(["a</title><b>", "'onload='", "c&amp;"])[label]
    clf = bt.BivariateTreeClassifier(max_depth=2).fit(frame, classes)
    told = {"title": evil, "question": evil, "command": evil}
    known = {"data": {"path": evil, "target": evil}, "manifest": {"versions": {evil: evil}}}
    text = html_report(clf, X=frame, y=classes, **told, **known)
    page = Page(text)
    assert len([one for one in page.all("script") if "type" not in one["attrs"]]) == 1
    assert not page.all("img")
    assert page.all("title")[0]["text"] == evil
    assert evil in page.at("data")["text"]


def test_names_in_any_script_stay_on_their_lines():
    X, label, _ = rows()
    names = ["花萼\n长度", "طول الورقة", "a\tb", "x, y"]
    frame = pd.DataFrame(X, columns=names)
    classes = np.array(["ورد\nأحمر", "山鸢尾", "c"])[label]
    clf = bt.BivariateTreeClassifier(max_depth=2).fit(frame, classes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = html_report(clf, X=frame, y=classes, title="First\nsecond")
    page = Page(text)
    cells = {one["text"] for one in page.all("th", scope="row")}
    isolated = "\N{FIRST STRONG ISOLATE}{}\N{POP DIRECTIONAL ISOLATE}"
    assert {"花萼 长度", isolated.format("طول الورقة"), "a b", "x, y"} <= cells
    assert {isolated.format("ورد أحمر"), "山鸢尾"} <= cells
    assert "花萼\n长度" not in text


@pytest.mark.usefixtures("sketched")
def test_a_choice_of_trees_needs_several_and_their_rows(choice, drawn):
    estimator, rows_of_fit = choice
    page = Page(html_report(estimator, **rows_of_fit))
    section = page.at("near_optimal")
    assert "The list is not complete" in plain(section["text"])
    lines = [one for one in page.all("tr") if "data-uses" in one["attrs"]]
    assert [one["attrs"]["data-uses"] for one in lines] == ["0 1", "0", "1"]
    boxes = [one["attrs"]["value"] for one in page.all("input", type="checkbox")]
    assert boxes == ["0", "1"]
    assert [plain(one["text"]).strip() for one in page.all("th", scope="row")].count(
        "Tree 1 (shown above)"
    ) == 1
    for place in (1, 2, 3):
        assert "root: 160 rows" in page.at(f"near-{place}")["text"]
    other = copy(estimator)
    trees = estimator.near_optimal_trees()
    first = replace(trees[0], hyperplane=2 * trees[0].hyperplane)
    other.near_optimal_trees = lambda *_: replace(trees, trees=(first, *trees.trees[1:]))
    chosen = Page(html_report(other, **rows_of_fit)).all("input", type="radio")
    assert ["checked" in one["attrs"] for one in chosen] == [False, True, False]
    for other, given in ((estimator, {}), drawn):
        assert "near_optimal" not in Page(html_report(other, **given)).ids()


@pytest.mark.usefixtures("sketched")
def test_unused_columns_and_missing_values_of_a_choice():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(30, 5, (200, 3)), columns=["age", "size", "noise"])
    y = (X["age"] + X["size"] > 60).astype(int)
    X.loc[rng.choice(200, 20, replace=False), "age"] = np.nan
    clf = bt.ConvexPolytopeTreeClassifier(
        n_modes=2,
        max_depth=1,
        n_experts=3,
        inference=Svi(epochs=60, n_draws=8),
        max_columns=2,
        random_state=0,
    ).fit(X, y)
    clf.near_optimal_trees = lambda *_: found
    own = [one.tree_ for one in (clf, clf)]
    numbers = {name: np.zeros(2) for name in ("mode", "weight", "score", "loss", "se")}
    found = NearOptimalTrees(tuple(own), columns=(("age",),) * 2, names=tuple(X), **numbers)
    page = Page(html_report(clf, X=X, y=y))
    assert clf.tree_.hyperplane[:, 0].any()
    assert "Where missing, age = " in plain(page.at("near-2")["text"])
    assert "1 column is not in the tree shown; predictions use it." in plain(
        page.at("features")["text"]
    )


@pytest.mark.usefixtures("sketched")
def test_a_sparse_tree_is_not_described_by_the_posterior_of_its_facets(choice):
    estimator, given = choice
    full = copy(estimator).set_params(sparsity=None, n_modes=1).fit(given["X"], given["y"])
    for one, described in ((estimator, False), (full, True)):
        page = Page(html_report(one, X=given["X"], y=given["y"]))
        assert ("posterior: " in page.at("tree")["text"]) == described
        card = plain(page.at("root")["text"])
        assert (
            re.search("A row goes left if (this|each of these) holds", card) is None
        ) == described
        assert ("Point estimate:" in card) == described


def test_nodes_show_their_rows_in_the_report(choice, page_of):
    estimator, _ = choice
    page = page_of("choice").read_text(encoding="utf-8")
    assert "those in the shaded part go left" in page
    bare = html_report(estimator)
    assert "those in the shaded part go left" not in bare
    drawing = re.search(r'<svg class="tree upright.*?</svg>', page, re.DOTALL).group()
    assert "east" in drawing
    # points have the colours of the page, which depend on its light or dark setting
    assert "<image" not in drawing
    assert drawing.count("fill: var(--accent-fill)") > 20


@pytest.mark.usefixtures("sketched")
def test_images_are_shown_as_images():
    X, label, _ = rows()
    settings = {"max_depth": 2, "n_experts": 2, "random_state": 0}
    settings |= {"inference": Svi(epochs=3, n_draws=8)}
    for shape, shown in (((2, 2), True), (None, False)):
        clf = bt.ConvexPolytopeTreeClassifier(image_shape=shape, n_modes=1, **settings).fit(
            X, label
        )
        page = Page(html_report(clf, X=X, y=label))
        found = page.all("img")
        assert bool(found) == shown
        assert all(one["attrs"]["src"].startswith("data:image/png;base64,") for one in found)
        assert all(len(one["attrs"]["alt"]) > 5 for one in found)
        leaves = {leaf for leaf in clf.tree_.topology.leaf_labels if page.at(leaf)}
        pictured = {name for one in found for name in one["inside"] if name in leaves}
        assert pictured == (leaves if shown else set())


@pytest.mark.usefixtures("sketched")
def test_a_forest_is_called_a_forest():
    estimator, given = fitted("class", "forest")
    page = Page(html_report(estimator, **given, data={"target": "kind"}))
    assert page.all("h1")[0]["text"] == "A forest for kind"
    assert "a forest of 3 trees" in page.at("main")["text"]
    assert "a prediction is their mean" in page.at("main")["text"]


@pytest.mark.usefixtures("sketched")
def test_a_forest_says_how_it_combines_its_trees():
    X, label, _ = rows(60)
    forest = bt.NeuralDecisionForestClassifier(1, max_depth=1, epochs=2, random_state=0)
    page = Page(html_report(forest.fit(X, label)))
    assert "a prediction is the mean over all leaves of the soft trees" in plain(
        page.at("main")["text"]
    )


@pytest.mark.usefixtures("sketched")
def test_counts_and_outputs():
    X, _, value = rows(60)
    reg = bt.ConvexPolytopeTreeRegressor(leaf="poisson", max_depth=1, inference="grow", n_modes=1)
    y, weights = np.column_stack((np.round(np.abs(value)), np.full(60, 2.0))), np.full(60, 3.0)
    page = Page(html_report(reg.fit(X, y, weights), X=X, y=y, weights=weights))
    assert "Sum of the exposures360" in plain(page.at("data")["text"])
    both = reg.set_params(leaf="constant").fit(X, y)
    with pytest.raises(ValueError, match=r"pass output\(0\)"):
        html_report(both, X=X, y=y)


@pytest.mark.usefixtures("sketched")
def test_point_estimate_and_posterior_are_told_apart(drawn):
    """The same numbers as those of the text export and of the estimator's own posterior."""
    clf, given = drawn
    card = Page(html_report(clf, **given)).at("root")["text"]
    point, posterior = re.split("Posterior:? ?(?=The|[0-9])", plain(card))
    size, sizes = clf.tree_.n_facets[0], given["sizes"]
    low, high = sizes.interval()[0].astype(int)
    counted = f"{sizes.median()[0]} ({low} to {high}) facets"
    # of a sparse tree, an interval that is a single number says nothing
    assert posterior.startswith("The posterior has facets of" if low == high else counted)
    said = point.replace(MINUS, "-").replace("≤", "<=").replace("≥", ">=")
    exported = re.findall(r"│ +(?:left if)? *(.*[<>]= .*)", bt.export_text(clf, max_facets=8))
    assert len(exported) == min(size, 8)
    assert all(facet in said for facet in exported)


def test_dollars_in_names_are_no_formulas():
    X, label, _ = rows()
    frame = pd.DataFrame(X, columns=["pay ($) to $", "cost $\\frac{$", "a$b", "$x$"])
    classes = np.array(["1 $ or $", "$\\x$", "c"])[label]
    clf = bt.BivariateTreeClassifier(max_depth=2).fit(frame, classes)
    text = html_report(clf, X=frame, y=classes)
    drawn = re.findall(r'<svg class="plot.*?</svg>', text, re.DOTALL)
    assert any("pay ($) to $" in one for one in drawn)


def test_rows_of_another_table_are_no_training_rows():
    X, label, _ = rows()
    clf = bt.BivariateTreeClassifier(max_depth=2).fit(X[::2], label[::2])
    for other in (slice(1, None, 2), slice(1, None, 3)):  # as many rows, and fewer
        with pytest.raises(ValueError, match=r"of the fit.*Give new rows as X_held"):
            html_report(clf, X=X[other], y=label[other])
        with pytest.raises(ValueError, match="X_held"):
            html_comparison({"a": clf, "b": clf}, X=X[other], y=label[other])
    assert html_report(clf, X=X[:119:2], y=label[:119:2], metrics={"training_rows": 60})


@pytest.mark.parametrize("weight", [{0: 2.0, 1: 1.0, 2: 0.0}, None])
def test_training_rows_are_known_by_their_weights(weight):
    X, label, _ = rows()
    given = {"n_modes": 1, "max_depth": 1, "n_experts": 2, "inference": Svi(epochs=2, n_draws=8)}
    clf = bt.ConvexPolytopeTreeClassifier(
        class_weight=weight, validation_fraction=0.2, random_state=0, **given
    )
    own = np.random.default_rng(0).uniform(0, 2, len(X))
    clf.fit(X, label, own)
    assert study_of(clf, X=X, y=label, weights=own).train is not None
    with pytest.raises(ValueError, match="must be all rows of the fit, with its weights"):
        study_of(clf, X=X, y=label)
    assert study_of(clf, X=X.astype(np.float32), y=label, weights=own).train is not None
    other = X.copy()  # of the same ranges
    other[:, 0] = np.random.default_rng(1).permutation(X[:, 0])
    with pytest.raises(ValueError, match="lacks most of a sample of the rows of the fit"):
        study_of(clf, X=other, y=label, weights=own)


def test_the_target_has_the_name_of_its_series():
    X, _, value = rows()
    tree = bt.BivariateTreeRegressor(max_depth=2).fit(X, value)
    page = html_report(tree, X=X, y=pd.Series(value, name="weight in g"))
    assert "predicted weight in g" in page
    assert "predicted y" not in page


def test_only_columns_with_an_effect_are_named(monkeypatch):
    X, label, _ = rows()
    tree = bt.BivariateTreeClassifier(max_depth=1).fit(X, label)
    study = study_of(tree, X=X, y=label)
    first = study.effects[0]
    assert f"What matters most is {study.columns[first.column]}" in depends(study)
    none = [one._replace(loss=Range(0.01, -0.01, 0.03)) for one in study.effects]
    monkeypatch.setitem(vars(study), "effects", none)
    assert depends(study).startswith("No column has an established effect")


def test_a_report_needs_no_latex_and_writes_no_control_characters():
    table, label = rings(80)
    table["side\x1b"] = np.where(table.east > 0, "no\x0brth", "south\ufffe")
    classes = np.where(label == "core", "c\x00", "shell")
    given = {"n_modes": 1, "max_depth": 1, "n_experts": 2, "inference": Svi(epochs=3, n_draws=8)}
    clf = bt.ConvexPolytopeTreeClassifier(random_state=0, **given).fit(table, classes)
    with mpl.rc_context({"text.usetex": True}):
        text = html_report(clf, X=table, y=classes, title="T\x1b", data={"target": "y\x00"})
    assert all(letter.isprintable() or letter in "\n\N{NO-BREAK SPACE}" for letter in text)
    assert "no rth" in text


def test_a_long_category_does_not_flood_the_page():
    label = np.array(["a", "b"] * 40)
    table = pd.DataFrame(
        {"gene": np.where(label == "a", "ACGT" * 1000, "none"), "x": np.sin(range(80))}
    )
    given = {"n_modes": 1, "max_depth": 1, "n_experts": 2, "inference": Svi(epochs=3, n_draws=8)}
    clf = bt.ConvexPolytopeTreeClassifier(random_state=0, **given).fit(table, label)
    text = html_report(clf, X=table, y=label)
    assert "ACGTACGT" in text
    assert "ACGT" * 20 not in text
    assert float(max(re.findall(r'height="(\d+)"', text), key=float)) < 2000


def test_the_facets_are_those_of_the_estimator(drawn, page_of):
    clf, _ = drawn
    page = Page(page_of("drawn").read_text(encoding="utf-8"))
    card = plain(page.at("root")["text"]).replace(MINUS, "-").replace("≤", "<=").replace("≥", ">=")
    found = clf.facets("root")
    shown = [
        text for text, p in zip(found.inequalities(), found.probability, strict=True) if p >= 0.05
    ]
    assert len(shown) > 1
    for text in shown[:8]:
        assert text.replace("  (", " (") in card


@pytest.mark.usefixtures("sketched")
def test_scores_are_of_the_held_out_rows(drawn, page_of):
    clf, rows_ = drawn
    page = Page(page_of("drawn").read_text(encoding="utf-8"))
    accuracy = 100 * clf.score(rows_["X_held"], rows_["y_held"])
    assert f"{accuracy:.1f}" in plain(page.at("scores")["text"])
    assert "80 held-out rows" in plain(page.at("findings")["text"])
    seen = Page(html_report(clf, X=rows_["X"], y=rows_["y"], sizes=rows_["sizes"]))
    assert "The model was fitted to these rows" in plain(seen.at("findings")["text"])


@pytest.mark.usefixtures("sketched")
def test_rows_count_by_their_weights(drawn):
    clf, given = drawn
    X, y = given["X_held"][:4], given["y_held"][:4]
    right = clf.predict(X) == y
    wrong = np.where(right, np.where(y == "core", "shell", "core"), y)
    y_mixed = np.where(np.arange(4) < 1, wrong, y)
    text = html_report(clf, X_held=X, y_held=y_mixed, weights_held=[3.0, 1.0, 1.0, 1.0],
                       sizes=given["sizes"])  # fmt: skip
    assert "50.0\N{NO-BREAK SPACE}% of the predictions" in Page(text).at("findings")["text"]


def test_rows_of_no_weight_are_not_expected_in_intervals():
    X, y = rings()[0], rings()[0]["east"].to_numpy()
    short = Vi(n_steps=20, n_draws=10)
    reg = bt.ConvexPolytopeTreeRegressor(max_depth=1, n_modes=1, inference=short, random_state=0)
    reg.fit(X, y)
    y = np.where(np.arange(len(y)) % 2, 1e6, y)
    weights = (np.arange(len(y)) % 2 == 0).astype(float)
    weighted = study_of(reg, X_held=X, y_held=y, weights_held=weights).coverage
    alone = study_of(reg, X_held=X[::2], y_held=y[::2]).coverage
    assert weighted is not None
    assert alone is not None
    np.testing.assert_array_equal(weighted[0], alone[0])
    assert weighted[1] == alone[1] == weights.sum()


@pytest.mark.usefixtures("sketched")
def test_without_rows_the_scores_of_the_run_are_shown(drawn):
    metrics = {"accuracy": 0.875, "log_loss": 0.4, "scored_rows": 40, "scored_on": "held-out rows"}
    page = Page(html_report(drawn[0], metrics=metrics, sizes=drawn[1]["sizes"]))
    assert "87.5" in page.at("scores")["text"]
    assert "40 held-out rows" in page.at("findings")["text"]


@pytest.mark.usefixtures("sketched")
def test_scores_of_more_rows_than_are_at_hand_are_those_of_the_run(drawn):
    metrics = {"accuracy": 0.875, "scored_rows": 5000, "scored_on": "held-out rows"}
    page = Page(html_report(drawn[0], metrics=metrics, **drawn[1]))
    assert "5,000 held-out rows" in page.at("findings")["text"]
    assert "as recorded by the run" in page.at("scores")["text"]
    assert "5,000" in page.at("data")["text"]


def test_a_page_is_the_same_each_time_and_leaves_no_trace(drawn):
    clf, given = drawn
    settings = dict(mpl.rcParams)
    first, second = html_report(clf, **given), html_report(clf, **given)
    assert first == second
    assert dict(mpl.rcParams) == settings


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X": np.zeros((3, 5))}, r"X must have shape \(n, 2\)"),
        ({"X_held": np.zeros(3)}, r"X_held must have shape \(n, 2\)"),
        ({"y": ["core"]}, r"y must have shape \(80,\) like X"),
        ({"weights_held": [1.0]}, r"weights_held must have shape"),
        ({"y_held": np.zeros(80)}, r"y_held has none of the classes of the fit"),
    ],
)
def test_rows_that_do_not_fit_are_refused(drawn, changed, message):
    with pytest.raises(ValueError, match=message):
        html_report(drawn[0], **(drawn[1] | changed))


def test_an_estimator_that_is_not_fitted_is_refused():
    with pytest.raises(TypeError, match="must be a fitted tree"):
        html_report(bt.BivariateTreeClassifier())


def test_the_data_section_names_what_the_fit_warned_of():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    clf = bt.BivariateTreeClassifier(max_depth=1).fit(X, X[:, 0] > 0)
    said = "the fit ignores 1 constant column (year) of X."
    page = Page(html_report(clf, manifest={"warnings": [said]}))
    assert said in plain(page.at("data")["text"])
