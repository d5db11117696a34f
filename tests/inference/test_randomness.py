"""What random numbers and results depend on: the seed, but not the state of torch and NumPy.

That the seed alone decides, and that no global state changes, is in the contract of stages.
"""

import pickle

import cloudpickle
import numpy as np
import pytest
import torch

from bayestree._utils.state import usual_state
from bayestree.inference import Data, GrowthLimits, Stage, grow, mcmc, nuts, smc, svi, vi
from bayestree.inference import map as fit_map
from bayestree.routing import levels, path_matrix, tree_log_probs
from bayestree.topology import Topology
from tests.inference.problems import ring, soft_tree
from tests.sampling import quickly
from tests.short_checks import short_checks
from tests.unusual_state import unusual_state

LIMITS = GrowthLimits(2, min_gain=1.0)
ROWS = ring(80)


@pytest.fixture(scope="module", autouse=True)
def _short_checks():
    with short_checks():
        yield


def run_grow(seed):
    return grow(soft_tree(), ROWS, limits=LIMITS, steps=10, random_state=seed)


def run_map(seed):
    init = run_grow(0)
    return fit_map(init.model, ROWS, init=init, epochs=2, batch_size=30, random_state=seed)


def run_svi(seed, *, rows=None, **options):
    init = run_grow(0)
    settings = {"epochs": 2, "batch_size": 30, "n_draws": 3, "random_state": seed}
    return svi(init.model, rows or ROWS, init=init, **settings, **options)


def run_autoguide(seed):
    return run_svi(seed, guide="AutoNormal")


def run_vi(seed):
    init = run_grow(0)
    return vi(init.model, ROWS, init=init, n_draws=3, random_state=seed)


def run_nuts(seed):
    start = run_svi(0)
    brief = {"n_chains": 1, "n_warmup": 3, "n_draws": 2, "random_state": seed}
    return nuts(start.model, ROWS, init=start, **brief)


def run_mcmc(seed):
    start = run_svi(0)
    brief = {"n_chains": 1, "n_warmup": 3, "n_draws": 2, "random_state": seed}
    return mcmc(start.model, ROWS, init=start, **brief)


def run_smc(seed):
    brief = {"n_chains": 1, "n_particles": 10, "n_draws": 2, "random_state": seed}
    return smc(soft_tree().with_(steepness=6.0), ROWS, max_depth=1, **brief)


RUNS = [run_grow, run_map, run_svi, run_autoguide]


@pytest.mark.parametrize("kind", [np.random.RandomState, np.random.default_rng])
def test_generators_are_seeds_too(kind):
    one, again = run_grow(kind(3)), run_grow(kind(3))
    assert np.array_equal(one.point["hyperplane"], again.point["hyperplane"])


@pytest.mark.parametrize(
    "run", quickly([*RUNS, run_vi, run_nuts, run_mcmc, run_smc], quick=range(4))
)
def test_the_state_of_the_caller_changes_nothing(run):
    expected = run(0)
    with unusual_state():
        found = run(0)
    for name, value in expected.draws.items():
        assert value.dtype == np.float64
        assert np.array_equal(found.draws[name], value), name
    assert expected.stats.keys() == found.stats.keys()
    for name, value in expected.stats.items():
        assert np.array_equal(found.stats[name], value, equal_nan=True), name


def test_tensors_made_in_inference_mode_are_taken_by_later_fits():
    topology = Topology.stump()
    for function in (path_matrix, levels):
        function.cache_clear()
    with torch.inference_mode():
        tree_log_probs(torch.ones(3, 1, dtype=torch.float64), 1.0, topology)
        levels(topology, torch.device("cpu"))
        rows = Data.of(ROWS.X + 0, ROWS.y + 0)  # of inference mode
    assert not any(column.is_inference() for column in rows)
    assert np.array_equal(run_svi(0).draws["intercept"], run_svi(0, rows=rows).draws["intercept"])


def test_overflow_is_reported_as_the_caller_demands():
    with np.errstate(all="raise"), usual_state():
        assert np.exp(np.float64(-800)) == 0
        with pytest.raises(FloatingPointError, match="overflow"):
            np.exp(np.float64(800))


def test_a_method_of_a_script_reaches_other_processes():
    space = {"Stage": Stage, "__name__": "__main__"}
    exec("class Own(Stage):\n    def fit(self):\n        return 3", space)
    assert pickle.loads(cloudpickle.dumps(space["Own"]))().fit() == 3
