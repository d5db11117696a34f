"""Rows of Dask and of Arrow."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor

N = 90
QUICK = {"max_depth": 1, "n_experts": 2, "inference": "grow", "random_state": 0}


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(N, 2)), columns=["width", "height"])
    frame["colour"] = np.where(rng.random(N) < 0.5, "red", "blue")
    return frame


@pytest.fixture(scope="module")
def clf():
    X = rows()
    return ConvexPolytopeTreeClassifier(**QUICK).fit(X, np.where(X["width"] > 0, "big", "small"))


def test_partitions_are_predicted_lazily(clf):
    loaded = []

    def load(number):
        loaded.append(number)
        return rows()[number * 30 : number * 30 + 30]

    X = dd.from_map(load, range(3), meta=rows()[:0])
    meta = pd.DataFrame(columns=clf.classes_, dtype=float)
    found = X.map_partitions(
        lambda part: pd.DataFrame(clf.predict_proba(part), part.index, clf.classes_), meta=meta
    )
    assert loaded == []
    np.testing.assert_allclose(found.compute().to_numpy(), clf.predict_proba(rows()), rtol=1e-12)


def test_arrow_tables_are_rows(clf):
    expected = clf.predict_proba(rows())
    table = pa.Table.from_pandas(rows())
    for X in (table, table.to_reader(7), table.combine_chunks().to_batches()[0]):
        np.testing.assert_array_equal(clf.predict_proba(X), expected)


@pytest.mark.parametrize(
    "ask",
    [
        lambda clf, X, y: ConvexPolytopeTreeRegressor(**QUICK).fit(X, y),
        lambda clf, X, y: ConvexPolytopeTreeRegressor(**QUICK).fit(rows(), y=y),
        lambda clf, X, y: ConvexPolytopeTreeRegressor(**QUICK).fit(rows(), [0.0] * len(y), y),
        lambda clf, X, y: ConvexPolytopeTreeClassifier(n_modes=1).partial_fit(rows(), y),
        lambda clf, X, y: clf.predict(X),
        lambda clf, X, y: clf.decision_path(X),
    ],
)
def test_rows_of_dask_are_refused_with_the_way_to_go(clf, ask):
    X = dd.from_pandas(rows().assign(y=1.0), npartitions=3)
    with pytest.raises(TypeError, match=r"X.map_partitions; to fit, write the rows by X.to_parq"):
        ask(clf, X[[*rows()]], X["y"])
