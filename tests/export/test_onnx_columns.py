"""A model of columns does the encoding of a table itself."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest

import bayestree
from bayestree import export_onnx
from bayestree.export.onnx import OnnxMismatchError, check_onnx
from tests.explain.test_counterfactual import table
from tests.fitted_cases import QUICK


@pytest.fixture(scope="module")
def fitted():
    X, y = table()
    X["since"] += pd.to_timedelta(np.arange(len(X)) % 24, "h")
    X.loc[::9, "since"] = pd.NaT
    return X, y, bayestree.AlternatingTreeClassifier(max_depth=3, random_state=0).fit(X, y)


def run(content, clf, X):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    inputs = {one.name: one.type for one in session.get_inputs()}
    found = session.run(None, clf.encoding_.portable(X))
    return inputs, dict(zip(names, found, strict=True)), session.get_modelmeta()


def test_every_kind_of_column(fitted):
    X, _, clf = fitted
    content = export_onnx(clf, inputs="columns")
    inputs, found, meta = run(content, clf, X)
    assert list(inputs) == list(X)
    assert inputs["income"] == inputs["since"] == "tensor(double)"
    assert inputs["colour"] == inputs["town"] == inputs["size"] == "tensor(string)"
    assert json.loads(meta.custom_metadata_map["columns"]) == list(X)
    np.testing.assert_array_equal(found["leaf"], clf.apply(X))
    np.testing.assert_array_equal(found["label"], clf.predict(X))
    np.testing.assert_allclose(found["probabilities"], clf.predict_proba(X))
    new = X.assign(colour="pink", sex=None, income=np.nan, size="M", town="x", since=pd.NaT)
    with pytest.warns(bayestree.UnknownCategoryWarning):
        expected = clf.predict_proba(new)
    np.testing.assert_allclose(run(content, clf, new)[1]["probabilities"], expected)
    assert check_onnx(content, clf, X) == 0
    assert len(export_onnx(clf, X=X, inputs="columns")) == len(content)


def test_encoding_of_dates():
    """Days of three centuries, the years 1900, 2000 and 2100 among them, at some hour."""
    rng = np.random.default_rng(0)
    hours = 24 * rng.integers(0, 130_000, 4000) + rng.integers(0, 24, 4000)
    days = np.datetime64("1890-01-01", "s") + hours * np.timedelta64(3600, "s")
    X = pd.DataFrame({"day": days})
    parts = X["day"].dt
    y = parts.month + parts.day / 100 + 20 * (parts.day_of_week > 4) + (parts.hour > 11)
    y += 9 * (parts.year > 2050)
    reg = bayestree.AlternatingTreeRegressor(max_depth=6, min_leaf=2, random_state=0).fit(X, y)
    used = reg.tree_.hyperplane.any(axis=0)
    assert used.all(), "or a part is not tested"
    assert check_onnx(export_onnx(reg, inputs="columns"), reg, X) == 0


def test_forests_and_numbers():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["X", "level_start"])
    y = X["X"] > 0
    clf = bayestree.EndToEndForestClassifier(2, **QUICK).fit(X, y)
    inputs, found, _ = run(export_onnx(clf, X=X, inputs="columns"), clf, X)
    assert list(inputs) == ["X", "level_start"]
    np.testing.assert_allclose(found["probabilities"], clf.predict_proba(X))


def test_what_has_no_columns(fitted):
    X, y, clf = fitted
    with pytest.raises(TypeError, match="a Tree has no columns; pass a fitted estimator"):
        export_onnx(clf.tree_, inputs="columns")
    with pytest.raises(ValueError, match="inputs must be 'features' or 'columns', got 'rows'"):
        export_onnx(clf, inputs="rows")
    named = bayestree.AlternatingTreeClassifier(max_depth=1).fit(
        X.rename(columns={"sex": "leaf"}), y
    )
    with pytest.raises(ValueError, match=r"column 'leaf' cannot be an input .* rename it"):
        export_onnx(named, inputs="columns")
    other = bayestree.AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    with pytest.raises(OnnxMismatchError):
        check_onnx(export_onnx(clf, inputs="columns"), other, X)
