"""Frames with any index: rows are told apart by their position, never by their label."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

from bayestree import AlternatingTreeClassifier, ConvexPolytopeTreeClassifier
from bayestree.inference import Svi
from bayestree.report.page import html_report
from tests.sampling import quickly

N = 40
LETTERS = [f"r{row}" for row in range(N)]
INDEXES = {
    "text": pd.Index(LETTERS),
    "dates": pd.date_range("2024-01-01", periods=N),
    "several levels": pd.MultiIndex.from_product([range(4), LETTERS[:10]]),
    "periods": pd.period_range("2024-01", periods=N, freq="M"),
    "categories": pd.CategoricalIndex(LETTERS),
    "intervals": pd.interval_range(0, N),
    "spans": pd.to_timedelta(range(N), "D"),
    "fractions": pd.Index(np.arange(N) / 2),
    "one label": pd.Index([7] * N),
    "shuffled": pd.Index(np.random.default_rng(0).permutation(N)),
}
CPT = ConvexPolytopeTreeClassifier(
    max_depth=1, n_experts=2, inference=Svi(epochs=2, n_draws=5), n_modes=1, random_state=0
)


def table():
    """Numbers, text and dates with missing values, and a target."""
    rng = np.random.default_rng(1)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, N), "D")
    X = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N), "day": days})
    X["colour"] = rng.choice(["red", "green", "blue"], N)
    y = np.where(X["b"] > 0, "p", "q")
    X.loc[::5, "a"], X.loc[::7, "day"], X.loc[3, "colour"] = np.nan, pd.NaT, None
    return X, y


@pytest.fixture(scope="module")
def results():
    """The results of each method for the rows numbered from 0."""
    return {columns: _results(*_part(columns)) for columns in ("numbers", "all")}


def _part(columns):
    X, y = table()
    return (X if columns == "all" else X[["a", "b"]]), y


def _results(X, y):
    clf = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    return {
        "predict_proba": clf.predict_proba(X),
        "encode": clf.encoding_.encode(X).to_numpy(),
        "cross_val_score": cross_val_score(clf, X, y, cv=2, error_score="raise"),
        "importance": str(clf.importance(X, y, random_state=0).to_frame()),
        "shapley_values": clf.shapley_values(X.iloc[:4], X).contributions,
        "partial_dependence": clf.partial_dependence(X, "a").mean,
        "explain": str(clf.explain(X.iloc[[5]])),
        "explain a series": str(clf.explain(X.iloc[5])),
        "report": html_report(clf, X=X, y=y),
    }


@pytest.mark.parametrize("columns", ["numbers", "all"])
@pytest.mark.parametrize("kind", quickly(INDEXES, quick=(2, 4, 8, 9)))
def test_results_do_not_depend_on_the_index(kind, columns, results):
    X, y = _part(columns)
    found = _results(X.set_axis(INDEXES[kind]), pd.Series(y, index=INDEXES[kind]))
    for name, expected in results[columns].items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


def test_a_posterior_takes_rows_with_any_index():
    X, y = _part("all")
    expected = CPT.fit(X, y)
    labelled = X.set_axis(INDEXES["text"])
    np.testing.assert_array_equal(expected.predict_proba(labelled), expected.predict_proba(X))
    assert str(expected.explain(labelled.iloc[[0]])) == str(expected.explain(X.iloc[[0]]))
    found, before = (expected.partial_dependence(one, "day").mean for one in (labelled, X))
    np.testing.assert_array_equal(found, before)


@pytest.mark.parametrize("columns", ["numbers", "all"])
@pytest.mark.parametrize("method", ["fit", "predict", "encode"])
@pytest.mark.parametrize("kind", ["text", "shuffled"])
def test_messages_state_the_position_of_a_row(kind, method, columns):
    X, y = _part(columns)
    clf = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    broken = X.set_axis(INDEXES[kind])
    broken.iloc[11, 1] = np.inf
    calls = {"fit": lambda: clf.fit(broken, y), "encode": lambda: clf.encoding_.encode(broken)}
    with pytest.raises(ValueError, match="first at row 12"):
        calls.get(method, lambda: clf.predict(broken))()
