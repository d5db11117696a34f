"""The search for facets, in one node and in every node of a tree."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from bayestree.inference import Data, GrowthLimits, Posterior, grow, svi
from bayestree.inference.convergence import evaluate_elbo
from bayestree.inference.variational.facets.bound import (
    FacetPrior,
    Problem,
    SearchOptions,
    divergence,
    join,
    refit,
)
from bayestree.inference.variational.facets.likelihood import FixedSides, SplitRows
from bayestree.inference.variational.facets.moves import Points, guide_around, pool_slot
from bayestree.inference.variational.facets.search import (
    TreeFacets,
    _Tree,
    boundary_distance,
    core_rows,
    idle_cost,
    improve,
    improve_facets,
    polytope_guide,
    prune,
    search_facets,
)
from bayestree.models import (
    Categorical,
    Flat,
    GammaProcess,
    Gaussian,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.topology import Topology
from tests.inference.problems import normal, soft_tree
from tests.inference.variational.facets.cases import (
    N_EXPERTS,
    SMALL,
    found_in,
    polygon,
    problem,
    regular,
    seed,
    stump,
)
from tests.sampling import quickly


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


@pytest.mark.statistical
def test_labels_may_be_exchanged():
    data = polygon(3)
    found = search_facets(problem(data._replace(y=1 - data.y)))
    assert found.guide.n_facets == 3
    assert abs(found.elbo - found_in(3).elbo) < 0.5


def test_equal_seeds_give_equal_searches():
    one, again = (search_facets(problem(polygon(3, 300), options=SMALL)) for _ in range(2))
    for part, other in zip(again.guide, one.guide, strict=True):
        assert torch.equal(part, other)
    assert again.elbo == one.elbo


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
    rows = SplitRows(data.with_ones().X, data.weights, log_else)
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


@cache
def grown(leaf=None):
    """Inside a triangle, the class by the side of a line; outside, the other."""
    data = polygon(3, 250)
    y = torch.where(data.y == 1, 2, (data.X[:, 0] > 0).long())
    data = data._replace(y=y) if leaf is None else data._replace(y=y.double() - 1)
    limits = GrowthLimits(2, min_gain=5.0)
    model = soft_tree(leaf or Categorical(3), 8)
    return grow(model, data, limits=limits, steps=100, random_state=0), data


@cache
def improved(leaf=None):
    return improve_facets(*grown(leaf), sweeps=1, options=SMALL, random_state=0)


@pytest.mark.parametrize("leaf", quickly([None, Gaussian()], quick=(0,)), ids=str)
def test_the_nodes_of_a_tree_are_improved_in_turn(leaf):
    init, data = grown(leaf)
    shared = {"init": init, "covariance": "expert", "random_state": 0, "n_draws": 2}
    plain = svi(init.model, data, epochs=200, **shared)
    facets = improved(leaf)
    guide = polytope_guide(init.model, facets, data).eval()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = float(evaluate_elbo(guide, data, 50))
    assert found > plain.stats["final_elbo"]
    assert len(facets.nodes) == init.model.topology.n_nodes
    assert float(facets.leaf_sums[:, 0].sum() if leaf else facets.leaf_sums.sum()) == pytest.approx(
        250
    )


def test_routing_follows_the_guide_that_was_found():
    data, planted = polygon(3, 150), regular(3)
    sites = {
        "hyperplane": planted.coefficient[None, :, :-1],
        "intercept": planted.coefficient[None, :, -1] + 8.0,
        "log_weight": planted.log_weight[None],
    }
    tree = _Tree(Posterior.from_point(stump(3), sites, "grow"), data)
    found = tree.improve(0, SMALL, seed())
    facets = TreeFacets((found.guide,), tree.leaf_sums, np.ones(1))
    guide = polytope_guide(stump(3), facets, data).eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        drawn = [guide.leaf_log_probs(data.with_ones().X, 1.0).exp() for _ in range(500)]
    torch.testing.assert_close(
        tree.branch[:, 0].exp().T, torch.stack(drawn).mean(0), atol=0.06, rtol=0.0
    )


@pytest.mark.statistical
def test_a_tree_is_improved_in_the_same_way_from_equal_seeds():
    again = improve_facets(*grown(), sweeps=1, options=SMALL, random_state=0)
    assert torch.equal(again.leaf_sums, improved().leaf_sums)
    assert again.trace == improved().trace


def test_a_node_that_is_not_needed_is_marked():
    data = polygon(3, 300)
    topology = Topology(np.array([[1, -1], [-2, -3]]))
    planted, split = regular(3), regular(1)
    nothing = torch.full((2,), -8.0).double()
    sites = {
        "hyperplane": torch.stack([planted.coefficient, split.coefficient.expand(3, -1)])[..., :-1],
        "intercept": torch.stack([planted.coefficient, split.coefficient.expand(3, -1)])[..., -1],
        "log_weight": torch.stack([planted.log_weight, torch.cat([nothing, torch.zeros(1)])]),
        "leaf_probs": torch.full((3, 2), 0.5).double(),
    }
    model = stump(3).with_(topology=topology)
    init = Posterior.from_point(model, sites, "grow")
    facets = improve_facets(init, data, sweeps=1, options=SMALL, random_state=0)
    assert facets.needed.tolist() == [True, False]
    assert facets.n_facets.tolist() == [3, 0]


def test_factors_of_the_tree_are_those_of_its_nodes():
    data, found = polygon(3, 100), found_in(3)
    sums = torch.ones(2, 2).double()
    guide = polytope_guide(stump(), TreeFacets((found.guide,), sums, np.ones(1)), data)
    node = found.guide
    slots = [0, 1, 2] + [3] * (N_EXPERTS - 3)
    torch.testing.assert_close(guide.mean, node.mean[:, slots])
    torch.testing.assert_close(guide.factor, node.factor[:, slots])
    torch.testing.assert_close(guide.tilt, node.tilt[:, slots])
    torch.testing.assert_close(guide.log_weight_law.loc, node.loc[:, slots])
    single = Data.of(*data, dtype=torch.float32)
    facets = TreeFacets((node,), sums, np.ones(1))
    assert polytope_guide(stump(), facets, single).mean.dtype == torch.float32


@pytest.fixture
def short_search(monkeypatch):
    """A search by few moves, as the first part of a fit by SVI."""
    monkeypatch.setattr(
        improve_facets,
        "__kwdefaults__",
        improve_facets.__kwdefaults__ | {"options": SMALL, "sweeps": 1},
    )


@pytest.mark.usefixtures("short_search")
def test_svi_searches_first():
    init, data = grown()
    shared = {"init": init, "covariance": "expert", "random_state": 0, "n_draws": 5, "epochs": 100}
    plain = svi(init.model, data, **shared)
    found = svi(init.model, data, search_facets=True, **shared)
    assert found.stats["final_elbo"] > plain.stats["final_elbo"]
    assert found.stats["n_facets"].shape == (init.model.topology.n_nodes,)
    assert found.settings["search_facets"]
    assert any("end" in line for line in found.settings["facet_trace"])
    assert found.draws["hyperplane"].shape == (1, 5, init.model.topology.n_nodes, 8, 2)
    assert "n_facets" not in plain.stats


@pytest.mark.parametrize(
    "changes",
    [{"guide": "AutoNormal"}, {"kl_weight": 0.5}],
    ids=str,
)
def test_a_search_that_cannot_be_is_rejected(changes):
    init, data = grown()
    with pytest.raises(ValueError, match="search_facets needs guide='polytope'"):
        svi(init.model, data, init=init, search_facets=True, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"priors": Priors(hyperplane=Flat())},
        {"priors": Priors(GammaProcess(rate_prior=(1.0, 1.0)))},
        {"split": Oblique()},
    ],
    ids=["flat", "hyper-prior", "oblique"],
)
def test_a_model_in_which_facets_have_no_price_is_rejected(changes):
    with pytest.raises(ValueError, match="The search for facets needs"):
        FacetPrior.of(stump().with_(**changes))


@pytest.mark.usefixtures("short_search")
def test_a_node_that_is_not_needed_leaves_the_posterior():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    data = Data.of(X, (X[:, 0] > 0.3).astype(int))
    model = SoftTree(Topology(np.array([[1, ~2], [~0, ~1]])), Polytope(3), leaf=Categorical(2))
    sites = {
        "hyperplane": torch.tensor([[[6.0, 0.0]] * 3, [[0.0, 1.0]] * 3], dtype=torch.float64),
        "intercept": torch.tensor([[-1.8] * 3, [0.0] * 3], dtype=torch.float64),
        "log_weight": torch.full((2, 3), -1.0, dtype=torch.float64),
        "leaf_probs": torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]], dtype=torch.float64),
    }
    start = Posterior.from_point(model, sites, "planted")
    found = svi(model, data, init=start, search_facets=True, epochs=5, random_state=0)
    assert found.model.topology == Topology.stump()
    assert found.stats["n_facets"].tolist() == [1]
    assert found.draws["leaf_probs"].shape[2] == 2
