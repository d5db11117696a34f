from functools import cache

import numpy as np
import pytest
import torch

from bayestree.inference import Data, GrowthLimits, Posterior, grow, svi
from bayestree.inference.bounds import evaluate_elbo
from bayestree.inference.facets import improve_facets, polytope_guide
from bayestree.inference.facets.bound import FacetPrior
from bayestree.inference.facets.tree import TreeFacets, _Tree
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
from tests.inference.facets.cases import N_EXPERTS, SMALL, found_in, polygon, regular, seed, stump
from tests.inference.problems import soft_tree


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


@pytest.mark.parametrize("leaf", [None, Gaussian()], ids=["classes", "reals"])
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


def test_svi_searches_first(monkeypatch):
    monkeypatch.setattr(
        improve_facets,
        "__kwdefaults__",
        improve_facets.__kwdefaults__ | {"options": SMALL, "sweeps": 1},
    )
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
    [{"covariance": "diagonal"}, {"guide": "AutoNormal"}, {"kl_weight": 0.5}],
    ids=str,
)
def test_a_search_that_cannot_be_is_rejected(changes):
    init, data = grown()
    options = {"covariance": "expert"} | changes
    with pytest.raises(ValueError, match="search_facets needs guide='polytope'"):
        svi(init.model, data, init=init, search_facets=True, **options)


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
    found = svi(
        model, data, init=start, covariance="expert", search_facets=True, epochs=5, random_state=0
    )
    assert found.model.topology == Topology.stump()
    assert found.stats["n_facets"].tolist() == [1]
    assert found.draws["leaf_probs"].shape[2] == 2
