"""Sparse routing against the dense computation of the same quantities."""

import math
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.inference import Data, pointwise, sparse_routing, svi, training
from bayestree.inference import map as fit_map
from bayestree.inference.map import Point
from bayestree.inference.pointwise import leaf_sums
from bayestree.inference.posterior import Posterior
from bayestree.inference.sparse_routing import (
    DensityTable,
    Evaluation,
    Experts,
    memberships,
    path_log_likelihood,
    route,
)
from bayestree.inference.variational.guides import PolytopeGuide
from bayestree.models import Categorical, Gaussian, LinearGaussian, Oblique, Polytope, SoftTree
from bayestree.topology import Topology


@contextmanager
def always_sparse():
    """Use sparse routing wherever it is possible."""
    with (
        mock.patch.object(pointwise, "pays", return_value=True),
        mock.patch.object(training, "pays", return_value=True),
    ):
        yield


def random_topology(n_nodes, rng):
    """A tree grown by splitting leaves at random: unbalanced, with leaves at all depths."""
    children = np.empty((n_nodes, 2), dtype=np.int64)
    open_ = [(-1, 0)]  # ends of the tree: parent and side
    for node in range(n_nodes):
        parent, side = open_.pop(int(rng.integers(len(open_))))
        if parent >= 0:
            children[parent, side] = node
        open_ += [(node, 0), (node, 1)]
    for leaf, (parent, side) in enumerate(open_):
        children[parent, side] = ~leaf
    return Topology(children)


