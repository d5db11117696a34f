"""Natural-gradient fits against the evidence, exact samples, and planted splits."""

import math

import numpy as np
import pytest
from scipy import stats

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.inference import GrowthLimits, grow, nuts, vi
from bayestree.models import InverseGammaScale, Oblique, Priors
from tests.inference.problems import normal, ring, soft_tree, triangle
from tests.inference.variational.cases import noisy_line
from tests.sampling import at_least

pytestmark = pytest.mark.statistical


def test_the_bound_is_below_the_evidence():
    """The evidence of an oblique stump on a line is the mean likelihood over the prior."""
    priors = Priors(hyperplane=InverseGammaScale(1.5, 2.0, 1.0))
    model = soft_tree(priors=priors, steepness=1.0).with_(split=Oblique())
    data = ring(14)
    data = data._replace(X=data.X[:, :1], y=(data.X[:, 0] > 0).long())
    limits = GrowthLimits(1, min_rows=2, min_leaf=1, min_gain=0.0)
    init = grow(model, data, limits=limits, random_state=0)
    found = vi(init.model, data, init=init, n_draws=2000, random_state=0)
    generator = np.random.default_rng(0)
    n = 400_000
    unit = np.sqrt(generator.gamma(2.0, 1.0, n) / 1.5)
    slope, offset = (unit * generator.standard_t(3.0, n) for _ in range(2))
    left, right = generator.uniform(size=(2, n))  # P(y = 1) in each leaf
    likelihood = np.ones(n)
    for x, y in zip(data.X[:, 0].numpy(), data.y.numpy(), strict=True):
        q = 1 / (1 + np.exp(-(slope * x + offset)))
        one = q * right + (1 - q) * left
        likelihood *= one if y else 1 - one
    evidence = math.log(likelihood.mean())
    error = likelihood.std() / likelihood.mean() / math.sqrt(n)
    # with the scales integrated out, which final_elbo bounds further
    each = (found.stats["log_p"] - found.stats["log_q"])[0]
    gap = evidence - each.mean()
    assert gap > -4 * math.hypot(error, each.std() / math.sqrt(len(each)))
    # Two mirrored optima cost log 2; a stump's factors cost a nat or two.
    assert gap < 4
    # Weights of importance between draws and posterior, of which the other half is mirrored.
    estimate = np.log(np.exp(each - each.max()).mean()) + each.max() + math.log(2)
    assert estimate == pytest.approx(evidence, abs=0.5)


def test_a_determined_split_has_the_posterior_of_exact_samples():
    """300 rows determine an oblique stump: its posterior is nearly normal."""
    data = noisy_line(300)
    model = soft_tree(steepness=1.0).with_(split=Oblique())
    init = grow(model, data, limits=GrowthLimits(1), random_state=0)
    found = vi(init.model, data, init=init, n_draws=1000, random_state=0)
    exact = nuts(
        init.model, data, init=found, n_chains=2, n_warmup=300, n_draws=500, random_state=0
    )
    rows = normal(200, 2, seed=9).numpy()
    mean, sd = found.predictive(rows)
    reference, its_sd = exact.predictive(rows)
    # Means over 1,000 independent draws vary by sd / 30. Slopes and leaves depend on each other in
    # the posterior and not in the factors, which costs less than half a standard deviation.
    assert np.sqrt(((mean - reference) ** 2).mean()) < 0.5 * its_sd.mean()
    # Factors that ignore dependence are too narrow, as is known of variational posteriors.
    assert 0.4 < sd.mean() / its_sd.mean() < 1.2


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_triangle_is_found(seed):
    rows, fresh = triangle(2000, seed), triangle(4000, seed + 100)
    model = ConvexPolytopeTreeClassifier(max_depth=1, n_experts=12, random_state=seed)
    model.fit(rows.X.numpy(), rows.y.numpy())
    assert model.plan_.method == "vi"
    # Nine numbers fitted to n rows lose about 9 / n of them, of which twice is allowed.
    assert model.score(fresh.X.numpy(), fresh.y.numpy()) > at_least(1 - 2 * 9 / 2000, 4000)


def test_probabilities_are_calibrated():
    """Fresh rows said to be of class 1 with probability p are so in a share p of the cases."""
    rows, fresh = noisy_line(3000, seed=5), noisy_line(20_000, seed=77)
    model = ConvexPolytopeTreeClassifier(max_depth=1, random_state=0)
    said = model.fit(rows.X.numpy(), rows.y.numpy()).predict_proba(fresh.X.numpy())[:, 1]
    for low in np.arange(0.1, 0.9, 0.2):
        own = (said >= low) & (said < low + 0.2)
        share, mean = fresh.y.numpy()[own].mean(), said[own].mean()
        # four standard errors of the share in the new rows, and in as large a part of the others
        error = 0.5 * math.hypot(1 / math.sqrt(own.sum()), 1 / math.sqrt(own.mean() * 3000))
        assert abs(share - mean) < 4 * error


def test_intervals_of_numbers_cover_new_rows():
    rng = np.random.default_rng(0)

    def planted(n):
        X = rng.normal(size=(n, 3))
        return X, np.where(X[:, 0] + X[:, 1] > 0.3, 2.0, -1.0) + 0.5 * rng.normal(size=n)

    (X, y), (new, its_y) = planted(1000), planted(4000)
    model = ConvexPolytopeTreeRegressor(max_depth=1, random_state=0).fit(X, y)
    assert model.plan_.method == "vi"
    low, high = model.predict_interval(new, 0.9)
    inside = ((low <= its_y) & (its_y <= high)).sum()
    # within four standard errors, and of the scale and of the border, 3 % of the rows
    for share, tail in ((0.87, stats.binom.cdf), (0.93, stats.binom.sf)):
        assert tail(inside, 4000, share) > stats.norm.sf(4)


def test_integer_weights_are_copies_of_rows():
    """Growth draws other rows, so that the fits are those of two seeds."""
    data, new = noisy_line(400, seed=3), noisy_line(4000, seed=8)
    X, y = data.X.numpy(), data.y.numpy()
    counts = np.random.default_rng(0).integers(0, 4, 400)
    model = ConvexPolytopeTreeClassifier(max_depth=1, random_state=0)
    weighted = model.fit(X, y, sample_weight=counts.astype(float)).predict_proba(
        new.X.numpy(), return_std=True
    )
    copies = model.fit(X.repeat(counts, 0), y.repeat(counts)).predict_proba(new.X.numpy())
    assert np.abs(weighted[0] - copies).mean() < weighted[1].mean()
