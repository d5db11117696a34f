"""Counterfactuals: the nearest changes of columns by brute force, and as they are printed."""

import json
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bayestree
from bayestree.explain.actions import Number, movable_columns, moves_of
from bayestree.explain.branch_and_bound import Moves, Outcome, nearest_row
from bayestree.explain.counterfactual import Wanted
from bayestree.inference import Svi
from bayestree.tables import Encoding
from bayestree.topology import Topology
from bayestree.tree import facet_threshold
from tests.plots.cases import make_tree
from tests.sampling import quickly

N = 150
ROUNDED = 0.02  # what rounding two numbers to three digits of their scales adds to a change


def table(seed=0):
    """Numbers, of which some are missing, and every kind of category."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "income": rng.normal(size=N),
            "age": 10 * rng.normal(size=N) + 40,
            "colour": rng.choice(["red", "green", "blue"], N),
            "sex": rng.choice(["f", "m"], N),
            "size": pd.Categorical(rng.choice([*"SML"], N), [*"SML"], ordered=True),
            "town": [f"t{i % 35}" for i in rng.permutation(N)],
            "since": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, N), "D"),
        }
    )
    score = X["income"] + (X["colour"] == "red") - (X["sex"] == "m") + (X["size"] == "L")
    y = np.where(score + 0.02 * (X["age"] - 40) + 0.3 * rng.normal(size=N) > 0.3, "yes", "no")
    X.loc[rng.random(N) < 0.2, "income"] = np.nan
    X.loc[rng.random(N) < 0.1, "colour"] = None
    return X, y


@pytest.fixture(scope="module")
def oblique():
    X, y = table()
    clf = bayestree.AlternatingTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    assert len(np.flatnonzero(clf.tree_.hyperplane.any(axis=0))) > 6
    return clf


def nearest_by_brute_force(clf, x):
    """The least distance over all levels of each column, with linear programs for the numbers."""
    encoding, tree = clf.encoding_, clf.tree_
    values = [own[0] for own in encoding.shown(x)]
    now = encoding.encode(x).to_numpy()[0]
    (outcome,) = Wanted.of(tree.predict(now[None])[0], clf.classes_, None).outcomes(tree)
    numbers = [j for j, one in enumerate(values) if isinstance(one, float) and not np.isnan(one)]
    choices = []
    for column, value in zip(encoding.columns, values, strict=True):
        free = column.levels and value is not None
        choices.append(column.levels if free else (value,))
    best, frames = np.inf, [dict(zip(x, one, strict=True)) for one in product(*choices)]
    rows = encoding.encode(pd.DataFrame(frames)).to_numpy()
    for frame, row in zip(frames, rows, strict=True):
        cost = 0.0
        for column, before in zip(encoding.columns, values, strict=True):
            if not column.levels or before is None or frame[column.name] == before:
                continue
            ends = (column.levels.index(frame[column.name]), column.levels.index(before))
            cost += abs(ends[0] - ends[1]) if column.name == "size" else 1
        if cost >= best:
            continue
        moves = moves_of(row, movable_columns(encoding, values, row, tree, numbers))
        found = nearest_row(tree, row, outcome, moves, max_programs=10_000)
        assert found.complete
        best = min(best, cost + found.distance)
    return best


def test_brute_force(oblique):
    X = table()[0].drop(columns="town")
    clf = bayestree.AlternatingTreeClassifier(max_depth=2, random_state=1).fit(X, table()[1])
    kinds = set()
    for number in (0, 1, 2, 3, 7, 11):
        x = X.iloc[[number]]
        found = clf.explain(x)
        change = found.change
        assert change.bound == pytest.approx(nearest_by_brute_force(clf, x), abs=2e-5)
        assert change.bound <= change.distance <= change.bound + ROUNDED
        assert np.abs(change.sizes).sum() == pytest.approx(change.distance)
        after = pd.DataFrame([change.cells], columns=X.columns)
        np.testing.assert_allclose(clf.encoding_.encode(after).to_numpy()[0], change.row)
        assert clf.predict(after)[0] != found.prediction
        kinds |= {*found.to_frame("change")["feature"]}
    assert kinds & {"colour", "sex", "size"}, "or no category is tried"


def test_every_kind_of_category(oblique):
    X, _ = table()
    for number in range(12):
        found = oblique.explain(X.iloc[[number]])
        change, before = found.change, found.cells
        after = pd.DataFrame([change.cells], columns=X.columns)
        encoded = oblique.encoding_.encode(after).to_numpy()[0]
        np.testing.assert_allclose(encoded, change.row, err_msg="a real row")
        assert oblique.predict(after)[0] != found.prediction
        for value, now in zip(before, change.cells, strict=True):
            assert pd.isna(value) == pd.isna(now), "missing values stay missing"
        assert change.cells[-1] == before[-1], "dates do not change"
    words = [str(oblique.explain(X.iloc[[j]], features=["sex", "age"])) for j in range(12)]
    assert any("  sex: m to f (+1)" in text for text in words)


def test_missing_values_that_may_be_filled_in(oblique):
    X, _ = table()
    rows = X[X["income"].isna() & X["colour"].isna()]
    kinds = set()
    for number in rows.index:
        found = oblique.explain(X.loc[[number]], features=["income", "colour"])
        change = found.change
        if change.row is None:
            continue
        after = pd.DataFrame([change.cells], columns=X.columns)
        np.testing.assert_allclose(oblique.encoding_.encode(after).to_numpy()[0], change.row)
        altered = found.to_frame("change")
        assert altered["change"].abs().sum() == pytest.approx(change.distance)
        assert (altered["change"].abs() >= 1).all()
        assert "missing to " in str(found)
        kinds |= {*altered["feature"]}
    assert kinds


def test_levels_that_are_allowed(oblique):
    X, _ = table()
    x = X[X["colour"] == "green"].iloc[[0]]
    some = oblique.explain(x, features={"colour": ["red"], "income": (None, None)}).change
    assert some.row is None or some.cells[2] in {"green", "red"}
    for features, said in (
        ({"colour": ["pink"]}, "'pink' in features is not a level of 'colour', which has 'blue'"),
        (["since"], "dates do not change; leave 'since' out"),
        (["colour=red"], "'colour=red' is not a column of the fit"),
    ):
        with pytest.raises(ValueError, match=said):
            oblique.explain(x, features=features)


@pytest.mark.parametrize("kind", ["bool", "boolean"])
def test_booleans_stay_booleans(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=N), "f": rng.random(N) < 0.5})
    y = np.where(X["a"] + 2 * X["f"] > 1, "yes", "no")
    X = X.astype({"f": kind})
    if kind == "boolean":
        X.loc[5:9, "f"] = pd.NA
    clf = bayestree.AlternatingTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    clf.save(tmp_path / "model.safetensors")
    changes = []
    for one in (clf, bayestree.load(tmp_path / "model.safetensors")):
        for number in range(5):
            found = one.explain(X.iloc[[number]], features={"f": [True, False]})
            before, after = found.cells[1], found.change.cells[1]
            assert type(before) is type(after) is bool
            assert found.change.distance in (1.0, np.inf)
            changes += [f"f: {before} to {after} (+1)" in str(found)] * (before != after)
    assert changes
    assert all(changes)
    if kind == "boolean":
        filled = clf.explain(X.iloc[[5]], features=["f"])
        assert pd.isna(filled.cells[1])
        assert "f: missing to " in str(filled)
        assert type(filled.change.cells[1]) is bool
    with pytest.raises(ValueError, match="'2' in features is not a level of 'f', which has False"):
        clf.explain(X.iloc[[0]], features={"f": [2]})
    assert len(clf.partial_dependence(X, "f", grid=1).grid) == 1 + (kind == "boolean")


def test_arrays_of_booleans_and_float_arrays():
    X = np.random.default_rng(0).random((80, 2)) < 0.5
    clf = bayestree.AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, X[:, 0])
    found = clf.explain(X[0])
    assert found.change.cells == (not X[0, 0], X[0, 1])
    clf.fit(X.astype(float), X[:, 0])
    assert {*map(type, clf.explain(X[0].astype(float)).cells)} == {float}


def test_effects_are_of_columns(oblique):
    X, _ = table()
    found = oblique.explain(X.iloc[[5]])
    assert found.features == tuple(X)
    assert [[one] for one in found.cells] == oblique.encoding_.shown(X.iloc[[5]])
    tree = oblique.tree_
    for turn in found.turns:
        plane = tree.hyperplane[turn.experts]
        norm = np.linalg.norm(plane * tree.scale, axis=1)
        mean = (tree.facet_limit[turn.experts] - plane @ tree.center) / norm
        np.testing.assert_allclose(mean - turn.effects.sum(axis=1), turn.distance)
        assert turn.effects.shape == (1, 7)
    value = found.to_frame("feature").set_index("feature")["value"]
    assert set(value.index) <= set(X)
    assert "=" not in "".join(set(value.index))


def stump(plane, limit):
    """A tree that sends a row right if plane . x is above the limit."""
    tree = make_tree(topology=Topology.stump(), n_features=len(plane))
    intercept = np.array([facet_threshold(tree.weight)[0] - limit])
    return replace(
        tree, hyperplane=np.array([plane]), intercept=intercept, value=np.eye(2),
        scale=np.ones(len(plane)),
    )  # fmt: skip


def moves_with(rows, cost, group, gate, reach=0.0):
    low = np.zeros(rows.shape[1])
    low[0], high = -reach, low + 0.0
    high[0] = reach
    return Moves(low, high, rows, np.array(cost), np.array(group), np.array(gate), ("a", "b"))


@pytest.mark.parametrize(("group", "expected"), [([0, 0], np.inf), ([0, 1], 2.0)])
def test_a_column_has_one_level(group, expected):
    """Only both options together cross the border, which one column cannot take."""
    moves = moves_with(np.eye(2), [1.0, 1.0], group, [-1, -1])
    x, outcome = np.zeros(2), Outcome(np.array([False, True]))
    found = nearest_row(stump([1.0, 1.0], 1.5), x, outcome, moves)
    assert found.distance == expected
    assert found.bound == expected


def test_a_missing_number_moves_only_once_it_is_filled_in():
    """Its mark, the second feature, decides nothing by itself."""
    moves = moves_with(np.zeros((1, 2)), [1.0], [0], [0], reach=10.0)
    x, outcome = np.array([0.0, 1.0]), Outcome(np.array([False, True]))
    found = nearest_row(stump([1.0, 0.0], 2.0), x, outcome, moves)
    assert found.distance == pytest.approx(3.0, abs=1e-5)
    np.testing.assert_allclose(found.row, [2.0, 0.0], atol=1e-5)


SVI = Svi(epochs=6, n_draws=6)
QUICK = {"inference": SVI, "max_depth": 2, "n_experts": 3, "random_state": 0}
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


@pytest.mark.parametrize("kind", quickly(TABLES, quick=(1,)))
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
    clf.fitted_ = replace(clf.fitted_, encoding=Encoding.from_json(described))
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


def test_a_number_outside_its_range_may_stay_or_approach_it():
    row = np.array([12.0, -5.0, 3.0])
    columns = [
        Number(j, np.array([j]), now, absent=False, low=0.0, high=10.0, scale=1.0, places=1)
        for j, now in enumerate(row)
    ]
    found = moves_of(row, columns)
    assert (found.low.tolist(), found.high.tolist()) == ([0, -5, 0], [12, 10, 10])


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
