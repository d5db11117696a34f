"""The page of several fits side by side."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayestree as bt
from bayestree.report import comparison
from bayestree.report.compared import Compared, agreement_of, differences
from bayestree.report.scores import scores_of
from bayestree.report.study import MINUS, percent, study_of
from bayestree.runs.compare import comparison_page, named_runs, same_rows
from bayestree.runs.store import open_run
from tests.finished import finished
from tests.report.page import Page, plain


def page_of(*kinds):
    named = named_runs([open_run(finished(kind)) for kind in kinds])
    return Page(comparison_page(named, same_rows(named)))


def table(page, section, caption=""):
    """Cells of the first table whose text begins so, by the heads of their lines."""
    found = next(one for one in page.all("table") if section in one["inside"]
                 and plain(one["text"]).startswith(caption))  # fmt: skip
    start, lines, head = page.elements.index(found), {}, None
    for one in page.elements[start + 1 :]:
        if one["tag"] == "table":
            break
        if one["tag"] == "th" and one["attrs"].get("scope") == "row":
            head = plain(one["text"])
            lines[head] = []
        elif one["tag"] == "td":
            lines[head].append(plain(one["text"]))
    return lines


@pytest.fixture(scope="module")
def classes():
    """A tree with a posterior, and a forest."""
    return page_of("svi", "forest")


@pytest.fixture(scope="module")
def numbers():
    return page_of("numbers", "numbers, tao")


@pytest.fixture(scope="module")
def pair():
    """Studies of two of the runs of numbers."""
    runs = [open_run(finished(kind)) for kind in ("numbers", "numbers, tao")]
    rows = runs[0].rows()
    given = {"X": rows.X, "y": rows.y, "X_held": rows.X_held, "y_held": rows.y_held}
    return [study_of(run.estimator, **given) for run in runs]


def test_ids_are_unique_and_links_lead_somewhere(classes, numbers):
    for page in (classes, numbers):
        ids = page.ids()
        assert len(set(ids)) == len(ids)
        links = {one["attrs"]["href"] for one in page.all("a") if "href" in one["attrs"]}
        assert {link.removeprefix("#") for link in links} <= set(ids)
        names = [one["attrs"]["aria-label"] for one in page.all("div", role="region")]
        assert len(set(names)) == len(names) >= 2


def test_only_settings_that_differ_are_listed(classes, numbers):
    shared = table(classes, "settings", "Settings whose values differ")
    assert shared["model.tree"] == ['"cpt"', '"e2edf"']
    assert "model.max_depth" not in shared  # both are 2
    assert table(numbers, "settings", "Settings whose values differ")["model.max_depth"] == [
        "1",
        "2",
    ]
    single = table(classes, "settings", "Settings of some")
    assert single["model.n_experts"] == ["3", "none"]
    assert "model.n_estimators" in single


def test_scores_and_differences_are_those_of_the_rows(numbers, pair):
    lines = table(numbers, "scores", "Scores of 16 held-out rows")
    errors = [study.scored.y - study.predicted for study in pair]
    rmse = [np.sqrt((error**2).mean()) for error in errors]
    best = int(np.argmin(rmse))
    found, gap = lines["Root mean squared error"][:2], lines["Root mean squared error"][2]
    assert [float(one) for one in found] == pytest.approx(rmse, rel=1e-3)
    assert gap.startswith("+")  # the best has the least error
    mean, se = (float(one) for one in re.findall(r"[\d.]+", gap))
    square = errors[1 - best] ** 2 - errors[best] ** 2
    assert mean == pytest.approx(rmse[1 - best] - rmse[best], abs=0.06)
    assert se == pytest.approx(square.std() / 4 / sum(rmse), rel=0.05)
    assert lines["Mean absolute error"][2] != ""
    assert any("idge" in one["text"] for one in numbers.all("th"))


def test_the_linear_model_is_compared_by_its_squared_errors(pair):
    """a - b = (a^2 - b^2) / (a + b), of which the numerator is a mean over the rows."""
    rows, scores = pair[0].scored, scores_of(pair[0])
    own = (rows.y - pair[0].predicted) ** 2
    linear = (rows.y - pair[0].baseline.model.predict(rows.X)) ** 2
    assert scores.get("rmse").baseline == pytest.approx(np.sqrt(linear.mean()))
    roots = np.sqrt(own.mean()) + np.sqrt(linear.mean())
    error = (own - linear).std() / np.sqrt(len(own)) / roots
    assert scores.baseline_error == pytest.approx(error)


def test_scores_and_differences_count_rows_by_their_weights(pair):
    """The scores are those of copies; the errors are those of 16 rows of unequal shares."""
    held, square = pair[0].held, [(one.scored.y - one.predicted) ** 2 for one in pair]
    weights = np.where(square[0] > np.median(square[0]), 9, 1)
    copies = held.taken(np.repeat(np.arange(len(held)), weights))
    weighted = [replace(one, held=replace(held, weights=weights * 1.0)) for one in pair]
    scores = [scores_of(one) for one in weighted]
    repeated = scores_of(replace(pair[0], held=copies))
    for one, other in zip(scores[0].each, repeated.each, strict=True):
        assert one.value == pytest.approx(other.value)
        assert one.baseline == pytest.approx(other.baseline)
    share = weights / weights.sum()
    apart, total = square[1] - square[0], sum(np.sqrt(share @ one) for one in square)
    error = np.sqrt(share**2 @ (apart - share @ apart) ** 2) / total
    _, found = differences(weighted[0], weighted[1], scores)["rmse"].split(" ± ")
    assert float(found) == pytest.approx(error, rel=0.05)


def test_predictions_agree_within_a_part_of_the_weighted_standard_deviation(pair, monkeypatch):
    y, apart = pair[0].held.y, np.abs(pair[0].predicted - pair[1].predicted)
    weights = np.where(y > np.median(y), 9.0, 1.0)
    weighted = [replace(one, held=replace(one.held, weights=weights)) for one in pair]
    share = weights / weights.sum()
    for sign in (1, -1):  # at once above and below the distance of a row
        limit = np.sort(apart)[8] * (1 + sign * 1e-9)
        near = limit / np.sqrt(share @ (y - share @ y) ** 2)
        monkeypatch.setattr("bayestree.report.compared.NEAR", near)
        assert agreement_of(*weighted).alike.tolist() == (apart <= limit).tolist()


def test_scores_of_more_rows_than_are_given_have_smaller_errors(pair):
    """A run has scored four times as many rows, so that the errors are half as large."""
    recorded = {"scored_rows": 4 * len(pair[0].scored), "rmse": 2.0, "mae": 1.0}
    more = [replace(one, metrics=recorded) for one in pair]
    rows = pair[0].scored
    square = [(rows.y - one.predicted) ** 2 for one in pair]
    total = sum(np.sqrt(one.mean()) for one in square)
    error = (square[1] - square[0]).std() / np.sqrt(len(rows)) / total / 2
    scores = scores_of(more[0]), scores_of(more[1])
    _, found = differences(more[0], more[1], scores)["rmse"].split(" ± ")
    assert float(found) == pytest.approx(error, rel=0.05)


def test_differences_of_a_study_from_itself_are_zero(pair):
    scores = scores_of(pair[0])
    assert set(differences(pair[0], pair[0], (scores, scores)).values()) == {"0"}
    same = agreement_of(pair[0], pair[0])
    assert same.share == 1
    assert same.correlation == pytest.approx(1)


def test_agreement_of_classes(classes):
    runs = [open_run(finished(kind)) for kind in ("svi", "forest")]
    rows = runs[0].rows()
    one, other = (study_of(run.estimator, X_held=rows.X_held, y_held=rows.y_held) for run in runs)
    found = agreement_of(one, other)
    predicted = [run.estimator.predict(rows.X_held) for run in runs]
    right = [own == rows.y_held for own in predicted]
    assert found.share == (predicted[0] == predicted[1]).mean()
    assert found.counts == [
        (right[0] & right[1]).sum(), (right[0] & ~right[1]).sum(),
        (~right[0] & right[1]).sum(), (~right[0] & ~right[1]).sum(),
    ]  # fmt: skip
    p = [run.estimator.predict_proba(rows.X_held)[:, 0] for run in runs]
    np.testing.assert_allclose(found.apart, np.abs(p[0] - p[1]))
    assert "predict the same class for" in plain(classes.at("findings")["text"])


def test_the_rows_that_differ_most_come_first(numbers, pair):
    apart = np.abs(pair[0].predicted - pair[1].predicted)
    run = open_run(finished("numbers"))
    rows = run.rows()
    worst = int(apart.argmax())
    lines = table(numbers, "predictions", "The rows on which predictions differ most")
    head, cells = next(iter(lines.items()))
    assert head.startswith(f"{rows.rows_held[worst]}: ")
    assert float(cells[2]) == pytest.approx(apart[worst], rel=0.01)
    shown = run.file.data.path.read_text().splitlines()[1 + rows.rows_held[worst]]
    assert float(cells[3]) == pytest.approx(float(shown.split(",")[0]), rel=0.01)  # its size


def test_why_runs_are_not_ranked(pair):
    unranked = Compared({"a": pair[0], "b": pair[1]}, caveats=("No rows were held out.",))
    page = Page(comparison.page_of(unranked))
    for section in ("findings", "scores"):
        assert "No rows were held out." in plain(page.at(section)["text"])


def test_a_ranking_is_shown_in_the_order_of_the_runs(pair):
    """The best is the second: columns keep their places, and differences are from it."""
    errors = ["se", "difference_se", "held_out_difference_se", "log_evidence_se"]
    errors = dict(zip([*errors, "log_bayes_factor_se"], (1.0, 2.0, 3.0, 4.0, 5.0), strict=True))
    names = ["elpd", "difference", "p_loo", "weight", "bad_k", "held_out", "held_out_difference"]
    names += ["log_evidence", "log_bayes_factor", "probability"]
    best = {name: 0.01 * number for number, name in enumerate(names, 10)}
    other = {name: 0.01 * number for number, name in enumerate(names, 30)} | {"bad_k": np.nan}
    ranking = pd.DataFrame([best | errors, other | errors], index=["b", "a"])
    page = Page(comparison.page_of(Compared(dict(zip("ab", pair, strict=True)), table=ranking)))
    lines = table(page, "scores", "The comparison of bayestree compare; its differences are from b")
    assert lines == {
        "Leave-one-out log score (elpd)": ["0.3 ± 1.0", "0.1 ± 1.0"],
        "Difference of elpd": ["0.3 ± 2.0", "0.1 ± 2.0"],
        "Effective number of parameters": ["0.32", "0.12"],
        "Stacking weight": ["33.0 %", "13.0 %"],
        "Rows whose Pareto k is too large": ["", "14.0 %"],
        "Sum over the held-out rows (held_out)": ["0.35", "0.15"],
        "Difference of held_out": ["0.4 ± 3.0", "0.2 ± 3.0"],
        "Log evidence": ["0.4 ± 4.0", "0.2 ± 4.0"],
        "Log Bayes factor": ["0.4 ± 5.0", "0.2 ± 5.0"],
        "Probability of the model": ["39.0 %", "19.0 %"],
    }
    root = [np.sqrt(((one.scored.y - one.predicted) ** 2).mean()) for one in pair]
    found = re.search(r"; a \u2212 b: ([+\u2212][\d.]+)", plain(page.at("findings")["text"]))
    gap = float(found[1].replace(MINUS, "-"))
    assert gap == pytest.approx(root[0] - root[1], abs=0.06)
    shown = table(page, "scores", "Scores of 16 held-out rows")["Root mean squared error"]
    assert shown[2].startswith(found[1])


def test_trees_have_facets_and_certainty_for_each_run(classes):
    text = plain(classes.at("trees")["text"])
    assert "svi" in text
    assert "forest" in text
    assert "Posterior" in plain(classes.at("r1-root")["text"])
    assert "Uncertainty" in plain(classes.at("r1-root")["text"])
    assert "Point estimate" in plain(classes.at("r2-t1-root")["text"])


def test_importance_convergence_and_time_are_side_by_side(classes):
    run = open_run(finished("svi"))
    study = study_of(run.estimator, X_held=run.rows().X_held)
    shares = table(classes, "features")
    for name, share in zip(study.columns, study.importance.total, strict=True):
        assert plain(shares[name][0]) == (plain(percent(share)) if share else "in no split")
    said = plain(classes.at("convergence")["text"])
    assert "nothing to judge, as there is no posterior" in said
    assert "The checks of svi" in said
    seconds = table(classes, "repeat", "Seconds of each stage")
    assert len(seconds["together"]) == 2
    files = [
        one for one in classes.all("code") if one["attrs"].get("id", "").startswith("run-file")
    ]
    assert len(files) == 2


def test_a_python_user_compares_fits_to_the_same_rows(side_by_side, drawn):
    page = Page(side_by_side)
    assert plain(page.all("h1")[0]["text"]) == "Comparison of <b> and deep"
    assert "Where does the core end?" in plain(page.at("main")["text"])
    different = table(page, "settings", "Settings whose values differ")
    assert different["estimator"] == [
        '"ConvexPolytopeTreeClassifier"', '"WeightedObliqueTreeClassifier"'
    ]  # fmt: skip
    assert "predictions" in page.ids()
    bare = Page(bt.html_comparison({"a": drawn[0], "b": drawn[0]}))
    assert "predictions" not in bare.ids()
    assert "All settings are the same." in plain(bare.at("settings")["text"])


def test_what_cannot_be_compared_is_refused(drawn):
    clf, given = drawn
    reg = bt.WeightedObliqueTreeRegressor(max_depth=1, random_state=0)
    reg.fit(given["X"], np.arange(80.0))
    with pytest.raises(ValueError, match="two or more by name, got 1"):
        bt.html_comparison({"a": clf})
    with pytest.raises(ValueError, match="'a' predicts the classes core, shell, 'b' numbers"):
        bt.html_comparison({"a": clf, "b": reg})
    with pytest.raises(TypeError, match="fitted tree or forest, got int"):
        bt.html_comparison({"a": clf, "b": 1})
