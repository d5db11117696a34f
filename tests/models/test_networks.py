import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import Adam  # type: ignore[attr-defined]
from torch import nn

from bayestree import export_text, plots
from bayestree.models import Categorical, Flat, Network, Oblique, Priors, SmallConvNet, SoftTree
from bayestree.models.priors.base import Lengths
from bayestree.topology import Topology
from tests.models.cases import FITS, TOPOLOGIES, make, rows, traced
from tests.strategies import path_of, seeds, topologies


def linear(n_features):
    return nn.Linear(n_features, 1)


def two_layers(n_features):
    return nn.Sequential(nn.Linear(n_features, 3), nn.Tanh(), nn.Linear(3, 1), nn.Flatten(0))


def started(split, n_nodes, X, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return split.start(n_nodes, X.shape[-1], X)


def as_network(sites):
    """The sites of an oblique tree under the names of a network of one linear layer."""
    return {
        "network.weight": sites["hyperplane"],
        "network.bias": sites["intercept"],
        **{name: value for name, value in sites.items() if name.startswith("leaf")},
    }


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("fit", FITS)
def test_one_linear_layer_is_the_oblique_split(topology, fit):
    oblique = make(topology, Oblique(), hyperplane="flat", fit=fit, steepness=2.0)
    network = oblique.with_(split=Network(linear))
    X, y, weights = rows(oblique, weighted=True)
    _, sites = traced(oblique, X, y)
    same = as_network(sites)
    for ours, theirs in (
        (network.scores(same, X), oblique.scores(sites, X)),
        (network.split.log_odds(same, X), oblique.split.log_odds(sites, X)),
        (network.leaf_log_probs(same, X), oblique.leaf_log_probs(sites, X)),
        (network.log_joint(same, X, y, weights), oblique.log_joint(sites, X, y, weights)),
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_log_odds_are_those_worked_out_by_hand():
    split = Network(two_layers)
    sites = {
        "network.0.weight": torch.tensor([[[1.0], [0.0], [-1.0]], [[0.0], [0.0], [0.0]]]),
        "network.0.bias": torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]]),
        "network.2.weight": torch.tensor([[[1.0, 2.0, 0.0]], [[-1.0, 5.0, 5.0]]]),
        "network.2.bias": torch.tensor([[0.5], [0.0]]),
    }
    X = torch.tensor([[0.3], [-2.0]])
    second = -math.tanh(2.0)
    expected = [
        [math.tanh(0.3) + 2 * math.tanh(1.0) + 0.5, second],
        [math.tanh(-2.0) + 2 * math.tanh(1.0) + 0.5, second],
    ]
    torch.testing.assert_close(split.log_odds(sites, X), torch.tensor(expected))
    own = split.node_log_odds(sites, torch.stack((X[:1], X[1:])))
    torch.testing.assert_close(own, torch.tensor([[expected[0][0]], [expected[1][1]]]))
    # q = 1 - exp(-s) is logistic in f, and s = log 2 where f = 0
    q = -torch.expm1(-split.scores(sites, X))
    torch.testing.assert_close(q, torch.tensor(expected).sigmoid())


