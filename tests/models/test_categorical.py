"""Ordinal leaves against brute force, and what the order of the classes is worth."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from bayestree.models import Categorical, Ordinal
from bayestree.models.leaves.categorical import ELSEWHERE, OrderedProbit

CUTS = (-1.0, -0.2, 1.1)
LEAF = Ordinal(4, 6.0, 0.5, CUTS)


def probit(location, noise, cuts=CUTS):
    ends = [-math.inf, *cuts, math.inf]
    own = np.diff(stats.norm(location, noise).cdf(ends))
    return (1 - ELSEWHERE) * own + ELSEWHERE * np.diff(stats.norm.cdf(ends))


def planted(rng, n_leaves, size, noise, cuts):
    """Class probabilities of leaves of an ordered probit model, and counts of their rows."""
    means = rng.normal(0, math.sqrt(1 - noise**2), n_leaves)
    probs = np.stack([np.diff(stats.norm(m, noise).cdf([-np.inf, *cuts, np.inf])) for m in means])
    return probs, torch.tensor(np.stack([rng.multinomial(size, p) for p in probs])).double()


def test_the_evidence_is_the_product_of_sequential_predictions():
    """P(y_1) P(y_2 | y_1) ... under each location, by the rule of succession, and their mean."""
    rows = [2, 0, 2, 3]
    level = (np.arange(32) + 0.5) / 32
    locations = math.sqrt(1 - 0.5**2) * stats.norm.ppf(level)
    found = []
    for location in locations:
        prior, product = 6.0 * probit(location, 0.5), 1.0
        for row in rows:
            product *= prior[row] / prior.sum()
            prior[row] += 1
        found.append(product)
    counts = torch.tensor([[1.0, 0.0, 2.0, 1.0]], dtype=torch.float64)
    assert float(LEAF.evidence(counts)) == pytest.approx(math.log(np.mean(found)), rel=1e-10)


def test_the_prior_mean_is_as_frequent_as_the_classes_of_the_rows():
    y = torch.arange(5).repeat_interleave(torch.tensor([10, 40, 25, 5, 20]))
    leaf = Ordinal(5).informed(y, torch.ones(100, dtype=torch.float64))
    mean = leaf.prior(torch.zeros((), dtype=torch.float64)).mean()["leaf_probs"].numpy()
    # 32 quantiles stand for the tails of the locations; half a row is added to each class
    np.testing.assert_allclose(mean, [0.1, 0.4, 0.25, 0.05, 0.2], atol=0.015)


def test_the_criterion_is_the_likelihood_of_the_best_probit():
    counts = np.array([3.0, 9.0, 30.0, 8.0])

    def loss(free):
        return -counts @ np.log(probit(free[0], math.exp(free[1])))

    best = -optimize.minimize(loss, [0.0, -0.5], method="Nelder-Mead").fun
    found = float(OrderedProbit(CUTS).value(torch.from_numpy(counts)))
    # the curvature is at most 50 / 0.5^2 a squared unit, a step of the grid 1/8 and a factor 1.47
    assert best - 1.0 < found < best + 1e-9


def test_the_criterion_has_the_gradient_of_its_value():
    rng = np.random.default_rng(0)
    side, whole = (torch.from_numpy(rng.uniform(low, 30 + low, 4)) for low in (1, 40))
    criterion = OrderedProbit(CUTS)
    value, slope = criterion.ascent(side, whole)
    assert float(value) == pytest.approx(float(criterion.split_value(side, whole)))
    step = 1e-5  # within which the best point of the grid stays the same
    for number in range(4):
        moved = side.clone()
        moved[number] += step
        rise = float(criterion.split_value(moved, whole)) - float(value)
        assert rise / step == pytest.approx(float(slope[number]), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("noise", [0.3, 0.9])
def test_calibration_finds_the_noise_of_the_leaves(noise):
    rng = np.random.default_rng(1)
    cuts = tuple(stats.norm.ppf([0.15, 0.3, 0.55, 0.8]))
    _, counts = planted(rng, 100, 20, noise, cuts)
    found = Ordinal(5, cuts=cuts).calibrate(counts)
    assert found == Ordinal(5, cuts=cuts).calibrate(torch.cat((counts, 0 * counts[:3])))

    def evidence(leaf):
        return float(leaf.evidence(counts).sum())

    other = {0.3: 0.9, 0.9: 0.3}[noise]
    planted_prior = replace(found, noise=noise, concentration=1e4)
    # the planted pair lies in the likelihood region of the one found, up to ELSEWHERE
    gap = 2 * (evidence(found) - evidence(planted_prior))
    assert -1e-3 < gap < stats.chi2.isf(1e-5, 2)
    assert 2 * (evidence(found) - evidence(replace(found, noise=other))) > stats.chi2.isf(1e-5, 2)


@pytest.mark.portable
def test_no_leaf_has_no_draws():
    # sequential Monte Carlo samples the leaves of the particles that moved, perhaps none
    posterior = Ordinal(3).posterior(torch.zeros(0, 3))
    assert posterior.sample()["leaf_probs"].shape == (0, 3)


def test_neighbouring_classes_inform_one_another():
    """The log score of new rows, from leaves of 10 rows of nine classes each.

    Against a Dirichlet prior centred on the shares of all rows, with the best concentration: the
    same family without the order, at noise 1.
    """
    rng = np.random.default_rng(2)
    cuts = tuple(stats.norm.ppf(np.arange(1, 9) / 9))
    probs, counts = planted(rng, 200, 10, 0.4, cuts)

    def scores(leaf):
        return (probs * leaf.estimate(counts)["leaf_probs"].log().numpy()).sum(1)

    ordered = scores(Ordinal(9, cuts=cuts).calibrate(counts))
    unordered = Ordinal(9, noise=1.0, cuts=cuts)
    best = max(
        (replace(unordered, concentration=float(k)) for k in np.geomspace(0.5, 200, 30)),
        key=lambda leaf: float(leaf.evidence(counts).sum()),
    )
    for other in (best, Categorical(9)):
        gain = ordered - scores(other)
        assert gain.mean() > 4 * gain.std(ddof=1) / math.sqrt(len(gain))
        assert gain.mean() > 0.1  # 0.2 nats a row or more were seen
    # a leaf with rows in classes 3 and 5 alone expects class 4 rather than 8
    rows = torch.zeros(1, 9, dtype=torch.float64)
    rows[0, [3, 5]] = 4
    found = Ordinal(9, cuts=cuts, noise=0.4).estimate(rows)["leaf_probs"][0]
    assert float(found[4]) > 5 * float(found[8])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"noise": 0.0}, "noise"),
        ({"noise": 1.5}, "noise"),
        ({"cuts": (0.0,)}, "cuts"),
        ({"cuts": (0.0, 0.0, 1.0)}, "cuts"),
        ({"cuts": (0.0, math.nan, 1.0)}, "cuts"),
        ({"concentration": -1.0}, "concentration"),
    ],
)
def test_bad_parameters_are_rejected(bad, message):
    with pytest.raises(ValueError, match=f"{message}.* must"):
        Ordinal(4, **bad)
