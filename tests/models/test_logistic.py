"""The criterion by which trees with logistic leaves grow."""

import numpy as np
import pytest
import torch
from scipy.special import entr, expit

from bayestree.models import Logistic
from bayestree.models.leaves.logistic import Discrimination, class_products


@pytest.mark.parametrize("share", [0.5, 0.35, 0.2, 0.1, 0.03])
def test_information_of_two_normal_classes(share):
    distance = np.array([0.3, 1.0, 2.0, 2.5, 3.0, 4.0, 6.0])
    x = np.linspace(-10, 18, 8001)[:, None]
    density = [np.exp(-((x - shift) ** 2) / 2) / np.sqrt(2 * np.pi) for shift in (0.0, distance)]
    both = (1 - share) * density[0] + share * density[1]
    p = expit(distance * x - distance**2 / 2 + np.log(share / (1 - share)))
    entropy = entr(share) + entr(1 - share)
    exact = entropy - np.trapezoid(both * (entr(p) + entr(1 - p)), x, axis=0)
    # a million rows of such classes, by their sums of 1, x and x^2
    first = np.array([[[1 - share, 0.0], [share, share * one]] for one in distance])
    square = 1 + share * distance**2
    ones, rows = np.ones(len(distance)), 1e6
    sums = np.column_stack((first.reshape(len(distance), -1), ones, first[:, 1, 1], square))
    value = Discrimination(2).value(torch.as_tensor(rows * sums)).numpy()
    found = (value + 2) / rows + entropy  # without the price of two coefficients
    assert found / exact == pytest.approx(1, abs=0.07 if share >= 0.2 else 0.14)


@pytest.mark.parametrize("n", [12, 30, 1000])
def test_a_coefficient_costs_more_where_rows_are_few(n):
    """Classes of equal features: minus the entropy, and n k / (n - k - 1) for k coefficients."""
    rows = np.tile([[-1.0, 0.5], [1.0, -0.5], [0.0, 1.0]], (n // 3, 1))
    y = np.column_stack((np.repeat([0, 1, 2], len(rows)), np.tile(rows, (3, 1))))
    weights = torch.full((len(y),), n / len(y)).double()
    sums = class_products(torch.as_tensor(y), weights, 3).sum(0)
    spare = {12: 5, 30: 23, 1000: 993}[n]
    expected = -n * np.log(3) - 6 * n / spare
    assert float(Discrimination(3).value(sums)) == pytest.approx(expected, rel=1e-6)
    # fewer rows than coefficients: the price of one degree of freedom
    few = float(Discrimination(3).value(sums * 5 / n))
    assert few == pytest.approx(-5 * np.log(3) - 6 * 8, rel=1e-6)


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
    assert found.slope_scale == pytest.approx(slope_scale, rel=allowed)
