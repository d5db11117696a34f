"""What earlier rows say about the splits: scores by row, and the normal factor."""

import numpy as np
import torch

from bayestree.distributions import LogWeibull
from bayestree.inference import Data
from bayestree.inference.streaming import N_SIGNS, Memory, information
from bayestree.models import Categorical, Polytope, Priors, SoftTree
from bayestree.models.priors.base import Moments
from bayestree.topology import Topology

SPLITS = ("hyperplane", "intercept", "log_weight")


def problem(n=40):
    rng = np.random.default_rng(0)
    data = Data.of(rng.normal(size=(n, 2)), rng.integers(2, size=n), rng.uniform(0.5, 3, n))
    model = SoftTree(Topology.stump(), Polytope(2), Priors(), Categorical(2))
    sites = {
        "hyperplane": torch.tensor(rng.normal(size=(1, 2, 2))),
        "intercept": torch.tensor(rng.normal(size=(1, 2))),
        "log_weight": torch.zeros(1, 2, dtype=torch.float64),
        "leaf_probs": torch.tensor([[0.8, 0.2], [0.3, 0.7]], dtype=torch.float64),
    }
    return model, sites, data


def test_the_information_is_the_sum_of_squared_scores():
    model, sites, data = problem()
    free = {name: sites[name].clone().requires_grad_() for name in SPLITS}
    exact = {name: torch.zeros_like(value) for name, value in free.items()}
    for x, y, weight in zip(*data, strict=True):
        row = model.log_likelihood_rows({**sites, **free}, x[None], y[None]).sum()
        for name, score in zip(free, torch.autograd.grad(row, [*free.values()]), strict=True):
            exact[name] += weight * score.square()
    n_seeds = 20
    found = [information(model, sites, data, seed=seed) for seed in range(n_seeds)]
    for name, value in exact.items():
        mean = torch.stack([one[name] for one in found]).mean(0)
        # the square of a sum with random signs has a relative sd of at most sqrt(2)
        allowed = 5 * (2 / (n_seeds * N_SIGNS)) ** 0.5
        np.testing.assert_allclose(mean, value, rtol=allowed)


def test_rows_add_up():
    model, sites, data = problem()
    halves = [data.take(torch.arange(start, 40, 2)) for start in (0, 1)]
    first, second = (Memory.of(model, sites, half, seed=0) for half in halves)
    whole = Memory.of(model, sites, data, seed=0)
    both = first.updated(second)
    for name in ("sums", "hard_sums", "rows"):
        np.testing.assert_allclose(getattr(both, name), getattr(whole, name))
    np.testing.assert_allclose(both.precision, first.precision + second.precision)
    np.testing.assert_allclose(both.rows.sum(), data.weights.sum())


def test_the_expected_penalty_is_that_of_draws():
    memory = Memory.of(*problem(), seed=0)
    law = LogWeibull(torch.full((1, 2), 3.0), torch.full((1, 2), 0.2)).expand([1, 2])
    mean, variance = torch.full((1, 2, 3), 0.5).double(), torch.full((1, 2, 3), 0.3).double()
    drawn = torch.stack(
        [
            memory.penalty(mean + variance.sqrt() * torch.randn(1, 2, 3), law.sample())
            for _ in range(4000)
        ]
    )
    expected = memory.expected_penalty(Moments(mean, variance), law)
    assert abs(float(drawn.mean() - expected)) < 5 * float(drawn.std()) / 4000**0.5
