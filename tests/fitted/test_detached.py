"""Single values far away from all others of a column."""

import warnings

import numpy as np
import pytest

import bayestree
from bayestree.estimators.registry import ESTIMATORS
from bayestree.fitted.training_rows import GAP, KEPT, FileRows, drawn_in
from bayestree.inference import Svi

pytestmark = pytest.mark.filterwarnings("ignore:column .* far from all other values")

RNG = np.random.default_rng(0)
N = 1000
HALF = np.r_[np.zeros(N // 2), RNG.exponential(size=N // 2)]
COLUMNS = {
    "normal": RNG.normal(size=N),
    "lognormal": RNG.lognormal(sigma=2, size=N),
    "student": RNG.standard_t(3, size=N),
    "counts": RNG.poisson(0.05, size=N) * 100.0,
    "binary": np.arange(N) % 2.0,
    "rare": (np.arange(N) == 7) * 1000.0,
    "mostly zero": np.r_[np.zeros(800), RNG.lognormal(sigma=3, size=200)],
    "half zero": HALF,
    "constant": np.ones(N),
    "large": 1e300 * RNG.uniform(-1, 1, size=N),
}


def with_codes(values, codes=(-999.0, -9999.0, 1e9)):
    found = values.copy()
    found[[3, 77, 500][: len(codes)]] = codes
    return found


@pytest.mark.parametrize("name", COLUMNS)
def test_ordinary_columns_stay(name):
    X = COLUMNS[name][:, None]
    assert drawn_in(X, np.ones(N)) is X


@pytest.mark.parametrize("name", ["normal", "binary", "half zero"])
def test_codes_are_drawn_in(name):
    values = COLUMNS[name]
    X = np.column_stack((with_codes(values), values))
    found = drawn_in(X, np.ones(N))
    others = np.delete(values, [3, 77, 500])
    span = np.ptp(others)
    ends = [others.min() - KEPT * span] * 2 + [others.max() + KEPT * span]
    np.testing.assert_allclose(found[[3, 77, 500], 0], ends)
    np.testing.assert_array_equal(np.delete(found[:, 0], [3, 77, 500]), others)
    np.testing.assert_array_equal(found[:, 1], values)


def test_a_gap_must_be_wide():
    values = np.r_[np.linspace(0, 1, N - 1), 1 + 0.99 * GAP]
    assert drawn_in(values[:, None], np.ones(N))[-1, 0] == values[-1]
    values[-1] = 1 + 1.01 * GAP
    assert drawn_in(values[:, None], np.ones(N))[-1, 0] == 1 + KEPT


@pytest.mark.parametrize("sign", [1, -1])
def test_a_tail_without_a_wide_gap_stays(sign):
    """However far its end is; nor are values drawn in that are too large for any fit."""
    values = sign * np.r_[np.linspace(0, 1, N - 2), 1 + 0.99 * GAP, 1000.0]
    np.testing.assert_array_equal(drawn_in(values[:, None], np.ones(N))[:, 0], values)
    values[-2:] = sign * 1e300
    np.testing.assert_array_equal(drawn_in(values[:, None], np.ones(N))[:, 0], values)


def test_quartiles_are_those_of_all_weighted_rows(monkeypatch):
    """Here of every tenth row of a sorted column, whose first half has equal values."""
    monkeypatch.setattr("bayestree.fitted.training_rows.SAMPLE", 100)
    X = np.sort(with_codes(HALF, [1e9]))[:, None]
    found = drawn_in(X, np.ones(N))
    assert found[-1, 0] == pytest.approx(X[-2, 0] * (1 + KEPT))
    np.testing.assert_array_equal(found[:-1], X[:-1])
    heavy = np.where(X[:, 0] > 0, 1.0, 4.0)  # more than three quarters are equal
    assert drawn_in(X, heavy) is X


def test_rows_without_weight_do_not_count():
    X = with_codes(COLUMNS["normal"])[:, None]
    weights = np.ones(N)
    weights[[3, 77, 500]] = 0
    assert drawn_in(X, weights) is X


def test_rows_of_a_file(tmp_path):
    X = np.column_stack([with_codes(COLUMNS[name]) for name in ("normal", "rare", "binary")])
    file = np.memmap(tmp_path / "rows", np.float64, "w+", shape=X.shape)
    file[:] = X
    expected = drawn_in(X, np.ones(N))
    found = drawn_in(FileRows(file), np.ones(N))
    np.testing.assert_array_equal(found[:], expected)
    some = found.where(np.arange(N) < 100).standardised(np.full(3, 2.0), np.full(3, 4.0))
    np.testing.assert_array_equal(some[:], (expected[:100] - 2) / 4)


EM = {"max_depth": 3, "epochs": 20, "learning_rate": 0.05}
QUICK = {
    "ConvexPolytopeTree": {
        "n_modes": 1, "max_depth": 2, "n_experts": 3, "inference": Svi(epochs=20, n_draws=5)
    },
    "EndToEndTree": EM,
    "EndToEndForest": EM | {"n_estimators": 2},
    "WeightedObliqueTree": {"max_depth": 3, "min_leaf": 10},
    "BivariateTree": {"max_depth": 3, "n_orientations": 8},
    "AlternatingTree": {"max_depth": 3},
    "LocallyConstantTree": EM,
    "NonGreedyTree": {"max_depth": 3, "epochs": 10},
    "NeuralDecisionForest": EM | {"n_estimators": 2, "learning_rate": 0.1},
    "ObliqueTree": {"max_depth": 4},
    "AlternatingDecisionForest": {"n_estimators": 5, "max_depth": 6},
}  # fmt: skip


def rows(n, seed):
    """Normal rows; numbers that are the sum of the first two features."""
    X = np.random.default_rng(seed).normal(size=(n, 4))
    return X, X[:, 0] + X[:, 1]


def test_no_estimator_is_left_out():
    names = {f"{stem}{kind}" for stem in QUICK for kind in ("Classifier", "Regressor", "Survival")}
    assert ESTIMATORS.keys() <= names


@pytest.mark.portable
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if not name.endswith("Survival")])
def test_two_codes_in_400_rows_cost_little(name):
    stem = name.removesuffix("Classifier").removesuffix("Regressor")
    seed = {} if stem == "BivariateTree" else {"random_state": 0}
    estimator = getattr(bayestree, name)(**QUICK[stem] | seed)
    (X, y), (new, truth) = rows(400, 0), rows(2000, 1)
    X[[3, 77], 0], X[[5, 50], 1], X[[6, 60], 2] = -999, 1e9, -9999
    # Of one of the first two features alone, the sign of the sum is right in 3/4 of the rows, and
    # R^2 is 1/2; four standard errors of the former are .04.
    least = 0.55
    if name.endswith("Classifier"):
        y, truth, least = y > 0, truth > 0, 0.79
    assert estimator.fit(X, y).score(new, truth) > least


@pytest.mark.parametrize("kind", ["ConvexPolytopeTreeRegressor", "AlternatingTreeRegressor"])
def test_linear_leaves_follow_values_far_away(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    X[:2, 0] = 60.0, 55.0
    y = 3 * X[:, 0] + X[:, 1]
    first = {"inference": "grow"} if kind.startswith("Convex") else {}
    model = getattr(bayestree, kind)(leaf="linear", max_depth=1, random_state=0, **first)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayestree.SingleLeafWarning)
        assert model.fit(X, y).score(X, y) > 0.99
