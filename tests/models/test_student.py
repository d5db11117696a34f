"""Student-t leaves: posterior against quadrature, and the robustness of estimates and splits."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from bayestree.models import Gaussian, Student
from bayestree.models.leaves.student import robust_units


def sums(leaf, y):
    return leaf.statistics(torch.from_numpy(y), torch.ones(len(y), dtype=torch.float64)).sum(0)


def quadrature(leaf, y):
    """Evidence, and means and sds of location and log scale, by a sum over a grid."""
    mean = np.linspace(y.mean() - 1.5, y.mean() + 1.5, 151)
    log_scale = np.linspace(math.log(0.05), math.log(3), 121)
    m, s = np.meshgrid(mean, np.exp(log_scale), indexing="ij")
    total = stats.t(leaf.df, m[..., None], s[..., None]).logpdf(y).sum(-1)
    total += stats.norm(leaf.mean, s / math.sqrt(leaf.strength)).logpdf(m)
    total += stats.invgamma(leaf.shape, scale=leaf.rate).logpdf(s**2) + np.log(2 * s**2)
    cell = (mean[1] - mean[0]) * (log_scale[1] - log_scale[0])
    weight = np.exp(total - total.max())
    evidence = total.max() + math.log(weight.sum() * cell)
    weight /= weight.sum()
    moments = []
    for value in (m, np.log(s)):
        center = (weight * value).sum()
        moments.append((center, math.sqrt((weight * (value - center) ** 2).sum())))
    return evidence, *moments


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("n", [12, 100])
def test_the_posterior_is_near_that_of_quadrature(n, seed):
    leaf = Student()
    y = 0.5 + 0.4 * np.random.default_rng(seed).standard_t(leaf.df, n)
    evidence, *exact = quadrature(leaf, y)
    found = leaf.posterior(sums(leaf, y)[None])
    # in closed form: leaf_mean ~ t, and log scale = (log rate - log Gamma(shape)) / 2
    shape, rate = float(found.shape), float(found.rate)
    location = float(found.loc), math.sqrt(rate / (shape - 1) / float(found.strength))
    digamma, trigamma = (float(torch.polygamma(k, found.shape.squeeze())) for k in (0, 1))
    log_scale = (math.log(rate) - digamma) / 2, math.sqrt(trigamma) / 2
    for own, (center, sd) in zip((location, log_scale), exact, strict=True):
        # the skew of a few rows, and the bins of many, move the scale by a part of its sd
        assert abs(own[0] - center) < 0.5 * sd
        assert own[1] == pytest.approx(sd, rel=0.15)
    # the bound is below the evidence by the divergence from the exact posterior, which is small
    bound = float(found.expected_log_density(torch.from_numpy(y)).sum() - found.kl())
    assert -0.01 < evidence - bound < 0.3


def test_estimates_follow_the_units_of_y():
    y = np.random.default_rng(2).standard_t(4, 12)
    one, other = (Student().informed(torch.from_numpy(u * y), torch.ones(12)) for u in (1, 1000))
    each = one.estimate(sums(one, y)[None]), other.estimate(sums(other, 1000 * y)[None])
    for name in Student.sites:
        assert float(each[1][name]) == pytest.approx(1000 * float(each[0][name]), rel=1e-6)


def test_outliers_hardly_move_the_estimate():
    rng = np.random.default_rng(0)
    y = rng.normal(1.0, 0.5, 200)
    bad = np.concatenate([y[:190], rng.uniform(20, 2000, 10)])
    leaf = Student().informed(torch.from_numpy(bad), torch.ones(200))
    found = leaf.estimate(sums(leaf, bad)[None])
    # four standard errors of the mean; the sd of normal rows is 1.2 to 1.3 scales of a t_4
    assert float(found["leaf_mean"]) == pytest.approx(1.0, abs=4 * 0.5 / math.sqrt(190))
    assert 0.3 < float(found["leaf_scale"]) < 0.7
    normal = Gaussian().estimate(sums(Gaussian(), bad)[None])
    assert float(normal["leaf_mean"]) > 5


@pytest.mark.portable
def test_the_criterion_finds_the_split_despite_outliers():
    """Rows in order, whose mean rises after the 60th; six outliers are on one side."""
    rng = np.random.default_rng(3)
    y = np.concatenate([rng.normal(0, 0.3, 60), rng.normal(1.5, 0.3, 60)])
    y[[3, 10, 20, 31, 44, 52]] = [40, -70, 90, -110, 50, 60]
    leaf = Student().informed(torch.from_numpy(y), torch.ones(120))
    each = leaf.statistics(torch.from_numpy(y), torch.ones(120, dtype=torch.float64))
    left, criterion = each.cumsum(0), leaf.criterion
    value = criterion.split_value(left[9:-10], left[-1])
    # five standard deviations between the means: a row is on the wrong side with probability 0.6 %
    assert abs(int(value.argmax()) + 10 - 60) <= 2
    assert float(criterion.gain(value.max(), left[-1])) > 30


def test_the_criterion_is_the_highest_log_likelihood():
    """Of t densities with a location on each side and one scale, less their constant."""
    rng, df = np.random.default_rng(6), 4.0
    y = np.concatenate([rng.standard_t(df, 40), 2 + rng.standard_t(df, 60)])
    leaf = Student(df).informed(torch.from_numpy(y), torch.ones(100))
    left, whole = sums(leaf, y[:40]), sums(leaf, y)

    def highest(*sides):
        def loss(parameters):
            each = zip(sides, parameters[1:], strict=True)
            return -sum(
                stats.t.logpdf(side, df, loc, math.exp(parameters[0])).sum() for side, loc in each
            )

        return -optimize.minimize(loss, np.array([0.0, *map(np.median, sides)])).fun

    found = leaf.criterion.gain(leaf.criterion.split_value(left, whole), whole)
    # rows of a bin share their weight
    assert float(found) == pytest.approx(highest(y[:40], y[40:]) - highest(y), rel=0.02)


@pytest.mark.parametrize(("df", "low", "high"), [(3.0, 2.5, 7.0), (50.0, 10.0, 50.0)])
def test_calibration_tells_heavy_tails_from_light_ones(df, low, high):
    rng = np.random.default_rng(4)
    leaves = [m + 0.5 * rng.standard_t(df, 60) for m in rng.normal(0, 1.5, 25)]
    every = torch.from_numpy(np.concatenate(leaves))
    leaf = Student().informed(every, torch.ones(len(every)))
    found = leaf.calibrate(torch.stack([sums(leaf, y) for y in leaves]))
    assert low <= found.df <= high
    assert math.sqrt(found.rate / found.shape) == pytest.approx(0.5, rel=0.2)
    empty = torch.zeros(2, sums(leaf, leaves[0]).shape[0], dtype=torch.float64)
    again = leaf.calibrate(torch.cat((torch.stack([sums(leaf, y) for y in leaves]), empty)))
    assert again == found


def test_calibration_counts_all_rows_of_a_leaf(monkeypatch):
    """Outliers count for little in the mean and the square, but not in the number of rows."""
    rng, sizes, given = np.random.default_rng(0), [6, 20, 60], []
    monkeypatch.setattr(Gaussian, "calibrate", lambda prior, rows: given.append(rows) or prior)
    leaves = [3 * j + rng.standard_t(4, n) + 30 * (np.arange(n) == 0) for j, n in enumerate(sizes)]
    Student(learn_df=False).calibrate(torch.stack([sums(Student(), y) for y in leaves]))
    count, first, square = given[0].T.numpy()
    np.testing.assert_allclose(count, sizes)
    # four standard errors of the location of a t_4
    assert (np.abs(first / count - [0, 3, 6]) < 4 * np.sqrt(7 / 5 / count)).all()
    assert (square / count - (first / count) ** 2 < 6).all()  # with the outlier, above 15


def test_equal_values_and_huge_ones_are_finite():
    for y in (np.full(50, 3.0), np.append(np.zeros(49), 1e12)):
        leaf = Student().informed(torch.from_numpy(y), torch.ones(50))
        total = sums(leaf, y)[None]
        calibrated = leaf.calibrate(total)
        for value in calibrated.estimate(total).values():
            assert torch.isfinite(value).all()
        gain = leaf.criterion.split_value(total / 2, total)
        assert torch.isfinite(gain).all()


@pytest.mark.parametrize(
    ("bad", "message"), [({"df": 2.0}, "df"), ({"df": math.nan}, "df"), ({"unit": 0.0}, "unit")]
)
def test_bad_parameters_are_rejected(bad, message):
    with pytest.raises(ValueError, match=f"{message} must"):
        Student(**bad)


@pytest.mark.parametrize("share", [0.1, 0.8])
def test_units_do_not_depend_on_outliers(share):
    """Also where most values, and so both quartiles, are equal."""
    rng = np.random.default_rng(5)
    y = np.where(rng.random(2000) < share, 7.0, 7.0 + 2 * rng.normal(size=2000))
    bad = np.where(np.arange(2000) < 3, 1e12, y)
    center, unit = robust_units(bad, np.ones(2000))
    assert (center, unit) == pytest.approx(robust_units(y, np.ones(2000)), rel=0.05)
    if share > 0.5:  # half the values other than 7 are within 0.674 sd: four standard errors
        assert (center, unit) == (7.0, pytest.approx(2.0, rel=4 * 1.17 / np.sqrt(400)))
    assert robust_units(np.full(9, 3.1), np.ones(9)) == (3.1, 1.0)
    assert robust_units(np.append(np.zeros(9), 5.0), np.append(np.ones(9), 0.0)) == (0.0, 1.0)
