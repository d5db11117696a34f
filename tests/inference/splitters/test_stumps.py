import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.inference import Data, GrowthLimits
from bayestree.inference.splitters import stumps
from bayestree.inference.splitters.stumps import StumpFitter, best_threshold
from bayestree.models import (
    Categorical,
    Flat,
    Gaussian,
    InverseGammaScale,
    Laplace,
    Oblique,
    Polytope,
    Spatial,
)
from bayestree.models.criteria import Entropy, Gini, SquaredError

CLASSES, REALS = Categorical(3), Gaussian()


class Other(SquaredError):
    def value(self, sums):
        return Gini().value(sums)


class Sharper(InverseGammaScale):
    def log_prob(self, sites):
        return 2 * super().log_prob(sites)


class OtherClasses(Categorical):
    criterion = Other()


PRIORS = (Sharper(2.0), InverseGammaScale(2.0), Laplace(1.5), Flat(), Spatial(2.0, (2, 2)))


def fitter(leaf=CLASSES, prior=PRIORS[1], split=None, **settings):
    settings = {"steps": 30, "n_restarts": 2, "rows_per_node": 100, "learning_rate": 0.1} | settings
    return StumpFitter(split or Polytope(5), leaf, prior, **settings, min_leaf=1)


def objective(found, leaf, prior, batch):
    """Log-likelihood of soft splits and log-density of the directions of their hyperplanes."""
    whole = batch.statistics.sum(1, keepdim=True)
    right = -torch.expm1(-found.score(batch.X))
    value = leaf.criterion.split_value(torch.bmm(right, batch.statistics), whole)
    nats = leaf.criterion.nats(value, whole) / batch.share.unsqueeze(1)
    plane = found.values[..., :-2]
    unit = plane / plane.square().mean(-1, keepdim=True).sqrt()
    intercept = unit.new_zeros(unit.shape[:-1])
    sites = {"hyperplane": unit, "intercept": intercept, **prior.prior_means(intercept)}
    return nats, nats.sum() + prior.log_prob(sites)


