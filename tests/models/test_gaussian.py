"""``Outputs``: the sum of its parts."""

import pytest
import torch
from pyro import poutine

from bayestree.models import Gaussian, Oblique, Outputs, SoftTree
from bayestree.models.criteria import Criterion
from bayestree.topology import Topology

PARTS = (Gaussian(0.3, 0.5, 3.0, 0.7), Gaussian(-0.2, 0.1, 2.0, 0.4))
LEAF = Outputs(PARTS)


@pytest.fixture
def rows():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.randn(20, 3).double(), torch.randn(20, 2).double(), torch.rand(20).double()


def sums_of(y, weights):
    return torch.stack(
        [LEAF.statistics(y[part], weights[part]).sum(0) for part in (slice(8), slice(8, 20))]
    )


def each(sums):
    return zip(PARTS, sums.split(3, -1), strict=True)


def test_densities_and_divergences_are_sums_over_outputs(rows):
    _, y, weights = rows
    sums = sums_of(y, weights)
    posterior = LEAF.posterior(sums)
    own = [part.posterior(some) for part, some in each(sums)]
    assert float(posterior.kl()) == pytest.approx(sum(float(one.kl()) for one in own))
    expected = sum(one.expected_log_density(y[:, j]) for j, one in enumerate(own))
    assert torch.allclose(posterior.expected_log_density(y), expected)
    sites = posterior.sample()
    parts = [{name: value[..., j] for name, value in sites.items()} for j in range(2)]
    pairs = [*zip(PARTS, own, parts, strict=True)]
    density = sum(one.log_density(some, y[:, j]) for j, (one, _, some) in enumerate(pairs))
    assert torch.allclose(LEAF.log_density(sites, y), density)
    assert float(posterior.log_prob(sites)) == pytest.approx(
        sum(float(law.log_prob(some)) for _, law, some in pairs)
    )
    assert float(LEAF.log_prob(sites)) == pytest.approx(
        sum(float(one.log_prob(some)) for one, _, some in pairs)
    )
    nodes = LEAF.node_log_density({n: v[None] for n, v in sites.items()}, y[None])[0]
    assert torch.allclose(nodes, density.T)


def test_splits_gain_the_sum_of_the_gains_of_the_outputs(rows):
    _, y, weights = rows
    sums = sums_of(y, weights)
    whole, criterion = sums.sum(0), LEAF.criterion
    gains = []
    for (part, side), total in zip(each(sums[0]), whole.split(3), strict=True):
        one = part.criterion
        gains.append(float(one.gain(one.split_value(side, total), total)))
    found = criterion.gain(criterion.split_value(sums[0], whole), whole)
    assert float(found) == pytest.approx(sum(gains))
    value, slope = criterion.ascent(sums[0], whole)
    expected, derived = Criterion.ascent(criterion, sums[0], whole)
    assert torch.allclose(value, expected)
    assert torch.allclose(slope, derived)


def test_each_output_has_its_own_calibrated_prior(rows):
    _, y, weights = rows
    sums = sums_of(y * torch.tensor([1.0, 0.1]), weights)
    found = LEAF.calibrate(sums)
    assert found.parts == tuple(part.calibrate(some) for part, some in each(sums))


def test_the_model_has_the_density_of_its_pyro_trace(rows):
    X, y, weights = rows
    model = SoftTree(Topology.stump(), Oblique(), leaf=LEAF)
    trace = poutine.trace(model).get_trace(X, y, weights)
    shapes = model.shapes(3)
    sites = {name: node["value"] for name, node in trace.nodes.items() if name in shapes}
    assert all(value.shape == shapes[name] for name, value in sites.items())
    joint = float(model.log_joint(sites, X, y, weights))
    assert joint == pytest.approx(float(trace.log_prob_sum()), rel=1e-10)


def test_y_of_another_width_is_refused():
    with pytest.raises(ValueError, match="y must have 2 columns"):
        LEAF.check(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="parts must hold one Gaussian"):
        Outputs(())