def problem(n_nodes=15, n_rows=40, seed=0, *, split=None, leaf=None, steepness=3.0, size=2.0):
    """A model with random splits and leaves, and random rows."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    leaf = leaf or Categorical(3)
    model = SoftTree(
        random_topology(n_nodes, rng), split or Polytope(4), leaf=leaf, steepness=steepness
    )
    shapes = model.split.shapes(model.size(3))
    sites = {name: size * torch.randn(shape).double() for name, shape in shapes.items()}
    if isinstance(leaf, Categorical):
        sites["leaf_probs"] = torch.rand(n_nodes + 1, 3).double().pow(4).softmax(-1)
        y = torch.randint(3, (n_rows,))
    else:
        sites["leaf_mean"] = torch.randn(n_nodes + 1).double()
        if "leaf_slope" in leaf.sites:
            sites["leaf_slope"] = torch.randn(n_nodes + 1, 3).double()
        sites["leaf_scale"] = torch.rand(n_nodes + 1).double() + 0.1
        y = torch.randn(n_rows).double()
    data = Data.of(torch.randn(n_rows, 3).double(), y, torch.rand(n_rows).double() + 0.5)
    return model, sites, data


def explored(model, sites, data, tolerance, steepness=None):
    ones = data.with_ones().X
    log_weight = sites.get("log_weight", torch.zeros_like(sites["intercept"]))
    coefficient = torch.cat((sites["hyperplane"], sites["intercept"].unsqueeze(-1)), -1)
    experts = Experts(log_weight, coefficient)
    evaluation = Evaluation(experts, ones, steepness or model.steepness, keep=False)
    table = DensityTable.of(lambda y: model.leaf.log_density(sites, y), data.y, model, ones)
    return evaluation, route(evaluation, table, model.topology, tolerance), table


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 10**6),
    st.sampled_from([0.3, 1.0, 20.0]),
    st.sampled_from([1e-6, 1e-3, 0.1, 0.5]),
    st.booleans(),
)
def test_at_most_the_tolerated_share_of_every_likelihood_is_lost(
    n_nodes, seed, steepness, tolerance, classes
):
    leaf = Categorical(3) if classes else Gaussian()
    model, sites, data = problem(n_nodes, 20, seed, leaf=leaf, steepness=steepness)
    exact = model.log_likelihood_rows(sites, data.X, data.y)
    _, paths, table = explored(model, sites, data, tolerance)
    lost = exact - memberships(paths.log_odds, paths, table).log_likelihood
    rounding = 1e-9
    assert float(lost.min()) >= -rounding
    assert float(lost.max()) <= -math.log1p(-tolerance) + rounding


def test_sharp_splits_need_few_pairs():
    model, sites, data = problem(60, 200, steepness=20.0, size=5.0)
    _, paths, _ = explored(model, sites, data, 1e-3)
    visits = set(zip(paths.node.tolist(), paths.row.tolist(), strict=True))
    assert len(visits) == len(paths.node)  # none twice
    # Every row passes the root and at least the path that gives its lower bound.
    assert len(visits) < 0.5 * 60 * 200
    assert {row for node, row in visits if node == 0} == set(range(200))


@pytest.mark.parametrize("split", [Polytope(4), Oblique()])
@pytest.mark.parametrize("leaf", [Categorical(3), Gaussian()])
def test_a_fine_tolerance_gives_the_dense_step(split, leaf):
    model, sites, data = problem(split=split, leaf=leaf)
    start = Posterior.from_point(model, sites, "test")
    found = []
    for is_sparse in (False, True):
        point = Point(model, start, data, tolerance=1e-13)
        point.sparse = is_sparse
        value, _, sums = point.fit(data.with_ones(), 2.0)
        value.backward()
        found.append([value.detach(), sums, *(p.grad for p in point.parameters())])
    for dense, routed in zip(*found, strict=True):
        torch.testing.assert_close(routed, dense, rtol=1e-9, atol=1e-9)


def test_gradients_agree_with_finite_differences():
    model, sites, data = problem(7, 12)
    coefficient = torch.cat((sites["hyperplane"], sites["intercept"].unsqueeze(-1)), -1)
    experts = Experts(sites["log_weight"], coefficient, 0.1 + torch.rand_like(coefficient))
    # Without a tolerance all pairs are evaluated, in the same order and with the same noise.
    ones = data.with_ones().X
    table = DensityTable.of(lambda y: model.leaf.log_density(sites, y), data.y, model, ones)

    def value(*experts):
        torch.manual_seed(1)
        evaluation = Evaluation(Experts(*experts), ones, 2.0)
        paths = route(evaluation, table, model.topology, 0.0)
        return path_log_likelihood(evaluation.scores(paths.slot), paths, table, data.weights, 2.0)[
            0
        ]

    inputs = tuple(part.clone().requires_grad_() for part in experts)
    assert torch.autograd.gradcheck(value, inputs)


N_DRAWS = 100


def test_the_bound_of_the_guide_is_that_of_the_dense_step():
    model, sites, data = problem(n_rows=300, size=1.0)
    start = leaf_sums(model, sites, data)
    means, errors = [], []
    for is_sparse in (False, True):
        guide = PolytopeGuide(model, sites, start, tolerance=1e-6)
        guide.sparse = is_sparse
        torch.manual_seed(0)
        for estimate in (
            lambda guide=guide: guide.fit(data.with_ones(), 3.0)[0],
            lambda guide=guide: guide.expected_log_likelihood(data),
        ):
            with torch.no_grad():
                values = torch.stack([estimate() for _ in range(N_DRAWS)])
            means.append(float(values.mean()))
            errors.append(float(values.std()) / math.sqrt(N_DRAWS))
    for dense, routed in ((0, 2), (1, 3)):
        # Four standard errors of the difference are exceeded in 6 of 100,000 runs.
        assert abs(means[dense] - means[routed]) < 4 * math.hypot(errors[dense], errors[routed])


@pytest.mark.parametrize("leaf", [Categorical(3), Gaussian(), LinearGaussian()], ids=str)
def test_predictions_and_densities_are_those_of_the_dense_tree(leaf):
    model, sites, data = problem(40, 500, leaf=leaf)
    dense = model.leaf_log_probs(sites, data.X).exp()
    with always_sparse():
        (routed,) = pointwise.leaf_probs(model, sites, [data.X])
        rows = pointwise.log_likelihood_rows(model, sites, data)
        joint = pointwise.log_joint(model.collapsed(), [with_shrinkage(sites)], data)[0]
        sums = leaf_sums(model, sites, data)
    torch.testing.assert_close(routed.sum(1), torch.ones(500).double())
    assert float((routed - dense).abs().max()) <= pointwise.EXACT
    exact = model.log_likelihood_rows(sites, data.X, data.y)
    assert float((rows - exact).abs().max()) <= 1.1 * pointwise.EXACT
    assert joint == pytest.approx(
        float(model.log_joint(with_shrinkage(sites), *data)), abs=500 * 2 * pointwise.EXACT
    )
    statistics = model.leaf.statistics(data.for_leaf(model.leaf).y, data.weights)
    largest = float(statistics.abs().sum())
    assert float((sums - dense.T @ statistics).abs().max()) <= pointwise.EXACT * largest


def with_shrinkage(sites):
    return sites | {"shrinkage": torch.ones_like(sites["intercept"])}


def test_impossible_classes_have_no_likelihood_and_no_nan():
    model, sites, data = problem(10, 30)
    sites["leaf_probs"] = torch.tensor([1.0, 0.0, 0.0]).double().expand(11, 3)
    data = data._replace(y=torch.arange(30) % 2)
    with always_sparse():
        rows = pointwise.log_likelihood_rows(model, sites, data)
    assert torch.equal(rows.isneginf(), data.y == 1)
    torch.testing.assert_close(rows[data.y == 0], torch.zeros(15).double(), atol=1e-5, rtol=0)


def test_the_deterministic_tree_and_no_rows_are_evaluated_densely():
    model, sites, data = problem(10, 30, steepness=math.inf)
    with always_sparse():
        (routed,) = pointwise.leaf_probs(model, sites, [data.X])
        nothing = pointwise.log_likelihood_rows(model, sites, data.take(torch.arange(0)))
    torch.testing.assert_close(routed, model.leaf_log_probs(sites, data.X).exp())
    assert nothing.shape == (0,)


def test_results_do_not_depend_on_the_size_of_copies():
    model, sites, data = problem(20, 200)
    with always_sparse():
        (whole,) = pointwise.leaf_probs(model, sites, [data.X])
        with mock.patch.object(sparse_routing, "NUMBERS", 100):
            (pieces,) = pointwise.leaf_probs(model, sites, [data.X])
    torch.testing.assert_close(pieces, whole)


def test_sparse_routing_is_chosen_for_large_sharp_trees_only():
    model, sites, data = problem(60, 2000, steepness=20.0, size=5.0, split=Polytope(20))
    batch = data.with_ones()

    def chosen(model, sites, tolerance, steepness=20.0):
        point = Point(model, Posterior.from_point(model, sites, "test"), data, tolerance)
        point.choose_routing(batch, steepness)
        return point.sparse

    assert chosen(model, sites, 1e-3)
    assert not chosen(model, sites, 0.0)
    assert not chosen(model, sites, 1e-3, steepness=1e-3)  # every row reaches every leaf
    stump, few, _ = problem(1, 10)
    assert not chosen(stump, few, 1e-3)
    entropy = replace(model, likelihood="mutual-information")
    assert not chosen(entropy, sites, 1e-3)


def fits(method, tolerance, seeds, stat):
    """A statistic of fits from the same start with each seed."""
    model, sites, data = problem(7, 400, size=1.0, steepness=2.0)
    start = Posterior.from_point(model, sites, "test")
    settings = {"init": start, "epochs": 60, "batch_size": 100, "routing_tolerance": tolerance}
    return np.array(
        [method(model, data, **settings, random_state=seed).stats[stat] for seed in seeds]
    )


def test_a_map_fit_takes_the_dense_steps():
    dense = fits(fit_map, 0.0, [0], "log_joint")
    with always_sparse():
        routed = fits(fit_map, 1e-9, [0], "log_joint")
    np.testing.assert_allclose(routed, dense, rtol=1e-5)


@pytest.mark.statistical
def test_svi_reaches_the_dense_bound():
    seeds = range(6)
    dense = fits(svi, 0.0, seeds, "final_elbo")
    with always_sparse():
        routed = fits(svi, 1e-6, seeds, "final_elbo")
    error = math.sqrt((dense.var(ddof=1) + routed.var(ddof=1)) / len(seeds))
    # Six errors of a difference of means of six are exceeded in one of 7,000 runs (t, 10 degrees).
    assert abs(dense.mean() - routed.mean()) < 6 * error
    # The error itself is small, so that a bound that misses a branch would be seen.
    assert error < 0.01 * abs(dense.mean())
