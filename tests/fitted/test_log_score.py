"""The log predictive density of rows."""

import numpy as np
import pytest
from scipy.special import logsumexp

import bayestree as bt
from bayestree._utils import arviz_compat
from bayestree.inference import Map, Svi

SVI = Svi(epochs=5, n_draws=8)
SHORT = {"inference": SVI, "max_depth": 1, "n_experts": 2, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    return X, 30 + 8 * (X[:, 0] > 0) + rng.normal(size=120)


@pytest.fixture(scope="module")
def numbers(rows):
    return bt.ConvexPolytopeTreeRegressor(n_modes=2, **SHORT).fit(*rows)


def by_draws(tree, X, y):
    """The same from the container's log-likelihood of each draw, mode by mode."""
    each = []
    for mode in tree.modes_:
        group = arviz_compat.group(mode.to_arviz(X, y, groups=["log_likelihood"]), "log_likelihood")
        terms = group["obs"].transpose("chain", "draw", ...).to_numpy().reshape(-1, len(X))
        each.append(logsumexp(terms, axis=0) - np.log(len(terms)))
    return logsumexp(each, axis=0, b=tree.mode_weights_[:, None])


@pytest.mark.parametrize("n_modes", [1, 2])
def test_classes_have_the_probability_of_their_own(rows, n_modes):
    X, y = rows
    labels = np.where(y > 34, "high", "low")
    clf = bt.ConvexPolytopeTreeClassifier(n_modes=n_modes, **SHORT).fit(X, labels)
    own = clf.predict_proba(X)[np.arange(len(X)), (labels == "low").astype(int)]
    np.testing.assert_array_equal(clf.log_score(X, labels), np.log(own))


def test_numbers_have_their_density(numbers, rows):
    X, y = rows
    np.testing.assert_allclose(numbers.log_score(X, y), by_draws(numbers, X, y), rtol=1e-10)


def test_a_density_integrates_to_1_in_the_units_of_y(numbers, rows):
    at = np.linspace(-200, 300, 20_001)
    density = np.exp(numbers.log_score(np.repeat(rows[0][:1], len(at), axis=0), at))
    # Student tails beyond the grid hold far less than the rounding of this comparison.
    assert np.trapezoid(density, at) == pytest.approx(1, abs=1e-6)


def test_counts_sum_to_1_at_their_exposure(rows):
    X, y = rows
    counts = np.random.default_rng(1).poisson(np.where(y > 34, 6, 2))
    reg = bt.ConvexPolytopeTreeRegressor(leaf="poisson", n_modes=1, **SHORT).fit(X, counts)
    every = np.column_stack([np.arange(200), np.full(200, 3.0)])
    scores = reg.log_score(np.repeat(X[:1], 200, axis=0), every)
    assert np.exp(scores).sum() == pytest.approx(1, abs=1e-9)
    assert np.exp(scores) @ np.arange(200) == pytest.approx(3 * reg.predict(X[:1])[0], rel=1e-6)


def test_censored_times_have_their_probability_to_survive(rows):
    X, y = rows
    tree = bt.ConvexPolytopeTreeSurvival(n_modes=1, **SHORT).fit(X, y, event=np.ones(len(y)))
    censored = np.column_stack([y, np.zeros(len(y))])
    survival = np.diagonal(tree.predict_survival_function(X, y))
    np.testing.assert_allclose(tree.log_score(X, censored), np.log(survival), rtol=1e-9)


def test_several_outputs_are_scored_jointly(rows):
    X, y = rows
    both = np.column_stack([y, -y])
    reg = bt.ConvexPolytopeTreeRegressor(n_modes=1, **SHORT).fit(X, both)
    np.testing.assert_allclose(reg.log_score(X, both), by_draws(reg, X, both), rtol=1e-10)


def test_a_class_without_probability_has_the_score_minus_infinity(rows):
    X, _ = rows
    labels = (X[:, 0] > 0).astype(int)
    by_map = Map(epochs=50, steepness=None)
    clf = bt.ConvexPolytopeTreeClassifier(inference=by_map, prediction="tree", smoothing=0)
    clf.set_params(max_depth=1, random_state=0).fit(X, labels)
    assert (clf.predict_proba(X) == 0).any()
    assert (clf.log_score(X, 1 - clf.predict(X)) == -np.inf).any()


def test_what_has_no_score(numbers, rows):
    X, y = rows
    clf = bt.ConvexPolytopeTreeClassifier(inference="grow", random_state=0).fit(X, y > 34)
    with pytest.raises(ValueError, match="absent from the fit"):
        clf.log_score(X, np.full(len(X), 2))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.log_score(X, (y > 34)[:-1])
    with pytest.raises(ValueError, match="NaN"):
        numbers.log_score(X, np.full(len(X), np.nan))
