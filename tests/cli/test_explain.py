"""`bayestree explain`."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import bayestree
from tests.cli.command import QUICK, done, refused


@pytest.fixture
def fitted(table, place):
    table.to_csv("data.csv", index=False)
    done("fit", "data.csv", "--target", "kind", "--drop", "price", "--out", "tree", *QUICK)
    return table


def test_a_row_of_the_run_and_of_a_file(fitted, place):
    by_number = done("explain", "tree", "7").stdout
    fitted.iloc[[7]].to_csv("row.csv", index=False)
    assert done("explain", "tree", "row.csv").stdout == by_number
    clf = bayestree.load("tree/model.safetensors")
    X = fitted[["size", "color", "copies"]]
    assert by_number.strip() == str(clf.explain(X.iloc[[7]])).strip()
    assert re.search(r"(color = red|size = [^ ]+) \(", by_number)  # of the columns in the tree
    assert by_number.startswith(f"Prediction: {clf.predict(X)[7]} (")


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line_on_standard_error(fitted, place):
    fitted.iloc[[7]].assign(color="violet").to_csv("row.csv", index=False)
    (line,) = done("explain", "tree", "row.csv").stderr.splitlines()
    assert line.startswith("warning: column 'color': 1 row holds a category that")


def test_json_and_picture(fitted, place):
    words = ("explain", "tree", "3", "--feature", "size", "--target", "small", "--json")
    found = json.loads(done(*words, "--plot", "row.png").stdout)
    np.testing.assert_allclose(sum(found["expected"]), 1.0)
    assert found["change"]["wanted"] == "small"
    assert {one["feature"] for one in found["change"]["features"]} <= {"size"}
    parts = found["uncertainty"]
    np.testing.assert_allclose(parts["total"], parts["data"] + parts["posterior"])
    clf = bayestree.load("tree/model.safetensors")
    own = clf.explain(fitted[["size", "color", "copies"]].iloc[[3]])
    assert (parts["data"], parts["posterior"]) == pytest.approx((own.data, own.posterior))
    assert (place / "row.png").stat().st_size > 1000
    assert "exists" in refused("explain", "tree", "3", "--plot", "row.png")
    words = ("explain", "tree", "3", "--assurance", "0.8")
    found = json.loads(done(*words, "--json").stdout)["change"]
    assert found["assurance"] is None or found["assurance"] >= 0.8
    assert "in at least 80 % of the draws" in done(*words).stdout
    assert "assurance must be" in refused("explain", "tree", "3", "--assurance", "2")


def test_a_number_to_reach(table, place):
    table.to_csv("data.csv", index=False)
    done("fit", "data.csv", "--target", "price", "--out", "tree", *QUICK)
    assert "Nearest" not in done("explain", "tree", "0").stdout
    low, high = table["price"].quantile([0.4, 0.6])
    prints = [done("explain", "tree", "0", "--target", f"{v}").stdout for v in (low, high)]
    assert any("makes the prediction at" in text for text in prints)


def test_refusals(fitted, place):
    assert "its rows are 0 to 79" in refused("explain", "tree", "80")
    assert "has 80 rows; give a table with one row" in refused("explain", "tree", "data.csv")
    assert "'new.csv' does not exist" in refused("explain", "tree", "new.csv")
    assert "did you mean 'color'?" in refused("explain", "tree", "1", "--feature", "colr")
    assert "did you mean 'size'?" in refused("explain", "tree", "1", "--feature", "sice")
    assert "is not a class" in refused("explain", "tree", "1", "--target", "huge")
    assert "must end in" in refused("explain", "tree", "1", "--plot", "row.txt")


def test_a_forest_has_no_single_path(table, place):
    table.to_csv("data.csv", index=False)
    words = ("--tree", "e2edf", "--depth", "1", "--epochs", "1", "--set", "report=false")
    done("fit", "data.csv", "--target", "kind", "--out", "trees", *words, "--set", "n_estimators=2")
    assert "of several trees" in refused("explain", "trees", "0")


def test_times_are_text_in_json(table, place):
    dates = pd.date_range("2024-01-31", periods=len(table), freq="D").strftime("%Y-%m-%d")
    # In the order of their classes, so that the tree uses the dates.
    table[["kind"]].sort_values("kind").assign(when=dates).to_csv("data.csv", index=False)
    done("fit", "data.csv", "--target", "kind", "--out", "tree", *QUICK)
    found = json.loads(done("explain", "tree", "3", "--json").stdout)
    values = {one["value"] for one in found["effects"] if one["feature"].startswith("when")}
    assert values == {"2024-02-03 00:00:00"}