@pytest.mark.parametrize("fit", FITS)
def test_log_joint_is_what_the_pyro_model_sums_to(fit):
    model = make(split=Network(two_layers), fit=fit)
    X, y, weights = rows(model, weighted=True)
    trace, sites = traced(model, X, y, weights)
    size = model.size(2)
    for name, shape in model.split.shapes(size).items():
        assert sites[name].shape == shape
    assert model.split.parameters(sites) == tuple(model.split.shapes(size))
    expected = float(trace.log_prob_sum())
    assert float(model.log_joint(sites, X, y, weights)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.portable
def test_pyro_fits_a_network_that_no_hyperplane_replaces():
    X = torch.linspace(-2, 2, 64, dtype=torch.float64).unsqueeze(1)
    y = (X[:, 0].abs() > 1).long()
    model = SoftTree(TOPOLOGIES["stump"], Network(two_layers), Priors(), Categorical(2))
    guide = AutoNormal(model, init_scale=0.01)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        svi = SVI(model, guide, Adam({"lr": 0.05}), Trace_ELBO())
        losses = [svi.step(X, y) for _ in range(400)]
    # The best hyperplane leaves 48 rows of which a third are of the other class.
    hyperplane = 48 * math.log(3) - 32 * math.log(2)
    assert sum(losses[-20:]) / 20 < 0.8 * hyperplane


def test_gradients_reach_every_parameter_of_every_node():
    split = Network(two_layers)
    X = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    sites = {name: value.requires_grad_() for name, value in started(split, 3, X).items()}
    split.scores(sites, X).sum().backward()
    for value in sites.values():
        assert (value.grad.flatten(1) != 0).any(1).all()


def test_more_rows_than_pass_at_a_time_and_none():
    split = Network(two_layers)
    X = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
    sites = started(split, 2, X)
    alone = torch.cat([split.log_odds(sites, row.unsqueeze(0)) for row in X])
    torch.testing.assert_close(split.log_odds(sites, X), alone)
    assert split.log_odds(sites, X[:0]).shape == (0, 2)
    assert split.log_odds(sites, X[:0], torch.ones(0, 2) == 1).shape == (0, 2)
    none = started(split, 0, X)
    assert split.log_odds(none, X, torch.ones(600, 0) == 1).shape == (600, 0)
    assert split.scores(started(split, 0, X), X).shape == (600, 0)


def test_networks_see_only_the_rows_that_are_asked_for():
    seen = []

    class Counting(nn.Linear):
        def forward(self, x):
            seen.append(len(x))
            return super().forward(x)

    split = Network(lambda d: Counting(d, 1))
    X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    sites = started(split, 3, X)
    every = split.log_odds(sites, X)
    asked = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]]) == 1
    seen.clear()
    found = split.log_odds(sites, X, asked)
    assert seen == [6, 2]
    torch.testing.assert_close(found, torch.where(asked, every, torch.zeros(())))


def test_starts_are_the_draws_of_the_layers():
    split = Network(linear)
    X = torch.zeros(1, 4, dtype=torch.float64)
    split.shapes(Lengths(1, 1, 4, 2))  # that a module was made for its shapes must not be seen
    sites = started(split, 2, X, seed=7)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        expected = [nn.Linear(4, 1) for _ in range(2)]
    for node, module in enumerate(expected):
        assert torch.equal(sites["network.weight"][node], module.weight.double())
        assert torch.equal(sites["network.bias"][node], module.bias.double())


def test_scores_leave_the_generator_alone():
    state = torch.random.get_rng_state()
    split = Network(lambda n_features: nn.Linear(n_features, 1))
    X = torch.zeros(3, 2)
    sites = {"network.weight": torch.zeros(1, 1, 2), "network.bias": torch.zeros(1, 1)}
    split.scores(sites, X)
    assert torch.equal(torch.random.get_rng_state(), state)


class Meeting(nn.Linear):
    """A layer in which, where there is a barrier, two threads are at the same time."""

    barrier = None

    def forward(self, x):
        if self.barrier is None:
            return super().forward(x)
        self.barrier.wait(timeout=30)
        found = super().forward(x)
        self.barrier.wait(timeout=30)
        return found


