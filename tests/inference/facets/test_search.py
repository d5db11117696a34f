import math

import numpy as np
import pytest
import torch

from bayestree.inference.facets import SearchOptions
from bayestree.inference.facets.bound import FacetPrior, divergence
from bayestree.inference.facets.fits import Problem, join, refit
from bayestree.inference.facets.rows import Rows
from bayestree.inference.facets.search import (
    boundary_distance,
    core_rows,
    idle_cost,
    improve,
    prune,
    search_facets,
)
from bayestree.inference.facets.sides import FixedSides
from bayestree.inference.facets.starts import Points, guide_around, pool_slot
from bayestree.models import (
    Categorical,
    Gaussian,
)
from tests.inference.facets.cases import N_EXPERTS, SMALL, found_in, polygon, problem, regular, seed
from tests.inference.problems import normal


@pytest.mark.portable
@pytest.mark.parametrize("facets", [3, 4])
def test_planted_polygons_are_found(facets):
    found = found_in(facets)
    assert found.guide.n_facets == facets
    unit = torch.nn.functional.normalize(found.guide.mean[0, :-1, :-1], dim=-1)
    truth = regular(facets, 1.0).coefficient[:, :-1]
    # each planted facet by one of its own, within 15 degrees
    likeness, which = (truth @ unit.T).max(1)
    assert float(likeness.min()) > math.cos(math.radians(15))
    assert len(set(which.tolist())) == facets
    planted = problem(polygon(facets))
    guide = guide_around(regular(facets), planted.rows, planted.prior)
    assert found.elbo > search_facets(planted, guide=guide).elbo - 0.5


def test_labels_may_be_exchanged():
    data = polygon(3)
    found = search_facets(problem(data._replace(y=1 - data.y)))
    assert found.guide.n_facets == 3
    assert abs(found.elbo - found_in(3).elbo) < 0.5


def test_equal_seeds_give_equal_searches():
    again = search_facets(problem(polygon(3)))
    for part, other in zip(again.guide, found_in(3).guide, strict=True):
        assert torch.equal(part, other)
    assert again.elbo == found_in(3).elbo


def test_redundant_facets_are_pruned():
    planted = problem(polygon(3))
    twice = Points(*(torch.cat([part, part[:2]]) for part in regular(3)))
    twice = Points(twice.coefficient + 0.1 * normal(5, 3), twice.log_weight - 0.3)
    fit = planted.adopt(guide_around(twice, planted.rows, planted.prior))
    trace = []
    pruned = prune(fit, planted, trace)
    assert fit.guide.n_facets == 5
    assert pruned.guide.n_facets == 3
    assert trace


@pytest.mark.portable
@pytest.mark.parametrize("leave", [1, 2])
def test_missing_facets_are_born(leave):
    planted = problem(polygon(3))
    some = Points(*(part[:leave] for part in regular(3)))
    fit = refit(planted.adopt(guide_around(some, planted.rows, planted.prior)), planted, 20, 1)
    trace = []
    grown = improve(fit, planted, trace)
    assert grown.guide.n_facets == 3
    assert grown.best > fit.best + 10


@pytest.mark.portable
def test_facets_are_found_in_real_numbers():
    data = polygon(3, 400)
    data = data._replace(y=2 * data.y.double() - 1 + 0.3 * normal(400))
    assert search_facets(problem(data, Gaussian())).guide.n_facets == 3


def test_noise_has_no_facets():
    data = polygon(3, 300)
    y = torch.randint(0, 2, (300,), generator=seed(5))
    found = search_facets(problem(data._replace(y=y), options=SMALL))
    assert found.guide.n_facets == 0
    # not far below one leaf: experts out of use cost little more than idle ones
    assert -10 < found.gain < 0


