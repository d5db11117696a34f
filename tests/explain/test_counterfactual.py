"""The nearest change as it is printed, against what ``predict`` returns for the changed row."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bayestree
from bayestree.explain.counterfactual import Number
from bayestree.tables import Encoding
from tests.explain.test_moves import table

QUICK = {"max_depth": 2, "n_experts": 3, "epochs": 6, "n_draws": 6, "random_state": 0}
CLASSIFIERS = {
    "modes": bayestree.ConvexPolytopeTreeClassifier(n_modes=2, **QUICK),
    "posterior": bayestree.ConvexPolytopeTreeClassifier(n_modes=1, **QUICK),
    "tree": bayestree.AlternatingTreeClassifier(max_depth=3, random_state=0),
}
ROWS = 5


def whole_numbers(n=150):
    """Whole numbers, an indicator that is one, and a missing value."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(
        {
            "children": rng.integers(0, 6, n),
            "age": rng.integers(18, 90, n),
            "smoker": rng.integers(0, 2, n),
            "height": rng.normal(1.7, 0.1, n),
        }
    )
    score = 5 * X["children"] + 0.4 * X["age"] + 8 * X["smoker"] + 20 * X["height"]
    y = score + 5 * rng.normal(size=n) > score.median()
    X["income"] = np.where(rng.random(n) < 0.2, np.nan, rng.integers(10, 100, n))
    return X, y.to_numpy()


TABLES = {"whole numbers": whole_numbers, "every kind": table}


def printed(text, found, X):
    """The row with the values that the lines of a change state."""
    after = X.copy()
    for name in found.to_frame("change")["feature"]:
        (line,) = (one for one in text.splitlines() if one.startswith(f"  {name}: "))
        shown = line.partition(" to ")[2].rpartition(" (")[0]
        number = isinstance(found.cells[found.features.index(name)], float)
        after[name] = [float(shown) if number else shown]
    return after


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_printed_values_change_the_prediction(name, kind):
    X, y = TABLES[kind]()
    clf = CLASSIFIERS[name].fit(X, y)
    changed = 0
    for number in range(ROWS):
        x = X.iloc[[number]]
        found = clf.explain(x)
        if found.change.row is None:
            assert "No change of these columns" in str(found)
            continue
        changed += 1
        after = printed(str(found), found, x)
        (prediction,) = clf.predict(after)
        assert prediction != clf.predict(x)[0]
        assert prediction == found.change.prediction
        np.testing.assert_allclose(clf.predict_proba(after)[0], found.change.expected, rtol=1e-6)
        for column in found.to_frame("change")["feature"]:
            if pd.api.types.is_numeric_dtype(X[column]):
                known, now = X[column].dropna(), after[column].iloc[0]
                assert known.min() <= now <= known.max()
                assert now == round(now) or (known != known.round()).any()
    assert changed > ROWS / 2


@pytest.mark.parametrize("modes", [1, 2])
def test_the_mean_reaches_the_target(modes):
    X, _ = whole_numbers()
    y = 5 * X["children"] + X["age"].to_numpy()
    reg = bayestree.ConvexPolytopeTreeRegressor(n_modes=modes, **QUICK).fit(X, y)
    predicted = reg.predict(X)
    target = float(np.quantile(predicted, 0.4))
    for number in range(6):
        x = X.iloc[[number]]
        found = reg.explain(x, target=target)
        (mean,) = reg.predict(printed(str(found), found, x))
        assert mean <= target if predicted[number] > target else mean >= target
        assert f"Prediction then: {mean:.4g}" in str(found)


def test_ranges_are_saved_and_may_be_absent(tmp_path):
    X, y = whole_numbers()
    clf = CLASSIFIERS["tree"].fit(X, y)
    clf.save(tmp_path / "tree.safetensors")
    for one in (clf, bayestree.load(tmp_path / "tree.safetensors")):
        columns: dict[str, Any] = {column.name: column for column in one.encoding_.columns}
        assert columns["children"].span == (0.0, 5.0)
        assert [column.whole for column in columns.values()] == [True, True, True, False, True]
    described = json.loads(json.dumps(clf.encoding_.to_json()))
    for entry in described:  # as versions without ranges saved it
        del entry["span"], entry["whole"]
    clf.encoding_ = Encoding.from_json(described)
    assert clf.explain(X.iloc[[0]]).change.prediction != y[0]


def test_arrays_have_ranges_of_the_rows_that_count():
    X, y = whole_numbers()
    rows = X.drop(columns="income").to_numpy()
    weights = np.ones(len(rows))
    rows[0], weights[0] = 1e6, 0.0
    clf = CLASSIFIERS["tree"].fit(rows, y, weights)
    columns: list[Any] = [*clf.encoding_.columns]
    assert [column.span for column in columns] == [(one.min(), one.max()) for one in rows[1:].T]
    assert [column.whole for column in columns] == [True, True, True, False]


def test_limits_may_exceed_the_range():
    X, y = whole_numbers()
    clf = CLASSIFIERS["tree"].fit(X[["age"]], y)
    x = X[["age"]].iloc[[0]]
    age = float(x["age"].iloc[0])
    assert clf.explain(x, features={"age": (age, age)}).change.row is None
    found = clf.explain(x, features={"age": (0, 200)})
    assert found.change.prediction != found.prediction


def test_numbers_are_rounded_within_their_range():
    own = np.array([0])
    number = Number(0, own, 2.0, absent=False, low=0.5, high=3.04, scale=1.0, places=1)
    assert number.at([0.2, 0.56, 1.96, 2.04, 9.0]).cells == [0.5, 0.6, 3.04]
    assert number.times(2.31, 1.0) == 2.4, "away from the present value"
    filled = number._replace(absent=True).at([2.0])
    assert filled.cost.tolist() == [1.0]
