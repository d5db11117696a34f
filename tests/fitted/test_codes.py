"""Codes for missing values, and identifiers: what the fit says about them, and what it does."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

import bayestree
from bayestree import AlternatingTreeClassifier, DoubtfulColumnsWarning, UnusedColumnsWarning
from bayestree.fitted.validation import _profile
from bayestree.tables.profiling import Sentinels

N = 400
CODE = r"column '{}' holds {} in {} of 400 rows, far from all other values: if it is a code"
IDENTIFIER = "column '{}' holds a different {} in every row, like an identifier"


def frame(**columns):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)}).assign(**columns)


def tree(**settings):
    return AlternatingTreeClassifier(max_depth=2, random_state=0, **settings)


def found(*values):
    sentinels = Sentinels()
    for chunk in np.array_split(np.array(values, dtype=float), 3):
        sentinels.add(chunk)
    return sentinels.found()


@pytest.mark.parametrize(
    ("value", "count"),
    [(-9999, 1), (-999, 2), (999, 1), (-99.9, 2), (1e9, 1), (1e20, 2), (-32768, 1), (-555, 2)],
)
def test_values_that_may_be_codes(value, count):
    rest = np.random.default_rng(0).normal(size=N - count).tolist()
    assert found(*rest[:50], *[value] * count, *rest[50:]) == [(value, count)]


@pytest.mark.parametrize(
    "values",
    [
        [*range(40), 99],
        [0, 1] * 50 + [9],
        [0, 0, 1] * 50,
        [-1] * 5 + [*range(50)],
        [*np.exp(np.linspace(0, 7, 50)), 5e5],
        [*range(0, 1200, 10), 999],
        [1, 1, 1, 2, 3, 4, 9999],  # too few rows
        [0, 10, 500] * 30,  # doses
        [*[1, 2, 3] * 30, *[30] * 8],
        [1.99, 2.99, 4.99, 9.99] * 20,  # prices
        [*[50, 75, 120, 200] * 20, 999.99, 999.99],
    ],
)
def test_values_that_are_not_codes(values):
    assert found(*values) == []


def test_several_codes():
    values = np.random.default_rng(0).integers(0, 60, N - 7).tolist()
    assert found(*values, 998, 998, 999, 999, 999, -9, -9) == [(-9, 2), (998, 2), (999, 3)]


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_diabetes])
def test_no_alarms_on_tables_without_codes(load):
    profile = _profile(tree(), load(as_frame=True).data)
    assert profile.doubts == []


@pytest.mark.parametrize("kind", [pd.DataFrame, np.asarray])
def test_codes_are_named_and_can_be_declared(kind):
    X = frame()
    y = np.where(X["a"] + X["b"] > 0, "p", "q")
    X.loc[[3, 9], "a"] = -9999
    given, name = kind(X), "a" if kind is pd.DataFrame else "x0"
    with pytest.warns(DoubtfulColumnsWarning, match=CODE.format(name, -9999, 2)):
        tree().fit(given, y)
    declared = tree(missing_values=-9999).fit(given, y)
    missing = X.replace(-9999, np.nan)
    same = tree().fit(kind(missing), y)
    np.testing.assert_array_equal(declared.predict_proba(given), same.predict_proba(kind(missing)))
    np.testing.assert_array_equal(
        declared.predict_proba(kind(missing)), declared.predict_proba(given)
    )


def test_codes_are_counted_among_all_rows():
    X = frame()
    X.loc[:1, "a"] = -9999
    X.loc[100:299, "a"] = np.nan
    with pytest.warns(DoubtfulColumnsWarning, match=CODE.format("a", -9999, 2)):
        _profile(tree(), X)


@pytest.mark.parametrize(
    ("codes", "features"),
    [
        (["?", -9], ["a", "b", "n", "n missing", "t=v", "t missing", "o>=2", "o missing"]),
        ({"n": -9}, ["a", "b", "n", "n missing", "t=?", "t=u", "t=v", "o>=2", "o>=?"]),
        ({"t": ("?",)}, ["a", "b", "n", "t=v", "t missing", "o>=2", "o>=?"]),
    ],
)
@pytest.mark.filterwarnings("ignore:column 'n' holds -9")
def test_codes_of_columns(codes, features, tmp_path):
    rng = np.random.default_rng(1)
    order = pd.Categorical(rng.choice([*"12?"], N), [*"12?"], ordered=True)
    X = frame(n=rng.choice([1, 2, 3, -9], N), t=rng.choice([*"uv?"], N), o=order)
    clf = tree(missing_values=codes).fit(X, X["a"] > 0)
    assert clf.encoding_.feature_names == features
    clf.save(tmp_path / "model.safetensors")
    again = bayestree.load(tmp_path / "model.safetensors")
    assert again.encoding_ == clf.encoding_
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    hidden = X.mask(X.isin(["?", -9])) if isinstance(codes, list) else X
    np.testing.assert_array_equal(clf.predict_proba(hidden), clf.predict_proba(X))
    shown = clf.encoding_.shown(X.iloc[[int(np.flatnonzero(X["n"] == -9)[0])]])[2][0]
    assert np.isnan(shown) if "n missing" in features else shown == -9


def test_refused_codes():
    X = frame()
    with pytest.raises(ValueError, match="'c' is not a column to predict from"):
        tree(missing_values={"c": -1}).fit(X, X["a"] > 0)
    with pytest.raises(ValueError, match="missing_values must be numbers or texts, got True"):
        tree(missing_values=[True]).fit(X, X["a"] > 0)
    with pytest.raises(ValueError, match="missing_values must be"):
        tree(missing_values=[[1]]).fit(X, X["a"] > 0)
    images = bayestree.EndToEndTreeClassifier(image_shape=(1, 2), missing_values=-1, max_depth=1)
    with pytest.raises(ValueError, match="missing_values needs rows in memory"):
        images.fit(X.to_numpy(), X["a"] > 0)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(N),
        np.arange(N)[::-1],
        1000 + np.random.default_rng(0).permutation(N),
        np.random.default_rng(0).permutation(2 * N - 100)[:N],
        np.cumsum(np.random.default_rng(0).integers(1, 99, N)),
    ],
)
def test_whole_numbers_that_look_like_identifiers_are_kept(values):
    X = frame(id=values)
    with pytest.warns(DoubtfulColumnsWarning, match=IDENTIFIER.format("id", "whole number")):
        clf = tree().fit(X, X["a"] > 0)
    assert "id" in clf.encoding_.feature_names


@pytest.mark.parametrize(
    "values",
    [
        np.arange(N) // 2,
        np.arange(N) / 3,
        np.random.default_rng(0).integers(0, 2 * N, N),
        np.random.default_rng(0).permutation(50 * N)[:N],
    ],
)
def test_other_numbers_are_no_identifiers(values):
    X = frame(id=values)
    tree().fit(X, X["a"] > 0)


@pytest.mark.parametrize("kind", [str, "category"])
@pytest.mark.parametrize(("n_names", "said"), [(N, "every"), (N - 5, "nearly every")])
def test_text_identifiers_are_named_once_and_ignored(n_names, said, kind):
    X = frame(name=pd.Series([f"n{i % n_names}" for i in range(N)]).astype(kind))
    y = X["a"] > 0
    said = IDENTIFIER.format("name", "text").replace("every", said)
    with pytest.warns(UnusedColumnsWarning, match=said) as record:
        clf = tree().fit(X, y)
    assert len(record) == 1
    same = tree().fit(X[["a", "b"]], y)
    new = X.assign(name=[f"m{i}" for i in range(N)])
    np.testing.assert_array_equal(clf.predict_proba(new), same.predict_proba(X[["a", "b"]]))
    assert clf.feature_importances_[2] == 0
    assert clf.importance(X, y, random_state=0).to_frame().loc["name", "votes"] == 0
    assert not clf.shapley_values(X.head(3), X.head(20)).contributions[:, 2].any()
    assert "name" not in str(clf.explain(new.iloc[0]).change)
    for call in (clf.partial_dependence, lambda X, name: clf.explain(X.head(1), features=[name])):
        with pytest.raises(ValueError, match="ignore"):
            call(new, "name")


def test_names_of_which_many_recur_are_categories():
    """An eighth of the rows, all after the first hundred."""
    X = frame(name=[f"n{i % (N - 50)}" for i in range(N)])
    assert tree().fit(X, X["a"] > 0).encoding_.columns[2].kind == "statistics"


def test_gaps_of_identifiers_are_kept():
    """Whether there is a cabin may matter, although no two passengers share one."""
    names = pd.Series([f"n{i}" if i % 3 else None for i in range(N)])
    X = frame(name=names)
    with pytest.warns(UnusedColumnsWarning, match="'name'"):
        clf = tree().fit(X, names.isna())
    assert clf.encoding_.feature_names == ["a", "b", "name missing"]
    assert clf.score(X, names.isna()) == 1.0


def test_predictions_say_nothing_about_columns_that_the_fit_ignores():
    X = frame(same="x", copy="u")
    X.loc[::2, "copy"] = "v"
    X["original"] = X["copy"].eq("v").astype(int)
    with pytest.warns(UnusedColumnsWarning, match="1 constant column .* and 1 duplicate column"):
        clf = tree().fit(X[["a", "b", "original", "copy", "same"]], X["a"] > 0)
    clf.predict(X.assign(same="y", copy="w")[["a", "b", "original", "copy", "same"]])


@pytest.mark.parametrize("code", [np.int64(-999), np.array([-999, np.nan]), np.inf, -1.7e308])
def test_codes_of_numpy_and_codes_that_are_not_finite(code, tmp_path):
    X = frame()
    y = np.where(X["a"] > 0, "p", "q")
    X.loc[[3, 9], "a"] = np.ravel(code)[0]
    fitted = tree(missing_values=code).fit(X, y)
    fitted.save(tmp_path / "tree.safetensors")
    again = bayestree.load(tmp_path / "tree.safetensors")
    assert again.encoding_ == fitted.encoding_
    assert "a missing" in again.encoding_.feature_names
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
