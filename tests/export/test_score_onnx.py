"""The example that scores a data set with an exported tree, in a process without torch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor, export_onnx
from bayestree.inference import Map

SCRIPT = Path(__file__).parents[2] / "examples" / "score_onnx.py"
BLOCKED = ("torch", "pyro", "sklearn", "bayestree")
CODE = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({BLOCKED}))
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


def rows(n=400):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "width": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "colour": np.where(rng.random(n) < 0.1, None, rng.choice(["red", "blue", "green"], n)),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 9000, n), "h"),
            "wet": rng.random(n) < 0.5,
            "day": np.repeat([1, 2], n // 2),
            "other": "ignored",
        }
    )


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_predictions_are_those_of_the_tree(tmp_path, task):
    frame = rows()
    X = frame.drop(columns="other")
    score = X["width"].fillna(1) + (X["colour"] == "red") + X["wet"] + X["day"]
    how = {"max_depth": 2, "inference": Map(epochs=30, steepness=None), "prediction": "tree"}
    kind = ConvexPolytopeTreeClassifier if task == "classification" else ConvexPolytopeTreeRegressor
    y = np.where(score > 2.5, "big", "small") if task == "classification" else score
    tree = kind(random_state=0, **how).fit(X, y)
    (tmp_path / "tree.onnx").write_bytes(export_onnx(tree, inputs="columns"))
    frame.to_parquet(tmp_path / "rows", partition_cols=["day"], index=False)
    places = [tmp_path / name for name in ("tree.onnx", "rows", "scored")]
    subprocess.run([sys.executable, "-c", CODE, *map(str, places)], check=True)
    for day in (1, 2):
        files = [*(tmp_path / "scored" / f"day={day}").iterdir()]
        assert [path.name for path in files] == [
            path.name for path in (tmp_path / "rows" / f"day={day}").iterdir()
        ]
        found = pq.ParquetFile(files[0]).read().to_pandas()
        own = X[X["day"] == day]
        np.testing.assert_array_equal(found["leaf"], tree.apply(own))
        assert len({*found["leaf"]}) > 1
        if task == "classification":
            np.testing.assert_allclose(found[["p0", "p1"]], tree.predict_proba(own), rtol=1e-12)
            assert found["label"].tolist() == tree.predict(own).tolist()
        else:
            np.testing.assert_allclose(found["prediction"], tree.predict(own), rtol=1e-12)
