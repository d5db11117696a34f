"""Experts that use the features of one group: densities, growth, and methods that refine them."""

import numpy as np
import pytest
import torch

from bayestree import inference
from bayestree._utils.state import seeded
from bayestree.inference import Data, GrowthLimits
from bayestree.inference.map import Point
from bayestree.inference.posterior import Posterior
from bayestree.inference.variational.factors import Factors, Rows, StepRule
from bayestree.inference.variational.guides import PolytopeGuide
from bayestree.inference.variational.low_rank import LowRankFactors
from bayestree.inference.variational.vi import step
from bayestree.models import Categorical, Laplace, Oblique, Polytope, Priors, SoftTree
from bayestree.models.soft_tree import sample_prior
from bayestree.topology import Topology
from tests.inference.problems import normal, soft_tree

OWN, REST = [0, 2], [1, 3]
GROUPS = tuple(map(tuple, (OWN, REST)))
STUMP = GrowthLimits(max_depth=1)


def supports(posterior):
    """The sets of features of the experts, in the point estimate and all draws."""
    planes = [posterior.point["hyperplane"], *posterior.draws.get("hyperplane", [])]
    rows = np.concatenate([one.reshape(-1, one.shape[-1]) for one in planes])
    return {tuple(np.flatnonzero(row).tolist()) for row in rows}


def wide_and_narrow(prior=None):
    """Experts of two of four features, and the same experts of these alone."""
    data = Data.of(normal(60, 4), (normal(60, seed=1) > 0).long())
    priors = Priors() if prior is None else Priors(hyperplane=prior)
    narrow = SoftTree(Topology.complete(2), Polytope(2), priors, Categorical(2))
    wide = narrow.with_(groups=GROUPS)
    plane = torch.zeros(3, 2, 4, dtype=torch.float64)
    plane[..., OWN] = normal(3, 2, 2, seed=2)
    sites = {
        "hyperplane": plane,
        "intercept": normal(3, 2, seed=3),
        "log_weight": normal(3, 2, seed=4),
        "shrinkage": normal(3, 2, seed=5).exp(),
        "leaf_probs": torch.full((4, 2), 0.5, dtype=torch.float64),
    }
    few = Data.of(data.X[:, OWN], data.y)
    small = sites | {"hyperplane": plane[..., OWN]}
    return (wide, sites, data), (narrow, small, few)


def test_absent_coefficients_have_no_density():
    (wide, sites, data), (narrow, small, few) = wide_and_narrow()
    found = wide.log_joint(sites, *data)
    torch.testing.assert_close(found, narrow.log_joint(small, *few))
    assert wide.with_(groups=()).log_joint(sites, *data) != found


def test_experts_of_the_prior_use_one_group():
    model = soft_tree(groups=GROUPS).with_(topology=Topology.complete(2))
    plane = sample_prior(model, 4, 50, random_state=0)["hyperplane"].reshape(-1, 4)
    found = {tuple(np.flatnonzero(row)) for row in plane.numpy()}
    assert found == {tuple(OWN), tuple(REST)}


def test_a_model_of_fewer_features_has_their_groups():
    model = soft_tree(groups=((0, 1), (2,), (1, 3)), monotone=(0, 1, 0, -1))
    found = model.among(np.array([True, True, False, True]))
    assert (found.groups, found.monotone) == (((0, 1), (1, 2)), (0, 1, -1))


@pytest.mark.parametrize("prior", [None, Laplace(1.0, 10.0)])
def test_the_guide_is_that_of_the_features_in_use(prior):
    """Divergence, density of draws and their support, before and after steps."""
    (wide, sites, _), (narrow, small, _) = wide_and_narrow(prior)
    sums = torch.ones(4, 2, dtype=torch.float64)
    one, other = PolytopeGuide(wide, sites, sums), PolytopeGuide(narrow, small, sums)
    for value, same in zip(one.kl_terms(one.moments), other.kl_terms(other.moments), strict=True):
        torch.testing.assert_close(value.sum(), same.sum())
    with seeded(0):
        draw = one.sample()
    assert (draw["hyperplane"][..., REST] == 0).all()
    assert (draw["hyperplane"][..., OWN] != 0).all()
    few = draw | {"hyperplane": draw["hyperplane"][..., OWN]}
    torch.testing.assert_close(one.log_prob(draw), other.log_prob(few))


def test_the_guide_has_finite_gradients_with_signs():
    (wide, sites, data), _ = wide_and_narrow()
    sums = torch.ones(4, 2, dtype=torch.float64)
    guide = PolytopeGuide(wide.with_(monotone=(1, 1, 0, 0)), sites, sums)
    value, penalty, _ = guide.fit(data.with_ones(), 1.0)
    (penalty - value).backward()
    assert all(parameter.grad.isfinite().all() for parameter in guide.parameters())
    assert (guide.point()["hyperplane"][..., REST] == 0).all()
    assert guide.point()["hyperplane"].isfinite().all()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", [Factors, LowRankFactors])
