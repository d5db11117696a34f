"""Predictions of rows of Dask and of Arrow."""

import subprocess
import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    ConvexPolytopeTreeSurvival,
    EndToEndForestClassifier,
)

N = 90
QUICK = {"max_depth": 1, "n_experts": 2, "epochs": 3, "inference": "map", "random_state": 0}


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(N, 2)), columns=["width", "height"])
    frame["colour"] = np.where(rng.random(N) < 0.5, "red", "blue")
    return frame.set_axis([f"row{number}" for number in range(N)])


@pytest.fixture(scope="module")
def fits():
    X = rows()
    z = 3 * X["width"].to_numpy() + np.random.default_rng(1).normal(size=N)
    rate = np.random.default_rng(2).poisson(np.exp(z / 3))
    return {
        "classes": ConvexPolytopeTreeClassifier(**QUICK).fit(X, np.where(z > 0, "big", "small")),
        "numbers": ConvexPolytopeTreeRegressor(**QUICK).fit(X, z),
        "several": ConvexPolytopeTreeRegressor(**QUICK).fit(X, np.column_stack([z, -z])),
        "counts": ConvexPolytopeTreeRegressor(leaf="poisson", **QUICK).fit(X, rate),
        "survival": ConvexPolytopeTreeSurvival(**QUICK).fit(
            X, np.column_stack([np.exp(z), np.arange(N) % 3 > 0])
        ),
        "forest": EndToEndForestClassifier(2, max_depth=1, epochs=3, random_state=0).fit(
            X, np.where(z > 0, 1, 7)
        ),
    }


def lazy(frame, *, empty=True):
    """The rows in partitions, one of which is empty."""
    parts = dd.from_pandas(frame, npartitions=3, sort=False)
    return dd.concat([parts, parts[parts["width"] > 9]]) if empty else parts


def pairs(found, expected):
    several = isinstance(expected, tuple)
    return zip(found, expected, strict=True) if several else [(found, expected)]


def assert_close(found, expected):
    """Equal labels, and numbers up to rounding.

    Kernels sum other numbers of rows in another order, and limits of intervals, which a search
    finds, follow such differences.
    """
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-7, strict=True)
    else:
        np.testing.assert_array_equal(found, expected, strict=expected.dtype.kind != "U")


CASES = [
    ("classes", "predict", {}),
    ("classes", "predict_proba", {}),
    ("classes", "predict_proba", {"return_std": True}),
    ("classes", "apply", {}),
    ("numbers", "predict", {"return_std": True}),
    ("numbers", "predict_interval", {"level": 0.5}),
    ("several", "predict", {}),
    ("survival", "predict", {}),
    ("survival", "predict_median", {}),
    ("survival", "predict_survival_function", {"times": [1.0, 2.0, 4.0]}),
    ("forest", "predict", {}),
    ("forest", "predict_proba", {}),
    ("forest", "apply", {}),
]


@pytest.mark.parametrize(("kind", "name", "given"), CASES)
class TestPredictions:
    def test_dask(self, fits, kind, name, given):
        method = getattr(fits[kind], name)
        found, expected = method(lazy(rows()), **given), method(rows(), **given)
        for own, other in pairs(found, expected):
            assert isinstance(own, dd.Series if other.ndim == 1 else dd.DataFrame)
            values = own.compute()
            assert list(values.index) == list(rows().index)
            assert np.array_equal(own.dtypes, values.dtypes)
            assert_close(values.to_numpy(), other)
            if name == "predict_proba":
                assert list(own.columns) == fits[kind].classes_.tolist()

    def test_arrow(self, fits, kind, name, given, monkeypatch):
        method = getattr(fits[kind], name)
        expected = method(rows(), **given)
        table = pa.Table.from_pandas(rows())
        monkeypatch.setattr("bayestree.tables.dataset.CELLS", 40)
        for X in (table, table.to_reader(7), table.combine_chunks().to_batches()[0]):
            found = method(X, **given)
            assert type(found) is type(expected)
            for own, other in pairs(found, expected):
                assert_close(own, other)


def test_nothing_is_computed_before_it_is_asked_for(fits):
    loaded = []

    def load(number):
        loaded.append(number)
        return rows()[number * 30 : number * 30 + 30]

    X = dd.from_map(load, range(3), meta=rows()[:0])
    probability = fits["classes"].predict_proba(X)
    assert loaded == []
    assert probability.npartitions == 3
    first = probability.partitions[1].compute(scheduler="sync")
    assert loaded == [1]
    assert_close(first.to_numpy(), fits["classes"].predict_proba(rows()[30:60]))


def test_predictions_join_their_rows(fits):
    X = lazy(rows())
    joined = X.assign(predicted=fits["numbers"].predict(X)).compute()
    assert_close(joined["predicted"].to_numpy(), fits["numbers"].predict(rows()))


def test_other_columns_by_row(fits):
    exposure = np.linspace(1, 2, N)
    X = lazy(rows().assign(time=exposure), empty=False)
    features = [*rows()]
    found = fits["counts"].predict(X[features], exposure=X["time"]).compute()
    assert_close(found.to_numpy(), fits["counts"].predict(rows(), exposure=exposure))
    y = fits["numbers"].predict(rows()) + exposure
    X = lazy(rows().assign(y=y), empty=False)
    found = fits["numbers"].log_score(X[features], X["y"]).compute()
    assert_close(np.asarray(found), fits["numbers"].log_score(rows(), y))
    table = pa.Table.from_pandas(rows())
    assert_close(np.asarray(fits["numbers"].log_score(table, y)), np.asarray(found))
    with pytest.raises(TypeError, match="y must be a Dask Series with the partitions of X"):
        fits["numbers"].log_score(X[features], y)


@pytest.mark.parametrize(
    "ask",
    [
        lambda tree, X, y: ConvexPolytopeTreeRegressor(**QUICK).fit(X, y),
        lambda tree, X, y: ConvexPolytopeTreeRegressor(**QUICK).fit(rows(), y=y),
        lambda tree, X, y: tree.in_interval(X, np.ones(N)),
        lambda tree, X, y: tree.decision_path(X),
    ],
)
def test_what_takes_no_dask_rows_says_so(fits, ask):
    X = lazy(rows().assign(y=1.0))
    with pytest.raises(TypeError, match=r"write them by X.to_parquet\('rows'\) and fit that data"):
        ask(fits["numbers"], X[[*rows()]], X["y"])


def test_an_arrow_table_without_rows_is_what_a_frame_without_rows_is(fits):
    found = fits["classes"].predict_proba(pa.Table.from_pandas(rows()[:0]))
    assert found.shape == fits["classes"].predict_proba(rows()[:0]).shape == (0, 2)


def test_dask_is_imported_only_with_its_rows():
    code = "import sys, bayestree.cli; from bayestree import *; print('dask' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
