"""Linear and logistic leaves of the deterministic trees: what they find, and all that reads it."""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import bayestree
from bayestree import (
    AlternatingTreeClassifier,
    BivariateTreeClassifier,
    BivariateTreeRegressor,
    EndToEndForestClassifier,
    EndToEndTreeClassifier,
    NonGreedyTreeClassifier,
    NonGreedyTreeRegressor,
    ObliqueTreeClassifier,
    ObliqueTreeRegressor,
    WeightedObliqueTreeClassifier,
    WeightedObliqueTreeRegressor,
)
from bayestree._utils.parameters import ParameterError
from bayestree.inference.splitters.planes import best_cuts, quality_of
from bayestree.inference.splitters.searches import OC1
from bayestree.models import LinearGaussian
from bayestree.models.leaves.linear import LinearError
from bayestree.tables import UnusedColumnsWarning
from tests.export.test_onnx import run

NOISE = 0.1
SEED = {"random_state": 0}
NON_GREEDY = {"max_depth": 4, "epochs": 10} | SEED
SEARCHES = ("cart-lc", "co2", "guide", "hhcart", OC1(n_restarts=1, n_jumps=1))
TREES: dict[str, Any] = {
    str(search if isinstance(search, str) else "oc1"): partial(
        ObliqueTreeRegressor, splitter=search, max_depth=4, **SEED
    )
    for search in SEARCHES
} | {
    "bivariate": partial(BivariateTreeRegressor, n_orientations=4, max_depth=4),
    "weighted": partial(WeightedObliqueTreeRegressor, max_depth=4, n_starts=2, **SEED),
    "non-greedy": partial(NonGreedyTreeRegressor, **NON_GREEDY),
}
CLASSIFIERS: dict[str, Any] = {
    "guide": partial(ObliqueTreeClassifier, splitter="guide", max_depth=2, **SEED),
    "hhcart": partial(ObliqueTreeClassifier, max_depth=2, **SEED),
    "bivariate": partial(BivariateTreeClassifier, n_orientations=4, max_depth=2),
    "weighted": partial(WeightedObliqueTreeClassifier, max_depth=2, **SEED),
    "non-greedy": partial(NonGreedyTreeClassifier, **NON_GREEDY),
    "tao": partial(AlternatingTreeClassifier, max_depth=2, **SEED),
    "end to end": partial(EndToEndTreeClassifier, max_depth=1, epochs=20, **SEED),
    "forest": partial(EndToEndForestClassifier, 1, max_features=2, max_depth=1, epochs=9, **SEED),
}  # fmt: skip


def planted(n=200, seed=0):
    """A function with a kink, in units far from 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 50 * (3 * np.abs(X[:, 0]) + X[:, 1] + NOISE * rng.normal(size=n)) + 1000


def labels(n=300, seed=0):
    """Classes whose log-odds have a kink in one feature, and a slope in another."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    odds = 6 * np.abs(X[:, 0]) - 4 + 3 * X[:, 1]
    return X, np.where(rng.random(n) < expit(odds), "up", "down")


@pytest.fixture(scope="module")
def fitted():
    X, y = planted()
    return {name: tree(leaf="linear").fit(X, y) for name, tree in TREES.items()}


@pytest.fixture(scope="module")
def classifiers():
    X, y = labels()
    return {name: tree(leaf="logistic").fit(X, y) for name, tree in CLASSIFIERS.items()}


@pytest.mark.portable
@pytest.mark.parametrize("name", TREES)
def test_linear_leaves_beat_constant_ones_with_fewer(name, fitted):
    X, y = planted()
    new, truth = planted(2000, seed=1)
    constant = TREES[name]().fit(X, y)
    errors = [(reg.predict(new) - truth) ** 2 for reg in (constant, fitted[name])]
    less = errors[0] - errors[1]
    assert less.mean() > 4 * less.std() / len(less) ** 0.5  # four standard errors
    assert fitted[name].get_n_leaves() < constant.get_n_leaves()


def test_a_kink_by_hand():
    """y = |x| without noise: the residuals of the flat regression are split at 0."""
    X = np.array([-4.0, -3, -2, -1, 1, 2, 3, 4])[:, None]
    reg = ObliqueTreeRegressor(splitter="guide", leaf="linear", min_leaf=2).fit(X, np.abs(X[:, 0]))
    assert reg.tree_.n_leaves == 2
    (threshold,) = -reg.tree_.intercept / reg.tree_.hyperplane[:, 0]
    assert -1 < threshold < 1
    # the prior of the slopes has next to no weight beside rows without noise
    np.testing.assert_allclose(np.sort(reg.tree_.slope[:, 0]), [-1, 1], rtol=1e-3)
    np.testing.assert_allclose(reg.predict([[-5.0], [0.5], [2.5]]), [5, 0.5, 2.5], rtol=0.01)


def squares(X, y):
    """Sum of squares about the regression."""
    rows = np.column_stack((np.ones(len(X)), X))
    return float(((y - rows @ np.linalg.lstsq(rows, y)[0]) ** 2).sum())


