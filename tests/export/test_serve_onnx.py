"""The example that serves an exported tree: its answers are those of the tree."""

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayestree import ConvexPolytopeTreeClassifier, export_json, export_onnx

pytest.importorskip("fastapi")
pytest.importorskip("httpx2")
from fastapi.testclient import TestClient

from bayestree.inference import Map

SCRIPT = Path(__file__).parents[2] / "examples" / "serve_onnx.py"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A tree, the rows that it was fitted to, and a client of its server."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "mean width": np.where(rng.random(200) < 0.1, np.nan, rng.normal(size=200)),
            "colour": np.where(rng.random(200) < 0.1, None, rng.choice(["red", "blue"], 200)),
        }
    )
    y = np.where(X["mean width"].fillna(1) + 2 * (X["colour"] == "red") > 1, "big", "small")
    tree = ConvexPolytopeTreeClassifier(
        max_depth=2, inference=Map(epochs=30, steepness=None), prediction="tree", random_state=0
    ).fit(X, y)
    place = tmp_path_factory.mktemp("served") / "tree.onnx"
    place.write_bytes(export_onnx(tree, inputs="columns"))
    place.with_suffix(".json").write_text(export_json(tree), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREE", str(place))
        app = runpy.run_path(str(SCRIPT))["app"]
    return tree, X, TestClient(app)


def test_answers_are_those_of_the_tree(served):
    tree, X, client = served
    some = X[:40]
    assert some.isna().any(axis=None)
    rows = some.astype(object).where(some.notna(), None).to_dict("records")
    answers = [client.post("/predict", json=row).json() for row in rows]
    assert [one["label"] for one in answers] == tree.predict(some).tolist()
    for name, expected in zip(tree.classes_, tree.predict_proba(some).T, strict=True):
        np.testing.assert_allclose([one["probabilities"][name] for one in answers], expected)
    assert [one["leaf"] for one in answers] == tree.apply(some).tolist()
    assert len({one["rule"] for one in answers}) == len({one["leaf"] for one in answers}) > 1
    assert any("[colour=" in one["rule"] and "not (" in one["rule"] for one in answers)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"colour": "red"}, ["mean width", "Field required"]),
        ({"mean width": "1", "colour": "red"}, ["mean width", "valid number"]),
        ({"mean width": 1, "colour": 2}, ["colour", "valid string"]),
        ({"mean width": 1, "colour": None, "size": 3}, ["size", "Extra inputs"]),
    ],
)
def test_other_rows_are_refused_by_the_column(served, row, said):
    answer = served[2].post("/predict", json=row)
    assert answer.status_code == 422
    (detail,) = answer.json()["detail"]
    assert detail["loc"][1] == said[0]
    assert said[1] in detail["msg"]
