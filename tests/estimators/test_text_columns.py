"""Columns of X that hold no numbers: named in the error, with a remedy that works."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from bayestree import AlternatingTreeClassifier, AlternatingTreeRegressor, EndToEndForestClassifier

N = 30
DAYS = pd.date_range("2024-01-01", periods=N)


def frame(**columns):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)}).assign(**columns)


def refusal(X, method="fit", kind=ValueError):
    estimator = AlternatingTreeRegressor(max_depth=1, random_state=0)
    y = frame()["a"]
    if method == "predict":
        estimator.fit(frame(), y)
    given = (X, y) if method == "fit" else (X,)
    with pytest.raises(kind) as found:
        getattr(estimator, method)(*given)
    return str(found.value)


@pytest.mark.parametrize(
    "column",
    [
        DAYS,
        DAYS.tz_localize("UTC"),
        DAYS.to_period("D"),
        DAYS - DAYS[0],
        pd.Series(DAYS.date, dtype=object),
    ],
    ids=["dates", "zone", "periods", "spans", "objects"],
)
def test_dates(column):
    X = frame(day=column)
    said = refusal(X)
    assert said.startswith("column 'day' of X holds dates or times")
    remedy = re.search("such as (.*), or leave it out", said)[1]
    X["day"] = eval(remedy, {"X": X, "pandas": pd})
    AlternatingTreeRegressor(max_depth=1, random_state=0).fit(X, X["a"])


def test_dates_alone_are_no_numbers():
    """scikit-learn takes them for nanoseconds."""
    assert "column 'day' of X holds dates" in refusal(pd.DataFrame({"day": DAYS}))
    assert "column 0 of X holds dates" in refusal(DAYS.to_numpy()[:, None])


def test_dates_in_lists():
    said = refusal([[1.0, day] for day in DAYS])
    assert said.startswith("column 1 of X holds dates or times")


@pytest.mark.parametrize("dtype", ["str", "object", "category"])
@pytest.mark.parametrize("method", ["fit", "predict"])
def test_text(dtype, method):
    X = frame(b=pd.Series(["red", "blue", "blue"] * 10, dtype=dtype))
    said = refusal(X, method)
    assert "column 'b' of X holds 'red' (X['b'].iloc[0]). One-hot encode text, as by " in said
    assert "['b']), remainder='passthrough')" in said
    assert ("or fit the table by `bayestree fit`" in said) == (method == "fit")


def test_the_remedy_for_text():
    X = frame(colour=["red", "blue"] * 15, size=["small", "big", "huge"] * 10)
    y = X["colour"] == "red"
    with pytest.raises(ValueError, match=r"\['colour', 'size'\]\), remainder='passthrough'"):
        AlternatingTreeClassifier().fit(X, y)
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["colour", "size"]), remainder="passthrough"
    )
    model = make_pipeline(encoder, AlternatingTreeClassifier(max_depth=2, random_state=0))
    assert model.fit(X, y).score(X, y) == 1.0


def test_a_fault_among_numbers():
    X = frame(b=[*map(str, range(N - 1)), "?"])
    assert refusal(X).endswith(
        "column 'b' of X holds '?' (X['b'].iloc[29]), and numbers in 29 of 30 rows; correct it."
    )


@pytest.mark.parametrize("kind", [str, object])
def test_arrays_and_lists_of_text(kind):
    X = np.array([["1", "x"]] * N, dtype=kind)
    assert "column 1 of X holds 'x' (X[0, 1])" in refusal(X)
    assert "column 1 of X holds 'x' (X[0, 1])" in refusal(X.tolist())


def test_gaps():
    X = frame(b=[1.0] * 4 + [np.nan] * 2 + [1.0] * 24)
    said = "Input X contains NaN: 2 missing values ('b': 2), first at row 5; impute them"
    assert refusal(X).startswith(said)
    X = frame(b=[np.inf] + [1.0] * 29)
    assert "1 infinite value ('b': 1), first at row 1" in refusal(X)


@pytest.mark.parametrize("kind", [np.float32, object])
def test_gaps_of_arrays_and_lists(kind):
    X = np.ones((N, 3), dtype=kind)
    X[[4, 7], 2] = np.nan
    said = "Input X contains NaN: 2 missing values ('2': 2), first at row 5; impute them"
    assert refusal(X).startswith(said)
    assert refusal(X.tolist()).startswith(said)


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (AlternatingTreeClassifier, [None, "no", "yes"]),
        (AlternatingTreeClassifier, [np.nan, "no", "yes"]),
        (AlternatingTreeClassifier, pd.Series([None, "no", "yes"])),
        (AlternatingTreeClassifier, pd.Series([pd.NA, 0, 1], dtype="Int64")),
        (AlternatingTreeRegressor, np.array([np.nan, 1.0, 2.0])),
        (AlternatingTreeRegressor, [None, 1.0, 2.0]),
    ],
)
def test_gaps_in_y(estimator, y):
    order = [1, 2, *[0, 1, 2] * 2]  # missing at the third and the sixth row
    some = y.iloc[order] if isinstance(y, pd.Series) else [y[i] for i in order]
    with pytest.raises(ValueError, match=r"y .*: 2 missing values, first at row 3; drop the rows"):
        estimator().fit(frame().head(len(order)), some)


def test_numbers_of_other_kinds_are_taken():
    X = frame(b=[True, False] * 15, c=pd.Categorical([1, 2] * 15), d=["1", "2", "3"] * 10)
    model = AlternatingTreeRegressor(max_depth=1, random_state=0).fit(X, X["a"])
    same = X.astype(float).to_numpy()
    np.testing.assert_array_equal(model.predict(X), model.tree_.predict(same))


def test_other_errors_are_those_of_scikit_learn():
    X = np.array([[1, {}]] * N, dtype=object)
    assert "must be a string or a real number" in refusal(X, kind=TypeError)
    assert "feature names should match" in refusal(frame().rename(columns={"a": "c"}), "predict")


def test_forests():
    forest = EndToEndForestClassifier(2, max_depth=1, epochs=1, random_state=0)
    X, y = frame(), np.arange(N) % 2
    forest.fit(X, y)
    with pytest.raises(ValueError, match="column 'b' of X holds 'red'"):
        forest.predict(X.assign(b="red"))
