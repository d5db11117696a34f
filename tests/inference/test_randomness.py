"""What random numbers and results depend on: the seed, but not the default dtype of torch.

That the seed alone decides, and that no global state changes, is in the contract of stages.
"""

import numpy as np
import pytest
import torch

from bayestree.inference import GrowthLimits, grow, svi
from bayestree.inference import map as fit_map
from tests.inference.problems import ring, soft_tree

LIMITS = GrowthLimits(2, min_gain=1.0)


def run_grow(seed):
    return grow(soft_tree(), ring(80), limits=LIMITS, steps=10, random_state=seed)


def run_map(seed):
    init = run_grow(0)
    return fit_map(init.model, ring(80), init=init, epochs=2, batch_size=30, random_state=seed)


def run_svi(seed, **options):
    init = run_grow(0)
    settings = {"epochs": 2, "batch_size": 30, "n_draws": 3, "random_state": seed}
    return svi(init.model, ring(80), init=init, **settings, **options)


def run_autoguide(seed):
    return run_svi(seed, guide="AutoNormal")


RUNS = [run_grow, run_map, run_svi, run_autoguide]


@pytest.mark.parametrize("run", RUNS)
def test_another_seed_gives_another_result(run):
    one, other = run(5), run(6)
    assert not np.array_equal(one.draws["intercept"], other.draws["intercept"])


@pytest.mark.parametrize("kind", [np.random.RandomState, np.random.default_rng])
def test_generators_are_seeds_too(kind):
    one, again = run_grow(kind(3)), run_grow(kind(3))
    assert np.array_equal(one.point["hyperplane"], again.point["hyperplane"])


@pytest.mark.parametrize("run", RUNS)
def test_a_default_dtype_of_float32_changes_nothing(run):
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float32)
        single = run(0)
        torch.set_default_dtype(torch.float64)
        double = run(0)
    finally:
        torch.set_default_dtype(before)
    for name, value in single.draws.items():
        assert value.dtype == np.float64
        assert value.shape == double.draws[name].shape
