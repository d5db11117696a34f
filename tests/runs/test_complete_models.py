"""The model file of a run, which takes the table as it is."""

import numpy as np
import pandas as pd
import pytest

import bayestree
from bayestree.runs.predict import predict_file
from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile
from bayestree.runs.store import open_run
from tests.runs.cases import table

pytestmark = pytest.mark.filterwarnings("ignore:column 'town'")

CPT = {"tree": "cpt", "n_experts": 2, "min_rows": 4}
SHORT = {"inference": "svi", "epochs": 5, "n_draws": 3}
TREES = {
    "modes": (CPT, SHORT | {"n_modes": 2}),
    "tao": ({"tree": "tao"}, {}),
    "forest": ({"tree": "e2edf", "n_estimators": 2}, {"epochs": 2}),
}


def mixed(seed=0):
    """Numbers with gaps, categories, dates and many categories, and a target of two classes."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 60), "D")
    found = table(seed=seed).assign(
        colour=rng.choice(["red", "green", "blue"], 60),
        day=days.astype(str),
        town=[f"t{i % 40}" for i in rng.permutation(60)],
        empty=np.nan,
    )
    found.loc[::7, "height"], found.loc[3, "colour"] = np.nan, None
    return found


@pytest.fixture(scope="module", params=TREES)
def finished(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("complete")
    mixed().to_csv(folder / "data.csv", index=False)
    model, inference = TREES[request.param]
    parts = {"model": {"max_depth": 1} | model, "inference": inference}
    output = {"folder": "out", "report": True, "draws": False}
    data = {"path": "data.csv", "target": "kind", "drop": ["price"]}
    return run(RunFile.from_parts({"data": data, "output": output} | parts, folder / "run.toml"))


def predicted(folder, tmp_path):
    """The predictions of the command line for the rows of ``new.csv``, and these rows."""
    new = mixed(seed=1)
    new.to_csv(tmp_path / "new.csv", index=False)
    predict_file(folder, tmp_path / "new.csv", tmp_path / "out.csv")
    rows = pd.read_csv(tmp_path / "new.csv").drop(columns=["kind", "price"])
    return pd.read_csv(tmp_path / "out.csv"), rows


def test_a_loaded_model_takes_the_table(finished, tmp_path):
    found, rows = predicted(finished.folder, tmp_path)
    model = bayestree.load(finished.folder / "model.safetensors")
    assert [*model.feature_names_in_] == [*rows]
    np.testing.assert_array_equal(model.predict(rows), found["prediction"])
    np.testing.assert_allclose(model.predict_proba(rows), found[["p(big)", "p(small)"]], rtol=1e-12)


def test_an_opened_run_takes_the_table_and_its_own_rows(finished):
    opened = open_run(finished.folder)
    rows = opened.rows()
    raw = mixed().drop(columns=["kind", "price"]).iloc[rows.rows_held]
    found, own = map(opened.estimator.predict_proba, (raw, rows.X_held))
    np.testing.assert_allclose(found, own, rtol=1e-12)


def test_features_of_another_encoding_are_refused(finished):
    other = table().drop(columns=["kind", "price"])
    clf = bayestree.AlternatingTreeClassifier(max_depth=1).fit(other, table()["kind"])
    with pytest.raises(ValueError, match="feature names should match"):
        clf.predict(open_run(finished.folder).rows().X)
