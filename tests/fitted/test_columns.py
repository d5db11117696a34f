"""Constant and duplicate columns are ignored by the fit."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from torch import nn

import bayestree
from bayestree import (
    AlternatingTreeClassifier,
    AlternatingTreeRegressor,
    BivariateTreeClassifier,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndForestClassifier,
    EndToEndTreeClassifier,
    ObliqueTreeRegressor,
    UnusedColumnsWarning,
    WeightedObliqueTreeClassifier,
)
from bayestree.baselines import random_oblique
from bayestree.estimators._tree import StagedTree
from bayestree.fitted.training_rows import columns_in_use
from bayestree.fitting.modes import Stages
from bayestree.inference import Map, Nuts, Svi, memory_mapped
from bayestree.inference.data import UNUSED
from bayestree.models import Laplace, Network
from tests.short_checks import short_stages

SEED = {"random_state": 0}
CHEAP = {"n_modes": 1, "max_depth": 2, "n_experts": 3} | SEED
MAP, SVI = Map(epochs=3, steepness=None), Svi(epochs=3, n_draws=4)
NUTS = Nuts(n_chains=2, n_warmup=5, thinning=4, drop_idle=True, n_slides=2, n_draws=4)
STEPS = {"max_depth": 2, "epochs": 5, "learning_rate": 0.05} | SEED

NAMES = ["year", "a", "b", "a again", "c", "zero"]
UNUSED_COLUMNS = [0, 3, 5]
CONSTANT = [0, 5]


def layer(n_features):
    return nn.Linear(n_features, 1)


TABLES = [
    BivariateTreeClassifier(max_depth=2),
    WeightedObliqueTreeClassifier(max_depth=2, **SEED),
    ObliqueTreeRegressor(splitter="co2", max_depth=2, **SEED),
    AlternatingTreeClassifier(max_depth=2, **SEED),
    AlternatingTreeClassifier(init="random", max_depth=2, **SEED),
    AlternatingTreeRegressor(max_depth=2, leaf="linear", **SEED),
    EndToEndTreeClassifier(**STEPS),
    EndToEndTreeClassifier(inference=Svi(epochs=4, n_draws=4), prior=Laplace(0.1, 10.0), **STEPS),
    EndToEndForestClassifier(2, **STEPS),
    ConvexPolytopeTreeClassifier(inference="grow", **CHEAP),
    ConvexPolytopeTreeClassifier(inference=MAP, **CHEAP),
    ConvexPolytopeTreeClassifier(inference=SVI, **CHEAP),
    ConvexPolytopeTreeClassifier(
        inference=Svi(epochs=3, guide="AutoNormal", n_draws=4), prior="flat", **CHEAP
    ),
    ConvexPolytopeTreeClassifier(inference=[SVI, NUTS], **CHEAP | {"max_depth": 1}),
    ConvexPolytopeTreeRegressor(inference=SVI, **CHEAP),
]
IMAGES = [
    EndToEndTreeClassifier(image_shape=(2, 3), prior="spatial", **STEPS),
    EndToEndTreeClassifier(split=Network(layer), **STEPS),
    EndToEndForestClassifier(2, image_shape=(2, 3), patch_size=(2, 2), **STEPS),
    ConvexPolytopeTreeClassifier(inference=SVI, prior="spatial", image_shape=(2, 3), **CHEAP),
]


@pytest.fixture(scope="module", autouse=True)
def _short_stages():
    with short_stages():
        yield


def rows(n=120, seed=0):
    a, b, c = np.random.default_rng(seed).normal(size=(3, n))
    X = pd.DataFrame(np.column_stack([np.full(n, 1991.1), a, b, a, c, np.zeros(n)]), columns=NAMES)
    return X, (a + b > 0).astype(int)


def quietly_fitted(estimator, X, y, **given):
    """The estimator, and the warnings about columns that its fit gave."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fitted = unfitted(estimator).fit(X, y, **given)
    return fitted, [one for one in told if one.category is UnusedColumnsWarning]


def unfitted(estimator):
    return type(estimator)(**estimator.get_params(deep=False))


def predicted(estimator, X):
    return getattr(estimator, "predict_proba", estimator.predict)(X)


