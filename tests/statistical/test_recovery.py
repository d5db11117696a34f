"""Long tests of inference results: priors without data, planted facets, calibration."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bayestree import ConvexPolytopeTreeClassifier
from bayestree.inference import GrowthLimits, grow, svi
from bayestree.models import GammaProcess, InverseGammaScale, Oblique, Priors
from tests.inference.problems import ring, soft_tree, triangle
from tests.inference.variational.test_guides import best_weibull

pytestmark = pytest.mark.statistical


def test_without_data_svi_returns_to_the_prior():
    data = ring(60)
    n_experts, concentration = 3, 3.0
    priors = Priors(GammaProcess(concentration, 2.0), InverseGammaScale(1.5, 2.0, 0.7))
    model = soft_tree(n_experts=n_experts, priors=priors)
    init = grow(model, data, limits=GrowthLimits(1, min_gain=0.0), steps=5, random_state=0)
    silent = data._replace(weights=torch.full_like(data.weights, 1e-9))
    found = svi(
        init.model,
        silent,
        init=init,
        epochs=6000,
        batch_size=60,
        learning_rate=0.02,
        n_draws=300,
        random_state=0,
    )
    shape, loc = best_weibull(concentration / n_experts, 2.0)
    law = stats.gumbel_l(loc=loc, scale=1 / shape)
    p_value = stats.kstest(found.draws["log_weight"].flatten(), law.cdf).pvalue
    assert p_value > 2 * stats.norm.sf(4)
    for name in ("hyperplane", "intercept"):
        draws = found.draws[name][0].reshape(300, -1)
        error = draws.std(0) / math.sqrt(300)
        assert (np.abs(draws.mean(0)) < 4 * error + 0.02 * draws.std(0)).all()
    share = found.draws["leaf_probs"][0, :, 0, 0]
    assert stats.kstest(share, stats.uniform.cdf).pvalue > 2 * stats.norm.sf(4)


def test_the_bound_is_below_the_evidence():
    """The evidence of an oblique stump on a line is the mean likelihood over the prior."""
    priors = Priors(hyperplane=InverseGammaScale(1.5, 2.0, 1.0))
    model = soft_tree(priors=priors, steepness=1.0).with_(split=Oblique())
    data = ring(14)
    data = data._replace(X=data.X[:, :1], y=(data.X[:, 0] > 0).long())
    limits = GrowthLimits(1, min_rows=2, min_leaf=1, min_gain=0.0)
    init = grow(model, data, limits=limits, random_state=0)
    found = svi(init.model, data, init=init, epochs=1500, batch_size=14, n_draws=10, random_state=0)
    generator = np.random.default_rng(0)
    n = 400_000
    b = generator.gamma(2.0, 1.0, n)
    unit = np.sqrt(b / 1.5)
    slope, offset = (unit * generator.standard_t(3.0, n) for _ in range(2))
    left, right = generator.uniform(size=(2, n))  # P(y = 1) in each leaf
    likelihood = np.ones(n)
    for x, y in zip(data.X[:, 0].numpy(), data.y.numpy(), strict=True):
        q = 1 / (1 + np.exp(-(slope * x + offset)))
        one = q * right + (1 - q) * left
        likelihood *= one if y else 1 - one
    evidence = math.log(likelihood.mean())
    error = likelihood.std() / likelihood.mean() / math.sqrt(n)
    gap = evidence - float(found.stats["final_elbo"])
    assert gap > -4 * error - 0.5  # the bound itself is a mean of a few draws
    # Two mirrored optima cost log 2; a stump's factors cost a nat or two.
    assert gap < 4


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_triangle_is_found_with_its_three_facets(seed):
    rows, fresh = triangle(2000, seed), triangle(4000, seed + 100)
    model = ConvexPolytopeTreeClassifier(n_modes=1, max_depth=1, n_experts=12, random_state=seed)
    model.fit(rows.X.numpy(), rows.y.numpy())
    size = model.polytope_size().to_frame().loc["root"]
    assert size[["facets", "facets_low", "facets_high"]].tolist() == [3, 3, 3]
    # Nine numbers fitted to n rows lose about 9 / n of them, of which twice is allowed.
    expected = 2 * 9 / 2000
    error = 1 - model.score(fresh.X.numpy(), fresh.y.numpy())
    assert error < expected + 4 * math.sqrt(expected * (1 - expected) / 4000)


def test_posterior_probabilities_are_calibrated():
    """Fresh rows said to be of class 1 with probability p are so in a share p of the cases."""
    rows, fresh = ring(3000, seed=1, noise=0.2), ring(20_000, seed=77, noise=0.2)
    model = ConvexPolytopeTreeClassifier(n_modes=1, max_depth=2, n_experts=10, random_state=0)
    model.fit(rows.X.numpy(), rows.y.numpy())
    said = model.predict_proba(fresh.X.numpy())[:, 1]
    true = fresh.y.numpy()
    # 80 % of the rows can be foretold; the boundary of 3,000 rows loses a little.
    best, error = 0.8, math.sqrt(0.8 * 0.2 / len(true))
    assert np.mean((said > 0.5) == true) > best - 4 * error - 2 * 18 / 3000
    for low in (0.0, 0.5):
        part = (said >= low) & (said < low + 0.5)
        # The share among training rows errs as much as a count of them does.
        slack = 4 * math.sqrt(0.25 * (1 / part.sum() + 2 / 3000))
        assert abs(said[part].mean() - true[part].mean()) < slack


def test_the_posterior_is_no_worse_than_its_tree_in_log_loss():
    differences = []
    for seed in range(5):
        rows, fresh = ring(400, seed=seed, noise=0.1), ring(4000, seed=seed + 50, noise=0.1)
        model = ConvexPolytopeTreeClassifier(n_modes=1, max_depth=2, n_experts=8, random_state=seed)
        model.fit(rows.X.numpy(), rows.y.numpy())
        losses = []
        for how in ("posterior", "tree"):
            probability = model.set_params(prediction=how).predict_proba(fresh.X.numpy())
            losses.append(-np.log(probability[np.arange(4000), fresh.y.numpy()] + 1e-12).mean())
        differences.append(losses[0] - losses[1])
    assert np.mean(differences) < 4 * np.std(differences) / math.sqrt(5)
