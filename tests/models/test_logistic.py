"""The criterion by which trees with logistic leaves grow, and how their strengths are learned."""

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit, log_expit

from bayestree.models import Logistic
from bayestree.models.leaves.discriminant import ScoreGain
from bayestree.models.leaves.slopes import NO_SLOPE


def planted(n, n_features, slopes=(), seed=0, n_classes=2):
    """A response of classes whose log-odds against the first depend on the first features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features))
    odds = X[:, : len(slopes)] @ np.array(slopes) if slopes else np.zeros(n)
    y = np.where(rng.random(n) < expit(odds), rng.integers(1, n_classes, n), 0)
    return torch.as_tensor(np.column_stack((y, X)))


def terms_of(y, weights=None):
    weights = torch.ones(len(y)).double() if weights is None else weights
    leaf = Logistic(int(y[:, 0].max()) + 1)
    return leaf.growth_terms(y, weights)(y, weights)


def regression(y, ridge):
    """The log-likelihood and the coefficients of a ridge regression of two classes, by SciPy."""
    row, sign = np.column_stack((np.ones(len(y)), y[:, 1:])), 2 * y[:, 0].numpy() - 1

    def loss(b):
        return -log_expit(sign * (row @ b)).sum() + ridge / 2 * (b**2).sum()

    found = minimize(loss, np.zeros(row.shape[1])).x
    return float(log_expit(sign * (row @ found)).sum()), found


def test_a_node_is_measured_by_its_own_regression():
    y = planted(400, 3, (1.0, -0.5))
    whole = terms_of(y).sum(0)
    assert float(whole[0]) == 400
    value, mode = regression(y, 1.0)
    assert -float(whole[1]) == pytest.approx(value, abs=1e-4)
    # at the mode, the slope of the log-likelihood is that of the prior, of precision 1
    np.testing.assert_allclose(whole[2:6], mode, atol=1e-3)


def test_a_split_gains_what_two_regressions_gain():
    """To second order, for parts whose regressions differ a little; less the price."""
    y = planted(2000, 2, (0.8, 0.0))
    right = y[:, 1] > 0
    each = terms_of(y)
    sides = [each[~right].sum(0), each[right].sum(0)]
    criterion = ScoreGain(ridge=1e-6)
    price = sum(3 * float(side[0]) / (float(side[0]) - 4) for side in sides)
    found = float(sum(criterion.value(side) for side in sides)) + price
    parts = sum(regression(y[own], 1e-6)[0] for own in (~right, right))
    assert found == pytest.approx(parts + float(each[:, 1].sum()), abs=0.1)


def test_a_gain_is_at_most_what_is_left_to_explain():
    """A pure part of a node of few rows of its class, where second order would promise more."""
    y = torch.zeros(1000, 2).double()
    y[:30, 0], y[:30, 1] = 1.0, torch.linspace(-1, 1, 30)
    y[30:, 1] = torch.linspace(-1, 1, 970)
    pure = terms_of(y)[:30].sum(0)
    gain = float(ScoreGain().value(pure)) + 2 * 30 / 27
    assert 0.8 * float(pure[1]) < gain <= float(pure[1])
    assert float(ScoreGain().impurity(pure)) == float(pure[1])


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_ascent_is_the_derivative_of_the_value(n_classes):
    each = terms_of(planted(120, 2, (1.0,), n_classes=n_classes)).double()
    whole, side = each.sum(0), each[:50].sum(0)
    criterion = ScoreGain()

    def value(sums):
        return float(criterion.split_value(torch.as_tensor(sums), whole))

    nats, slope = criterion.ascent(side, whole)
    assert float(nats) == pytest.approx(value(side.numpy()))
    expected = approx_fprime(side.numpy(), value, 1e-5)
    np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-4)


def test_weights_of_rows_are_numbers_of_copies():
    y = planted(60, 2, (1.0,), n_classes=3)
    weights = torch.arange(60).double() % 3
    copies = terms_of(y.repeat_interleave(weights.long(), 0)).sum(0)
    np.testing.assert_allclose(terms_of(y, weights).sum(0), copies, atol=1e-9)


def test_strengths_of_features_without_effect_are_large():
    y = planted(1000, 30, (1.5, -1.0))
    leaf, ones = Logistic(2), torch.ones(1000).double()
    leaf = leaf.informed(y, ones)
    found = leaf.calibrate(leaf.statistics(y, ones).sum(0, keepdim=True)).reduced()
    strengths = found.strengths(30)
    assert (strengths[:2] < 30).all()
    # at the price of log 30 nats each
    assert (strengths[2:] < NO_SLOPE).sum() <= 2


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_refined_posterior_is_at_the_mode_of_the_rows(n_classes):
    """Of features that are far from normal, with the weights of the rows in two leaves."""
    rng = np.random.default_rng(3)
    X = (rng.random((300, 3)) < 0.15).astype(float)
    odds = 2 * X[:, 0] - X[:, 1]
    y = np.where(rng.random(300) < expit(odds - 0.5), rng.integers(1, n_classes, 300), 0)
    rows = torch.as_tensor(np.column_stack((y, X)))
    member = torch.as_tensor(np.stack((rng.random(300), rng.integers(0, 2, 300))))
    leaf = Logistic(n_classes, slope_scale=(1.0, 2.0, 1e-4))
    rough = leaf.posterior(member @ leaf.statistics(rows, torch.ones(300).double()))
    found = leaf.refined(rough, rows, member)
    own = np.column_stack((np.ones(300), X[:, :2]))
    precision = np.array([0.25, 1.0, 0.25])

    def loss(flat, weight):
        b = flat.reshape(n_classes, 3)
        logit = own @ b.T
        log_p = logit[np.arange(300), y] - np.log(np.exp(logit).sum(1))
        return -(weight * log_p).sum() + (precision * b**2).sum() / 2

    for number, weight in enumerate(member.numpy()):
        expected = minimize(loss, np.zeros(3 * n_classes), args=(weight,), tol=1e-9).x
        # two steps of Newton's method from the approximation
        np.testing.assert_allclose(found.loc[number].flatten(), expected, atol=0.01)


def test_slopes_that_do_not_pay_are_dropped_class_by_class():
    y = planted(800, 3, (1.5, 0.0, 0.7), n_classes=3)
    leaf, ones = Logistic(3), torch.ones(800).double()
    sums = leaf.statistics(y, ones).sum(0, keepdim=True)
    slope = leaf.sparse_values(sums)["slope"][0]
    assert (slope[:, [0, 2]] != 0).all()
    assert (slope[:, 1] == 0).all()
    few = leaf.sparse_values(sums, 2)["slope"][0]
    assert (few[:, 0] != 0).all()
    assert (few[:, 1:] == 0).all()
    # what is left is about the mode of a regression on the features that remain; the curvature,
    # which is not updated, is larger without them, where probabilities are less extreme
    rest = leaf.posterior(leaf.statistics(y[:, :2], ones).sum(0, keepdim=True))
    np.testing.assert_allclose(few[:, 0], rest.loc[0, :, 1], rtol=0.15)


def test_calibration_finds_the_scales_of_the_leaves():
    rng, (n_leaves, n), (logit_scale, slope_scale) = np.random.default_rng(0), (100, 60), (0.4, 0.3)
    leaf, sums = Logistic(2), []
    for _ in range(n_leaves):
        x, b = rng.normal(size=n), slope_scale * rng.normal(size=2)
        a = logit_scale * rng.normal(size=2)
        y = rng.random(n) < expit(a[1] - a[0] + (b[1] - b[0]) * x)
        rows = torch.as_tensor(np.column_stack((y, x)))
        sums.append(leaf.statistics(rows, torch.ones(n, dtype=torch.float64)).sum(0))
    found = leaf.calibrate(torch.stack(sums))
    # four standard errors of a standard deviation, and what the quadratic approximation shrinks
    allowed = 4 / np.sqrt(2 * n_leaves) + 0.1
    assert found.logit_scale == pytest.approx(logit_scale, rel=allowed)
    assert found.slope_scale[0] == pytest.approx(slope_scale, rel=allowed)