def test_a_natural_gradient_is_that_of_the_features_in_use(kind, exact):
    found = []
    for model, sites, data in wide_and_narrow():
        factors = kind.around(model, [Posterior.from_point(model, sites, "grow")], data)
        drawn = factors.draw()._replace(coefficient=factors.mean, log_weight=sites["log_weight"])
        factors.draw = lambda drawn=drawn: drawn
        rows = Rows.of(data, model.leaf, full=kind is Factors)
        value = step(factors, rows, StepRule(0.3, 1.0, 2.0, exact))
        found.append((value, factors.split_divergence(), factors))
    (*wide_values, wide), (*narrow_values, narrow) = found
    torch.testing.assert_close(wide_values, narrow_values)
    for name in ("mean", "variance"):
        values = getattr(wide, name)
        torch.testing.assert_close(values[..., [*OWN, 4]], getattr(narrow, name))
        assert (values[..., REST] == 0).all()


@pytest.mark.parametrize("kind", [Factors, LowRankFactors])
def test_the_density_of_a_draw_is_that_of_the_features_in_use(kind):
    """Draws of absent coefficients are 0, and their noise adds no density."""
    (wide, sites, data), (narrow, small, few) = wide_and_narrow()
    one = kind.around(wide, [Posterior.from_point(wide, sites, "grow")], data)
    other = kind.around(narrow, [Posterior.from_point(narrow, small, "grow")], few)
    noise = normal(3, 2, 5, seed=8)
    shown = {5: noise, 3: noise[..., [*OWN, 4]]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn_like", lambda like: shown[like.shape[-1]])
        with seeded(0):
            drawn, density = one.eval().sample()
        with seeded(0):
            expected, own = other.eval().sample()
    assert density == pytest.approx(own, rel=1e-10)
    torch.testing.assert_close(drawn["hyperplane"][..., OWN], expected["hyperplane"])
    torch.testing.assert_close(drawn["intercept"], expected["intercept"])
    assert (drawn["hyperplane"][..., REST] == 0).all()


@pytest.mark.parametrize("split", [Polytope(4), Oblique()])
def test_growth_finds_the_group_of_a_facet(split):
    """Only a sum of the last group separates the rows; each of its features alone does not."""
    data = Data.of(X := normal(400, 6), (X[:, 4] + X[:, 5] > 0).long())
    groups = ((0, 1), (2, 3), (4, 5))
    model = soft_tree(groups=groups).with_(split=split)
    found = inference.grow(model, data, limits=STUMP, random_state=0)
    share = (4, 5) in supports(found), supports(found) <= set(groups)
    assert share == (True, True)
    gone = found.model.scores(found.point_sites(data.X), data.X)[:, 0] > np.log(2)
    agree = float((gone == data.y).double().mean())
    # one feature of two of equal weight agrees with their sum in 3 of 4 rows
    assert max(agree, 1 - agree) > 0.75 + 4 * np.sqrt(0.75 * 0.25 / 400)


def test_growth_combines_facets_of_several_groups():
    """A corner of two half-spaces, of which each group alone may find either side."""
    X = normal(600, 4)
    data = Data.of(X, ((X[:, 0] + X[:, 2] > 0.5) | (X[:, 1] - X[:, 3] > 0.5)).long())
    for seed in range(4):
        found = inference.grow(soft_tree(groups=GROUPS), data, limits=STUMP, random_state=seed)
        assert supports(found) == set(GROUPS)


@pytest.mark.parametrize("refine", [inference.map, inference.svi, inference.vi])
def test_refined_experts_keep_their_features(refine):
    X = normal(200, 4)
    data = Data.of(X, ((X[:, 0] + X[:, 2] > 0.5) | (X[:, 1] - X[:, 3] > 0.5)).long())
    start = inference.grow(soft_tree(groups=GROUPS), data, random_state=0)
    few = {"n_steps": 5} if refine is inference.vi else {"epochs": 5}
    model = start.model.with_(steepness=2.0)
    found = refine(model, data, init=start, random_state=0, **few)
    before, after = (one.point["hyperplane"] for one in (start, found))
    np.testing.assert_array_equal(before != 0, after != 0)
    assert (before != after)[before != 0].all()
    assert supports(found) <= set(GROUPS)
    assert found.model.groups == GROUPS


def test_map_has_the_unit_of_coefficients_in_use():
    (wide, sites, data), (narrow, small, few) = wide_and_narrow()
    points = [
        Point(model, Posterior.from_point(model, own, "grow"), rows)
        for model, own, rows in ((wide, sites, data), (narrow, small, few))
    ]
    torch.testing.assert_close(points[0].size, points[1].size)
    with torch.no_grad():
        points[0].unit.add_(1.0)
    assert (points[0].coefficient[..., REST] == 0).all()


def test_a_splitter_of_one_s_own_is_refused():
    (wide, _, data), _ = wide_and_narrow()
    with pytest.raises(ValueError, match="omit splitter"):
        inference.grow(wide, data, splitter=lambda *_: [])