@pytest.mark.parametrize("split", [Polytope(5), Oblique()])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("leaf", [CLASSES, REALS, OtherClasses(3)])
def test_the_gradient_is_that_of_the_objective(leaf, prior, split):
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(200, 4, generator=rng)
    y = X[:, 0].square() + X[:, 1] * (leaf is REALS)
    data = Data.of(X, y if leaf is REALS else y.long().clamp_max(2))
    rows = [torch.arange(40), torch.arange(20, 90), torch.arange(150)]  # the last is sampled
    one = fitter(leaf, prior, split)
    batch = one._draw(data, rows)
    start = one._start(batch)
    values = start.values.requires_grad_()
    nats, total = objective(start, leaf, prior, batch)
    (expected,) = torch.autograd.grad(total, values)
    if isinstance(split, Oblique):
        expected[..., -1] = 0.0  # the weight of an oblique split is fixed
    minus = batch.X * -start.size.view(-1, 1, 1)
    with torch.no_grad():
        found, slope = one._ascent(batch, minus, values)
    torch.testing.assert_close(found, nats.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(slope, expected, rtol=1e-8, atol=1e-10)
    assert float(slope.abs().max()) > 0.1


def climbed(monkeypatch, stalled):
    """Final log-likelihoods of two nodes, and the number of steps of each.

    The classes of the first are separated by a wide gap, and those of the second are noisy.
    """
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(400, 3, generator=rng, dtype=torch.float64)
    y = X[:, 0] > 0
    X[:200, 0] += 4 * X[:200, 0].sign()
    y[200:] ^= torch.rand(200, generator=rng) < 0.3
    data, rows = Data.of(X, y.long()), [torch.arange(200), torch.arange(200, 400)]
    one = fitter(Categorical(2), steps=300, learning_rate=0.02, rows_per_node=200)
    steps = torch.zeros(2)
    ascent = StumpFitter._ascent

    def counted(self, batch, minus, values):
        for node, right in enumerate((0, 200)):  # the rows tell which nodes are in the batch
            present = (batch.X[:, 0, :-1] == X[right]).all(-1).any()
            steps[node] += float(present)
        return ascent(self, batch, minus, values)

    torch.manual_seed(1)
    with torch.no_grad(), monkeypatch.context() as patch:
        patch.setattr(stumps, "STALLED", stalled)
        patch.setattr(StumpFitter, "_ascent", counted)
        batch = one._draw(data, rows)
        found = one._climb(data, rows, batch, one._start(batch))
        nats = objective(found, Categorical(2), one.prior, batch)[0][:, 0]
    return nats, steps


def test_a_stump_that_has_converged_leaves_the_batch(monkeypatch):
    full, every = climbed(monkeypatch, -1.0)
    assert every.tolist() == [340, 340]
    some, steps = climbed(monkeypatch, 0.1)
    assert steps[0] < every[0]
    # the test is per window, so a little more is lost: less than a tenth of the default min_gain
    assert bool((full - some < 0.1 * GrowthLimits.min_gain).all()), (full, some)


def test_the_last_steps_follow_when_the_log_likelihood_stalls():
    flat = torch.tensor([5.0, 5.0, 5.0], dtype=torch.float64) * stumps.WINDOW
    start = stumps.Stumps(torch.zeros(3, 1, 1, 3, dtype=torch.float64), torch.ones(3).double())
    climb = stumps._StumpClimb.of(start, 100)
    assert climb.end_soon(flat).all()
    assert climb.left.tolist() == [100] * 3
    change = torch.tensor([0.5, 1.5, -1.5]) * stumps.STALLED * stumps.WINDOW
    assert climb.end_soon(flat + change).all()
    # a fall is not convergence: it is the noise of subsamples, or a rate that is too high
    assert climb.left.tolist() == [stumps.WINDOW, 100, 100]
    climb.left.sub_(stumps.WINDOW)
    assert climb.end_soon(flat).tolist() == [False, True, True]


def test_the_prior_of_growth_is_of_directions_alone():
    plane = torch.randn(2, 1, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    slope = fitter()._prior_slope(plane)
    # longer hyperplanes have the same density, so the gradient has no part along them
    torch.testing.assert_close((slope * plane).sum(-1), plane.new_zeros(2, 1, 3))
    torch.testing.assert_close(fitter()._prior_slope(50 * plane), slope / 50)
    smallest = plane.abs().argmin(-1, keepdim=True)
    assert bool((slope.gather(-1, smallest) * plane.gather(-1, smallest) < 0).all())


def log_likelihood(y, weights, *, classes):
    """Log-likelihood of rows in their best leaf; minus the sum of squares for real values."""
    total = weights.sum()
    if total == 0:
        return 0.0
    if not classes:
        return -(weights * (y - np.average(y, weights=weights)) ** 2).sum()
    counts = np.array([weights[y == c].sum() for c in range(3)])
    share = counts[counts > 0] / total
    return (counts[counts > 0] * np.log(share)).sum()


def worth(scores, y, weights, threshold, *, classes):
    sides = (scores > threshold), (scores <= threshold)
    return sum(log_likelihood(y[side], weights[side], classes=classes) for side in sides)


def search(scores, y, weights, min_leaf, *, classes):
    leaf = CLASSES if classes else REALS
    statistics = leaf.statistics(torch.as_tensor(y), torch.as_tensor(weights))
    criterion = Entropy() if classes else SquaredError()
    return best_threshold(torch.as_tensor(scores), criterion, lambda n: statistics[n], min_leaf)


@st.composite
def node_rows(draw, *, classes):
    n = draw(st.integers(2, 12))
    # Few values: ties between scores, and rows of weight zero.
    scores = np.array(draw(st.lists(st.integers(1, 6), min_size=n, max_size=n))) / 3
    label = st.integers(0, 2) if classes else st.integers(-50, 50)
    y = np.array(draw(st.lists(label, min_size=n, max_size=n)))
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=float)
    weights[0] += 1
    return scores, y if classes else y / 10, weights, draw(st.integers(1, 4))


@pytest.mark.parametrize("classes", [True, False])
@settings(max_examples=300)
@given(st.data())
def test_best_threshold_is_that_of_trying_all(classes, data):
    scores, y, weights, min_leaf = data.draw(node_rows(classes=classes))
    values = np.unique(scores)
    tried = [
        worth(scores, y, weights, t, classes=classes)
        for t in values[:-1]
        if min(np.sum(scores > t), np.sum(scores <= t)) >= min_leaf
    ]
    found = search(scores, y, weights, min_leaf, classes=classes)
    if not tried:
        assert found is None
        return
    threshold, gain = found
    assert min(np.sum(scores > threshold), np.sum(scores <= threshold)) >= min_leaf
    reached = worth(scores, y, weights, threshold, classes=classes)
    assert reached == pytest.approx(max(tried), rel=1e-9, abs=1e-9)
    whole = log_likelihood(y, weights, classes=classes)
    if classes:
        assert gain == pytest.approx(max(tried) - whole, abs=1e-9)
    elif -max(tried) > 1e-6:
        expected = weights.sum() / 2 * np.log(whole / max(tried))
        assert gain == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("classes", [True, False])
def test_thresholds_of_pieces_are_those_of_all_rows(classes, monkeypatch):
    rng = np.random.default_rng(0)
    scores, weights = rng.integers(1, 40, 200) / 10, rng.uniform(0.5, 2, 200)
    y = rng.integers(0, 3, 200) if classes else rng.normal(size=200)
    whole = search(scores, y, weights, 5, classes=classes)
    monkeypatch.setattr(stumps, "NUMBERS", 50)
    assert search(scores, y, weights, 5, classes=classes) == whole


@pytest.mark.parametrize("classes", [True, False])
@settings(max_examples=100)
@given(st.data())
def test_a_weight_is_so_many_rows(classes, data):
    scores, y, weights, _ = data.draw(node_rows(classes=classes))
    weights = weights + 1
    times = weights.astype(int)
    found = search(scores, y, weights, 1, classes=classes)
    repeated = search(  # type: ignore[call-arg, misc]
        *(np.repeat(v, times) for v in (scores, y)), np.ones(times.sum()), 1, classes=classes
    )
    if found is None:
        assert repeated is None
    else:
        same = [worth(scores, y, weights, t, classes=classes) for t in (found[0], repeated[0])]
        assert same[0] == pytest.approx(same[1], rel=1e-9, abs=1e-9)
        if classes or same[0] < -1e-6:  # the gain of a perfect fit of reals is unbounded
            assert found[1] == pytest.approx(repeated[1], rel=1e-9, abs=1e-9)


def test_a_threshold_between_neighbouring_numbers_still_separates_them():
    y, found = np.array([0, 1] * 3), 0
    for low in np.linspace(0.1, 1, 50, dtype=np.float32):
        scores = np.array([low, np.nextafter(low, np.float32(1))] * 3)
        result = search(scores, y, np.ones(6), 1, classes=True)
        if result is not None:
            found += 1
            assert (scores > np.float32(result[0])).tolist() == [False, True] * 3
    assert found > 0


def test_equal_scores_are_not_separated():
    assert search(np.full(5, 0.3), np.array([0, 1, 0, 1, 2]), np.ones(5), 1, classes=True) is None
