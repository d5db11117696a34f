import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import Adam  # type: ignore[attr-defined]
from torch import nn

from bayestree.models import Categorical, Flat, Network, Oblique, Priors, SmallConvNet, SoftTree
from bayestree.models.sites import Size
from tests.models.cases import FITS, TOPOLOGIES, make, rows, traced


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
    split.shapes(Size(1, 1, 4, 2))  # that a module was made for its shapes must not be seen
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
        Network(build).shapes(Size(1, 1, 2, 2))


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
    assert split.shapes(Size(2, 1, 4, 3))["network.0.weight"] == (2, 4)


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
            Network(SmallConvNet((28, 28))).shapes(Size(1, 1, 64, 2))

    def test_values_are_the_same_with_and_without_a_gradient(self):
        module = Network(SmallConvNet((17, 18))).module(17 * 18)
        X = torch.randn(5, 17 * 18, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            without = module(X)
        assert torch.equal(module(X), without)