def test_threads_do_not_see_each_others_parameters(monkeypatch):
    split = Network(lambda d: Meeting(d, 1))
    X = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    cases = [started(split, 1, X, seed) for seed in range(2)]
    expected = [split.log_odds(sites, X) for sites in cases]
    monkeypatch.setattr(Meeting, "barrier", threading.Barrier(2))
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda sites: split.log_odds(sites, X), cases))
    assert not torch.equal(*expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


class Noisy(nn.Linear):
    def forward(self, x):
        return super().forward(x) + torch.rand(len(x), 1)


class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


class Centred(nn.Linear):
    def forward(self, x):
        return super().forward(x - x.mean(0))


def frozen(n_features):
    module = nn.Linear(n_features, 1)
    module.bias.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("build", "error", "match"),
    [
        (lambda d: "linear", TypeError, "must return a torch.nn.Module, got str"),
        (lambda d: nn.Linear(d, 2), ValueError, r"maps \(3, 2\) to \(3, 2\)"),
        (lambda d: Pair(d, 1), ValueError, "to tuple"),
        (lambda d: nn.Flatten(0), ValueError, "must have parameters"),
        (frozen, ValueError, "requires_grad=False: bias"),
        (lambda d: nn.Sequential(nn.Linear(d, 1), nn.Dropout()), ValueError, r"dropout.*\(1\)"),
        (lambda d: nn.Sequential(nn.BatchNorm1d(d), nn.Linear(d, 1)), ValueError, "GroupNorm"),
        (
            lambda d: nn.Sequential(nn.InstanceNorm1d(d, track_running_stats=True), linear(d)),
            ValueError,
            "buffers",
        ),
        (lambda d: Centred(d, 1), ValueError, "deterministic function of each row"),
        (lambda d: Noisy(d, 1), ValueError, "deterministic function of each row"),
    ],
)
def test_modules_that_are_no_functions_of_a_row_are_refused(build, error, match):
    with pytest.raises(error, match=match):
        Network(build).shapes(Lengths(1, 1, 2, 2))


@dataclass
class Unhashable:
    width: int = 3

    def __call__(self, n_features):
        return two_layers(n_features)


@pytest.mark.parametrize("build", [two_layers(2).parameters(), Unhashable()])
def test_what_builds_no_network_is_refused(build):
    with pytest.raises(TypeError, match="build must be a hashable callable"):
        Network(build)


def test_layer_norm_is_of_a_row_alone():
    split = Network(lambda d: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 1)))
    assert split.shapes(Lengths(2, 1, 4, 3))["network.0.weight"] == (2, 4)


def test_the_flat_prior_is_that_of_the_paper():
    model = SoftTree(TOPOLOGIES["stump"], Network(linear), Priors(hyperplane=Flat()))
    X = torch.zeros(1, 2)
    sites = started(model.split, 1, X)
    assert float(model.split.log_priors(model.priors, sites)["network"]) == 0