def moved(X, columns):
    """The rows with other values in some columns."""
    other = X.copy()
    change = np.random.default_rng(1).normal(size=(len(X), len(columns)))
    other[[NAMES[j] for j in columns]] += 1000 * change
    return other


def trees_of(estimator):
    return [one.tree_ for one in getattr(estimator, "estimators_", [estimator])]


@pytest.mark.parametrize("estimator", TABLES, ids=repr)
def test_predictions_do_not_depend_on_columns_that_are_left_out(estimator):
    X, y = rows()
    fitted, told = quietly_fitted(estimator, X, y)
    assert fitted.get_n_leaves() > 1
    np.testing.assert_array_equal(predicted(fitted, moved(X, UNUSED_COLUMNS)), predicted(fitted, X))
    for tree in trees_of(fitted):
        assert not tree.hyperplane[:, UNUSED_COLUMNS].any()
        assert tree.n_features == 6
        assert tree.feature_names == tuple(NAMES)
        assert (tree.scale < UNUSED).all()
    (one,) = told
    assert one.filename == __file__
    assert str(one.message) == (
        "the fit ignores 2 constant columns (year, zero) and 1 duplicate column (a again equals a) "
        "of X."
    )


@pytest.mark.parametrize("estimator", TABLES, ids=repr)
def test_the_inference_sees_the_other_columns_only(estimator, monkeypatch):
    X, y = rows()
    kind = EndToEndTreeClassifier if hasattr(estimator, "n_estimators") else type(estimator)
    owner, name = (Stages, "together") if issubclass(kind, StagedTree) else (kind, "_infer")
    seen, infer = [], getattr(owner, name)

    def watched(self, model, data, *others):
        seen.append(data.X)
        return infer(self, model, data, *others)

    monkeypatch.setattr(owner, name, watched)
    quietly_fitted(estimator, X, y)
    standard = (X - X.mean()) / X.std(ddof=0)
    for given in seen:
        correlation = np.corrcoef(given.numpy().T, standard[["a", "b", "c"]].T)[:3, 3:]
        np.testing.assert_allclose(np.diag(correlation), 1.0)
        assert given.shape[1] == 3
    assert seen


# by number: the repr of a network holds the address of its function
@pytest.mark.parametrize("estimator", IMAGES, ids=range(len(IMAGES)))
def test_constant_pixels_are_left_out_without_a_word(estimator):
    X, y = rows()
    fitted, told = quietly_fitted(estimator, X, y)
    assert not told
    assert fitted.get_n_leaves() > 1
    np.testing.assert_array_equal(predicted(fitted, moved(X, CONSTANT)), predicted(fitted, X))
    for tree in trees_of(fitted):
        if hasattr(tree, "hyperplane"):
            assert not tree.hyperplane[:, CONSTANT].any()


@pytest.mark.parametrize(
    ("X", "source"),
    [
        ([[1.0, 0.0, -0.0], [1.0, 2.0, 2.0]], [-1, 1, 1]),  # -0.0 is 0.0
        ([[1.0, 2.0, 5.0], [1.0, 2.0, 5.0]], [0, -1, -1]),  # one column stays
        ([[1.0, 2.0, 3.0], [2.0, 1.0, 4.0]], [0, 1, 2]),
    ],
)
@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
def test_columns_in_use(X, source):
    np.testing.assert_array_equal(columns_in_use(np.array(X), np.ones(2)), source)


def test_rows_of_weight_zero_do_not_count():
    X = np.array([[0.0, 1.0], [0.0, 2.0], [7.0, 3.0]])
    with pytest.warns(UnusedColumnsWarning, match=r"1 constant column \(x0\) of X"):
        source = columns_in_use(X, np.array([1.0, 1.0, 0.0]))
    assert source.tolist() == [-1, 1]


def test_long_lists_are_cut():
    X = np.tile(np.arange(3.0)[:, None], 9)
    expected = r"ignores 8 duplicate columns \(x1 equals x0, .*, x5 equals x0 and 3 more\) of X\.$"
    with pytest.warns(UnusedColumnsWarning, match=expected):
        columns_in_use(X, np.ones(3))


