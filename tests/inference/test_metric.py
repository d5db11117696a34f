"""Whitened coordinates for samplers, and estimates of a precision from gradients."""

import math

import numpy as np
import pytest

from bayestree.inference.metric import Information, Precision, Whitening, expert_blocks
from bayestree.inference.potential import Layout
from bayestree.models import Categorical, Polytope, SoftTree
from bayestree.topology import Topology

BLOCKS = np.array([[0, 2], [4, 3]])
PRECISION = np.array(
    [
        [3.0, 0.0, 1.2, 0.0, 0.0],
        [0.0, 2.0, 0.0, 0.0, 0.0],
        [1.2, 0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 4.0, -1.5],
        [0.0, 0.0, 0.0, -1.5, 0.8],
    ]
)


def blocks_of(matrix):
    return np.stack([matrix[np.ix_(own, own)] for own in BLOCKS])


def whitening(curvature=None):
    precision = Precision(np.diag(PRECISION).copy(), blocks_of(PRECISION))
    return Whitening(precision, BLOCKS, np.zeros(5) if curvature is None else curvature)


class TestWhitening:
    @pytest.mark.parametrize("curvature", [np.zeros(5), np.array([0.0, 1.0, 5.0, 2.0, 1e20])])
    def test_makes_the_precision_one(self, curvature):
        change = whitening(curvature)
        out = np.stack([change.position(unit) for unit in np.eye(5)], axis=1)
        # what the data say nothing of counts for a thousandth, in blocks besides what is known
        floor = np.where(np.isin(np.arange(5), BLOCKS), 1e-3, 0.0)
        whole = PRECISION + np.diag(curvature + floor)
        np.testing.assert_allclose(out.T @ whole @ out, np.eye(5), atol=1e-9)

    def test_goes_there_and_back(self):
        vector, change = np.random.default_rng(0).normal(size=5), whitening()
        np.testing.assert_allclose(change.white(change.position(vector)), vector, rtol=1e-12)

    def test_gradient_is_that_of_the_new_coordinates(self):
        rng, change = np.random.default_rng(0), whitening()
        slope, white = rng.normal(size=5), rng.normal(size=5)
        step = 1e-6 * np.eye(5)
        numeric = [
            (slope @ change.position(white + h) - slope @ change.position(white - h)) / 2e-6
            for h in step
        ]
        np.testing.assert_allclose(change.gradient(slope), numeric, rtol=1e-6, atol=1e-9)

    def test_without_blocks_scales_alone(self):
        none = np.empty((0, 0), dtype=np.int64)
        change = Whitening(Precision(np.array([4.0, 0.0]), np.empty((0, 0, 0))), none, np.zeros(2))
        np.testing.assert_allclose(change.position(np.ones(2)), [0.5, 1 / math.sqrt(1e-3)])


class TestInformation:
    def test_guess_counts_for_five_and_in_blocks_for_the_width_more(self):
        guess = Precision(np.full(5, 10.0), np.tile(np.eye(2), (2, 1, 1)))
        information = Information(BLOCKS, guess)
        for have, given in zip(information.estimate, guess, strict=True):
            np.testing.assert_array_equal(have, given)
        for _ in range(15):
            information.add(np.array([2.0, 0.0, 1.0, 0.0, 0.0]))
        found = information.estimate
        np.testing.assert_allclose(found.squares, [5.5, 2.5, 3.25, 2.5, 2.5])
        first = (15 * np.array([[4.0, 2.0], [2.0, 1.0]]) + 7 * np.eye(2)) / 22
        np.testing.assert_allclose(found.products, [first, 7 / 22 * np.eye(2)])

    def test_of_a_normal_law_is_its_precision(self):
        rng, n = np.random.default_rng(0), 20_000
        gradients = -rng.multivariate_normal(np.zeros(5), np.linalg.inv(PRECISION), n) @ PRECISION
        found = Information.of(gradients, BLOCKS)
        # a mean of products of normal variables of unit scale errs by sqrt(2 / n) at most
        slack = 4 * math.sqrt(2 / n) + 10 / n
        scale = np.sqrt(np.diag(PRECISION))
        np.testing.assert_allclose(found.squares / scale**2, 1, atol=slack)
        for have, given, own in zip(found.products, blocks_of(PRECISION), BLOCKS, strict=True):
            unit = np.outer(scale[own], scale[own])
            np.testing.assert_allclose(have / unit, given / unit, atol=slack)


@pytest.mark.parametrize(("n_features", "n_blocks"), [(2, 6), (63, 6), (64, 0)])
def test_blocks_are_the_coefficients_of_each_expert(n_features, n_blocks):
    model = SoftTree(Topology.complete(1), Polytope(6), leaf=Categorical(2))
    layout = Layout(model, n_features)
    blocks = expert_blocks(layout)
    assert len(blocks) == n_blocks
    vector = np.zeros(layout.length)
    for expert, places in enumerate(blocks):
        vector[places] = expert + 1
    free = layout.free(vector)
    if n_blocks:
        expected = np.arange(1, 7) * np.ones((1, 6))
        np.testing.assert_array_equal(free["intercept"], expected)
        assert (free["hyperplane"] == expected[..., None]).all()
    assert np.count_nonzero(vector) == n_blocks * (n_features + 1)
