"""Nodes of draws are matched by where they send the rows, whatever their numbers and sides."""

import numpy as np
import pytest

from bayestree.diagnostics.draws import Matches, match
from bayestree.diagnostics.uncertainty import Other, Splits, split_uncertainty
from bayestree.topology import Topology

X = np.random.default_rng(0).normal(size=(200, 2))
RIGHT = X > 0  # node 0 asks for the first column, node 1 for the second
EVERYWHERE = np.ones_like(RIGHT)


def draws(*order, sharpness=20.0):
    """One draw whose nodes ask for these columns, of negative numbers with exchanged sides."""
    plane = np.zeros((1, 1, len(order), 1, 2))
    for node, column in enumerate(order):
        plane[0, 0, node, 0, abs(column) - 1] = sharpness * np.sign(column)
    return {
        "hyperplane": plane,
        "intercept": np.zeros((1, 1, len(order), 1)),
        "log_weight": np.zeros((1, 1, len(order), 1)),
    }


@pytest.mark.parametrize(
    ("order", "node", "exchanged"),
    [
        ((1, 2), (0, 1), (False, False)),
        ((2, 1), (1, 0), (False, False)),
        ((-2, 1), (1, 0), (False, True)),
        ((2, -1, 2), (1, 0), (True, False)),
    ],
)
def test_numbers_and_sides(order, node, exchanged):
    found = match(draws(*order), X, RIGHT, EVERYWHERE)
    assert tuple(found.node[0, 0]) == node
    assert tuple(found.exchanged[0, 0]) == exchanged
    assert found.alike.all()
    own = found.of_nodes(draws(*order))["hyperplane"][0, 0, :, 0]
    np.testing.assert_array_equal(
        np.sign(own), [[1, 0], [0, 1]] * (1 - 2 * np.array([exchanged]).T)
    )


def test_only_rows_that_reach_a_node_count():
    reached = EVERYWHERE.copy()
    reached[:, 1] = X[:, 0] > 1
    other = RIGHT.copy()
    other[~reached[:, 1], 1] = ~RIGHT[~reached[:, 1], 1]
    found = match(draws(1, 2), X, other, reached)
    assert found.node[0, 0, 1] == 1
    np.testing.assert_allclose(found.agreement[0, 0, 1], 1.0)


def test_a_draw_without_the_node_is_not_alike():
    found = match(draws(2), X, RIGHT[:, :1], EVERYWHERE[:, :1])
    assert not found.alike.any()


class TestSplitUncertainty:
    topology = Topology.stump()

    def found(self, own, *others):
        right, reached = RIGHT[:, :1], EVERYWHERE[:, :1]
        given = [
            Other(one, 1.0, match(one, X, right, reached), w, np.zeros(one["intercept"].size, int))
            for one, w in others
        ]
        splits = Splits(self.topology, match(own, X, right, reached))
        return split_uncertainty(
            own, X, right, topology=self.topology, splits=splits, others=given, weight=0.5
        )

    def test_mirrored_draws_say_the_same(self):
        # a half-space and its complement differ in the curvature of P(right), not at the border
        plain, flipped = self.found(draws(1)), self.found(draws(-1))
        assert (plain.outside == flipped.outside).all()
        far = np.abs(X[:, 0]) > 0.3
        np.testing.assert_allclose(plain.mean[far], flipped.mean[far], atol=0.01)

    def test_draws_of_other_trees_count_by_their_weights(self):
        alone, other = self.found(draws(1)), self.found(draws(1, sharpness=1.0))
        mixed = self.found(draws(1), (draws(1, sharpness=1.0), 0.25))
        np.testing.assert_allclose(mixed.mean, (2 * alone.mean + other.mean) / 3)
        both = np.stack([alone.mean[:, 0], other.mean[:, 0]])
        np.testing.assert_allclose(mixed.interval[:, 0], np.sort(both, axis=0).T)

    def test_intervals_of_two_trees_are_those_of_two_chains(self):
        each = [[draws(1, sharpness=k + i / 50) for i in range(20)] for k in (1, 4)]
        one, other = (
            {name: np.concatenate([draw[name] for draw in own], axis=1) for name in own[0]}
            for own in each
        )
        both = {name: np.concatenate((one[name], other[name])) for name in one}
        mixed = self.found(one, (other, 0.5))
        np.testing.assert_allclose(mixed.interval, self.found(both).interval)

    def test_draws_without_the_node_do_not_count(self):
        mixed = self.found(draws(1), (draws(2), 0.5))
        np.testing.assert_allclose(mixed.mean, self.found(draws(1)).mean)


def test_fixed_numbers():
    found = Matches.fixed(np.array([2, 0]), draws(1, 2, 2))
    assert found.node.shape == (1, 1, 2)
    np.testing.assert_array_equal(found.node[0, 0], [2, 0])
    assert found.alike.all()
    assert not found.exchanged.any()
