"""Tables of other libraries and with columns of other types, and y of other kinds."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from scipy.sparse import csr_matrix
from sklearn.base import clone

from bayestree import (
    AlternatingTreeClassifier,
    AlternatingTreeRegressor,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    export_onnx,
)
from bayestree.inference import Svi

N = 40
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=N), "b": np.resize(["u", "v", None], N)})
Y = np.where(X["a"] > 0, "yes", "no")


class Frame:
    """A table as polars has it: columns by name, and the Arrow protocol."""

    def __init__(self, frame):
        self._table = pa.Table.from_pandas(frame, preserve_index=False)
        self.shape, self.columns = frame.shape, list(frame)

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        return self._table.to_pandas().to_numpy(dtype)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


class Labels:
    """A column as polars has it."""

    def __init__(self, values):
        self._values, self.dtype = np.asarray(values), "String"
        self.shape = self._values.shape

    def __len__(self):
        return len(self._values)

    def __array__(self, dtype=None, copy=None):
        return self._values.astype(dtype) if dtype else self._values


@pytest.mark.parametrize(
    "convert",
    [
        Frame,
        lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
        lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
        lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    ],
    ids=["like polars", "Arrow table", "Arrow batch", "Arrow columns"],
)
def test_tables_of_other_libraries(convert):
    settings = ConvexPolytopeTreeClassifier(
        max_depth=1, inference=Svi(epochs=2, n_draws=2), n_modes=1, random_state=0
    )
    fitted, same = clone(settings).fit(convert(X), Labels(Y)), clone(settings).fit(X, Y)
    assert list(fitted.feature_names_in_) == ["a", "b"]
    assert fitted.encoding_.feature_names == ["a", "b=v", "b missing"]
    given = convert(X)
    np.testing.assert_array_equal(fitted.predict_proba(given), same.predict_proba(X))
    tables = [fitted.encoding_.named(table) for table in (given, X)]
    np.testing.assert_array_equal(*map(fitted.encoding_.encode, tables))
    assert fitted.score(given, Y) == same.score(X, Y)
    assert len(fitted.importance(given, Y, n_repeats=1, max_draws=1).features) == 2
    assert np.isfinite(fitted.loo(given, Y, method="kfold", n_folds=2).elpd)
    assert len(export_onnx(fitted, X=given)) > 0


class WithoutArrow(Frame):
    """A table with a column of a type that Arrow does not have."""

    def __getitem__(self, name):
        return self._table[name].to_pylist()

    def __arrow_c_stream__(self, requested_schema=None):
        raise pa.ArrowInvalid("unsupported format string")


def test_columns_that_arrow_does_not_have():
    fitted = AlternatingTreeClassifier(max_depth=1).fit(WithoutArrow(X), Y)
    assert fitted.encoding_.feature_names == ["a", "b=v", "b missing"]
    np.testing.assert_array_equal(fitted.predict(WithoutArrow(X)), fitted.predict(X))


@pytest.mark.parametrize("cycle", [[0.0, 1.0, 2.0], [0.0, 1.0, np.nan], ["u", "v", "w"]])
def test_arrays_of_xarray_are_read_as_their_values(cycle):
    rows = X.assign(c=np.resize(np.array(cycle, dtype=object), N))[["a", "c"]].to_numpy()
    array = xr.DataArray(rows, dims=("row", "column"), coords={"column": ["a", "c"]})
    fitted = AlternatingTreeClassifier(max_depth=1).fit(array, xr.DataArray(Y))
    same = AlternatingTreeClassifier(max_depth=1).fit(rows, Y)
    for given in (array, rows):
        np.testing.assert_array_equal(fitted.predict(given), same.predict(rows))
    with pytest.raises(ValueError, match=r"dim 3|3 features"):
        fitted.predict(xr.DataArray(np.zeros((2, 3, 2))))


def test_tables_with_other_rows_than_the_object():
    fitted = AlternatingTreeClassifier(max_depth=1).fit(X[["a"]], Y)
    long = Frame(X[["a"]])
    long.shape = (5, 1)
    with pytest.raises(TypeError, match="X, a Frame of length 5, gives 40 rows"):
        fitted.predict(long)


def test_dictionaries_of_arrow():
    column = X["b"].astype("category").astype(pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string())))
    fitted = AlternatingTreeClassifier(max_depth=1).fit(X.assign(b=column), Y)
    assert fitted.encoding_.feature_names == ["a", "b=v", "b missing"]
    np.testing.assert_array_equal(fitted.predict(X.assign(b=column)), fitted.predict(X))


def test_sparse_columns_of_frames():
    frame = X[["a"]].assign(b=np.arange(N) % 3 == 0, c=pd.arrays.SparseArray(np.arange(N) % 4))
    fitted = AlternatingTreeClassifier(max_depth=1).fit(frame.astype(pd.SparseDtype(float)), Y)
    np.testing.assert_array_equal(fitted.predict(frame), fitted.predict(frame.astype(float)))


@pytest.mark.parametrize("rows", [X[["a"]], X])
def test_sparse_matrices(rows):
    fitted = AlternatingTreeClassifier(max_depth=1).fit(rows, Y)
    sparse = csr_matrix(np.zeros(rows.shape))
    for call in (fitted.predict, lambda given: fitted.fit(given, Y)):
        with pytest.raises(TypeError, match=r"X is sparse, .*; pass X\.toarray\(\)"):
            call(sparse)


@pytest.mark.parametrize("rows", [X, X[["a"]].assign(b=1.0), X[["a"]].assign(b=np.nan)])
def test_equal_names(rows):
    twice = pd.concat([rows, rows, rows[["b"]].set_axis(["c"], axis=1)], axis=1)
    with pytest.raises(ValueError, match="X has several columns named 'a', 'b'; rename them"):
        AlternatingTreeClassifier(max_depth=1).fit(twice, Y)


CUT = pd.cut(X["a"], 3)
LABELS = {
    "int": pd.Series(np.arange(N) % 2, dtype=object),
    "float": pd.Series(np.arange(N) % 2 / 1.0, dtype=object),
    "bool": pd.Series(np.arange(N) % 2 == 0, dtype=object),
    "str": pd.Series([1, "a"] * (N // 2), dtype=object),
}


@pytest.mark.parametrize("kind", [AlternatingTreeClassifier, ConvexPolytopeTreeClassifier])
@pytest.mark.parametrize(
    ("dtype", "y"),
    [
        *LABELS.items(),
        ("str", CUT),
        ("str", CUT.astype(object)),
        ("str", pd.Series([dt.date(2024, 1, 1), dt.date(2025, 1, 1)] * (N // 2))),
        ("str", pd.Series(pd.to_timedelta([1, 2] * (N // 2), unit="D"))),
        ("str", pd.Series(pd.period_range("2024", periods=2, freq="Y").repeat(N // 2))),
        ("str", pd.Series(pd.to_datetime(["2024", "2025"] * (N // 2), utc=True))),
    ],
)
def test_labels_of_other_kinds(kind, dtype, y):
    with pytest.raises(ValueError, match=rf"y must hold text.* by y\.astype\({dtype}\)"):
        kind().fit(X, y)
    found = AlternatingTreeClassifier(max_depth=1).fit(X, y.astype(dtype))
    assert set(found.predict(X)) <= set(y.astype(dtype))


@pytest.mark.parametrize(
    "y",
    [
        pd.cut(X["a"], 3, labels=["low", "middle", "high"]),
        pd.cut(X["a"], 3, labels=[1, 2, 3]),
        pd.cut(X["a"], 3, labels=False),
        pd.Series(np.arange(N) % 2, dtype="Int64"),
        pd.DataFrame({"y": pd.Series(np.arange(N) % 2, dtype="Int64")}),
        pd.Series(Y, dtype="string"),
        pd.Series(pd.to_datetime(["2024", "2025"] * (N // 2))),
    ],
)
def test_labels_that_need_no_conversion(y):
    found = AlternatingTreeClassifier(max_depth=1).fit(X, np.ravel(y) if y.ndim == 2 else y)
    assert len(found.classes_) == len(pd.unique(np.ravel(y)))


@pytest.mark.parametrize("dtype", ["Int8", "boolean", "int64[pyarrow]", "category"])
@pytest.mark.parametrize("rows", [X, X[["a"]]])
def test_labels_of_pandas_stay_integers_and_booleans(dtype, rows):
    kind = bool if dtype in ("boolean", "category") else int
    y = pd.Series((X["a"] > 0).astype(kind)).astype(dtype)
    found = AlternatingTreeClassifier(max_depth=1).fit(rows, y)
    assert found.classes_.tolist() == [kind(0), kind(1)]
    assert {type(label) for label in found.predict(rows).tolist()} == {kind}
    assert found.score(rows, y) == 1.0


@pytest.mark.parametrize(
    "estimator",
    [
        AlternatingTreeClassifier(),
        AlternatingTreeRegressor(),
        ConvexPolytopeTreeClassifier(),
        ConvexPolytopeTreeRegressor(),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("rows", [X, X[["a"]]])
def test_survival_tables(estimator, rows):
    y = np.array([(True, 1.5), (False, 2.0)] * (N // 2), dtype=[("event", bool), ("time", float)])
    with pytest.raises(
        ValueError,
        match=r"got an array of the fields 'event', 'time'; .* use ConvexPolytopeTreeSurv",
    ):
        estimator.fit(rows, y)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (pd.Series(["1.5", "2"] * (N // 2)), r"got text .* convert it by y\.astype\(float"),
        (pd.Categorical(["1.5", "2"] * (N // 2)), r"got text .* convert it by y\.astype\(float"),
        (["1.5", "x"] * (N // 2), r"got text such as '1\.5'; use a classifier"),
        (CUT, r"got values such as '\(.*\]'; use a classifier"),
    ],
)
def test_regressors_need_numbers(y, said):
    with pytest.raises(ValueError, match=f"y must hold numbers, {said}"):
        AlternatingTreeRegressor().fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "given"),
    [(ConvexPolytopeTreeClassifier(), X["a"]), (AlternatingTreeClassifier(), X.iloc[0])],
)
def test_a_series_is_no_table(estimator, given):
    with pytest.raises(ValueError, match=r"pass one row as X.iloc\[\[0\]\] instead of X.iloc\[0\]"):
        estimator.fit(given, Y)
