"""Steps by pyro.infer.SVI are those of the density, and the model that they trace is the same."""

import numpy as np
import pytest

from bayestree.inference import Data, GrowthLimits, Map, Svi, grow
from bayestree.inference import map as fit_map
from bayestree.models import (
    Categorical,
    Flat,
    Gaussian,
    GroupedScale,
    InverseGammaScale,
    Laplace,
    LinearGaussian,
    LiteralGammaProcess,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
)
from tests.inference.problems import ring, soft_tree, step

#: Leaves, split, priors and objective.
PARTS = [
    (Categorical(2), Polytope(3), Priors(), "likelihood"),
    (Categorical(2), Polytope(3), Priors(weight=LiteralGammaProcess()), "impurity"),
    (Gaussian(), Polytope(3), Priors(hyperplane=Laplace(2.0, 3.0)), "impurity"),
    (Gaussian(), Oblique(), Priors(hyperplane=Flat()), "likelihood"),
    (LinearGaussian(), Polytope(2), Priors(hyperplane=InverseGammaScale(2.0)), "likelihood"),
]


def grown(leaf, split, priors):
    """A grown tree with a split, and rows with weights."""
    data = ring(150, noise=0.1) if leaf.n_classes else step(150)
    weights = np.random.default_rng(0).integers(1, 4, len(data.X))
    data = Data.of(data.X, data.y, weights)
    model = soft_tree(leaf, priors=priors).with_(split=split)
    limits = GrowthLimits(2, min_gain=0.5)
    init = grow(model, data.for_leaf(leaf), limits=limits, steps=40, random_state=0)
    assert init.model.topology.n_nodes
    return init, data


def fitted(init, data, **settings):
    common = {"epochs": 6, "batch_size": 60, "steepness": (1.0, 3.0), "routing_tolerance": 0.0}
    return fit_map(init.model, data, init=init, random_state=0, **common | settings)


@pytest.mark.parametrize(("leaf", "split", "priors", "objective"), PARTS, ids=str)
def test_map_by_pyro_takes_the_same_steps(leaf, split, priors, objective):
    """Also by minibatches, with weights, annealing and a prior whose power rises."""
    init, data = grown(leaf, split, priors)
    ours, pyros = (
        fitted(init, data, objective=objective, engine=engine) for engine in ("direct", "pyro")
    )
    assert np.ptp(ours.stats["log_joint"]) > 1
    np.testing.assert_allclose(pyros.stats["log_joint"], ours.stats["log_joint"], rtol=1e-9)
    for name, value in ours.point.items():
        np.testing.assert_allclose(pyros.point[name], value, rtol=1e-7, atol=1e-9)


def test_pyro_calls_the_model_in_every_step(monkeypatch):
    init, data = grown(*PARTS[0][:3])
    calls = []
    stated = SoftTree.__call__
    monkeypatch.setattr(SoftTree, "__call__", lambda *args: calls.append(1) or stated(*args))
    fitted(init, data, engine="pyro")
    assert len(calls) == 6 * 3  # epochs, and batches of 60 of 150 rows
    fitted(init, data, engine="direct")
    assert len(calls) == 6 * 3


@pytest.mark.parametrize("leaf", [Categorical(2), Gaussian()], ids=str)
def test_the_objective_is_that_of_the_model_with_its_likelihood(leaf):
    init, data = grown(leaf, Polytope(2), Priors())
    asked = fitted(init, data, objective="impurity")
    plug_in = init.model.with_(likelihood=leaf.impurity)
    start = grow(plug_in, data, limits=GrowthLimits(2, min_gain=0.5), steps=40, random_state=0)
    stated = fit_map(
        plug_in.with_(topology=init.model.topology),
        data,
        init=init,
        random_state=0,
        epochs=6,
        batch_size=60,
        steepness=(1.0, 3.0),
        routing_tolerance=0.0,
    )
    assert start.model.likelihood == stated.model.likelihood == leaf.impurity
    np.testing.assert_array_equal(asked.stats["log_joint"], stated.stats["log_joint"])
    assert asked.model.likelihood == "mixture"  # its leaves are parameters again
    assert asked.point.keys() >= {"hyperplane", *leaf.sites}


@pytest.mark.parametrize("prior", [InverseGammaScale(), Laplace(2.0, 3.0)], ids=str)
def test_the_bound_rises_by_pyro(prior):
    init, data = grown(Categorical(2), Polytope(2), Priors(hyperplane=prior))
    common = {"engine": "pyro", "n_draws": 2, "batch_size": 150}
    start, found = (
        Svi(epochs=epochs, learning_rate=rate, **common).fit(
            init.model, data, init=init, random_state=0
        )
        for epochs, rate in ((1, 1e-12), (150, 0.03))
    )
    assert found.stats["final_elbo"] > start.stats["final_elbo"] + 10
    assert len(found.stats["elbo"]) == 150


@pytest.mark.parametrize(
    ("stage", "leaf", "prior", "message"),
    [
        (Map(engine="pyro", optimiser="lbfgs"), Categorical(2), None, "optimiser='adam'"),
        (Map(objective="impurity"), LinearGaussian(), None, "objective='likelihood'"),
        (Svi(engine="pyro"), Categorical(2), GroupedScale(groups=((0, 1),)), "engine='direct'"),
    ],
    ids=str,
)
def test_what_pyro_or_the_objective_cannot_do_is_refused(stage, leaf, prior, message):
    priors = Priors() if prior is None else Priors(hyperplane=prior)
    with pytest.raises(ValueError, match=message):
        stage.check(soft_tree(leaf, priors=priors))


@pytest.mark.parametrize("method", [Map, Svi])
def test_pyro_knows_neither_constraints_nor_earlier_rows(method):
    for engine in ("direct", "pyro"):
        stage = method(engine=engine)
        able = stage.adds_rows, stage.keeps_signs, stage.keeps_groups
        assert able == (stage.direct,) * 3 == (engine == "direct",) * 3
    assert not Map(objective="impurity").adds_rows  # whose rows are not a sum
