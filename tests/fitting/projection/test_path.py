"""How sparse trees are compared: rows without themselves, and the error of what they lose."""

import numpy as np
import pytest
import torch

from bayestree.fitting.projection.path import Reference, _Search
from bayestree.inference import Data
from bayestree.models import Categorical, Gaussian

PLACE = np.array([0, 0, 0, 1, 1, 0, 1])  # leaves of the rows
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 1.0])


def reference_of(leaf, y, rows=slice(None)):
    """The reference whose predictions are y itself."""
    y, weights = y[rows], WEIGHTS[rows]
    data = Data.of(np.zeros((len(y), 1)), y, weights)
    return Reference(leaf, data, data.y, np.ones((1, len(y))))


@pytest.mark.parametrize(
    ("leaf", "y"),
    [
        (Categorical(2), np.array([0, 1, 1, 0, 0, 1, 1])),
        (Gaussian(), np.array([0.3, -1.2, 0.8, 2.0, 1.1, -0.4, 0.1])),
    ],
    ids=["classes", "numbers"],
)
def test_a_row_is_left_out_of_its_leaf(leaf, y):
    """As in leaves that were estimated anew from the other rows."""
    found = reference_of(leaf, y).log_density(PLACE, 2)
    for row in range(len(y)):
        others = np.arange(len(y)) != row
        sites = reference_of(leaf, y, others).estimate(PLACE[others], 2)
        own = torch.as_tensor(y[[row]])
        expected = leaf.log_density(sites, own)[0, PLACE[row]]
        assert found[row] == pytest.approx(float(expected), rel=1e-9)


def test_a_row_is_left_out_by_hand():
    """In the left leaf, 2 + .5 + 1 of the weights have the second class, and 1 the first."""
    found = reference_of(Categorical(2), np.array([0, 1, 1, 0, 0, 1, 1])).log_density(PLACE, 2)
    # half a row of each class is the prior
    expected = [0.5 / 4.5, 2.0 / 3.5, 3.5 / 5.0, 3.5 / 5.0, 1.5 / 3.0, 3.0 / 4.5, 0.5 / 5.0]
    np.testing.assert_allclose(np.exp(found), expected)


@pytest.mark.parametrize("n", [2, 10, 1000])
def test_the_loss_of_a_single_row_is_within_its_error(n):
    """Another row may be like the one that differs most, so that it proves nothing."""
    search = _Search(None, (), None, np.zeros((n, 1)), np.ones(n))
    lost = np.append(np.zeros(n - 1), 2.0)
    mean, error = search._mean(lost)
    assert mean == pytest.approx(2 / n)
    assert error > mean
    # of the rows themselves, and of one that is 2 off
    assert error**2 == pytest.approx(lost.var() / n + (2 / n) ** 2)


def test_losses_count_by_the_weights_of_the_rows():
    """Of rows of the shares 3/5, 1/5, 1/5, the last loses 2 nats, and a further one is missing."""
    search = _Search(None, (), None, np.zeros((4, 1)), np.array([3.0, 1.0, 7.0, 1.0]))
    mean, error = search._mean(np.array([0.0, 0.0, np.nan, 2.0]))
    assert mean == pytest.approx(0.4)
    assert error**2 == pytest.approx((9 * 0.16 + 0.16 + 1.6**2) / 25 + 0.4**2)
