"""Growth and EM of trees whose splits are networks."""

import pytest
import torch
from torch import nn

from bayestree.inference import Data, GrowthLimits, Posterior, em, grow, harden, svi
from bayestree.inference import map as fit_map
from bayestree.literature._em_stumps import EndToEndSplitter
from bayestree.models import Categorical, Gaussian, Network, named
from bayestree.topology import Topology
from tests.inference.problems import normal, quadrants, step


def linear(n_features):
    return nn.Linear(n_features, 1)


def perceptron(n_features):
    return nn.Sequential(nn.Linear(n_features, 6), nn.Tanh(), nn.Linear(6, 1))


def strip(n=200, seed=0):
    """Class 1 outside a strip: no line parts the classes."""
    X = normal(n, 2, seed=seed)
    return Data.of(X, (X[:, 0].abs() > 0.7).long())


def splitter(model, **others):
    settings = {"epochs": 30, "steepness": 5.0, "learning_rate": 0.02, "batch_size": 50}
    return EndToEndSplitter(model.split, model.leaf, model.priors, **settings | others)


@pytest.mark.parametrize("leaf", [Categorical(2), Gaussian()])
@pytest.mark.parametrize("steepness", [1.0, 5.0])  # steeper, EM magnifies rounding
def test_em_of_linear_layers_is_that_of_oblique_splits(leaf, steepness):
    data = quadrants() if isinstance(leaf, Categorical) else step()
    oblique = named.end_to_end(leaf).with_(topology=Topology.complete(2))
    plane, offset = normal(3, 1, 2, seed=1), normal(3, 1, seed=2)
    leaves = leaf.estimate(leaf.statistics(data.y, data.weights)[:4])
    network = oblique.with_(split=Network(linear))
    starts = (
        (oblique, {"hyperplane": plane, "intercept": offset}),
        (network, {"network.weight": plane, "network.bias": offset}),
    )
    one, other = (
        em(
            model,
            data,
            init=Posterior.from_point(model, sites | leaves, "start"),
            epochs=5,
            steepness=steepness,
            batch_size=100,
            learning_rate=0.01,
            random_state=0,
        )
        for model, sites in starts
    )
    found = torch.as_tensor(other.point["network.weight"])
    torch.testing.assert_close(found, torch.as_tensor(one.point["hyperplane"]))
    assert (found - plane).abs().max() > 0.01
    for name in leaf.sites:
        torch.testing.assert_close(
            torch.as_tensor(other.point[name]), torch.as_tensor(one.point[name])
        )
    torch.testing.assert_close(
        torch.as_tensor(other.stats["log_likelihood"]), torch.as_tensor(one.stats["log_likelihood"])
    )


@pytest.mark.portable
def test_one_network_does_what_no_line_does():
    """Uses the best of several starts, because some end in the optimum of a line."""
    data = strip()
    gains = {"line": [], "network": []}
    for name, split in (("line", None), ("network", Network(perceptron))):
        model = named.end_to_end(Categorical(2), split=split)
        for seed in range(6):
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                (found,) = splitter(model)(data, [torch.arange(len(data.X))])
            gains[name].append(found.gain)
            odds = model.split.log_odds({k: v[None] for k, v in found.sites.items()}, data.X)[:, 0]
            assert torch.equal(found.right, odds > 0)
    assert max(gains["network"]) > 2 * max(gains["line"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_best_first_growth_splits_the_rows_of_each_node(dtype):
    data = quadrants()
    data = Data.of(data.X, data.y, dtype=dtype)
    model = named.end_to_end(Categorical(2), split=Network(linear))
    limits = GrowthLimits(max_depth=5, max_leaves=4, min_gain=1.0)
    found = grow(model, data, splitter=splitter(model), order="best", limits=limits, random_state=0)
    topology = found.model.topology
    assert topology.n_leaves == 4
    sites = found.point_sites()
    assert {value.dtype for value in sites.values()} == {dtype}
    assert sites["network.weight"].shape == (3, 1, 2)
    right = (model.split.log_odds(sites, data.X) > 0).numpy()
    at = torch.zeros(len(data.X), 4, dtype=torch.float64)
    for n, sides in enumerate(right):
        node = 0
        while node >= 0:
            node = int(topology.children[node, int(sides[node])])
        at[n, ~node] = 1
    expected = model.leaf.estimate(at.T @ model.leaf.statistics(data.y, data.weights).double())
    torch.testing.assert_close(sites["leaf_probs"].double(), expected["leaf_probs"])


@pytest.mark.portable
def test_em_raises_the_likelihood_of_a_grown_tree():
    data = strip()
    model = named.end_to_end(Categorical(2), split=Network(perceptron))
    grown = grow(
        model,
        data,
        splitter=splitter(model, epochs=3),
        limits=GrowthLimits(max_depth=2, min_gain=0.0),
        random_state=0,
    )
    assert grown.model.topology.n_nodes
    better = em(
        grown.model, data, init=grown, epochs=30, steepness_step=0.0, learning_rate=0.01,
        random_state=0,
    )  # fmt: skip
    trace = better.stats["log_likelihood"]
    assert trace[-1] > trace[0]


@pytest.mark.parametrize(
    "fit",
    [
        lambda data, start: grow(start.model, data),
        lambda data, start: fit_map(start.model, data, init=start),
        lambda data, start: svi(start.model, data, init=start),
        lambda data, start: harden(start, data, limits=GrowthLimits()),
    ],
    ids=["grow", "map", "svi", "harden"],
)
@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_what_moves_hyperplanes_refuses_networks(fit):
    data = strip(40)
    model = named.end_to_end(Categorical(2), split=Network(linear))
    start = grow(model, data, splitter=splitter(model, epochs=1), random_state=0)
    with pytest.raises(TypeError, match="fits hyperplanes, but the model's split is Network"):
        fit(data, start)
