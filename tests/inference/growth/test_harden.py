"""The deterministic form of a soft tree: splits that its rows and its draws support.

And soft trees without the nodes and experts that it does not need.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bayestree import ConvexPolytopeTreeClassifier, inference
from bayestree._utils.monte_carlo import ess
from bayestree.inference import Data, GrowthLimits, Nuts, Posterior, Svi
from bayestree.inference.growth.harden import MIN_EXPERTS, harden, without_idle
from bayestree.models import (
    Categorical,
    Polytope,
    SoftTree,
    named,
)
from bayestree.topology import Topology

pytestmark = pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
N = 100
X = np.arange(N, dtype=float)[:, None]
LIMITS = GrowthLimits(min_leaf=10, min_gain=0.0)
STUMP = Topology(np.array([[-1, -2]]))
MANY, ACTIVE = 200, 7  # rows, and the number of the only useful expert of every node
# The root splits by x0; its left child needs no split, its right child splits by x1.
TOPOLOGY = Topology([[1, 2], [~0, ~1], [~2, ~3]])
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


def test_of_many_rows_some_are_asked_for_the_same_share():
    """15 rows of 5,000 are to the right, and five of every third row."""
    rows = np.arange(5000.0)[:, None]
    data = Data.of(rows, np.arange(5000) > 2000)
    assert harden(soft(STUMP, [4984.5]), data, limits=LIMITS).sources.tolist() == [0]


def data(*, noise=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(MANY, 2))
    y = np.where(X[:, 0] > 0, np.where(X[:, 1] > 0, 2, 1), 0)
    return Data.of(X, rng.integers(0, 3, MANY) if noise else y)


def fitted():
    """Two draws, of which the first is the point estimate."""
    model = SoftTree(TOPOLOGY, Polytope(12), leaf=Categorical(3), steepness=4.0)
    rng = np.random.default_rng(1)
    plane = 0.1 * rng.normal(size=(2, 3, 12, 2))
    plane[:, :, ACTIVE] = [[20.0, 0.0], [1.0, 1.0], [0.0, 20.0]]
    log_weight = np.full((2, 3, 12), -9.0)
    log_weight[:, :, ACTIVE] = [0.0, -9.0, 0.0]
    draws = {
        "hyperplane": plane,
        "intercept": 0.1 * rng.normal(size=(2, 3, 12)),
        "log_weight": log_weight,
        "shrinkage": rng.gamma(1.0, size=(2, 3, 12)),
        "leaf_probs": np.tile([[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]],
                              (2, 1, 1)),
    }  # fmt: skip
    draws["intercept"][:, :, ACTIVE] = 0.0
    chain = {name: value[None] for name, value in draws.items()}
    return Posterior(model, chain, {name: value[0].copy() for name, value in draws.items()}, "svi")


def test_the_parts_in_use_remain():
    found, rows = fitted(), data()
    kept = without_idle(found, rows)
    assert kept.model.topology == Topology([[~0, 1], [~1, ~2]])
    assert kept.model.split == Polytope(MIN_EXPERTS)
    assert kept.draws["hyperplane"].shape == (1, 2, 2, MIN_EXPERTS, 2)
    assert kept.point["leaf_probs"].shape == (3, 3)
    for site, values in kept.draws.items():
        assert values.shape[2:] == kept.point[site].shape, site
    # the useful experts of the root and its right child are among them, in their order
    for place, node in enumerate((0, 2)):
        own = kept.draws["hyperplane"][0, :, place]
        at = np.argmax(kept.point["log_weight"][place])
        np.testing.assert_array_equal(own[:, at], found.draws["hyperplane"][0, :, node, ACTIVE])
    # leaves of the removed node are replaced by the one that received more rows
    X = rows.X.numpy()
    for draw in range(2):
        one, two = (
            part.leaf_probs(X, part.sites(0, draw)) @ part.draws["leaf_probs"][0, draw]
            for part in (found, kept)
        )
        assert np.abs(one - two).max() < 0.11  # leaves of .8 and .7


@pytest.mark.parametrize(("weight", "leaf"), [(1.0, 1), (2.0, 2)])
def test_the_side_of_more_weight_replaces_a_node(weight, leaf):
    """Of the 49 rows on the right of the root, the idle node parts 24 of this weight."""
    found = soft(CHAIN, [50.5, 75.5])
    found.point["leaf_probs"][...] = [[0.9, 0.1], [0.2, 0.8], [0.1, 0.9]]
    rows = Data.of(X, (X[:, 0] > 50).astype(int), np.where(X[:, 0] > 75, weight, 1.0))
    kept = without_idle(found, rows).point["leaf_probs"]
    np.testing.assert_array_equal(kept, found.point["leaf_probs"][[0, leaf]])


def test_the_number_of_experts_follows_the_facets_in_use():
    found, rows = fitted(), data()
    log_weight = found.point["log_weight"]
    for n_more, expected in ((1, 4), (2, 6), (4, 10), (9, 12)):
        # copies of the useful expert of the root are facets in use
        for site in ("hyperplane", "intercept"):
            found.point[site][0, :n_more] = found.point[site][0, ACTIVE]
        log_weight[0, :n_more] = 0.0
        assert without_idle(found, rows).model.split.n_experts == expected


def test_a_tree_that_needs_no_node_stays():
    found = fitted()
    assert without_idle(found, data(noise=True)) is found


def test_an_estimator_samples_what_it_needs():
    rows = data()
    sampler = Nuts(n_chains=1, n_warmup=5, n_draws=5, thinning=4, drop_idle=True)
    stages = [Svi(epochs=100), sampler]
    clf = ConvexPolytopeTreeClassifier(inference=stages, max_depth=3, random_state=0)
    clf.fit(rows.X.numpy(), rows.y.numpy())
    n_experts = clf.posterior_.model.split.n_experts
    assert n_experts < clf.plan_.n_experts
    assert clf.posterior_.settings["drop_idle"]
    assert clf.posterior_.draws["log_weight"].shape[2] == clf.posterior_.model.topology.n_nodes
    # a fit that continues starts with the experts that remained, and may drop more
    again = clf.set_params(warm_start=True, random_state=1).fit(rows.X.numpy(), rows.y.numpy())
    assert MIN_EXPERTS <= again.posterior_.model.split.n_experts <= n_experts


@pytest.mark.statistical
def test_predictions_are_those_of_the_whole_model():
    """Fewer experts truncate the same process earlier: means agree to a hundredth."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(150, 2))
    rows = Data.of(X, (np.abs(X).max(1) < 0.6).astype(int) ^ (rng.random(150) < 0.05))
    model = SoftTree(Topology.leaf(), Polytope(12), leaf=Categorical(2))
    grown = inference.grow(model, rows, limits=GrowthLimits(1, min_gain=0.0), random_state=0)
    start = inference.svi(grown.model, rows, init=grown, epochs=500, random_state=0)
    places = rng.uniform(-1, 1, size=(12, 2))
    means, errors = [], []
    for drop_idle in (False, True):
        found = inference.nuts(
            grown.model, rows, init=start, n_draws=1000, drop_idle=drop_idle, random_state=0
        )
        said = [found.leaf_probs(places, s) @ s["leaf_probs"].numpy()[:, 1] for s in found.each()]
        values = np.reshape(said, (4, 1000, len(places)))
        means.append(values.mean((0, 1)))
        errors.append([v.std() / np.sqrt(ess(v, "mean")) for v in np.moveaxis(values, 2, 0)])
    assert (np.abs(means[0] - means[1]) < 0.02 + 4 * np.hypot(*errors)).all()
