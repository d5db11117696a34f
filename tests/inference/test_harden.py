"""The deterministic form of a soft tree: splits that its rows and its draws support."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.harden import harden
from bayestree.models import named
from bayestree.models.leaves import Categorical
from bayestree.topology import Topology

pytestmark = pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
N = 100
X = np.arange(N, dtype=float)[:, None]
LIMITS = GrowthLimits(min_leaf=10, min_gain=0.0)
STUMP = Topology(np.array([[-1, -2]]))
CHAIN = Topology(np.array([[-1, 1], [-2, -3]]))  # the right side of the root is split again


def soft(topology, *draws):
    """An oblique tree x > threshold, with draws of the thresholds; the first is the estimate."""
    thresholds = np.array(draws, dtype=float)
    model = named.oblique(Categorical(2)).with_(topology=topology)
    sites = {
        "hyperplane": torch.ones(topology.n_nodes, 1, 1, dtype=torch.float64),
        "intercept": -torch.as_tensor(thresholds[0])[:, None],
        "leaf_probs": torch.full((topology.n_leaves, 2), 0.5, dtype=torch.float64),
    }
    found = Posterior.from_point(model, sites, "svi")
    drawn = {name: np.repeat(value, len(draws), axis=1) for name, value in found.draws.items()}
    drawn["intercept"] = -thresholds[None, :, :, None]
    return replace(found, draws=drawn)


def kept(posterior, weights=None):
    y = np.arange(N) % 4 > X[:, 0] // 30
    data = Data.of(X, y.astype(np.int64), np.ones(N) if weights is None else weights)
    hard = harden(posterior, data, limits=LIMITS)
    return hard.sources.tolist(), -hard.posterior.point["intercept"][:, 0]


@pytest.mark.parametrize(("threshold", "nodes"), [(8.5, []), (9.5, [0]), (89.5, [0]), (90.5, [])])
def test_a_split_needs_min_leaf_rows_on_each_side(threshold, nodes):
    assert kept(soft(STUMP, [threshold]))[0] == nodes


def test_weights_do_not_replace_rows():
    assert kept(soft(STUMP, [2.5]), weights=np.full(N, 100.0))[0] == []


def test_a_node_with_few_rows_on_a_side_gives_way_to_the_other_child():
    nodes, thresholds = kept(soft(CHAIN, [2.5, 50.5]))
    assert nodes == [1]
    np.testing.assert_allclose(thresholds, [50.5])


def test_rows_of_a_removed_side_count_in_the_other():
    # 8 rows at 12 .. 19 are too few, but 3 others join them
    assert kept(soft(CHAIN, [11.5, 19.5]))[0] == [0]
    assert kept(soft(CHAIN, [2.5, 10.5]))[0] == [1]


@pytest.mark.parametrize(("n_outside", "nodes"), [(3, [0]), (5, [0]), (6, [])])
def test_a_split_needs_half_of_the_draws(n_outside, nodes):
    draws = [[50.5]] * (10 - n_outside) + [[200.0]] * n_outside
    assert kept(soft(STUMP, *draws))[0] == nodes


def test_draws_must_separate_enough_rows():
    assert kept(soft(STUMP, [50.5], [2.5], [95.5]))[0] == []
