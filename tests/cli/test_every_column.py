"""Every kind of column, from the fit to a CSV file to the predictions of that file."""

import numpy as np
import pandas as pd
import pytest

from tests.cli.command import QUICK, done


@pytest.fixture(params=["", "disk"])
def fitted(request, place):
    rng = np.random.default_rng(0)
    n = 60
    x = rng.normal(size=n).round(3)
    table = pd.DataFrame(
        {
            "x": np.where(rng.random(n) < 0.1, np.nan, x),
            "flag": rng.choice(["True", "False", ""], n, p=[0.45, 0.45, 0.1]),
            "sure": rng.choice(["True", "False"], n),
            "color": rng.choice(["red", "blue", "grey", ""], n),
            "code": rng.choice(["01", "02"], n),
            "since": pd.Timestamp("2021-01-01") + pd.to_timedelta(7 * np.arange(n), "D"),
            "wait": pd.to_timedelta(rng.integers(0, 3, n), "D"),
            "kind": np.where(x > 0, "big", "small"),
        }
    )
    table.to_csv("data.csv", index=False)
    storage = ["--set", "storage=disk"] if request.param else []
    done("fit", "data.csv", "--target", "kind", "--out", "tree", *QUICK, *storage)
    return table


def test_round_trip(fitted, monkeypatch):
    monkeypatch.setattr("bayestree.tables.dataset.CELLS", 100)
    done("predict", "tree", "data.csv", "--out", "all.csv")
    every = pd.read_csv("all.csv")["p(big)"]
    # Rows of a file of their own, in which columns may look like others or be empty.
    for number in (0, int(np.flatnonzero(fitted["flag"] == "")[0])):
        fitted.iloc[[number]].to_csv("one.csv", index=False)
        done("predict", "tree", "one.csv", "--out", "one-p.csv", "--force")
        np.testing.assert_allclose(pd.read_csv("one-p.csv")["p(big)"], every[number], rtol=1e-9)
        by_row = done("explain", "tree", number).stdout
        assert done("explain", "tree", "one.csv").stdout == by_row
    fitted.assign(sure=["", *fitted["sure"][1:]]).to_csv("gap.csv", index=False)
    done("predict", "tree", "gap.csv", "--out", "gap-p.csv")
    pd.testing.assert_series_equal(pd.read_csv("gap-p.csv")["p(big)"][1:], every[1:])
    fitted.astype(str).replace(["nan", ""], None).to_parquet("text.parquet")
    done("predict", "tree", "text.parquet", "--out", "text-p.csv")
    np.testing.assert_allclose(pd.read_csv("text-p.csv")["p(big)"], every, rtol=1e-9)
    pytest.importorskip("onnxruntime")
    result = done("export", "tree", "--out", "tree.onnx", "--columns")
    assert "rows of the table to the leaves of the tree" in result.stderr
