import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pyro import poutine
from scipy import special, stats
from scipy.optimize import approx_fprime

from bayestree.models import Categorical, Gaussian, LinearGaussian

LEAVES: list[Any] = [
    Categorical(3, 2.4),
    Gaussian(0.3, 0.5, 3.0, 0.7),
    LinearGaussian(0.5, 0.8, 3.0, 0.7),
]
N_LEAVES = 2


def observed(leaf, n=9, seed=0):
    """y, hard memberships (n, L), and the summed statistics."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(leaf, Categorical):
        y = torch.randint(3, (n,), generator=generator)
    else:
        y = 3 + 2 * torch.randn(n, generator=generator, dtype=torch.float64)
        y = leaf.response(torch.randn(n, 2, generator=generator, dtype=torch.float64), y)
    member = torch.zeros(n, N_LEAVES, dtype=torch.float64)
    member[torch.arange(n), torch.arange(n) % N_LEAVES] = 1
    weights = torch.ones(n, dtype=torch.float64)
    return y, member, member.T @ leaf.statistics(y, weights)


def drawn(posterior, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return posterior.sample()


def log_posterior(posterior, sites):
    """Log-density of the sites under what the posterior states in Pyro."""
    trace = poutine.trace(poutine.condition(posterior.state, sites)).get_trace()
    return float(trace.log_prob_sum())


def many(posterior, n):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return [posterior.sample() for _ in range(n)]


def log_evidence(leaf, y):
    """Closed forms of the marginal likelihood of the rows of one leaf, by NumPy and SciPy."""
    if isinstance(leaf, Categorical):
        alpha = np.full(leaf.n_classes, leaf.concentration / leaf.n_classes)
        counts = np.bincount(y, minlength=leaf.n_classes)
        terms = special.gammaln(alpha + counts) - special.gammaln(alpha)
        return (
            terms.sum() + special.gammaln(alpha.sum()) - special.gammaln(alpha.sum() + counts.sum())
        )
    shape, mean = np.eye(len(y)) + 1 / leaf.strength, 0.0
    if isinstance(leaf, LinearGaussian):
        slopes = leaf.strengths(y.shape[1] - 1)
        shape, y = shape + (y[:, 1:] / slopes) @ y[:, 1:].T, y[:, 0]
    else:
        mean = leaf.mean
    scale = leaf.rate / leaf.shape * shape
    return stats.multivariate_t(np.full(len(y), mean), scale, df=2 * leaf.shape).logpdf(y)


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
def test_posterior_is_bayes_theorem(leaf):
    """prior x likelihood / posterior is the marginal likelihood, at any value of the sites."""
    y, member, sums = observed(leaf)
    posterior = leaf.posterior(sums)
    owner = member.argmax(1).numpy()
    expected = sum(log_evidence(leaf, y.numpy()[owner == i]) for i in range(N_LEAVES))
    for seed in range(5):
        sites = drawn(posterior, seed)
        joint = leaf.log_prob(sites) + (leaf.log_density(sites, y) * member).sum()
        assert float(joint) - log_posterior(posterior, sites) == pytest.approx(expected, rel=1e-9)


def test_dirichlet_draws_and_mean():
    leaf = LEAVES[0]
    posterior = leaf.posterior(observed(leaf)[2])
    alpha = observed(leaf)[2].numpy() + 0.8
    draws = torch.stack([sites["leaf_probs"] for sites in many(posterior, 3000)]).numpy()
    for i in range(N_LEAVES):
        first = stats.beta(alpha[i, 0], alpha[i].sum() - alpha[i, 0])
        assert stats.kstest(draws[:, i, 0], first.cdf).pvalue > 2 * stats.norm.sf(4)
    expected = alpha / alpha.sum(1, keepdims=True)
    np.testing.assert_allclose(posterior.mean()["leaf_probs"], expected, rtol=1e-12)


def test_normal_inverse_gamma_draws_and_mean():
    leaf = LEAVES[1]
    y, member, sums = observed(leaf)
    posterior = leaf.posterior(sums)
    draws = many(posterior, 3000)
    for i in range(N_LEAVES):
        own = y[member[:, i] == 1].numpy()
        # Normal-inverse-gamma updates as in the textbooks, with centred squares.
        strength, shape = 0.5 + len(own), 3.0 + len(own) / 2
        loc = (0.5 * 0.3 + own.sum()) / strength
        rate = 0.7 + ((own - own.mean()) ** 2).sum() / 2
        rate += 0.5 * len(own) / strength * (own.mean() - 0.3) ** 2 / 2
        means = np.array([float(sites["leaf_mean"][i]) for sites in draws])
        law = stats.t(2 * shape, loc, math.sqrt(rate / shape / strength))
        assert stats.kstest(means, law.cdf).pvalue > 2 * stats.norm.sf(4)
        squares = np.array([float(sites["leaf_scale"][i]) for sites in draws]) ** 2
        law = stats.invgamma(shape, scale=rate)
        assert stats.kstest(squares, law.cdf).pvalue > 2 * stats.norm.sf(4)
        assert float(posterior.mean()["leaf_mean"][i]) == pytest.approx(loc, rel=1e-10)


def test_estimates_are_smoothed_shares_and_shrunk_means():
    leaf = Categorical(2, concentration=2.0)
    estimate = leaf.estimate(torch.tensor([[3.0, 0.0], [0.0, 0.0]], dtype=torch.float64))
    assert estimate["leaf_probs"].tolist() == [[0.8, 0.2], [0.5, 0.5]]
    leaf = Gaussian(mean=0.0, strength=1.0)
    statistics = leaf.statistics(torch.tensor([4.0, 4.0, 4.0]), torch.ones(3))
    assert leaf.estimate(statistics.sum(0, keepdim=True))["leaf_mean"].tolist() == [3.0]


@pytest.mark.parametrize("shape", [2.0, 12.0, math.inf])
def test_calibration_recovers_how_similar_the_variances_are(shape):
    """The planted prior lies within the likelihood region of the one that is found."""
    rng = np.random.default_rng(0)
    n_leaves, strength, variance = 150, 0.3, 0.2
    own = np.full(n_leaves, variance)
    if shape < math.inf:
        own *= shape / rng.gamma(shape, size=n_leaves)
    means = rng.normal(0, np.sqrt(own / strength))
    sizes = 3 + np.arange(n_leaves) % 12
    leaves = [rng.normal(*law) for law in zip(means, own**0.5, sizes, strict=True)]
    sums = torch.tensor([[len(y), y.sum(), y @ y] for y in leaves])
    found = Gaussian().calibrate(sums)

    def evidence(leaf):
        return sum(log_evidence(leaf, y) for y in leaves)

    best = evidence(found)
    for name, limit in (("strength", 1.0), ("shape", 50.0), ("rate", math.inf)):
        for factor in (0.9, 1.1):
            value = getattr(found, name) * factor
            # Flat directions are found to about 1e-3 nats.
            assert value > limit or evidence(replace(found, **{name: value})) < best + 1e-3
    known = min(shape, 50.0)
    gap = 2 * (best - evidence(Gaussian(0.0, strength, known, known * variance)))
    assert -2e-3 < gap < stats.chi2.isf(1e-5, 3)
    if shape == 2.0:  # and rules out a common scale
        gap = 2 * (best - evidence(Gaussian(0.0, strength, 50.0, 50.0 * variance)))
        assert gap > stats.chi2.isf(1e-5, 3)


def test_calibration_ignores_empty_leaves_and_keeps_noise_free_ones_finite():
    rows = torch.tensor([[9.0, 0.0, 8.0], [4.0, 4.0, 6.0]], dtype=torch.float64)
    with_empty = torch.cat((rows, torch.zeros(2, 3, dtype=torch.float64)))
    assert Gaussian().calibrate(with_empty) == Gaussian().calibrate(rows)
    exact = Gaussian().calibrate(torch.tensor([[9.0, 18.0, 36.0], [9.0, -9.0, 9.0]]))
    assert exact.rate / exact.shape == pytest.approx(1e-6)


def test_linear_leaves_are_calibrated_by_their_marginal_likelihood():
    """The planted prior lies within the likelihood region of the one that is found."""
    rng = np.random.default_rng(0)
    planted = LinearGaussian(0.3, 2.0, 4.0, 0.8)
    leaves = []
    for size in 8 + np.arange(80) % 12:
        variance = planted.rate / rng.gamma(planted.shape)
        X = rng.normal(size=(size, 2))
        slope = rng.normal(0, np.sqrt(variance / planted.slope_strength), 2)
        mean = rng.normal(0, np.sqrt(variance / planted.strength))
        y = mean + X @ slope + rng.normal(0, np.sqrt(variance), size)
        leaves.append(np.column_stack((y, X)))
    every = [torch.from_numpy(y) for y in leaves]
    sums = torch.stack([planted.statistics(y, torch.ones_like(y[:, 0])).sum(0) for y in every])
    found = LinearGaussian().calibrate(sums)
    assert found == LinearGaussian().calibrate(torch.cat((sums, 0 * sums[:3])))  # empty leaves

    def evidence(leaf):
        return sum(log_evidence(leaf, y) for y in leaves)

    best = evidence(found)
    for name in ("strength", "slope_strength", "shape", "rate"):
        for factor in (0.9, 1.1):
            value = np.multiply(getattr(found, name), factor)
            changed = replace(found, **{name: tuple(value) if value.ndim else float(value)})
            assert evidence(changed) < best + 1e-3
    assert -2e-3 < 2 * (best - evidence(planted)) < stats.chi2.isf(1e-5, 5)


def test_linear_leaves_of_a_perfect_fit_are_finite():
    """Cancellation may leave the sum of squares below zero, and few rows leave slopes open."""
    X = 1e3 + torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = LinearGaussian().response(X, X @ torch.tensor([1.0, -2.0, 3.0]).double())
    for n in (1, 2, 50):
        sums = LinearGaussian().statistics(y[:n], torch.ones(n, dtype=torch.float64)).sum(0)[None]
        leaf = LinearGaussian().calibrate(sums)
        assert leaf.rate / leaf.shape >= 0.99e-6
        found = leaf.estimate(sums)
        assert all(torch.isfinite(value).all() for value in found.values())
        assert float(found["leaf_scale"]) > 0


@pytest.mark.parametrize("sizes", [(7, 9), (4, 12)])
def test_the_criterion_of_linear_leaves_is_that_of_least_squares(sizes):
    """-n/2 log(S/n) less n(k+1)/(n-k-2) for k coefficients, S the squares of both sides."""
    leaf, rng = LinearGaussian(), np.random.default_rng(1)
    y = rng.normal(size=(sum(sizes), 3))
    sums = leaf.statistics(torch.from_numpy(y), torch.ones(len(y), dtype=torch.float64))
    side, whole = sums[: sizes[0]].sum(0), sums.sum(0)

    def square(rows):
        design = np.column_stack((np.ones(len(rows)), rows[:, 1:]))
        coefficients = np.linalg.lstsq(design, rows[:, 0])[0]
        return ((rows[:, 0] - design @ coefficients) ** 2).sum()

    def nats(square, count):
        n, k = len(y), 3 * count
        return -n / 2 * np.log(square / n) - n * (k + 1) / (n - k - 2)

    both = square(y[: sizes[0]]) + square(y[sizes[0] :])
    found = leaf.criterion.split_value(side, whole)
    assert float(found) == pytest.approx(nats(both, 2), abs=0.05)  # its ridge is 1e-3 rows
    gain = nats(both, 2) - nats(square(y), 1)
    assert float(leaf.criterion.gain(found, whole)) == pytest.approx(gain, abs=0.06)
    value, slope = leaf.criterion.ascent(side, whole)

    def at(numbers):
        return float(leaf.criterion.split_value(torch.from_numpy(numbers), whole))

    expected = approx_fprime(side.numpy(), at)
    assert float(value) == pytest.approx(float(found))
    np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-3)


def test_equal_values_give_a_finite_scale():
    leaf = Gaussian()
    y = torch.full((50,), 1e8 / 3, dtype=torch.float64)
    sums = leaf.statistics(y, torch.ones(50, dtype=torch.float64)).sum(0, keepdim=True)
    scale = leaf.estimate(sums)["leaf_scale"]
    assert torch.isfinite(scale).all()
    assert (scale > 0).all()


def test_float32_draws_of_sure_leaves_keep_a_finite_logarithm():
    posterior = Categorical(3, 0.03).posterior(torch.tensor([[1e6, 0.0, 0.0]]))
    for sites in many(posterior, 500):
        assert torch.isfinite(sites["leaf_probs"].log()).all()


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Categorical(1),
        lambda: Categorical(2, concentration=0.0),
        lambda: Gaussian(strength=-1.0),
        lambda: Gaussian(shape=math.nan),
        lambda: Gaussian(rate=0.0),
    ],
)
def test_bad_parameters_are_rejected(bad):
    with pytest.raises(ValueError, match="must be"):
        bad()
