import math

import numpy as np
import pytest
import torch

from bayestree import routing
from bayestree.inference import Data, GrowthLimits, em, grow
from bayestree.inference.em import Climb
from bayestree.inference.posterior import Posterior
from bayestree.models import (
    Categorical,
    Flat,
    Gaussian,
    InverseGammaScale,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.routing import expectation, expected_slope
from bayestree.topology import Topology
from tests.inference.problems import normal, quadrants, step

FLAT = Priors(hyperplane=Flat())
LOPSIDED = Topology([[1, ~0], [~1, 2], [~2, ~3]])


def oblique(topology, n_classes=2, concentration=1e-9, **others):
    """A tree whose leaves are plain shares of their rows, but for one part in 1e9."""
    leaf = Categorical(n_classes, concentration)
    return SoftTree(topology, split=Oblique(), priors=FLAT, leaf=leaf, **others)


def start(model, n_features, seed=0):
    """A posterior of random parameters."""
    n_nodes, n_leaves = model.topology.n_nodes, model.topology.n_leaves
    sites = {
        "hyperplane": normal(n_nodes, 1, n_features, seed=seed),
        "intercept": normal(n_nodes, 1, seed=seed + 1),
        "leaf_probs": normal(n_leaves, model.leaf.n_classes, seed=seed + 2).softmax(-1),
    }
    return Posterior.from_point(model, sites, "start")


def leaf_posterior(posterior, data):
    """h (n, L) by eq. 10 as it is printed."""
    sites, model = posterior.point_sites(), posterior.model
    joint = model.leaf_log_probs(sites, data.X) + model.leaf.log_density(sites, data.y)
    return joint.softmax(-1)


def member_of(posterior, data, steepness=1.0):
    sites, model = posterior.point_sites(), posterior.model
    odds = steepness * model.split.log_odds(sites, data.X).T
    density = model.leaf.log_density(sites, data.y).T
    return odds, expectation(odds, density, model.topology)


def test_e_and_m_step_by_hand():
    # One split sigma(f), f = x, two rows at x = 0 and x = log 3 with classes 0 and 1;
    # leaves (3/4, 1/4) and (1/4, 3/4). Row 0: h_right = (1/2 1/4) / (1/2 1/4 + 1/2 3/4) = 1/4.
    # Row 1: h_right = (3/4 3/4) / (3/4 3/4 + 1/4 1/4) = 9/10.
    X = torch.tensor([[0.0], [math.log(3.0)]], dtype=torch.float64)
    data = Data.of(X, torch.tensor([0, 1]))
    model = oblique(Topology.stump())
    leaves = torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64)
    sites = {
        "hyperplane": torch.ones(1, 1, 1, dtype=torch.float64),
        "intercept": torch.zeros(1, 1, dtype=torch.float64),
        "leaf_probs": leaves,
    }
    init = Posterior.from_point(model, sites, "start")
    odds, member = member_of(init, data)
    np.testing.assert_allclose(member.mass[2], [0.25, 0.9], rtol=1e-12)
    np.testing.assert_allclose(member.mass[1], [0.75, 0.1], rtol=1e-12)
    np.testing.assert_allclose(member.log_likelihood.exp(), [0.5, 0.625], rtol=1e-12)
    # eq. 14: dQ/df = h_right - sigma(f)
    np.testing.assert_allclose(expected_slope(odds, member), [[0.25 - 0.5, 0.9 - 0.75]], rtol=1e-12)
    found = em(model, data, init=init, epochs=1, learning_rate=1e-3, random_state=0)
    # eq. 13: left has 0.75 of class 0 and 0.1 of class 1, right 0.25 and 0.9
    expected = [[0.75 / 0.85, 0.1 / 0.85], [0.25 / 1.15, 0.9 / 1.15]]
    np.testing.assert_allclose(found.point["leaf_probs"], expected, rtol=1e-8)
    # Adam's first step is the learning rate in the direction of each gradient's sign:
    # dQ/dbeta = 0.15 log 3 > 0, dQ/db = -0.25 + 0.15 < 0
    np.testing.assert_allclose(found.point["hyperplane"], [[[1 + 1e-3]]], rtol=1e-6)
    np.testing.assert_allclose(found.point["intercept"], [[-1e-3]], rtol=1e-6)
    value = math.log(0.5) + math.log(0.625)
    np.testing.assert_allclose(found.stats["log_likelihood"], [value], rtol=1e-12)


