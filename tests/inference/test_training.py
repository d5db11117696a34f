"""Adam, and what the steps of a fit read from the device."""

import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.preprocessing import scale
from torch.utils._python_dispatch import TorchDispatchMode

from bayestree import inference
from bayestree.inference import Data, GrowthLimits
from bayestree.inference.map import Point
from bayestree.inference.pointwise import leaf_sums
from bayestree.inference.training import Adam, Ascent
from bayestree.inference.variational.guides import PolytopeGuide
from bayestree.models import Categorical, Polytope, SoftTree
from bayestree.runs.checkpoints import capture, from_bytes, restore, to_bytes
from bayestree.topology import Topology

CURVATURE = torch.tensor([[1.0, 30.0], [0.1, 5.0]], dtype=torch.float64)


def points(dtype=torch.float64):
    """Two parameters, one of them transposed in memory, and one without a gradient."""
    one = torch.arange(4, dtype=dtype).view(2, 2)
    return [one.clone().T.requires_grad_(), (one - 1).requires_grad_(), torch.ones(3)]


def descend(optimiser, values, steps, first=0):
    for step in range(first, first + steps):
        optimiser.zero_grad()
        (CURVATURE * (values[0] * values[1] - step).square()).sum().backward()
        optimiser.step()


def test_it_takes_the_steps_of_torch():
    ours, theirs = points(), points()
    own = Adam(ours, 0.1, betas=(0.8, 0.95))
    reference = torch.optim.Adam(theirs, lr=0.1, betas=(0.8, 0.95))
    for first, rate in ((0, 0.1), (5, 0.03)):
        own.rate = reference.param_groups[0]["lr"] = rate
        descend(own, ours, 5, first)
        descend(reference, theirs, 5, first)
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert not torch.equal(ours[0], points()[0])


def test_a_restored_optimiser_goes_on_with_the_same_numbers():
    values = points()
    whole = Adam(values, 0.1)
    descend(whole, values, 3)
    parts = {"optimiser": whole, "first": values[0].detach(), "second": values[1].detach()}
    state = from_bytes(to_bytes(capture(parts)))
    descend(whole, values, 4, 3)
    again = points()
    resumed = Adam(again, 0.1)
    parts = {"optimiser": resumed, "first": again[0].detach(), "second": again[1].detach()}
    restore(parts, state)
    descend(resumed, again, 4, 3)
    assert torch.equal(values[0], again[0])
    assert torch.equal(values[1], again[1])


class Reads(TorchDispatchMode):
    """Counts the numbers that are read from tensors, for each of which a GPU would wait."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["map", "svi"])
def test_steps_read_no_numbers(name):
    X, y = load_iris(return_X_y=True)
    data = Data.of(scale(X), y)
    model = SoftTree(Topology.leaf(), Polytope(2), leaf=Categorical(3))
    start = inference.grow(model, data, limits=GrowthLimits(max_depth=2), steps=20, random_state=0)
    sites = start.point_sites(data.X)
    sums = leaf_sums(start.model, sites, data)
    guide = PolytopeGuide(start.model, sites, sums)
    module = Point(start.model, start, data) if name == "map" else guide
    if name == "svi":  # positions on its tape are drawn on the CPU
        guide.noise = torch.randn_like
    found = []
    for batch_size in (75, 15):
        chosen = {"epochs": 1, "batch_size": batch_size, "learning_rate": 0.01}
        ascent = Ascent(module, sums.clone(), data, steepness=(6.0, 6.0), **chosen)
        with Reads() as reads:
            ascent.epoch(0)
        found.append(reads.count)
    assert found[0] == found[1]


def test_a_gpu_evaluates_all_nodes(monkeypatch):
    """Sparse steps take many small products, which pay on a CPU alone; "meta" is another device."""
    monkeypatch.setattr("bayestree.inference.training.pays", lambda *_, **__: True)
    X, y = load_iris(return_X_y=True)
    data = Data.of(scale(X), y)
    model = SoftTree(Topology.leaf(), Polytope(2), leaf=Categorical(3))
    start = inference.grow(model, data, limits=GrowthLimits(max_depth=2), steps=5, random_state=0)
    point = Point(start.model, start, data, tolerance=0.1)
    point.choose_routing(data.with_ones(), 6.0)
    assert point.sparse
    point.choose_routing(Data(*(part.to("meta") for part in data.with_ones())), 6.0)
    assert not point.sparse
