"""Slopes, curvatures and bounds of a step, against differentiation and other formulas."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from bayestree._utils.state import seeded
from bayestree.distributions import LogGamma
from bayestree.inference.variational import factors as rows_module
from bayestree.inference.variational import vi as steps
from bayestree.inference.variational.factors import Rows, StepRule, StepSchedule
from bayestree.inference.variational.low_rank import LowRankFactors
from bayestree.inference.variational.vi import bounds, step
from bayestree.models import Categorical, Gaussian, Oblique
from tests.inference.variational.cases import (
    PRIORS,
    TREES,
    factors_of,
    log_likelihoods,
    precision_of,
    rows,
)

LEAVES = {"classes": Categorical(2, 1.3), "numbers": Gaussian()}


def rule_of(steepness=1.0, *, exact=True, rate=0.3, prior=1.0):
    return StepRule(rate, prior, steepness, exact)


def rows_of(data, factors):
    """The rows of a fit of these factors."""
    full = not isinstance(factors, LowRankFactors)
    return Rows.of(data, factors.model.leaf, full=full)


def slopes_of(factors, data, rule, power=1.0, seed=0):
    """Slopes at the draw of a seed, and the draw."""
    with seeded(seed), torch.no_grad():
        draw = factors.draw()
    return steps._slopes(factors, draw, rows_of(data, factors), rule, power), draw


class Derivatives:
    """Derivatives of the log-likelihood of the rows by automatic differentiation."""

    def __init__(self, factors, data, draw, steepness):
        self.X = data.with_ones().X
        self.weights, self.trees = data.weights, factors.topology
        self.steepness = steepness
        self.psi = (draw.coefficient @ self.X.T).requires_grad_()
        self.log_weight = draw.log_weight.clone().requires_grad_()
        self.density = factors.leaf_law.expected_log_density(data.y).requires_grad_()

    def likelihood(self):
        given = self.psi, self.log_weight, self.density
        return log_likelihoods(self.trees, *given, self.steepness) @ self.weights

    def slope(self, name):
        (found,) = torch.autograd.grad(self.likelihood().sum(), getattr(self, name))
        return found

    def curvature(self, name):
        """Second derivatives in each psi of each row, or in each log-weight."""
        value = getattr(self, name)
        (first,) = torch.autograd.grad(self.likelihood().sum(), value, create_graph=True)
        found = torch.zeros_like(value)
        for place in np.ndindex(*value.shape[:2]):
            (second,) = torch.autograd.grad(first[place].sum(), value, retain_graph=True)
            found[place] = second[place]
        return found


@pytest.mark.parametrize("steepness", [1.0, 6.0])
@pytest.mark.parametrize("split", ["polytope", "oblique"])
@pytest.mark.parametrize("leaf", LEAVES)
def test_slopes_and_curvatures_are_the_derivatives(steepness, split, leaf):
    data = rows(leaf=LEAVES[leaf])
    given = {"split": Oblique()} if split == "oblique" else {}
    factors = factors_of(data, leaf=LEAVES[leaf], **given)
    found, draw = slopes_of(factors, data, rule_of(steepness))
    exact = Derivatives(factors, data, draw, steepness)
    close = {"rtol": 1e-8, "atol": 1e-10}
    torch.testing.assert_close(found.likelihood, exact.likelihood().detach(), **close)
    of_psi, curvature = exact.slope("psi"), exact.curvature("psi")
    torch.testing.assert_close(found.coefficient, of_psi @ exact.X, **close)
    matrices = rows_of(data, factors).second_moments(found.information)
    expected = torch.einsum("vkn,ni,nj->vkij", -curvature, exact.X, exact.X)
    torch.testing.assert_close(matrices, expected, **close)
    torch.testing.assert_close(found.weight, exact.slope("log_weight"), **close)
    torch.testing.assert_close(found.weight_information, -exact.curvature("log_weight"), **close)
    share = exact.slope("density") / data.weights.unsqueeze(1)
    statistics = factors.model.leaf.statistics(data.y, data.weights)
    torch.testing.assert_close(found.sums, share.T @ statistics, **close)


@pytest.mark.parametrize("steepness", [1.0, 6.0])
def test_the_first_half_takes_squares_of_slopes(steepness):
    data = rows()
    factors = factors_of(data)
    found, draw = slopes_of(factors, data, rule_of(steepness, exact=False))
    exact = Derivatives(factors, data, draw, steepness)
    square = exact.slope("psi").square() / data.weights
    torch.testing.assert_close(
        rows_of(data, factors).second_moments(found.information),
        torch.einsum("vkn,ni,nj->vkij", square, exact.X, exact.X),
        rtol=1e-8,
        atol=1e-10,
    )


def test_a_power_multiplies_what_the_rows_say_about_splits():
    data = rows()
    factors = factors_of(data)
    plain, _ = slopes_of(factors, data, rule_of())
    tempered, _ = slopes_of(factors, data, rule_of(), power=3.0)
    for name in ("coefficient", "information", "weight", "weight_information"):
        torch.testing.assert_close(getattr(tempered, name), 3 * getattr(plain, name))
    for name in ("likelihood", "sums"):
        torch.testing.assert_close(getattr(tempered, name), getattr(plain, name))


@pytest.mark.parametrize("exact", [False, True])
def test_integer_weights_are_copies_of_rows(exact):
    data = rows()
    counts = torch.arange(len(data.X)).remainder(4)  # some are 0
    weighted = data._replace(weights=counts.double())
    copies = data.take(torch.arange(len(counts)).repeat_interleave(counts))
    copies = copies._replace(weights=torch.ones_like(copies.weights))
    factors = factors_of(data)
    one, _ = slopes_of(factors, weighted, rule_of(exact=exact))
    other, _ = slopes_of(factors, copies, rule_of(exact=exact))
    information = (
        rows_of(some, factors).second_moments(found.information)
        for some, found in ((weighted, one), (copies, other))
    )
    torch.testing.assert_close(*information)
    for name in ("likelihood", "coefficient", "weight", "weight_information", "sums"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("exact", [False, True])
def test_a_tree_among_others_has_the_slopes_that_it_has_alone(exact):
    data = rows()
    factors = factors_of(data)
    together, draw = slopes_of(factors, data, rule_of(exact=exact))
    trees = factors.topology
    for number, (nodes, leaves) in enumerate(zip(trees.nodes, trees.leaves, strict=True)):
        own = factors.tree(number)
        mine = draw._replace(coefficient=draw.coefficient[nodes], log_weight=draw.log_weight[nodes])
        alone = steps._slopes(own, mine, rows_of(data, own), rule_of(exact=exact), 1.0)
        torch.testing.assert_close(alone.likelihood, together.likelihood[[number]])
        torch.testing.assert_close(alone.sums, together.sums[leaves])
        for name in ("coefficient", "information", "weight", "weight_information"):
            torch.testing.assert_close(getattr(alone, name), getattr(together, name)[nodes])


def test_a_sample_of_rows_stands_for_all():
    data = rows()
    factors = factors_of(data)
    all_rows = rows_of(data, factors)
    some = torch.tensor([3, 0, 11, 7])
    found, scale = all_rows.take(some), len(data.X) / 4
    torch.testing.assert_close(found.weights, scale * data.weights[some])
    torch.testing.assert_close(found.statistics, scale * all_rows.statistics[some])
    each = found.second_moments(torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(each, found.X.unsqueeze(1) * found.X.unsqueeze(2))
    torch.testing.assert_close(found.X, data.with_ones().X[some])
    assert torch.equal(found.y, data.y[some])


@pytest.mark.parametrize("split", ["polytope", "oblique"])
def test_the_bound_of_a_step_is_that_of_its_draw(split):
    data = rows()
    factors = factors_of(data, **({"split": Oblique()} if split == "oblique" else {}))
    found, _ = slopes_of(factors, data, rule_of(2.0))
    entropy = MultivariateNormal(factors.mean, precision_matrix=factors.precision).entropy()
    prior = factors.scales.expected_log_prior(factors.moments)
    each = (-entropy - prior).sum(1)
    if split == "polytope":
        weight = PRIORS.weight.law(3, factors.rate)
        each = each + kl_divergence(LogGamma(factors.shape, factors.rate), weight).sum(1)
    leaf = factors.model.leaf
    expected = [
        likelihood - each[nodes].sum() - leaf.posterior(factors.sums[leaves]).kl()
        for likelihood, nodes, leaves in zip(
            found.likelihood, factors.topology.nodes, factors.topology.leaves, strict=True
        )
    ]
    with seeded(0):
        bound = step(factors, rows_of(data, factors), rule_of(2.0))
    torch.testing.assert_close(bound, torch.stack(expected))


def test_bounds_are_those_of_draws_of_each_tree():
    data = rows()
    factors = factors_of(data, steepness=2.0)
    with seeded(0), torch.no_grad():
        found = bounds(factors, data, 0.3, 4)
    assert found.shape == (4, len(TREES))
    divergence = 0.3 * factors.split_divergence() + factors.leaf_divergence()
    with seeded(0), torch.no_grad():
        for one in found:
            draw, leaves = factors.draw(), factors.leaf_law.sample()
            trees = factors.topology
            for tree, (nodes, own) in enumerate(zip(trees.nodes, trees.leaves, strict=True)):
                sites = {
                    "hyperplane": draw.coefficient[nodes, :, :-1],
                    "intercept": draw.coefficient[nodes, :, -1],
                    "log_weight": draw.log_weight[nodes],
                    **{name: value[own] for name, value in leaves.items()},
                }
                model = factors.model.with_(topology=TREES[tree])
                expected = model.log_likelihood(sites, *data) - divergence[tree]
                torch.testing.assert_close(one[tree], expected)


def test_a_step_goes_a_share_of_the_way():
    """To what its draw suggests, by the Gauss-Newton approximation and without the draw's noise."""
    data, rate = rows(), 0.25
    factors, moved = factors_of(data), factors_of(data)
    found, draw = slopes_of(factors, data, rule_of(exact=False))
    with seeded(0):
        step(moved, rows_of(data, moved), rule_of(rate=rate, exact=False))
    mean, variance = (value.clone().requires_grad_() for value in factors.moments[:2])
    moments = factors.moments._replace(mean=mean, variance=variance)
    log_prior = factors.scales.expected_log_prior(moments).sum()
    of_mean, of_variance = torch.autograd.grad(log_prior, (mean, variance))
    goal = rows_of(data, factors).second_moments(found.information) + torch.diag_embed(
        -2 * of_variance
    )
    precision = (1 - rate) * factors.precision + rate * goal
    torch.testing.assert_close(moved.precision, precision)
    slope = (found.coefficient + of_mean).unsqueeze(-1)
    change = torch.linalg.solve(precision, slope).squeeze(-1)
    torch.testing.assert_close(moved.mean, factors.mean + rate * change)
    torch.testing.assert_close(moved.root @ moved.root.mT, torch.linalg.inv(precision))
    torch.testing.assert_close(moved.sums, torch.lerp(factors.sums, found.sums, rate))
    law = PRIORS.weight.law(3, factors.rate)
    information = torch.maximum(found.weight_information, -found.weight).clamp_min(0)
    shape = law.concentration + found.weight + information
    torch.testing.assert_close(moved.shape, torch.lerp(factors.shape, shape, rate))
    at = law.rate + information / draw.log_weight.exp()
    torch.testing.assert_close(moved.rate, torch.lerp(factors.rate, at, rate))


