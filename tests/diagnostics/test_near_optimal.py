"""Which trees count as the same."""

import numpy as np
import pytest

from bayestree.fitting.projection.path import same_leaves


def test_leaves_correspond_whatever_their_numbers():
    one = np.array([0, 0, 1, 1, 2, 2])
    assert same_leaves(one, np.array([2, 2, 0, 0, 1, 1]), np.ones(6)) == 1.0
    assert same_leaves(one, np.array([2, 2, 0, 0, 1, 0]), np.ones(6)) == pytest.approx(5 / 6)


def test_a_leaf_has_one_partner_and_rows_have_weights():
    """Of the two leaves in which the larger tree divides the rows, one has no partner."""
    whole, halves = np.zeros(4, dtype=int), np.array([0, 0, 0, 1])
    assert same_leaves(whole, halves, np.ones(4)) == 0.75
    assert same_leaves(halves, whole, np.array([1.0, 1.0, 1.0, 27.0])) == 0.9
