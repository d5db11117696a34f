"""Counts with exposures, ordered classes and survival times, from the command line."""

import json

import numpy as np
import pandas as pd
import pytest

import bayestree
from bayestree.diagnostics import concordance
from tests.cli.command import QUICK, done, refused, run

OPTIONS = [*QUICK[:10], "--set", "n_modes=1", "--set", "min_gain=1"]  # and all outputs


@pytest.fixture
def claims(place):
    rng = np.random.default_rng(0)
    X, years = rng.normal(size=(120, 2)), rng.gamma(2.0, 1.0, 120).round(2) + 0.1
    table = pd.DataFrame(X, columns=["age", "power"])
    table["years"] = years
    table["claims"] = rng.poisson(np.where(X[:, 0] > 0, 6.0, 0.5) * years)
    table.to_csv("claims.csv", index=False)
    return table


@pytest.fixture
def patients(place):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    time = rng.exponential(np.where(X[:, 0] > 0, 1.0, 8.0)) + 0.01
    table = pd.DataFrame(X, columns=["age", "dose"])
    table["days"], table["died"] = np.minimum(time, 6), time < 6
    table.to_csv("patients.csv", index=False)
    return table


def test_counts_of_rows_with_exposures(claims, place):
    words = ("--target", "claims", "--exposure", "years")  # few integers, but no classes
    done("fit", "claims.csv", *words, "--set", "leaf=poisson", "--out", "run", *OPTIONS)
    metrics = json.loads((place / "run" / "metrics.json").read_text())
    assert metrics["mean_deviance"] > 0
    assert "baseline" not in metrics
    assert 'exposure = "years"' in (place / "run" / "run.toml").read_text()
    assert "rate" in (place / "run" / "tree.txt").read_text()
    assert "Mean Poisson deviance" in (place / "run" / "report.html").read_text()
    tree = bayestree.load("run/model.safetensors")
    assert "years" not in tree.feature_names_in_
    result = json.loads(done("predict", "run", "claims.csv", "--json").stdout)
    both = claims[["claims", "years"]].to_numpy()
    X = claims[["age", "power"]]
    expected = tree.scores(both, tree.predict(X), np.ones(len(X)))
    assert result["scores"] == pytest.approx(expected)
    found = pd.read_csv("predictions.csv")
    assert np.allclose(found["prediction"], tree.predict(X, exposure=claims["years"]))
    claims[["age", "power"]].to_csv("new.csv", index=False)  # without exposures: rates
    done("predict", "run", "new.csv", "--out", "rates.csv")
    assert np.allclose(pd.read_csv("rates.csv")["prediction"], tree.predict(X))
    said = " ".join(run("diagnose", "run").stdout.split())
    assert "24 held-out rows" in said
    held = pd.read_parquet("run/predictions.parquet")
    constant = held["years"] * (held["claims"].sum() / held["years"].sum())
    own, other = (((held["claims"] - one) ** 2).mean() for one in (held["prediction"], constant))
    assert f"the error of the mean of y, by {abs(1 - own / other):.1%} (" in said


def test_survival_times(patients, place):
    words = ("--target", "days", "--event", "died", "--out", "run")
    done("fit", "patients.csv", *words, *OPTIONS)
    metrics = json.loads((place / "run" / "metrics.json").read_text())
    assert metrics["task"] == "survival"
    held = pd.read_parquet("run/predictions.parquet")
    assert list(held) == ["row", "days", "prediction", "median", "low", "high", "died"]
    assert metrics["concordance"] == pytest.approx(
        concordance(held["days"], held["died"], held["prediction"])
    )
    assert "Concordance" in (place / "run" / "report.html").read_text()
    result = json.loads(done("predict", "run", "patients.csv", "--json").stdout)
    tree = bayestree.load("run/model.safetensors")
    both = patients[["days", "died"]].to_numpy(dtype=float)
    expected = tree.score(patients[["age", "dose"]], both)
    assert result["scores"]["concordance"] == pytest.approx(expected)


def test_columns_of_another_task_are_refused(claims, patients):
    words = ("fit", "claims.csv", "--target", "claims", "--out", "run", *OPTIONS)
    said = refused(*words, "--exposure", "years", "--task", "survival")
    assert "exposure 'years' is for the task 'regression'" in said
    assert "event 'years' is for the task 'survival'" in refused(
        *words, "--event", "years", "--task", "regression"
    )
    counts = (*words, "--set", "leaf=poisson")
    assert "exposure 'claims' is also named as target" in refused(*counts, "--exposure", "claims")
    assert "exposure 'yaers' is not a column" in refused(*counts, "--exposure", "yaers")
    said = refused("fit", "patients.csv", "--target", "days", "--event", "died", "--tree", "tao",
                   "--out", "run")  # fmt: skip
    assert "for survival use cpt, cpt-k1" in said
    said = refused(*words, "--exposure", "years", "--task", "regression")
    assert "exposure 'years' is for leaf = poisson of the trees cpt and cpt-k1, got tree" in said
    said = refused(*words[:6], "--exposure", "years", "--task", "regression", "--tree", "tao")
    assert "got tree 'tao' with leaf 'constant'. Leave it out." in said
    # after the table was read
    words = ("fit", "patients.csv", "--target", "days", "--event", "dose", "--out", "run")
    failed = run(*words, *OPTIONS)
    assert failed.exit_code == 2
    assert "column 'dose' should hold events: 1 or true" in failed.stderr


ORDER = ["poor", "fair", "good"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_order_of_classes(suffix, table, place):
    table["grade"] = pd.Categorical(np.resize(ORDER, 80), ORDER, ordered=True)
    getattr(table, f"to_{suffix}")(f"data.{suffix}", index=False)
    words = ("fit", f"data.{suffix}", "--drop", "kind", *QUICK)
    levels = ("--set", 'levels={grade=["poor", "fair", "good"]}') if suffix == "csv" else ()
    ordinal = ("--target", "grade", "--set", "leaf=ordinal", "--out", "tree", *levels)
    assert "alphabet" not in done(*words, *ordinal).stderr
    done("predict", "tree", f"data.{suffix}")
    found = pd.read_csv("predictions.csv")
    assert list(found.columns[1:]) == [f"p({grade})" for grade in ORDER]


def test_numbers_have_no_levels(table, place):
    table.to_csv("data.csv", index=False)
    words = ("fit", "data.csv", "--target", "copies", "--task", "regression", *QUICK)
    levels = 'levels={copies=["0", "1", "2", "3"]}'
    assert "whose order is for classes" in refused(*words, "--out", "tree", "--set", levels)