@pytest.mark.parametrize("topology", [Topology.leaf(), Topology.complete(3), LOPSIDED])
@pytest.mark.parametrize("steepness", [1.0, 30.0])
def test_the_walk_over_the_tree_is_equation_10(topology, steepness):
    model = oblique(topology, 3, steepness=steepness)
    data = Data.of(normal(40, 2), torch.arange(40) % 3)
    posterior = start(model, 2)
    _, member = member_of(posterior, data, steepness)
    expected = leaf_posterior(posterior, data)
    np.testing.assert_allclose(member.mass[topology.n_nodes :].T, expected, atol=1e-12)
    np.testing.assert_allclose(
        member.log_likelihood,
        model.log_likelihood_rows(posterior.point_sites(), data.X, data.y),
        rtol=1e-10,
    )


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_certain_splits_leave_no_nan_and_no_loss(side):
    odds = torch.full((1, 2), side * 1e5, dtype=torch.float32)
    density = torch.tensor([[0.1, 0.9], [0.8, 0.2]]).log()
    member = expectation(odds, density, Topology.stump())
    reached = density[1] if side > 0 else density[0]
    torch.testing.assert_close(member.log_likelihood, reached)
    assert torch.isfinite(expected_slope(odds, member)).all()


def test_gradient_of_q_against_finite_differences():
    model = oblique(LOPSIDED, 3, steepness=2.0)
    data = Data.of(normal(30, 2), torch.arange(30) % 3, normal(30).exp())
    held = start(model, 2)
    h = leaf_posterior(held, data)
    sites = start(model, 2, seed=5).point_sites()
    _, member = member_of(held, data, 2.0)
    climbing = {k: v.clone().requires_grad_() for k, v in sites.items() if k != "leaf_probs"}
    odds = 2.0 * model.split.log_odds(climbing, data.X).T
    odds.backward(expected_slope(odds.detach(), member) * data.weights)

    def q(changed):
        return float(data.weights @ (h * model.leaf_log_probs(sites | changed, data.X)).sum(-1))

    for name, value in climbing.items():
        for i in range(value.numel()):
            delta = torch.zeros(value.numel(), dtype=torch.float64)
            delta[i] = 1e-5
            up, down = (sites[name] + s * delta.view(value.shape) for s in (1, -1))
            numeric = (q({name: up}) - q({name: down})) / 2e-5
            assert value.grad.flatten()[i] == pytest.approx(numeric, rel=1e-5, abs=1e-7)


@pytest.mark.portable
@pytest.mark.parametrize("leaf", [Categorical(2, 1e-9), Gaussian()])
def test_the_log_likelihood_never_falls_with_whole_m_steps(leaf):
    data = quadrants(200) if isinstance(leaf, Categorical) else step(200)
    model = SoftTree(Topology.leaf(), split=Oblique(), priors=FLAT, leaf=leaf)
    # random splits; the leaves as they follow from them
    grown = grow(model, data, limits=GrowthLimits(2, min_gain=1.0), steps=3, random_state=0)
    shape = grown.model.topology
    crooked = start(oblique(shape), 2).point_sites()
    sites = grown.point_sites() | {name: crooked[name] for name in ("hyperplane", "intercept")}
    found = em(
        grown.model,
        data,
        init=Posterior.from_point(grown.model, sites, "start"),
        epochs=25,
        steepness_step=0.0,
        passes=20,
        learning_rate=5e-3,
        random_state=0,
    )
    trace = found.stats["log_likelihood"]
    # A conjugate estimate is the likeliest leaf but for its prior's pseudo-rows.
    slack = 1e-6 if isinstance(leaf, Categorical) else 0.5
    assert (np.diff(trace) > -slack).all()
    assert trace[-1] > trace[0] + 20, trace


def test_the_steep_limit_is_the_weighted_leaf_entropy():
    data = quadrants(300)
    model = oblique(Topology.complete(2), steepness=1e9)
    # a split that matters little above two that cross it: every leaf has rows of both classes
    sites = start(model, 2).point_sites() | {
        "hyperplane": torch.tensor([[[1.0, 1.0]], [[1.0, -0.5]], [[1.0, -2.0]]]).double(),
        "intercept": torch.zeros(3, 1, dtype=torch.float64),
    }
    leaf = routing.tree_log_probs(model.scores(sites, data.X), math.inf, model.topology).argmax(-1)
    counts = torch.zeros(4, 2, dtype=torch.float64)
    counts.index_put_((leaf, data.y), torch.ones(300, dtype=torch.float64), accumulate=True)
    share = counts / counts.sum(-1, keepdim=True)
    assert (share > 0).all()
    climb = Climb(model, Posterior.from_point(model, sites, "start"), data, 1e-12)
    climb.epoch(1e9, 300)
    np.testing.assert_allclose(climb.leaves["leaf_probs"], share, atol=1e-9)
    entropy = -(share * share.log()).sum(-1)
    expected = float(counts.sum(-1) @ entropy) / 300
    assert climb.epoch(1e9, 300) / 300 == pytest.approx(-expected, abs=1e-9)


