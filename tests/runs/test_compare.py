"""Runs against each other."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from bayestree import _arviz
from bayestree.diagnostics import Loo
from bayestree.runs import compare as module
from bayestree.runs.compare import _same_rows, _told, compare
from bayestree.runs.store import open_run
from bayestree.tables import InputError
from tests.finished import finished


def opened(*kinds):
    return [open_run(finished(kind)) for kind in kinds]


@pytest.fixture(scope="module")
def found():
    return compare(opened("map", "svi", "other prior", "nuts"))


def test_scores_are_those_of_the_estimators(found):
    table = found.table
    assert table.index.name == "run"
    assert table.index[-1] == "map"  # which has no such score
    assert (table["elpd"].dropna().diff().dropna() <= 0).all()
    for run in opened("svi", "nuts"):
        rows = run.rows()
        loo = run.estimator.loo(rows.X, rows.y, rows.weights)
        line = table.loc[run.folder.name]
        assert line["elpd"] == pytest.approx(loo.elpd)
        assert line["se"] == pytest.approx(loo.se)
        assert line["bad_k"] == pytest.approx((loo.k > loo.good_k).mean())
        assert line["log_loss"] == run.metrics["log_loss"]
    assert np.isnan(table.loc["map", "elpd"])
    assert table.loc["map", "accuracy"] == opened("map")[0].metrics["accuracy"]
    assert "rmse" not in table


def test_differences_are_from_the_best(found):
    table = found.table.dropna()
    assert table["difference"].iloc[0] == table["difference_se"].iloc[0] == 0
    np.testing.assert_allclose(table["difference"], table["elpd"] - table["elpd"].iloc[0])
    assert table["weight"].sum() == pytest.approx(1.0, abs=1e-6)


def test_weights_are_those_of_arviz(found):
    """Of samplers its own scores are the same, so that all of its table can be had."""
    az, made = _arviz.arviz(), {}
    for name in ("svi", "nuts"):
        (run,), groups = opened(name), ["posterior", "log_likelihood"]
        rows = run.rows()
        container = run.estimator.to_arviz(rows.X, rows.y, rows.weights, groups=groups)
        made[name] = container, run.estimator.loo(rows.X, rows.y, rows.weights)
    row = _arviz.group(made["nuts"][0], "log_likelihood")["obs"].isel(chain=0, draw=0, drop=True)
    given = {name: (one, row.copy(data=loo.elpd_row)) for name, (one, loo) in made.items()}
    weights = _arviz.stacking_weights(given)
    density = np.exp(np.stack([made[name][1].elpd_row for name in weights], axis=1))
    share = np.linspace(0, 1, 1001)
    mixed = np.log(density @ np.stack([share, 1 - share])).sum(axis=0)
    assert weights["svi"] == pytest.approx(share[mixed.argmax()], abs=2e-3)
    assert az.__name__ == "arviz"


def test_what_it_says(found):
    text = str(found)
    assert "scores on held-out rows" in text
    assert "map: no leave-one-out score: a point estimate has no posterior." in text
    assert "svi: k is above" in text
    assert "from which nothing follows" in text
    assert "nan" not in text.lower()
    assert "100 %" in next(line for line in text.splitlines() if line.startswith("svi "))


def scores(first, second, n_bad=0):
    k = np.where(np.arange(len(first)) < n_bad, 2.0, 0.1)
    rest = {"se": 1.0, "p_loo": 1.0, "good_k": 0.7, "n_draws": 100, "corrected": False}
    return {
        name: Loo(elpd=float(each.sum()), elpd_row=each, k=k, **rest)
        for name, each in (("A", first), ("B", second))
    }


@pytest.mark.parametrize(
    ("gap", "noise", "n_bad", "says"),
    [
        (0.2, 0.1, 0, "A predicts better than B, by 20.0 nats"),
        (0.2, 2.0, 0, "A and B cannot be told apart: they differ by 20.0 nats"),
        (0.03, 0.0, 0, "A and B cannot be told apart: they differ by 3.0 nats"),
        (0.2, 0.1, 11, "A and B differ by 20.0 nats (standard error 1.0), from which nothing"),
    ],
)
def test_what_follows_from_a_difference(gap, noise, n_bad, says):
    base = np.random.default_rng(0).normal(size=100)
    swing = noise * np.resize([-1.0, 1.0], 100)
    (line,) = _told("A", ["B"], scores(base + gap + swing, base, n_bad))
    assert line.startswith(says)


def test_point_estimates_have_held_out_scores(found):
    table = compare(opened("tao", "forest")).table
    assert list(table.index) == ["tao", "forest"]
    assert table["elpd"].isna().all()
    assert table["accuracy"].notna().all()


def test_too_many_rows_for_leave_one_out(monkeypatch):
    monkeypatch.setattr(module, "MOST_NUMBERS", 64 * 40 - 1)
    found = compare(opened("svi", "tao"))
    assert found.table["elpd"].isna().all()
    assert found.remarks[0].startswith("svi: no leave-one-out score: 64 rows of 40 draws are too")


def test_runs_of_other_rows_are_refused(tmp_path):
    with pytest.raises(InputError, match="one predicts 'kind', the other 'price'"):
        compare(opened("svi", "numbers"))
    with pytest.raises(InputError, match="they hold out or weigh others; give both the same seed"):
        compare(opened("svi", "all rows"))
    shutil.copytree(finished("svi"), tmp_path / "other")
    path = tmp_path / "other" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["data"]["data"]["sha256"] = "0" * 64
    path.write_text(json.dumps(manifest))
    with pytest.raises(
        InputError, match=r"svi and other .* cannot be compared: their tables differ"
    ):
        compare([*opened("svi"), open_run(tmp_path / "other")])


def test_other_weights_are_other_rows():
    def weighted(*weights):
        rows = SimpleNamespace(rows_held=np.array([3]), weights=np.array(weights))
        data = {"data": {"sha256": "0"}}
        return SimpleNamespace(
            manifest={"data": data}, target="y", task="regression", rows=lambda: rows
        )

    assert [*_same_rows({"A": weighted(1.0, 2.0), "B": weighted(1.0, 2.0)})] == ["A", "B"]
    with pytest.raises(InputError, match="they hold out or weigh others"):
        _same_rows({"A": weighted(1.0, 2.0), "B": weighted(1.0, 1.0)})


def test_two_runs_are_needed():
    with pytest.raises(InputError, match="name two folders or more"):
        compare(opened("svi"))
    with pytest.raises(InputError, match="compared with itself"):
        compare(opened("svi", "svi"))


def test_folders_of_one_name_are_told_apart(tmp_path):
    shutil.copytree(finished("tao"), tmp_path / "tao")
    with pytest.raises(InputError):  # the copy is not where its data is
        compare([*opened("tao"), open_run(tmp_path / "tao")])