@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
def test_diagnostics_and_files_know_all_columns(tmp_path):
    X, y = rows()
    clf = ConvexPolytopeTreeClassifier(inference=SVI, **CHEAP).fit(X, y)
    found = clf.to_arviz(X, y)
    assert found.posterior["hyperplane"].sizes["feature"] == 6
    left_out = found.posterior["hyperplane"].sel(feature=[NAMES[j] for j in UNUSED_COLUMNS])
    assert not left_out.any()
    np.testing.assert_allclose(found.constant_data["X"], X, rtol=1e-12, atol=1e-12)
    named = " ".join(clf.facets().to_frame()["features"])
    assert "a" in named
    assert not any(NAMES[j] in named for j in UNUSED_COLUMNS)
    clf.save(tmp_path / "tree")
    again = bayestree.load(tmp_path / "tree")
    other = moved(X, UNUSED_COLUMNS)
    np.testing.assert_array_equal(again.predict_proba(other), clf.predict_proba(X))


@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
@pytest.mark.parametrize(
    "settings",
    [{"inference": [SVI, NUTS], "max_depth": 1}, {"inference": SVI, "max_depth": 2}],
)
def test_densities_are_those_of_the_columns_in_use(settings):
    """The log joint density of the fit is that of the groups: no term of other columns is there."""
    X, y = rows()
    clf = ConvexPolytopeTreeClassifier(**CHEAP | settings)
    found = clf.fit(X, y).to_arviz(X, y)
    terms = found.log_likelihood["obs"].sum("row") + sum(found.log_prior.data_vars.values())
    np.testing.assert_allclose(found.sample_stats["lp"], terms, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
def test_a_start_may_use_a_column_that_is_now_constant():
    X, y = rows()
    before = AlternatingTreeClassifier(max_depth=2, random_state=0).fit(moved(X, CONSTANT), y)
    after = AlternatingTreeClassifier(init=before, random_state=0).fit(X, y)
    assert not after.tree_.hyperplane[:, CONSTANT].any()
    assert after.score(X, y) >= before.score(X, y)


@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
def test_a_start_may_use_a_column_that_is_now_a_duplicate():
    X, _ = rows()
    y = (X["a"] > 0) ^ (X["b"] > 0)
    other = X.assign(a=np.random.default_rng(1).normal(size=len(X)))
    before = AlternatingTreeClassifier(max_depth=4, random_state=0).fit(other, y)
    after = AlternatingTreeClassifier(init=before.tree_, random_state=0).fit(X, y)
    # the leaves are refitted, which cannot raise the loss
    assert after.posterior_.stats["loss"][0] <= (before.predict(X) != y).sum()


def test_coefficients_of_duplicates_are_added_to_those_of_their_originals():
    X, _ = rows()
    rng = np.random.default_rng(0)
    tree = random_oblique(X.to_numpy(), 3, random_state=0)
    tree = replace(tree, value=rng.normal(size=8), slope=rng.normal(size=(8, 6)))
    center, scale = X.mean().to_numpy(), np.maximum(X.std().to_numpy(), 1.0)
    scaled = (X.to_numpy() - center) / scale
    less = tree.on_scaled(center, scale).with_columns(np.array([-1, 1, 2, 1, 4, -1]))
    np.testing.assert_allclose(less.predict(scaled[:, [1, 2, 4]]), tree.predict(X.to_numpy()))


def test_rows_in_a_file(tmp_path, monkeypatch):
    X, y = rows(400)
    mapped = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    estimator = EndToEndTreeClassifier(max_depth=1, epochs=5, learning_rate=0.05, random_state=0)
    monkeypatch.setattr(memory_mapped, "HELD", 1000)
    fitted, told = quietly_fitted(estimator, mapped, y)
    assert "2 constant columns (x0, x5)" in str(told[0].message)
    assert fitted.get_n_leaves() == 2
    assert not fitted.tree_.hyperplane[:, UNUSED_COLUMNS].any()
    other = moved(X, UNUSED_COLUMNS).to_numpy()
    np.testing.assert_array_equal(fitted.predict_proba(other), fitted.predict_proba(X.to_numpy()))
