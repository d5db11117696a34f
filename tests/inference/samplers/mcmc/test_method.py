"""Chains of ``mcmc``: numbers, records, errors, and posteriors that are known otherwise."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from bayestree._utils.parallel import loop_threads
from bayestree.inference import Data, Posterior, mcmc, nuts
from bayestree.inference.samplers.density import Layout
from bayestree.inference.samplers.mcmc.chains import Chains, LeafMoves, compiled
from bayestree.inference.samplers.mcmc.method import MOVES, starts
from bayestree.models import (
    Categorical,
    GammaProcess,
    Gaussian,
    Laplace,
    Logistic,
    Oblique,
    Polytope,
    Priors,
    Student,
)
from bayestree.models.soft_tree import sample_prior
from bayestree.topology import Topology
from tests.models.cases import make, rows
from tests.statistical.joint import from_prior, places, thinned, tree

SHORT = {"n_chains": 3, "n_warmup": 4, "n_draws": 6, "thinning": 2, "random_state": 0}


def test_threads_change_no_number():
    """The chains of a thread follow each other; those of several threads move at once."""
    model = make(topology="complete")
    drawn = sample_prior(model, 2, 5, random_state=0)
    data, found = Data.of(*rows(model, n=3000)), []
    for n_threads in (1, 2, 3):
        each = [{name: value[i].numpy() for name, value in drawn.items()} for i in range(5)]
        vectors = np.array([Layout(model, 2).vector(one) for one in each])
        token = loop_threads.set(n_threads)
        chains = Chains(model, data, vectors, np.random.default_rng(0).spawn(5))
        loop_threads.reset(token)
        assert len(chains.works) == n_threads
        for _ in range(3):
            chains.sweep(mirrors=True)
        found.append((chains.vectors, chains.tally))
    assert (found[0][1].sum(axis=(1, 2)) > 0).all()
    for other in found[1:]:
        for values, expected in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(values, expected)


def test_errors_of_threads_are_raised():
    model = make()
    drawn = {name: value[0].numpy() for name, value in sample_prior(model, 2, 1).items()}
    vectors = np.repeat(Layout(model, 2).vector(drawn)[None], 2, axis=0)
    chains = Chains(model, Data.of(*rows(model)), vectors, np.random.default_rng(0).spawn(2))
    chains.tally = chains.tally[:1]
    with pytest.raises(IndexError):
        chains.sweep(mirrors=False)


def start(model, n_draws=10, seed=1, n_chains=1):
    """Draws of the prior."""
    drawn = sample_prior(model, 2, n_chains * n_draws, random_state=seed)
    draws = {n: v.numpy().reshape(n_chains, n_draws, *v.shape[1:]) for n, v in drawn.items()}
    return Posterior(model, draws, {name: v[0, 0] for name, v in draws.items()}, "prior")


def data_for(model, *, weighted=True):
    return Data.of(*rows(model, n=20, weighted=weighted))


def sampled(model, **others):
    return mcmc(model, data_for(model), init=start(model), **SHORT | others)


def assert_same(one, two):
    for mine, other in ((one.draws, two.draws), (one.stats, two.stats), (one.point, two.point)):
        assert mine.keys() == other.keys()
        for name, value in mine.items():
            tolerance = 1e-12 if name == "lp" else 0  # its constant is that of the first draw
            np.testing.assert_allclose(value, other[name], tolerance, err_msg=name)


class TestNumbers:
    def test_do_not_depend_on_the_segments(self, monkeypatch):
        one = sampled(make("incomplete"))
        monkeypatch.setitem(mcmc_globals(), "SEGMENTS", 3)
        assert_same(one, sampled(make("incomplete")))

    def test_warmup_is_only_kept_or_not(self):
        kept, dropped = (sampled(make("stump"), keep_warmup=keep) for keep in (True, False))
        np.testing.assert_array_equal(kept.draws["intercept"], dropped.draws["intercept"])
        assert kept.warmup_draws["intercept"].shape == (3, 4, 1, 3)
        assert kept.warmup_stats["lp"].shape == (3, 4)
        assert not dropped.warmup_draws

    def test_start_and_rows_are_left_alone(self):
        model = make("stump")
        init, data = start(model), data_for(model)
        before = {name: value.copy() for name, value in init.draws.items()}
        X = data.X.clone()
        mcmc(model, data, init=init, **SHORT)
        for name, value in before.items():
            np.testing.assert_array_equal(init.draws[name], value)
        assert torch.equal(data.X, X)

    def test_global_states_are_left_alone(self):
        torch.manual_seed(3)
        np.random.seed(3)  # noqa: NPY002 - the global state is what is asked about
        expected = torch.rand(2), np.random.random(2)  # noqa: NPY002
        torch.manual_seed(3)
        np.random.seed(3)  # noqa: NPY002
        sampled(make("stump"))
        assert torch.equal(torch.rand(2), expected[0])
        np.testing.assert_array_equal(np.random.random(2), expected[1])  # noqa: NPY002


def mcmc_globals():
    from bayestree.inference import Mcmc  # noqa: PLC0415

    return Mcmc.fit.__globals__


class TestRecords:
    @pytest.mark.parametrize(
        "parts",
        [
            {"steepness": 6.0},
            {"split": Oblique(), "steepness": 2.0},
            {"fit": "gaussian-mixture"},
            {"fit": "linear-mixture"},
            {"hyperplane": "explicit"},
        ],
    )
    def test_shapes_and_log_joint(self, parts):
        model = make(**parts)
        found = sampled(model, mirror=True)
        assert found.inference == "mcmc"
        assert (found.n_chains, found.n_draws) == (3, 6)
        shapes = found.model.shapes(2)
        for name, value in found.draws.items():
            assert value.shape == (3, 6, *shapes[name])
            assert found.point[name].shape == shapes[name]
        assert found.stats.keys() == {
            "lp",
            "log_likelihood",
            *(f"accepted_{move}" for move in MOVES),
        }
        for name, value in found.stats.items():
            assert value.shape == (3, 6), name
            assert np.isfinite(value).all(), name
        data = data_for(model)
        for chain, draw in ((0, 0), (2, 5)):
            sites = {n: torch.as_tensor(v[chain, draw]) for n, v in found.draws.items()}
            expected = float(found.model.log_joint(sites, *data))
            np.testing.assert_allclose(found.stats["lp"][chain, draw], expected, 1e-9)
            expected = float(found.model.log_likelihood(sites, *data))
            np.testing.assert_allclose(found.stats["log_likelihood"][chain, draw], expected, 1e-9)
        assert found.settings["mirror"] is True

    def test_shares_of_accepted_moves(self):
        model = make("stump")
        whole = mcmc(model, data_for(model, weighted=False), init=start(model), **SHORT)
        assert (whole.stats["accepted_leaf"] == 1).all()
        assert (whole.stats["accepted_mirror"] == 0).all()
        for move in ("newton", "slide", "weight"):
            assert 0.1 < whole.stats[f"accepted_{move}"].mean() <= 1

    def test_any_leaves(self):
        for leaf in (Student(), Logistic(3)):
            model = make("stump").with_(leaf=leaf)
            X, y, weights = rows(make("stump"), n=20, weighted=True)
            data = Data.of(X, y if leaf.n_classes else y.double(), weights)
            found = mcmc(model, data, init=start(model), **SHORT)
            assert 0 < found.stats["accepted_leaf"].mean() < 1


class TestStarts:
    def test_are_spread_over_chains_and_draws(self):
        model = make("stump")
        init = start(model, n_draws=10, n_chains=3)
        vectors = starts(Layout(model, 2), init, 7, np.random.default_rng(0))
        found = Layout(model, 2).sites(vectors)["intercept"]
        # chains 0, 3 and 6 share the first chain of the start, the others have two each
        places = [(0, 1), (1, 2), (2, 2), (0, 5), (1, 7), (2, 7), (0, 8)]
        for one, (chain, draw) in zip(found, places, strict=True):
            np.testing.assert_allclose(one, init.draws["intercept"][chain, draw])

    def test_near_a_point_estimate(self):
        model = make("stump")
        vectors = starts(Layout(model, 2), start(model, 1), 200, np.random.default_rng(0))
        center = starts(Layout(model, 2), start(model, 2), 1, np.random.default_rng(0))
        assert center.shape == (1, vectors.shape[1])
        np.testing.assert_allclose(vectors.std(axis=0), 0.1, rtol=0.3)

    def test_idle_nodes_and_experts_are_dropped(self):
        model = make("complete", split=Polytope(9))
        init = start(model)
        for values in (init.draws, init.point):
            values["log_weight"][..., 1:] = -40.0  # and so experts 1 to 8 are idle
            values["log_weight"][..., 0] = 3.0
            values["hyperplane"][..., 0, :] = (5.0, 0.0)
            values["intercept"][..., 0] = 0.0
            values["intercept"][..., 1:, 0] = -100.0  # no row turns right
        found = mcmc(model, data_for(model), init=init, drop_idle=True, **SHORT)
        assert found.model.topology.n_nodes == 1
        assert found.model.split.n_experts == 4
        assert found.draws["intercept"].shape == (3, 6, 1, 4)


class TestErrors:
    @pytest.mark.parametrize(
        "priors",
        [Priors(hyperplane=Laplace(1.0, 2.0)), Priors(GammaProcess(rate_prior=(3.0, 2.0)))],
    )
    def test_other_priors(self, priors):
        model = make("stump").with_(priors=priors)
        with pytest.raises(ValueError, match=r"use InverseGammaScale.*inference='nuts' samples"):
            mcmc(model, data_for(model), init=start(model), **SHORT)

    def test_another_topology(self):
        model = make("stump")
        with pytest.raises(ValueError, match="topology"):
            mcmc(model, data_for(model), init=start(make("complete")), **SHORT)

    def test_no_split(self):
        model = make("stump").with_(topology=Topology.leaf())
        with pytest.raises(ValueError, match="no split"):
            mcmc(model, data_for(model), init=start(model), **SHORT)

    def test_plug_in_leaves(self):
        model = make("stump", fit="mutual-information")
        init = replace(start(make("stump")), model=model)
        with pytest.raises(ValueError, match="likelihood"):
            mcmc(model, data_for(model), init=init, **SHORT)

    def test_hard_splits(self):
        model = make("stump", steepness=np.inf)
        init = replace(start(make("stump")), model=model)
        with pytest.raises(ValueError, match="steepness"):
            mcmc(model, data_for(model), init=init, **SHORT)


@pytest.mark.parametrize("leaf", [Categorical(2), Gaussian(), Student()])
@pytest.mark.parametrize("weight", [0.6, 1.0, 1.7, 2.0])
def test_leaves_given_splits_of_weighted_rows(leaf, weight):
    """Means of many draws of the leaves against importance sampling from the prior."""
    model = make("stump", steepness=2.0).with_(leaf=leaf)
    X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = (X[:, 0] > 0).long() if leaf.n_classes else X[:, 0].clone()
    data = Data.of(X, y, np.full(6, weight))
    n = 1000
    init = start(model, n)
    one = {name: np.repeat(v[0, :1], n, axis=0) for name, v in init.draws.items()}
    splits = {name: torch.as_tensor(v[0]) for name, v in one.items()}
    shares = model.leaf_log_probs(splits, X)
    free_leaves = {name: init.draws[name][0] for name in leaf.sites}

    def value(sites):
        found = [torch.as_tensor(np.tanh(v.reshape(n, 2, -1)[:, :, 0])) for v in sites.values()]
        return torch.cat(found, 1).numpy()

    flat = {
        name: torch.as_tensor(v.reshape(2 * n, *v.shape[2:])) for name, v in free_leaves.items()
    }
    density = leaf.log_density(flat, y).T.reshape(n, 2, 6).mT + shares
    weights = (weight * density.logsumexp(-1).sum(-1)).softmax(0).numpy()
    truth = weights @ value(free_leaves)
    error = np.sqrt(weights**2 @ (value(free_leaves) - truth) ** 2)
    layout = Layout(model, 2)
    vectors = np.array([layout.vector({k: v[i] for k, v in (one | free_leaves).items()})
                        for i in range(n)])  # fmt: skip
    chains = Chains(model, data, vectors, np.random.default_rng(2).spawn(n))
    moves = LeafMoves(chains, np.random.default_rng(1))
    for _ in range(30):
        moves.update()
    drawn = value({name: layout.sites(vectors)[name] for name in leaf.sites})
    error = np.hypot(error, drawn.std(axis=0) / np.sqrt(n))
    # the largest of some 50 z-scores: wrong once in 500 test runs
    assert (np.abs(drawn.mean(axis=0) - truth) < 4.3 * error).all()


def test_a_refused_leaf_does_not_count_for_the_next():
    """The present values of the second leaf are accepted, whatever the first one tried."""
    model = make("stump").with_(leaf=Gaussian())
    X = torch.arange(6.0, dtype=torch.float64).view(3, 2)
    free = {name: v[0, 0] for name, v in start(model).draws.items()}
    vectors = Layout(model, 2).vector(free)[None]
    data = Data.of(X, X[:, 0], np.full(3, 0.6))
    chains = Chains(model, data, vectors, np.random.default_rng(0).spawn(1))
    drawn = iter([-np.inf, 1e-6])  # a gain below minus these is refused
    rng = SimpleNamespace(standard_exponential=lambda size: np.full(size, next(drawn)))
    moves = LeafMoves(chains, rng)
    tried = {name: chains.free[name].copy() for name in model.leaf.sites}
    tried["leaf_mean"][:, 0] += 50.0
    moves._choose(tried, np.zeros((1, 2)), np.zeros((1, 2, 3)))
    assert chains.tally[:, :, -1].tolist() == [[1, 2]]


def test_without_data_the_posterior_is_the_prior():
    model = tree(steepness=3.0)
    X = torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = mcmc(
        model,
        Data.of(X, torch.arange(3), np.zeros(3)),
        init=from_prior(model, 200, 1),
        n_chains=4,
        n_warmup=20,
        n_draws=250,
        mirror=True,
        random_state=0,
    )
    assert (found.stats["accepted_fresh"] == 1).all()
    p_values = []
    for values in places(model, found.draws).values():
        flat = values.reshape(4, 250, -1)
        p_values += [
            stats.kstest(thinned(flat[..., j]), stats.uniform.cdf).pvalue
            for j in range(flat.shape[2])
        ]
    assert min(p_values) > 0.001 / len(p_values)


def test_nodes_keep_the_orientations_of_the_start():
    """Chains that start from mirrored draws have a node in either orientation."""
    model = make("stump")
    init = replace(start(model), settings={"mirror": True})
    short = {"init": init, "n_chains": 2, "n_warmup": 1, "n_draws": 2, "random_state": 0}
    for sample in (mcmc, nuts):
        assert sample(model, data_for(model), **short).settings["mirror"]
    assert not sampled(model).settings["mirror"]


def test_the_first_use_says_that_it_compiles(tmp_path, monkeypatch):
    """In a process that has not, by the folder where numba keeps its code."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    script = "from bayestree.inference.samplers.mcmc.chains import compiled; print(compiled())"
    run = [sys.executable, "-c", script]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "False\n"
    sampled(make("stump"))
    assert compiled()