def test_a_split_is_worth_what_it_gains_over_one_leaf():
    data, found = polygon(3), found_in(3)
    sums = Categorical(2).statistics(data.y, data.weights).sum(0, keepdim=True)
    leaf = Categorical(2).posterior(sums)
    alone = float(leaf.expected_log_density(data.y).sum() - leaf.kl())
    assert found.gain - (found.elbo - alone) == pytest.approx(idle_cost(FacetPrior(), 3))
    # per expert little, and less than at any other guide
    assert 0 < idle_cost(FacetPrior(), 3) < 2 * N_EXPERTS
    whole = problem(data)
    pool = pool_slot(whole.rows, whole.prior)
    assert float((divergence(pool, whole.prior) * N_EXPERTS).sum()) > idle_cost(FacetPrior(), 3)
    assert found.gain > 50


def test_given_sides_are_kept():
    """Rows whose sides are given, some of which other leaves explain better."""
    data = polygon(3)
    says = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).double().log()
    log_else = torch.full((600,), math.log(0.05)).double()
    rows = Rows(data.with_ones().X, data.weights, log_else)
    sides = FixedSides(says[0][data.y], says[1][data.y])
    found = search_facets(Problem.of(rows, sides, FacetPrior(), seed()))
    assert found.guide.n_facets == 3
    assert torch.equal(found.sides.log_left[0], sides.log_left)


@pytest.mark.portable
def test_core_rows_stand_for_all():
    """The nearest to the border for themselves, of the others none for more than three."""
    whole = problem(polygon(3, 3000), options=SearchOptions(core_rows=1600))
    fit = whole.adopt(guide_around(regular(3), whole.rows, whole.prior))
    near = boundary_distance(fit.guide, whole.rows.design).argsort()[:1200]
    totals = []
    for _ in range(50):
        core = core_rows([fit], whole)
        weights = core.rows.weights
        assert int((weights == 1).sum()) == 1200
        assert float(weights.max()) <= 3.0
        score = fit.guide.score(core.rows.design)[0]
        totals.append(float((-score).exp() @ weights))
    kept = {tuple(row) for row in core.rows.design.tolist()}
    assert {tuple(row) for row in whole.rows.design[near].tolist()} <= kept
    exact = float((-fit.guide.score(whole.rows.design)[0]).exp().sum())
    assert abs(np.mean(totals) - exact) < 4 * np.std(totals) / math.sqrt(50)
    assert len(core_rows([fit], problem(polygon(3, 400))).rows.weights) == 400


def test_rows_on_a_facet_have_no_distance_from_the_border():
    whole = problem(polygon(3))
    weak = regular(3)._replace(log_weight=torch.full((3,), -1.0).double())
    guide = guide_around(weak, whole.rows, whole.prior)
    plane = regular(3).coefficient[0]
    border = math.log(math.expm1(math.log(2) / float(guide.centre()[1][0, 0].exp())))
    unit = plane[:2] / plane[:2].norm()
    foot = unit * (border - plane[2]) / plane[:2].norm()
    design = torch.stack(
        [torch.cat([foot + step * unit, torch.ones(1)]) for step in (0, 0.2, -0.1)]
    )
    expected = torch.tensor([0.0, 0.2, 0.1]).double()
    torch.testing.assert_close(boundary_distance(guide, design), expected)


def test_many_rows_are_searched_by_some():
    found = search_facets(problem(polygon(3, 1200), options=SMALL._replace(core_rows=500)))
    assert found.guide.n_facets == 3


def test_fits_in_a_batch_do_not_touch_each_other():
    planted = problem(polygon(3, 200))
    fits = [
        planted.adopt(guide_around(regular(facets), planted.rows, planted.prior))
        for facets in (3, 2)
    ]
    together = refit(join(fits), planted, 5, 1)
    for fit, both in zip(fits, together.each(), strict=True):
        alone = refit(fit, planted, 5, 1)
        facets = fit.guide.n_facets
        torch.testing.assert_close(both.elbo, alone.elbo)
        torch.testing.assert_close(both.guide.mean[:, :facets], alone.guide.mean[:, :facets])