@pytest.mark.parametrize("tree", [BivariateTreeRegressor, ObliqueTreeRegressor])
def test_pruning_weighs_what_the_regressions_leave(tree):
    X, y = planted()
    reg = tree(leaf="linear", max_depth=1).fit(X, y)
    right = reg.apply(X) == 1
    sides = squares(X[right], y[right]) + squares(X[~right], y[~right])
    # per row, in units of the variance; the ridge of the criterion is 1e-3 rows
    drop = (squares(X, y) - sides) / len(y) / y.var()
    for factor, n_leaves in ((0.99, 2), (1.01, 1)):
        pruned = tree(leaf="linear", max_depth=1, ccp_alpha=factor * drop).fit(X, y)
        assert pruned.get_n_leaves() == n_leaves


def test_a_linear_response_needs_no_split():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X @ [1.0, -2.0, 0.0] + 0.3 * rng.normal(size=200)
    reg = TREES["guide"](leaf="linear").fit(X, y)  # without a warning of a single leaf
    assert reg.get_n_leaves() == 1
    # standard errors of 0.3 / sqrt(200), and a prior of a row
    np.testing.assert_allclose(reg.tree_.slope, [[1, -2, 0]], atol=0.1)


@pytest.mark.parametrize("levels", [None, 3])
def test_few_thresholds_find_the_best(levels):
    """The quality of a kink has one maximum: at the threshold that a full search finds."""
    X, y = planted(400)
    x = X[:, 0] if levels is None else np.round(X[:, 0] * levels) / levels
    leaf = LinearGaussian()
    data = bayestree.inference.Data.of(x[:, None], (y - y.mean()) / y.std()).for_leaf(leaf)
    sums = leaf.statistics(data.y, data.weights).numpy().T
    found = [
        best_cuts(
            np.stack((x, -x, np.zeros_like(x))),
            sums,
            quality_of(LinearError()),
            grain=np.full(3, 1e-12),
            slack=1e-9,
            counts=np.ones(400, dtype=np.int64),
            min_leaf=10,
            sparse=sparse,
        )
        for sparse in (False, True)
    ]
    np.testing.assert_allclose(found[1].threshold[:2], found[0].threshold[:2])
    np.testing.assert_allclose(found[1].quality, found[0].quality)
    assert found[1].quality[2] == -np.inf  # one value


@pytest.mark.parametrize("name", TREES)
def test_files_texts_and_exports(name, fitted, tmp_path):
    reg, (X, _) = fitted[name], planted()
    reg.save(tmp_path / "tree.safetensors")
    loaded = bayestree.load(tmp_path / "tree.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), reg.predict(X))
    assert loaded.posterior_.model == reg.posterior_.model
    assert re.search(r"mean = [-\d.]+ [+-] [\d.]+ x0\b", bayestree.export_text(reg))
    assert '"slope"' in bayestree.export_json(reg)


def test_onnx_predicts_the_same(fitted, classifiers):
    X, _ = planted()
    found = run(bayestree.export_onnx(fitted["bivariate"]), X)
    np.testing.assert_allclose(found["prediction"], fitted["bivariate"].predict(X))
    clf = classifiers["hhcart"]
    found = run(bayestree.export_onnx(clf), X)
    np.testing.assert_allclose(found["probabilities"], clf.predict_proba(X), rtol=1e-6)


def test_weights_are_copies_of_rows():
    X, y = planted(100)
    times = np.arange(100) % 3
    tree = partial(ObliqueTreeRegressor, splitter="guide", leaf="linear", min_leaf=1)
    found = tree().fit(X, y, times.astype(float))
    copied = tree().fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    # the prior of the slopes is estimated to a tolerance
    np.testing.assert_allclose(copied.predict(X), found.predict(X), rtol=1e-3)


@pytest.mark.parametrize("splitter", ["hhcart", "cart-lc"])
def test_noise_about_a_linear_response_is_not_fitted(splitter):
    """Leaves of few rows for each coefficient fit noise, which their price must outweigh."""
    rng = np.random.default_rng(0)
    X, slope = rng.normal(size=(200, 20)), rng.normal(size=20)
    mean = X @ slope / np.linalg.norm(slope)
    tree = bayestree.ObliqueTreeRegressor(splitter=splitter, leaf="linear", random_state=0)
    found = tree.fit(X, mean + rng.normal(size=200)).predict(X)
    # least squares has sqrt(21 / 200) = .32, and .46 with two leaves
    assert np.sqrt(((found - mean) ** 2).mean()) < 0.6


def test_missing_values_and_constant_columns():
    X, y = planted()
    holes = X.copy()
    holes[::7, 0] = np.nan
    wide = np.column_stack((holes, np.full(len(X), 3.0)))
    with pytest.warns(UnusedColumnsWarning):
        reg = ObliqueTreeRegressor(leaf="linear").fit(wide, y)
    np.testing.assert_allclose(reg.tree_.slope[:, -1], 0, atol=1e-200)
    assert reg.score(wide, y) > BivariateTreeRegressor(max_depth=1).fit(holes, y).score(holes, y)


@pytest.mark.parametrize("name", ["guide", "hhcart", "weighted", "non-greedy"])
def test_fewer_rows_than_columns(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 12))
    y = np.where(X[:, 0] > 0, 5.0, -5.0) + 0.1 * rng.normal(size=24)
    settings = {"n_starts": 1} if name == "weighted" else {}
    if "min_gain" in TREES[name]().get_params():
        settings["min_gain"] = 0.0
    reg = TREES[name](leaf="linear", **settings).fit(X, y)
    # coefficients are shrunk: predictions at other rows remain within twice the range of y
    assert np.abs(reg.predict(rng.normal(size=(50, 12)))).max() < 2 * (y.max() - y.min())


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_logistic_leaves(name, classifiers, tmp_path):
    clf, (X, y) = classifiers[name], labels(2000, seed=1)
    number = (y == "up").astype(int)
    p = clf.predict_proba(X)
    constant = CLASSIFIERS[name]().fit(*labels()).predict_proba(X)
    assert (clf.predict(X) == clf.classes_[p.argmax(1)]).all()
    gain = np.log(np.maximum([p, constant], 1e-3))[:, np.arange(len(X)), number]
    more = gain[0] - gain[1]
    assert more.mean() > 4 * more.std() / len(X) ** 0.5  # four standard errors
    clf.save(tmp_path / "tree.safetensors")
    np.testing.assert_array_equal(bayestree.load(tmp_path / "tree.safetensors").predict_proba(X), p)
    if name != "forest":
        assert clf.tree_.slope.shape == (clf.get_n_leaves(), 2, 2)
        assert '"slope"' in bayestree.export_json(clf)