class TestSmallConvNet:
    def test_layers_are_those_of_the_paper(self):
        module = Network(SmallConvNet((28, 28))).module(784)
        shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        assert [shape for shape in shapes.values() if len(shape) > 1] == [
            (3, 1, 5, 5),
            (6, 3, 5, 5),
            (50, 96),
            (1, 50),
        ]
        assert module(torch.zeros(4, 784)).shape == (4, 1)

    @pytest.mark.parametrize("shape", [(16, 20), (3, 17, 16)])
    def test_other_images(self, shape):
        module = Network(SmallConvNet(shape)).module(math.prod(shape))
        assert module(torch.zeros(2, math.prod(shape))).shape == (2, 1)

    def test_a_row_is_read_line_by_line(self):
        build = SmallConvNet((16, 17))
        image = torch.arange(16 * 17.0)
        assert torch.equal(build(16 * 17)[0](image[None])[0, 0], image.view(16, 17))

    def test_equal_shapes_are_equal_networks(self):
        assert Network(SmallConvNet([28, 28])) == Network(SmallConvNet((28, 28)))

    @pytest.mark.parametrize("shape", [(28,), (15, 28), (28, 15), (0, 28, 28), (1, 1, 28, 28)])
    def test_images_too_small_or_of_other_dimensions(self, shape):
        with pytest.raises(ValueError, match="image_shape must be"):
            SmallConvNet(shape)

    def test_rows_of_another_width(self):
        with pytest.raises(ValueError, match="784 pixels, but rows have 64 columns"):
            Network(SmallConvNet((28, 28))).shapes(Lengths(1, 1, 64, 2))

    def test_values_are_the_same_with_and_without_a_gradient(self):
        module = Network(SmallConvNet((17, 18))).module(17 * 18)
        X = torch.randn(5, 17 * 18, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            without = module(X)
        assert torch.equal(module(X), without)


def hidden_layer(n_features):
    return nn.Sequential(nn.Linear(n_features, 3), nn.Tanh(), nn.Linear(3, 1))


def frame(n_features, generator):
    return {
        "center": generator.normal(5, 2, n_features),
        "scale": generator.uniform(0.1, 10, n_features),
        "feature_names": (),
        "class_names": (),
    }


def random_tree(topology, seed, build=hidden_layer, n_features=3):
    """A tree with values, and the sites of its networks."""
    generator = np.random.default_rng(seed)
    split = Network(build)
    with torch.random.fork_rng():
        torch.manual_seed(seed % 2**31)
        like = torch.zeros(1, n_features, dtype=torch.float64)
        sites = split.start(topology.n_nodes, n_features, like)
    point = {name: 4 * value.numpy() for name, value in sites.items()}
    tree = split.tree(topology, point, frame(n_features, generator))
    return tree.with_value(generator.normal(size=topology.n_leaves)), split, point


def rows_for(tree, seed, n=40):
    return tree.center + tree.scale * np.random.default_rng(seed).normal(size=(n, tree.n_features))


def sides(tree, split, point, X):
    """Side of every row at every node, all nodes evaluated: shape (n, V)."""
    sites = {name: torch.as_tensor(value) for name, value in point.items()}
    return (split.log_odds(sites, torch.as_tensor((X - tree.center) / tree.scale)) > 0).numpy()


@settings(max_examples=30, deadline=None)
@given(topologies(), seeds())
def test_rows_take_the_path_of_their_sides(topology, seed):
    tree, split, point = random_tree(topology, seed)
    X = rows_for(tree, seed)
    paths = [path_of(topology, turns) for turns in sides(tree, split, point, X)]
    leaves = np.array([leaf for _, leaf in paths])
    assert np.array_equal(tree.apply(X), leaves)
    assert np.array_equal(tree.predict(X), tree.value[leaves])
    path = tree.decision_path(X).toarray()
    for row, (nodes, leaf) in zip(path, paths, strict=True):
        assert np.flatnonzero(row).tolist() == [*sorted(nodes), topology.n_nodes + leaf]


@settings(max_examples=20, deadline=None)
@given(topologies(), seeds())
def test_pruned_trees_send_the_rows_to_the_same_values(topology, seed):
    tree, _, _ = random_tree(topology, seed)
    X = rows_for(tree, seed)
    pruned = tree.prune(X)
    assert np.array_equal(pruned.predict(X), tree.predict(X))
    assert pruned.n_leaves == len(set(tree.apply(X)))
    assert all(len(value) == pruned.n_nodes for value in pruned.parameters.values())


def test_one_linear_layer_is_the_oblique_tree():
    topology = Topology.complete(3)
    tree, _, point = random_tree(topology, 0, linear)
    same = {"hyperplane": point["network.weight"], "intercept": point["network.bias"]}
    names = {"feature_names": (), "class_names": ()}
    oblique = Oblique().tree(topology, same, {"center": tree.center, "scale": tree.scale, **names})
    X = rows_for(tree, 1, n=500)
    assert np.array_equal(tree.apply(X), oblique.apply(X))
    y = np.arange(500) % 3
    filled, expected = (t.fill(X, y, np.ones(500), 3) for t in (tree, oblique))
    np.testing.assert_array_equal(filled.value, expected.value)
    np.testing.assert_array_equal(filled.leaf_rows, expected.leaf_rows)


def test_a_node_sees_only_the_rows_that_reach_it():
    tree, _, _ = random_tree(Topology.complete(3), 3)
    X = rows_for(tree, 3, n=100)
    seen = {node: len(rows) for node, rows, _ in tree.walk(X)}
    path = tree.decision_path(X).toarray()[:, : tree.n_nodes].sum(0)
    assert seen == {node: count for node, count in enumerate(path) if count}
    assert sum(seen.values()) == 300  # three splits a row, of seven


def test_single_precision_is_kept_and_the_generator_left_alone():
    tree, split, point = random_tree(Topology.stump(), 0)
    small = split.tree(
        tree.topology,
        {name: value.astype(np.float32) for name, value in point.items()},
        frame(3, np.random.default_rng(0)),
    )
    state = torch.random.get_rng_state()
    odds = small.log_odds(0, rows_for(tree, 0))
    assert next(small.modules[0].parameters()).dtype == torch.float32
    assert torch.equal(torch.random.get_rng_state(), state)
    np.testing.assert_allclose(odds, tree.log_odds(0, rows_for(tree, 0)), rtol=1e-4, atol=1e-4)


def tied(n_features):
    first = nn.Linear(n_features, n_features)
    again = nn.Linear(n_features, n_features)
    again.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), again, nn.Linear(n_features, 1))


