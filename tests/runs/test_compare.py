"""Comparison of runs."""

import json
import shutil
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bayestree.diagnostics import stacking_weights
from bayestree.runs import compare as module
from bayestree.runs.compare import _conclusions, compare, held_out_scores, same_rows
from bayestree.runs.store import open_run
from bayestree.tables import InputError
from tests.finished import finished
from tests.runs.cases import edit_json


def opened(*kinds):
    return [open_run(finished(kind)) for kind in kinds]


@contextmanager
def any_k():
    """As if leave-one-out scores could be trusted whatever their k."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["bayestree.diagnostics.loo"], "MAX_BAD_SHARE", 1.0)
        yield


@pytest.fixture(scope="module")
def found():
    """Comparison by leave-one-out scores."""
    with any_k():
        return compare(opened("map", "svi", "other prior", "nuts"))


@pytest.fixture(scope="module")
def by_held_out():
    return compare(opened("map", "svi", "other prior"))


def test_scores_are_those_of_the_estimators(found):
    table = found.table
    assert table.index.name == "run"
    assert table.index[-1] == "map"  # which has no such score
    assert (table["elpd"].dropna().diff().dropna() <= 0).all()
    for run in opened("svi", "nuts"):
        rows = run.rows()
        with any_k():
            loo = run.estimator.loo(rows.X, rows.y, rows.weights, method="psis")
        line = table.loc[run.folder.name]
        assert line["elpd"] == pytest.approx(loo.elpd)
        assert line["se"] == pytest.approx(loo.se)
        assert line["bad_k"] == pytest.approx((loo.k > loo.good_k).mean())
        assert line["log_loss"] == run.metrics["log_loss"]
    assert np.isnan(table.loc["map", "elpd"])
    assert table.loc["map", "accuracy"] == opened("map")[0].metrics["accuracy"]
    assert "rmse" not in table


def test_differences_are_from_the_best(found):
    assert found.basis == "leave-one-out"
    table = found.table.dropna()
    assert table["difference"].iloc[0] == table["difference_se"].iloc[0] == 0
    np.testing.assert_allclose(table["difference"], table["elpd"] - table["elpd"].iloc[0])
    assert table["weight"].sum() == pytest.approx(1.0, abs=1e-6)


def test_weights_are_those_of_stacking(found):
    weights = found.table["weight"].dropna()
    rows = {run.folder.name: run.rows() for run in opened(*weights.index)}
    with any_k():
        elpd = [
            run.estimator.loo(r.X, r.y, r.weights, method="psis").elpd_row
            for run in opened(*weights.index)
            for r in [rows[run.folder.name]]
        ]
    np.testing.assert_allclose(weights, stacking_weights(np.stack(elpd, axis=1)), atol=1e-3)


def test_runs_without_leave_one_out_are_compared_by_held_out_rows(found):
    best = found.table["held_out"].idxmax()
    others = set(found.table.index) - {best}
    said = [one for one in found.remarks if " on the held-out rows" in one]
    assert {name for name in others if any(name in one for one in said)} == others
    assert all(one.startswith(f"{best} ") for one in said)


def test_what_it_says(found):
    text = str(found)
    assert "scores on held-out rows" in text
    assert "a negative one is worse" in text
    assert (found.table["difference"].iloc[1:].dropna() < 0).all()
    assert "map: no leave-one-out score: a point estimate has no posterior." in text
    assert "svi: k is above" in text
    assert "nan" not in text.lower()
    bad = f"{100 * found.table['bad_k']['svi']:.0f} %"
    assert bad in next(line for line in text.splitlines() if line.startswith("svi "))


def test_held_out_rows_where_no_k_is_good(by_held_out):
    table, text = by_held_out.table, " ".join(str(by_held_out).split())
    assert by_held_out.basis == "held-out rows"
    assert table[["elpd", "bad_k", "difference", "weight"]].isna().all(axis=None)
    assert "weight" not in str(by_held_out).splitlines()[0]
    assert "svi: no leave-one-out score: leave-one-out by importance sampling fails: k is" in text
    assert "compared by the log score, in nats, of the 16 held-out rows" in text
    assert (table["held_out"].diff().dropna() <= 0).all()


def test_held_out_scores_are_those_of_the_runs(by_held_out):
    table = by_held_out.table
    np.testing.assert_allclose(table["held_out"], -16 * table["log_loss"])
    rows = {}
    for run in opened("map", "svi", "other prior"):
        found = pd.read_parquet(run.folder / "predictions.parquet")
        own = np.where(found["kind"] == "big", found["p(big)"], found["p(small)"])
        rows[run.folder.name] = np.log(np.maximum(own, 1e-15))
    best = rows[table.index[0]]
    for name, line in table.iterrows():
        each = rows[name] - best
        assert line["held_out_difference"] == pytest.approx(each.sum())
        assert line["held_out_difference_se"] == pytest.approx(4 * each.std(ddof=1))


@pytest.mark.parametrize("name", ["numbers", "numbers, modes"])
def test_numbers_are_compared_by_their_densities(name):
    found = compare(opened(name, "numbers, other prior"))
    assert found.basis == "held-out rows"
    assert "compared by the log score, in nats" in " ".join(found.remarks)
    (run,) = opened(name)
    rows, n = run.rows(), 4000
    values = np.linspace(-300, 300, n)
    first = rows.X_held.iloc[[0]]
    spread = rows._replace(
        X_held=first.loc[first.index.repeat(n)], y_held=values, weights_held=np.ones(n)
    )
    scored = held_out_scores({"a": run.estimator}, {"a": spread})
    assert np.exp(scored.rows["a"]).sum() * (values[1] - values[0]) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("name", ["svi", "numbers", "numbers, tao"])
def test_held_out_scores_are_multiplied_by_the_weights(name):
    (run,) = opened(name)
    rows = run.rows()
    weights = np.resize([0.5, 2.0], len(rows.X_held))
    once, found = (
        held_out_scores({"a": run.estimator}, {"a": rows._replace(weights_held=own)}).rows["a"]
        for own in (np.ones(len(weights)), weights)
    )
    np.testing.assert_allclose(found, weights * once)


def test_squared_errors_where_a_run_has_no_density():
    found = compare(opened("numbers", "numbers, tao"))
    np.testing.assert_allclose(found.table["held_out"], -16 * found.table["rmse"] ** 2)
    said = "compared by the squared error, of the 16 held-out rows"
    assert any(said in one for one in found.remarks)


def test_no_held_out_rows(monkeypatch):
    monkeypatch.setattr(module, "FOLDS", 2)
    runs = opened("all rows", "all rows, other prior")
    found = compare(runs)
    assert found.basis == "leave-one-out"
    for run in runs:
        rows = run.rows()
        loo = run.estimator.loo(rows.X, rows.y, rows.weights, method="kfold", n_folds=2)
        assert found.table.loc[run.folder.name, "elpd"] == pytest.approx(loo.elpd)
    assert any("refitted without each of 2 parts" in one for one in found.remarks)


def test_no_held_out_rows_of_too_many(monkeypatch):
    monkeypatch.setattr(module, "MAX_NUMBERS", 1)
    found = compare(opened("all rows", "all rows, other prior"))
    assert found.basis == "none"
    assert "no rows were held out. Fit them again with the same test_fraction" in found.remarks[-1]
    assert found.table["weight"].isna().all()
    assert "held_out" not in found.table


@pytest.mark.parametrize(
    ("gap", "noise", "where", "says"),
    [
        (0.2, 0.1, "", "A predicts better than B, by 20 nats"),
        (0.2, 2.0, "", "A and B cannot be distinguished: they differ by 20 nats"),
        (
            0.03,
            0.0,
            "",
            "A and B cannot be distinguished: they differ by 3 nats (standard error 0); below 4",
        ),
        (
            0.2,
            0.1,
            " on the held-out rows",
            "A predicts better than B on the held-out rows, by 20 nats",
        ),
    ],
)
def test_what_follows_from_a_difference(gap, noise, where, says):
    each = gap + noise * np.resize([-1.0, 1.0], 100)
    (line,) = _conclusions({"A": each, "B": np.zeros(100)}, in_nats=True, where=where)
    assert line.startswith(says)


def test_squared_errors_have_no_unit_below_which_nothing_counts():
    (line,) = _conclusions({"A": np.full(100, 0.03), "B": np.zeros(100)}, in_nats=False)
    assert line.startswith("A predicts better than B, by 3 in squared error")


def test_it_says_which_run_has_not_converged(monkeypatch):
    runs = opened("map", "svi")
    for settled, n_said in (("no", 1), ("doubtful", 0)):
        judged = SimpleNamespace(settled=settled)
        monkeypatch.setattr(type(runs[1].estimator), "check_convergence", lambda _, j=judged: j)
        said = [one for one in compare(runs).caveats if "has not converged" in one]
        assert len(said) == n_said
        assert all(one.startswith("svi: ") for one in said)


def test_point_estimates_have_held_out_scores(found):
    table = compare(opened("tao", "forest")).table
    assert set(table.index) == {"tao", "forest"}
    assert table["elpd"].isna().all()
    assert table["accuracy"].notna().all()


def test_too_many_rows_for_leave_one_out(monkeypatch):
    monkeypatch.setattr(module, "MAX_NUMBERS", 64 * 40 - 1)
    found = compare(opened("svi", "tao"))
    assert found.table["elpd"].isna().all()
    assert found.remarks[0].startswith("svi: no leave-one-out score: 64 rows times 40 draws")


def test_runs_of_other_rows_are_refused(tmp_path):
    with pytest.raises(InputError, match="one predicts 'kind', the other 'price'"):
        compare(opened("svi", "numbers"))
    with pytest.raises(InputError, match="held-out rows or weights differ; use the same seed"):
        compare(opened("svi", "all rows"))
    shutil.copytree(finished("svi"), tmp_path / "other")
    path = tmp_path / "other" / "manifest.json"
    data = json.loads(path.read_text())["data"]
    data["data"]["sha256"] = "0" * 64
    edit_json(path, data=data)
    with pytest.raises(
        InputError, match=r"svi and other .* cannot be compared: their tables differ"
    ):
        compare([*opened("svi"), open_run(tmp_path / "other")])


def test_other_weights_are_other_rows():
    def weighted(*weights):
        rows = SimpleNamespace(rows_held=np.array([3]), weights=np.array(weights))
        data = {"data": {"sha256": "0"}}
        columns = SimpleNamespace(target="y", task="regression")
        return SimpleNamespace(manifest={"data": data}, columns=columns, rows=lambda: rows)

    assert [*same_rows({"A": weighted(1.0, 2.0), "B": weighted(1.0, 2.0)})] == ["A", "B"]
    with pytest.raises(InputError, match="their held-out rows or weights differ"):
        same_rows({"A": weighted(1.0, 2.0), "B": weighted(1.0, 1.0)})


def test_two_runs_are_needed():
    with pytest.raises(InputError, match="specify two or more"):
        compare(opened("svi"))
    with pytest.raises(InputError, match="compared with itself"):
        compare(opened("svi", "svi"))


def test_folders_of_one_name_are_told_apart(tmp_path):
    shutil.copytree(finished("tao"), tmp_path / "tao")
    with pytest.raises(InputError):  # the copy is not where its data is
        compare([*opened("tao"), open_run(tmp_path / "tao")])


@pytest.mark.statistical
def test_sequential_monte_carlo_is_compared_by_evidence():
    runs = opened("smc", "smc, oblique")
    found = compare(runs)
    table = found.table
    assert found.basis == "evidence"
    assert table["log_evidence"].is_monotonic_decreasing
    for run in runs:
        own = run.estimator.evidence()
        assert table.loc[run.folder.name, "log_evidence"] == pytest.approx(own.log_evidence)
        assert table.loc[run.folder.name, "log_evidence_se"] == pytest.approx(own.standard_error)
    assert table["probability"].sum() == pytest.approx(1)
    assert table["log_bayes_factor"].iloc[0] == 0
    assert table[["difference", "weight"]].isna().all(axis=None)
    said = " ".join(str(found).split())
    assert "compared by their evidence" in said
    assert "log Bayes factor is" in said


def test_other_runs_show_the_evidence_only():
    found = compare(opened("smc", "smc, oblique", "svi"))
    assert found.basis != "evidence"
    assert found.table["log_evidence"].notna().sum() == 2
    assert np.isnan(found.table.loc["svi", "log_evidence"])
    assert "probability" not in found.table
    assert "alone for their Bayes factors" in " ".join(str(found).split())
    assert "log_evidence" not in compare(opened("map", "svi")).table


def evidence_table(factor, error):
    columns = {
        "log_evidence_se": [0.0, error],
        "log_bayes_factor": [0, factor],
        "log_bayes_factor_se": [0, error],
    }
    return pd.DataFrame(columns, index=["a", "b"])


@pytest.mark.parametrize(
    ("factor", "error", "words"),
    [
        (-0.5, 0.01, "do not decide between a and b"),  # a factor of less than 3
        (-1.2, 0.65, "do not decide between a and b"),  # within two standard errors
        (-3.0, 0.2, "favour a over b: the log Bayes factor is 3 (standard error 0.2)"),
        (-3.0, 0.5, "favour a over b: the log Bayes factor is 3 (standard error 0.5)"),
        (-17.0, 0.8, "do not decide between a and b"),  # b's runs disagree
        (-3.0, np.nan, "do not decide between a and b: the log Bayes factor is 3 (standard error"),
    ],
)
def test_what_bayes_factors_mean(factor, error, words):
    *doubts, conclusion = module._favoured(evidence_table(factor, error))
    assert words in conclusion
    known = [
        f"The evidence of b is uncertain: {why}"
        for why in ("it comes from a single run", "its standard error is")
    ]
    assert len(doubts) == (not error <= 0.3)
    assert all(one.startswith(known[not np.isnan(error)]) for one in doubts)


def test_nothing_is_favoured_whose_own_evidence_is_uncertain():
    table = evidence_table(-17.0, 0.1).assign(log_evidence_se=[0.8, 0.1])
    *_, conclusion = module._favoured(table)
    assert conclusion.startswith("The rows do not decide between a and b")


def test_evidence_of_other_rows_is_refused(monkeypatch):
    runs = opened("smc", "smc, oblique")
    monkeypatch.setitem(runs[0].estimator.posterior_.stats, "rows", 1)
    with pytest.raises(InputError, match="fitted to different targets"):
        compare(runs)