def test_minibatches_give_the_leaves_of_all_rows():
    data = quadrants(230)
    model = oblique(LOPSIDED)
    init = start(model, 2)
    whole, parts = (
        em(model, data, init=init, epochs=1, batch_size=size, random_state=0) for size in (1000, 50)
    )
    np.testing.assert_allclose(whole.point["leaf_probs"], parts.point["leaf_probs"], rtol=1e-9)
    np.testing.assert_allclose(whole.stats["log_likelihood"], parts.stats["log_likelihood"])
    assert not np.allclose(whole.point["hyperplane"], parts.point["hyperplane"], atol=1e-6)


def test_a_weight_counts_as_so_many_rows():
    data = quadrants(60)
    model = oblique(LOPSIDED)
    doubled = data._replace(weights=torch.full((60,), 2.0, dtype=torch.float64))
    repeated = Data(*(torch.cat((column, column)) for column in data))
    init = start(model, 2)
    weighted, many = (
        em(model, rows, init=init, epochs=5, random_state=0) for rows in (doubled, repeated)
    )
    for name, value in weighted.point.items():
        np.testing.assert_allclose(value, many.point[name], rtol=1e-8)


def test_a_class_without_rows_leaves_no_nan():
    data = quadrants(100)
    model = oblique(Topology.complete(3), n_classes=4, concentration=1.0)
    found = em(model, data, init=start(model, 2), epochs=5, steepness=50.0, random_state=0)
    assert all(np.isfinite(value).all() for value in found.point.values())
    assert (found.point["leaf_probs"] > 0).all()


@pytest.mark.portable
def test_the_prior_pulls_the_splits_of_a_polytope_too():
    data = quadrants(100)
    init = grow(
        SoftTree(Topology.leaf(), split=Polytope(3), leaf=Categorical(2)),
        data,
        limits=GrowthLimits(2, min_gain=1.0),
        steps=20,
        random_state=0,
    )
    tight = Priors(hyperplane=InverseGammaScale(5.0, 1.0, 1e6))
    sizes = [
        np.square(
            em(model, data, init=init, epochs=50, learning_rate=0.02, random_state=0).point[
                "hyperplane"
            ]
        ).sum()
        for model in (init.model, init.model.with_(priors=tight))
    ]
    assert sizes[1] < sizes[0]


def test_zeros_stay_zero_on_request():
    data = quadrants(100)
    model = oblique(Topology.stump())
    init = start(model, 2)
    init.point["hyperplane"][..., 0] = 0.0
    kept = em(model, data, init=init, epochs=3, keep_zeros=True, random_state=0)
    free = em(model, data, init=init, epochs=3, random_state=0)
    assert (kept.point["hyperplane"][..., 0] == 0).all()
    assert (kept.point["hyperplane"][..., 1] != init.point["hyperplane"][..., 1]).all()
    assert (free.point["hyperplane"][..., 0] != 0).all()


def test_the_callback_sees_every_epoch_and_the_steepness_rises():
    data = quadrants(100)
    model = oblique(Topology.stump())
    seen = []
    found = em(
        model,
        data,
        init=start(model, 2),
        epochs=3,
        steepness=2.0,
        steepness_step=0.5,
        callback=lambda epoch, tree: seen.append((epoch, tree.model.steepness)),
        random_state=0,
    )
    assert seen == [(1, 2.0), (2, 2.5), (3, 3.0)]
    assert found.model.steepness == 3.0
    assert found.settings["epochs"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"steepness": math.inf}, "steepness"),
        ({"steepness_step": -1.0}, "steepness_step"),
        ({"epochs": 0}, "epochs"),
        ({"passes": 0}, "passes"),
    ],
)
def test_numbers_out_of_range_are_named(changes, message):
    data = quadrants(20)
    model = oblique(Topology.stump())
    with pytest.raises(ValueError, match=message):
        em(model, data, init=start(model, 2), **changes)


def test_another_topology_or_likelihood_is_refused():
    data = quadrants(20)
    model = oblique(Topology.stump())
    with pytest.raises(ValueError, match="topology"):
        em(model, data, init=start(oblique(LOPSIDED), 2))
    other = model.with_(likelihood="mutual-information")
    with pytest.raises(ValueError, match="likelihood"):
        em(other, data, init=start(model, 2))