def test_tied_parameters_stay_tied():
    tree, split, point = random_tree(Topology.stump(), 0, tied)
    assert "network.2.weight" not in point
    X = rows_for(tree, 0)
    assert np.array_equal(tree.goes_right(0, X), sides(tree, split, point, X)[:, 0])


def test_repr_and_errors_are_those_of_a_tree():
    tree, _, _ = random_tree(Topology.complete(2), 0)
    assert repr(tree) == "NetworkTree(n_leaves=4, depth=2, n_features=3)"
    with pytest.raises(ValueError, match="value must have 4 rows, got 3"):
        tree.with_value(np.zeros(3))


EXPECTED_TEXT = """\
2 nodes, 3 leaves, depth 2, 10 rows
L is left, R is right.

root: 10 rows, network
├─ L: leaf, 4 rows, class 1: 75.0 %, class 0: 25.0 %
└─ R: 6 rows, network
   ├─ RL: leaf, 1 row, class 0: 100.0 %
   └─ RR: leaf, 5 rows, class 0: 60.0 %, class 1: 40.0 %
"""


def planted():
    """Thresholds 0 at the root and 10 below its right side, on one feature."""
    names = {"feature_names": (), "class_names": ()}
    point = {"network.weight": np.ones((2, 1, 1)), "network.bias": np.array([[0.0], [-10.0]])}
    tree = Network(linear).tree(
        Topology([[~0, 1], [~1, ~2]]), point, {"center": np.zeros(1), "scale": np.ones(1), **names}
    )
    X = np.array([-1, -2, -3, -4, 5, 11, 12, 13, 14, 15.0])[:, None]
    return tree.fill(X, np.array([0, 1, 1, 1, 0, 1, 1, 0, 0, 0]), np.ones(10), 2)


def test_text_shows_nodes_and_leaves_and_what_the_splits_are():
    assert export_text(planted()) == EXPECTED_TEXT
    means = planted().with_value(np.array([0.5, 1.0, 2.0]))
    assert "L: leaf, 4 rows, mean 0.5\n" in export_text(means)


def test_picture_names_the_split_and_the_sides():
    said = [text.get_text() for text in plots.tree(planted()).texts]
    assert {"network\n10 rows", "network\n6 rows", "left", "right"} <= set(said)


def test_borders_are_drawn_and_facets_refused():
    point = {"network.weight": np.array([[[1.0, 0.0]]]), "network.bias": np.array([[-0.5]])}
    units = {"center": np.zeros(2), "scale": np.ones(2), "feature_names": (), "class_names": ()}
    tree = Network(linear).tree(Topology.stump(), point, units)
    tree = tree.with_value(np.array([[0.2, 0.8], [0.9, 0.1]]))
    ax = plots.boundary(tree, resolution=40)
    border = np.concatenate([path.vertices for c in ax.collections for path in c.get_paths()])
    np.testing.assert_allclose(border[:, 0], 0.5, atol=0.01)
    with pytest.raises(TypeError, match="of the kind 'network', which has no facets"):
        plots.facet_image(tree, (1, 2))


def test_scores_are_softplus_of_the_log_odds():
    tree, _, _ = random_tree(Topology.stump(), 0)
    X = rows_for(tree, 0)
    np.testing.assert_allclose(np.expm1(tree.score(0, X)), np.exp(tree.log_odds(0, X)))


def test_arrays_hold_all_but_topology_and_names():
    tree, split, _ = random_tree(Topology.complete(2), 0)
    again = split.restored(tree.topology, tree.arrays(), {"feature_names": (), "class_names": ()})
    X = rows_for(tree, 0)
    assert np.array_equal(again.predict(X), tree.predict(X))
    assert again.parameters.keys() == tree.parameters.keys()
