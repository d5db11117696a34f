"""Gradients and effective draws per second: the package's NUTS against Pyro's on the same model.

A stump of six experts on 300 rows of a noisy triangle. python benchmarks/nuts.py [--draws 200]
With --gradients: CPU time of a gradient, hand-written and by autograd, for trees of many sizes.
"""

import argparse
import time

import numpy as np
import pyro
import torch
from pyro.infer import MCMC, NUTS
from sbc import PLACES

from bayestree import inference
from bayestree._utils.monte_carlo import ess
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.samplers.density import NumpyDensity, TorchDensity
from bayestree.models import Categorical, Polytope, SoftTree
from bayestree.topology import Topology

#: Rows, columns, depth and experts per node.
SIZES = (
    (100, 4, 1, 4),
    (150, 4, 1, 20),
    (768, 8, 1, 20),
    (768, 8, 2, 20),
    (768, 8, 3, 20),
    (1000, 10, 4, 10),
    (3000, 10, 2, 10),
    (2000, 16, 5, 8),
)


def triangle(n: int, seed: int) -> Data:
    """Class 0 inside a triangle; one label in ten is wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    angle = 2 * np.pi / 3 * np.arange(3)
    outside = (X @ np.stack([np.cos(angle), np.sin(angle)]) > 0.9).any(axis=1)
    return Data.of(X, (outside ^ (rng.random(n) < 0.1)).astype(int))


def predictions(posterior: Posterior) -> np.ndarray:
    """P(y = 1) at fixed points, shape (chain, draw, points)."""
    values = [
        posterior.leaf_probs(PLACES, sites) @ sites["leaf_probs"].numpy()[:, 1]
        for sites in posterior.each()
    ]
    return np.reshape(values, (posterior.n_chains, posterior.n_draws, len(PLACES)))


def pyros(model: SoftTree, data: Data, start: Posterior, n: int) -> tuple[Posterior, int]:
    """Pyro's NUTS on the model as stated, and its number of gradient evaluations."""
    calls = 0

    def counted(*arguments: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return model(*arguments)

    pyro.set_rng_seed(0)
    sites = {name: value for name, value in start.point_sites().items() if name != "weight"}
    kernel = NUTS(counted, max_tree_depth=8, init_strategy=to_value(sites))
    chain = MCMC(kernel, num_samples=n, warmup_steps=n, disable_progbar=True)
    chain.run(*data)
    draws = {name: value.numpy()[None] for name, value in chain.get_samples().items()}
    return Posterior(model, draws, start.point, "pyro"), calls


def to_value(sites: dict[str, torch.Tensor]):
    """Start at given values."""
    return pyro.infer.autoguide.initialization.init_to_value(values=sites)


def report(name: str, posterior: Posterior, gradients: int, seconds: float) -> None:
    said = predictions(posterior)
    effective = min(float(ess(said[..., place], "bulk")) for place in range(len(PLACES)))
    print(
        f"{name:<10} {seconds:7.1f} s {gradients:8d} gradients {gradients / seconds:8.0f} /s   "
        f"effective draws of P(y): {effective:6.0f}, {effective / seconds:6.2f} /s   "
        f"P(y) {said.mean((0, 1)).round(3)} sd {said.std((0, 1)).round(3)}",
        flush=True,
    )


def gradients() -> None:
    """Least CPU time of a gradient over five batches, in turn, at a draw of standard normals."""
    for n_rows, n_features, depth, n_experts in SIZES:
        rng = np.random.default_rng(0)
        data = Data.of(rng.normal(size=(n_rows, n_features)), rng.integers(0, 2, n_rows))
        topology = Topology.complete(depth)
        model = SoftTree(topology, Polytope(n_experts), leaf=Categorical(2), steepness=6.0)
        densities = NumpyDensity(model, data), TorchDensity(model, data)
        vector = rng.normal(size=densities[0].layout.length)
        best = np.full(2, np.inf)
        for _ in range(5):
            for place, density in enumerate(densities):
                began, calls = time.process_time(), 0
                while time.process_time() < began + 0.2:
                    density.value_and_gradient(vector)
                    calls += 1
                best[place] = min(best[place], (time.process_time() - began) / calls)
        print(
            f"{n_rows:5d} rows x {n_features:2d}, {topology.n_nodes:2d} nodes x {n_experts:2d} "
            f"experts: {1e6 * best[0]:7.0f} us, by autograd {1e6 * best[1]:7.0f} us",
            flush=True,
        )


def compare(draws: int) -> None:
    """Both samplers on a stump."""
    data = triangle(300, 0)
    model = SoftTree(Topology.leaf(), Polytope(6), leaf=Categorical(2))
    grown = inference.grow(model, data, limits=GrowthLimits(1, min_gain=0.0), random_state=0)
    start = inference.svi(grown.model, data, init=grown, epochs=1000, random_state=0)

    began = time.perf_counter()
    ours = inference.nuts(
        grown.model,
        data,
        init=start,
        n_chains=4,
        n_warmup=draws,
        n_draws=5 * draws,
        keep_warmup=True,
        random_state=0,
    )
    steps = int(ours.stats["n_steps"].sum() + ours.warmup_stats["n_steps"].sum())
    report("bayestree", ours, steps, time.perf_counter() - began)

    began = time.perf_counter()
    theirs, calls = pyros(grown.model, data, start, draws)
    report("pyro", theirs, calls, time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--gradients", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.gradients:
        gradients()
    else:
        compare(options.draws)


if __name__ == "__main__":
    main()
