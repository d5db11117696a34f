"""The criterion by which trees with logistic leaves grow."""

import numpy as np
import pytest
import torch
from scipy.special import entr, expit

from bayestree.models.logistic import Discrimination


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