@pytest.mark.parametrize("correlated", [False, True])
def test_a_step_of_low_rank_ends_at_the_latest_where_it_gains_most(correlated):
    """Here if it is far, along what correlated columns share and no axis has."""
    data, rate = rows(), 0.9
    if correlated:
        data = data._replace(X=2 + 0.1 * data.X, weights=1000 * data.weights)
    factors, moved = (factors_of(data, low_rank=True) for _ in range(2))
    for one in (factors, moved):
        one.directions.mul_(not correlated)
    found, _ = slopes_of(factors, data, rule_of(exact=False))
    with seeded(0):
        step(moved, rows_of(data, moved), rule_of(rate=rate, exact=False))
    mean, variance = (value.clone().requires_grad_() for value in factors.moments[:2])
    moments = factors.moments._replace(mean=mean, variance=variance)
    log_prior = factors.scales.expected_log_prior(moments).sum()
    of_mean, of_variance = torch.autograd.grad(log_prior, (mean, variance))
    X = data.with_ones().X
    whole = torch.einsum("vkn,ni,nj->vkij", found.information, X, X)
    whole += torch.diag_embed(-2 * of_variance)
    goal = whole.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(moved.precision, torch.lerp(factors.precision, goal, rate))
    unit = moved.precision.rsqrt()
    scaled = precision_of(factors).lerp(whole, rate) * unit.unsqueeze(-1) * unit.unsqueeze(-2)
    factors._turn(scaled @ factors.directions)
    torch.testing.assert_close(moved.axes @ moved.axes.mT, factors.axes @ factors.axes.mT)
    slope = found.coefficient + of_mean
    along = moved.covariance(slope)
    bend = torch.einsum("vki,vkij,vkj->vk", along, whole, along)
    best = ((along * slope).sum(-1) / bend).unsqueeze(-1)
    assert bool((best < rate).any()) == correlated
    torch.testing.assert_close(moved.mean, factors.mean + along * best.clamp_max(rate))