@pytest.mark.parametrize("name", ["hhcart", "weighted"])
def test_weights_of_logistic_leaves_are_copies_of_rows(name):
    X, y = labels(150)
    times = np.arange(150) % 3
    settings: dict[str, Any] = {"leaf": "logistic", "min_leaf": 1, "max_depth": 1}
    found = CLASSIFIERS[name](**settings).fit(X, y, times.astype(float))
    copied = CLASSIFIERS[name](**settings).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert found.get_n_leaves() == copied.get_n_leaves() == 2
    # the scales of the coefficients are estimated to a tolerance
    np.testing.assert_allclose(copied.predict_proba(X), found.predict_proba(X), atol=2e-3)


@pytest.fixture(scope="module")
def three():
    """Three classes by name, of which the third depends on x1 alone, and missing values."""
    X, y = labels()
    y = np.where(X[:, 1] > 1, "top", y)
    X[::9, 0] = np.nan
    return X, y, CLASSIFIERS["bivariate"](leaf="logistic").fit(X, y)


def test_three_classes_and_missing_values(three):
    X, y, clf = three
    p = clf.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (clf.classes_ == ["down", "top", "up"]).all()
    assert clf.tree_.slope.shape == (clf.get_n_leaves(), 3, 3)  # with the indicator of a missing x0
    # x1 decides about "top" by a step, which a regression follows but for the rows close to it
    top, certain = y == "top", np.abs(X[:, 1] - 1) > 0.5
    assert ((clf.predict(X) == "top") == top)[certain].all()
    own = p[np.arange(len(y)), np.searchsorted(clf.classes_, y)]
    shares = np.array([np.mean(y == label) for label in clf.classes_])
    assert np.log(own).mean() > 0.5 * np.sum(shares * np.log(shares))


def test_texts_and_files_of_three_classes(three, tmp_path):
    X, _, clf = three
    text = bayestree.export_text(clf)
    assert all(f"{label}: " in text for label in clf.classes_)
    assert "at the means, log-odds of top against down" in text
    assert "log-odds of up against down" in bayestree.export_rules(clf)
    clf.save(tmp_path / "tree.safetensors")
    again = bayestree.load(tmp_path / "tree.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert again.posterior_.model == clf.posterior_.model


def test_guide_tests_what_the_regression_leaves(classifiers):
    """The classes depend on both features, and the slope in x1 most; only x0 has a kink."""
    used = np.abs(classifiers["guide"].tree_.hyperplane[0])
    assert used[0] > 0
    assert used[1] == 0
    assert np.flatnonzero(CLASSIFIERS["guide"](max_depth=1).fit(*labels()).tree_.hyperplane[0]) == 1


@pytest.mark.parametrize("tree", [BivariateTreeClassifier, ObliqueTreeClassifier])
def test_the_gini_index_is_for_constant_leaves(tree):
    with pytest.raises(ParameterError, match="criterion='gini' is for constant leaves"):
        tree(criterion="gini", leaf="logistic").fit(*labels(30))


@pytest.mark.parametrize("tree", [ObliqueTreeRegressor, BivariateTreeRegressor])
def test_many_features_have_slopes_if_they_matter(tree):
    X = np.random.default_rng(0).normal(size=(60, 55))
    reg = tree(leaf="linear").fit(X, X[:, 0] + 0.01 * X[:, 1])
    assert np.flatnonzero(np.abs(reg.tree_.slope).max(0) > 0.1).tolist() == [0]
