"""Runs of several targets."""

import numpy as np
import pandas as pd
import pytest

from bayestree.runs.compare import compare
from bayestree.runs.predict import predict_file
from bayestree.runs.results import diagnose, explain_row
from bayestree.runs.runner import run
from bayestree.tables import InputError
from tests.runs.cases import run_file, table

TWO = {"target": ["price", "area"], "drop": ["kind"]}
QUICK = {"inference": "map", "n_draws": "none"}


def run_of(folder, **parts):
    frame = table()
    frame.assign(area=frame["height"] ** 2).to_csv(folder / "data.csv", index=False)
    parts = {"inference": QUICK, "output": {"report": True, "draws": True}} | parts
    return run(run_file(folder, **{"data": TWO} | parts))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("targets"))


def test_each_target_is_predicted_and_scored(fitted):
    assert fitted.columns.target == ("price", "area")
    assert not {"report.html", "posterior.nc"} & {one.name for one in fitted.folder.iterdir()}
    log = (fitted.folder / "run.log").read_text(encoding="utf-8")
    assert "no draws: the run has several targets" in log
    assert "no report: the run has several targets" in log
    found = pd.read_parquet(fitted.folder / "predictions.parquet")
    assert list(found)[:3] == ["row", "price", "area"]
    rows = fitted.rows()
    for j, name in enumerate(fitted.columns.target):
        own = fitted.estimator.output(j)
        np.testing.assert_array_equal(found[name], rows.y_held[:, j])
        np.testing.assert_allclose(found[f"prediction: {name}"], own.predict(rows.X_held))
        assert (found[f"low: {name}"] < found[f"high: {name}"]).all()
        error = found[f"prediction: {name}"] - found[name]
        assert fitted.metrics[f"rmse: {name}"] == pytest.approx(np.sqrt((error**2).mean()))


def test_other_rows_are_predicted(fitted, tmp_path):
    new = table(seed=1).assign(area=1.0)
    new.to_csv(tmp_path / "new.csv", index=False)
    scores = predict_file(fitted.folder, tmp_path / "new.csv", tmp_path / "out.csv").scores
    found = pd.read_csv(tmp_path / "out.csv")
    error = found["prediction: price"] - new["price"]
    assert scores["rmse: price"] == pytest.approx(np.sqrt((error**2).mean()))
    new.drop(columns="area").to_csv(tmp_path / "new.csv", index=False)
    assert predict_file(fitted.folder, tmp_path / "new.csv", tmp_path / "out.csv").scores is None


def test_what_is_for_one_target_is_refused(fitted):
    message = "is for one target, but the model predicts columns 'price', 'area'"
    for command in (diagnose, lambda run: compare([run]), lambda run: explain_row(run.folder, "0")):
        with pytest.raises(InputError, match=message):
            command(fitted)


REFUSED = [
    ({"model": {"leaf": "poisson"}}, "several targets need the tree 'cpt'"),
    ({"model": {"tree": "e2edt", "n_experts": None}, "inference": {}}, "need the tree 'cpt'"),
    ({"data": TWO | {"task": "classification"}}, "several targets need the task 'regression'"),
    ({"data": TWO | {"target": ["price", "kind"], "drop": ["area"]}}, "should hold numbers"),
    ({"data": TWO | {"target": ["price", "price"]}}, "target 'price' is also named as target"),
    ({"data": TWO | {"target": ["price", "x"]}}, "target 'x' is not a column"),
    ({"data": TWO | {"target": []}}, "target must be"),
]


@pytest.mark.parametrize(("parts", "message"), REFUSED)
def test_refused_before_the_fit(parts, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run_of(tmp_path, **parts)
