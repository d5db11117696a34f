"""Inclusion of columns of fitted trees: planted columns, categories, missing values, modes."""

import numpy as np
import pandas as pd
import pytest

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor, load

N = 400
FAST = {"inference": "vi", "max_depth": 1, "random_state": 0}


def table(seed=0):
    """Columns of any kind; y is a function of one number and one category, and noise."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(N, 9)), columns=[f"noise {j}" for j in range(9)])
    X["dose"] = rng.normal(size=N)
    X["site"] = rng.choice(["a", "b", "c"], size=N)
    X["group"] = rng.choice(["u", "v", "w", "x"], size=N)
    X["gaps"] = np.where(rng.random(N) < 0.3, np.nan, rng.normal(size=N))
    X["same"] = 1.0
    shift = X["site"].map({"a": -2.0, "b": 0.0, "c": 2.0})
    y = np.where(X["dose"] + shift > 0, 3.0, -3.0) + rng.normal(size=N)
    return X, y


@pytest.fixture(scope="module")
def regressor():
    X, y = table()
    with pytest.warns(UserWarning, match="same"):
        return ConvexPolytopeTreeRegressor(n_modes=2, **FAST).fit(X, y), X, y


def test_planted_columns(regressor):
    """Six posterior standard deviations separate a step of 6 from a noise of 1 in 400 rows."""
    found = regressor[0].column_inclusion(regressor[1])
    assert {*found.selected(fdr=0.1)[:2]} == {"dose", "site"}
    order = found.to_frame().index
    assert {*order[:2]} == {"dose", "site"}
    assert found.node_probability.shape == (len(found.labels), len(found.columns))
    assert {*found.to_frame("node")["root"].nlargest(2).index} == {"dose", "site"}
    assert found.false_discovery_rate(0.9) <= 0.1
    assert "dose" in str(found)


def test_encoded_columns_are_one(regressor):
    found = regressor[0].column_inclusion(regressor[1])
    assert found.columns == (*regressor[1].columns,)
    assert found.probability[found.columns.index("same")] == 0.0


def test_missing_values_that_tell():
    """Only whether values are missing tells y apart, by six standard deviations of the noise."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 6)), columns=[*"abcdef"])
    missing = rng.random(N) < 0.5
    X.loc[missing, "c"] = np.nan
    y = np.where(missing, 3.0, -3.0) + rng.normal(size=N)
    reg = ConvexPolytopeTreeRegressor(n_modes=1, **FAST).fit(X, y)
    found = reg.column_inclusion(X)
    assert found.columns == (*"abcdef",)
    assert found.selected(fdr=0.1) == ("c",)


def test_modes_are_averaged(regressor):
    """A mode that does not use a column counts against it by its weight."""
    estimator, X, _ = regressor
    each = [one.column_inclusion(X).effect for one in estimator.modes_]
    found = estimator.column_inclusion(X)
    assert (found.effect <= estimator.mode_weights_ @ each + 1e-9).all()  # triangle inequality
    assert not np.allclose(each[0], each[1])


def test_units_of_the_data(regressor):
    """Effects are in the units of y, whatever the units of the columns."""
    _, X, y = regressor
    numbers = X.filter(like="noise").assign(dose=X["dose"])
    first = ConvexPolytopeTreeRegressor(n_modes=1, **FAST).fit(numbers, y)
    other = ConvexPolytopeTreeRegressor(n_modes=1, **FAST).fit(8 * numbers, 4 * y)
    one, more = first.column_inclusion(numbers), other.column_inclusion(8 * numbers)
    np.testing.assert_allclose(4 * one.effect, more.effect, rtol=1e-6)
    np.testing.assert_allclose(4 * one.sd, more.sd, rtol=1e-6)
    np.testing.assert_allclose(one.probability, more.probability, rtol=1e-6)


def test_a_single_leaf():
    X = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.warns(UserWarning, match="leaf"):
        clf = ConvexPolytopeTreeClassifier(min_gain=1e9, **FAST).fit(X, np.arange(50) % 2)
    found = clf.column_inclusion(X)
    assert not found.probability.any()
    assert found.node_probability.shape == (0, 3)
    assert not found.get_support().any()
    assert "no facet" in str(found)


def test_a_point_estimate_has_no_probability():
    X, y = table()
    X = X[["dose", "noise 0"]]
    reg = ConvexPolytopeTreeRegressor(inference="grow", max_depth=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"column_inclusion needs a posterior.*inference='vi'"):
        reg.column_inclusion(X)


def test_several_outputs_and_saved_models(regressor, tmp_path):
    estimator, X, y = regressor
    estimator.save(tmp_path / "tree.bt")
    again = load(tmp_path / "tree.bt").column_inclusion(X)
    np.testing.assert_array_equal(again.probability, estimator.column_inclusion(X).probability)
    both = ConvexPolytopeTreeRegressor(n_modes=1, **FAST).fit(X[["dose"]], np.column_stack([y, -y]))
    with pytest.raises(ValueError, match="column_inclusion is for one output"):
        both.column_inclusion(X[["dose"]])


def test_wrong_inputs(regressor):
    estimator, X, _ = regressor
    with pytest.raises(ValueError, match="max_rows must be 2 or more, got 1"):
        estimator.column_inclusion(X, max_rows=1)
    with pytest.raises(ValueError, match="max_draws must be 1 or more, got 0"):
        estimator.column_inclusion(X, max_draws=0)
    with pytest.raises(ValueError, match="two rows or more"):
        estimator.column_inclusion(X[:1])
    found = estimator.column_inclusion(X, max_draws=5, max_rows=50)
    with pytest.raises(ValueError, match="by must be 'column' or 'node', got 'row'"):
        found.to_frame("row")
    with pytest.raises(ValueError, match="threshold must lie from 0 to 1, got 2"):
        found.false_discovery_rate(2)
