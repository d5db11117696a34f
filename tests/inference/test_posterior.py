import numpy as np
import pytest
import torch
from scipy import optimize, stats

from bayestree.inference import Data, Posterior, fits_worse_than_tree
from bayestree.models import Categorical, Gaussian, Oblique, Polytope, SoftTree
from bayestree.topology import Topology
from tests.models.cases import traced


def posterior_of(leaf, chains=2, draws=3, split=None, dtype=torch.float64):
    model = SoftTree(Topology.complete(2), split=split or Polytope(2), leaf=leaf, steepness=2.0)
    X = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = [[traced(model, X, seed=10 * c + d)[1] for d in range(draws)] for c in range(chains)]
    names = [name for name in found[0][0] if name != "obs"]
    stacked = {
        name: torch.stack([torch.stack([s[name] for s in chain]) for chain in found])
        .to(dtype)
        .numpy()
        for name in names
    }
    point = {name: value.mean((0, 1)) for name, value in stacked.items()}
    return Posterior(model, stacked, point, "svi"), X.numpy()


@pytest.mark.parametrize("leaf", [Categorical(3), Gaussian()])
def test_predictive_is_the_average_over_draws_and_leaves(leaf):
    posterior, X = posterior_of(leaf)
    values = []
    for chain in range(2):
        for draw in range(3):
            sites = {k: torch.as_tensor(v[chain, draw]) for k, v in posterior.draws.items()}
            probs = posterior.model.leaf_log_probs(sites, torch.as_tensor(X)).exp().numpy()
            value = sites["leaf_probs" if "leaf_probs" in sites else "leaf_mean"].numpy()
            values.append(sum(probs[:, [i]] * value[i] for i in range(4)))
    mean, sd = posterior.predictive(X)
    shape = (5, 3) if isinstance(leaf, Categorical) else (5,)
    np.testing.assert_allclose(mean, np.mean(values, axis=0).reshape(shape), rtol=1e-10)
    # A difference of squares keeps half of the digits.
    np.testing.assert_allclose(sd, np.std(values, axis=0).reshape(shape), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("copies", [20, 120])  # groups of five draws and one; single draws
@pytest.mark.parametrize("leaf", [Categorical(3), Gaussian()])
def test_predictions_do_not_depend_on_the_number_of_rows(leaf, copies):
    posterior, X = posterior_of(leaf)
    many = np.repeat(X, copies, axis=0)
    few = posterior.predictive(X)[0]
    np.testing.assert_allclose(posterior.predictive(many)[0], np.repeat(few, copies, 0), rtol=1e-9)
    if not leaf.n_classes:
        levels = np.array([0.1, 0.5])
        wanted = np.repeat(posterior.quantiles(X, levels), copies, 1)
        np.testing.assert_allclose(posterior.quantiles(many, levels), wanted, rtol=1e-6)


def test_predictive_of_float32_draws_is_nearly_that_of_float64():
    double, X = posterior_of(Categorical(3))
    single, _ = posterior_of(Categorical(3), dtype=torch.float32)
    for one, other in zip(double.predictive(X), single.predictive(X), strict=True):
        assert other.dtype == np.float64
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_one_draw_has_no_spread():
    posterior, X = posterior_of(Categorical(3), chains=1, draws=1)
    assert posterior.predictive(X)[1].max() < 1e-7


@pytest.mark.parametrize("levels", [[0.05, 0.5, 0.95], [1e-6, 1 - 1e-6]])
def test_quantiles_are_roots_of_the_mixture_distribution(levels):
    posterior, X = posterior_of(Gaussian())
    found = posterior.quantiles(X, np.array(levels))
    draws = [
        (posterior.leaf_probs(X, sites), sites["leaf_mean"].numpy(), sites["leaf_scale"].numpy())
        for sites in posterior.each()
    ]

    def below(value, row):
        return np.mean([p[row] @ stats.norm.cdf(value, m, s) for p, m, s in draws])

    for level, quantiles in zip(levels, found, strict=True):
        for row, quantile in enumerate(quantiles):
            root = optimize.brentq(
                lambda v, row=row, level=level: below(v, row) - level, -1e3, 1e3, xtol=1e-12
            )
            assert quantile == pytest.approx(root, rel=1e-6, abs=1e-6)


def test_quantiles_rise_with_their_level():
    posterior, X = posterior_of(Gaussian())
    found = posterior.quantiles(X, np.linspace(0.01, 0.99, 25))
    assert found.shape == (25, 5)
    assert (np.diff(found, axis=0) > 0).all()


def test_draws_and_points_are_read_back():
    posterior, _ = posterior_of(Categorical(3))
    assert (posterior.n_chains, posterior.n_draws) == (2, 3)
    drawn = list(posterior.each())
    assert len(drawn) == 6
    assert np.array_equal(drawn[4]["intercept"], posterior.draws["intercept"][1, 1])
    assert np.array_equal(posterior.weight(), np.exp(posterior.point["log_weight"]))
    point = Posterior.from_point(posterior.model, posterior.point_sites(), "map")
    assert (point.n_chains, point.n_draws) == (1, 1)
    assert np.array_equal(point.draws["leaf_probs"][0, 0], posterior.point["leaf_probs"])


def step_at_zero(steepness, means):
    """A point estimate of a split of one feature at 0, with the means of its leaves."""
    sites = {
        "hyperplane": torch.ones(1, 1, 1, dtype=torch.float64),
        "intercept": torch.zeros(1, 1, dtype=torch.float64),
        "leaf_mean": torch.as_tensor(means, dtype=torch.float64),
        "leaf_scale": torch.ones(2, dtype=torch.float64),
    }
    model = SoftTree(Topology.stump(), Oblique(), leaf=Gaussian(), steepness=steepness)
    return Posterior.from_point(model, sites, "map")


@pytest.mark.parametrize(("steepness", "worse"), [(0.5, True), (500.0, False)])
def test_soft_splits_fit_a_step_worse_than_hard_ones(steepness, worse):
    x = np.linspace(-1, 1, 40)  # no row at 0
    data = Data.of(x[:, None], np.where(x > 0, 1.0, -1.0) + 0.1 * np.cos(40 * x))
    # The best means, which shrunk ones of the tree cannot beat.
    found = step_at_zero(steepness, [float(data.y[:20].mean()), float(data.y[20:].mean())])
    assert fits_worse_than_tree(found, data) == worse


@pytest.mark.parametrize(("weight", "worse"), [(1, True), (20, False)])
def test_fits_are_compared_by_weighted_rows(weight, worse):
    """Soft splits predict .24 where y is 1, hard ones miss the two rows at the border by .33.

    The squared errors are 20 * .76^2 = 11.4, and with 20 copies of the two rows
    20 * .67^2 + 40 * .33^2 = 13.2; by the same means, but without the copies, they would be 9.1.
    """
    x, y = np.repeat([-1, -0.01, 0.01, 1], [10, 1, 1, 10]), np.repeat([-1.0, 0, 1], [10, 2, 10])
    weights = np.where(y == 0, weight, 1)
    copies = np.repeat(np.arange(22), weights)
    found = step_at_zero(0.5, [-1.0, 1.0])
    for rows, each in ((np.arange(22), weights), (copies, None)):
        assert fits_worse_than_tree(found, Data.of(x[rows, None], y[rows], each)) == worse