@pytest.mark.parametrize("low_rank", [False, True])
def test_precisions_stay_positive_whatever_the_curvature(monkeypatch, low_rank):
    """The term of second order outweighs a curvature of the wrong sign."""
    data = rows()
    factors = factors_of(data, low_rank=low_rank)
    plain = steps._slopes

    def bent(*given):
        found = plain(*given)
        return found._replace(information=found.information - 50 * found.information.abs())

    monkeypatch.setattr(steps, "_slopes", bent)
    with seeded(0):
        for _ in range(5):
            step(factors, rows_of(data, factors), rule_of(rate=0.3))
    own = factors.root if low_rank else torch.linalg.eigvalsh(factors.precision)
    assert (own > 0).all()
    assert factors.mean.isfinite().all()


def test_the_rules_of_a_fit():
    schedule = StepSchedule(100, 0.3, 6.0)
    rules = [schedule.rule(number) for number in range(100)]
    assert [rule.exact for rule in rules] == [False] * 50 + [True] * 50
    assert [rule.prior for rule in rules[29:]] == [1.0] * 71
    np.testing.assert_allclose([rule.prior for rule in rules[:29]], np.arange(1, 30) / 30)
    ratios = [b.steepness / a.steepness for a, b in pairwise(rules[:70])]
    np.testing.assert_allclose(ratios, 6 ** (1 / 70))
    assert all(rule.steepness == pytest.approx(6.0) for rule in rules[69:])
    assert [rule.rate for rule in rules[:61]] == [0.3] * 61
    assert rules[99].rate == pytest.approx(0.3 / (1 + 0.1 * 39))


def test_products_that_are_not_kept_are_computed_in_blocks(monkeypatch):
    data = rows()
    factor, leaf = torch.rand(2, 3, len(data.X), dtype=torch.float64), Categorical(2)
    kept = Rows.of(data, leaf, full=True).second_moments(factor)
    monkeypatch.setattr(rows_module, "MOST_PRODUCTS", 1)
    monkeypatch.setattr(rows_module, "BLOCK", 30)  # of five rows
    other = Rows.of(data, leaf, full=True)
    assert other.kept.shape == (len(data.X), 0)
    torch.testing.assert_close(other.second_moments(factor), kept)
