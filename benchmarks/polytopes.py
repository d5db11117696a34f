"""Planted polytopes: does a fit from the data alone reach the ELBO of a fit started at the truth?

Run: python benchmarks/polytopes.py [--seeds 5] [--cases 0 1 2 ...]
"""

import argparse
import time

import numpy as np
import torch

from bayestree.inference.variational.facets.bound import (
    FacetPrior,
    NodeGuide,
    Problem,
    SearchOptions,
    drop_negligible,
    measure,
)
from bayestree.inference.variational.facets.likelihood import LeafSides, SplitRows
from bayestree.inference.variational.facets.moves import Points, fit_points, guide_around
from bayestree.inference.variational.facets.search import finish, search_facets
from bayestree.models import Categorical

#: columns, facets, rows
CASES = [(2, 3, 2000), (2, 4, 2000), (2, 5, 2000), (2, 6, 4000), (2, 8, 20000), (5, 4, 5000),
         (5, 6, 5000)]  # fmt: skip
NOISE = (0.0, 0.05)
STEEPNESS = (10.0, 40.0)  # of the truth-started fits, of which the better counts
DRAWS = 200


def planted(d: int, facets: int, n: int, noise: float, seed: int):
    """Rows uniform in a box; y = 1 outside a polytope whose every facet cuts off >= 6 % of them."""
    rng = np.random.default_rng(1000 * d + 100 * facets + seed)
    x = rng.uniform(-1.7, 1.7, (n, d))
    alone_least = 0.03
    while True:
        u = rng.normal(size=(facets, d))
        if d == 2:
            turn = (np.arange(facets) + rng.uniform(-0.25, 0.25, facets)) / facets
            angle = 2 * np.pi * (turn + rng.uniform())
            u = np.stack([np.cos(angle), np.sin(angle)], 1)
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        share = rng.uniform(0.06, 0.25, facets)
        t = np.array([np.quantile(x @ a, 1 - s) for a, s in zip(u, share, strict=True)])
        out = x @ u.T > t
        alone = (out & (out.sum(1, keepdims=True) == 1)).mean(0).min()
        if alone >= alone_least and 0.25 < out.any(1).mean() < 0.8:
            break
        alone_least *= 0.98  # what each facet cuts off by itself shrinks with their number
    y = out.any(1) ^ (rng.uniform(size=n) < noise)
    return torch.tensor(x), torch.tensor(y.astype(int)), torch.tensor(u), torch.tensor(t)


def problem_of(x: torch.Tensor, y: torch.Tensor, seed: int) -> Problem:
    ones = x.new_ones(len(x))
    rows = SplitRows(torch.cat([x, ones[:, None]], 1), ones)
    sides = LeafSides(Categorical(2), y, 0 * ones)
    return Problem.of(rows, sides, FacetPrior(), torch.Generator().manual_seed(seed),
                      SearchOptions())  # fmt: skip


def from_truth(u: torch.Tensor, t: torch.Tensor, problem: Problem) -> tuple[NodeGuide, float]:
    """The better of the fits started at the planted facets, with the same last optimiser."""
    found = []
    for steep in STEEPNESS:
        plane = torch.cat([steep * u, -(steep * t)[:, None]], 1)
        start = Points(plane[None], torch.zeros(1, len(u), dtype=torch.float64))
        points, _, _ = fit_points(start, problem)
        fit = problem.adopt(guide_around(points.one(0), problem.rows, problem.prior))
        fit = finish(drop_negligible(fit, problem), problem)
        found.append((fit.guide, measure(fit, problem)))
    return max(found, key=lambda pair: pair[1])


def facet_mode(guide: NodeGuide, problem: Problem) -> int:
    """Posterior mode of the number of experts whose largest vote is 1 % of log 2 or more."""
    generator = torch.Generator().manual_seed(7)
    own, width = guide.n_slots - 1, problem.rows.design.shape[1]
    index = torch.tensor([*range(own), *[own] * (problem.prior.n_experts - own)])
    counts = []
    for _ in range(DRAWS):
        level = torch.log(torch.empty(len(index), dtype=torch.float64)
                          .exponential_(generator=generator))  # fmt: skip
        law = guide.law
        log_weight = law.loc[0, index] + level / law.concentration[0, index]
        standard = (log_weight - law.mean[0, index]) / law.stddev[0, index]
        noise = torch.randn(len(index), width, generator=generator, dtype=torch.float64)
        plane = (guide.mean[0, index] + guide.tilt[0, index] * standard[:, None]
                 + (guide.factor[0, index] @ noise[..., None])[..., 0])  # fmt: skip
        top = torch.nn.functional.softplus((plane @ problem.rows.design.T).amax(1))
        counts.append(int((top * log_weight.exp() >= 0.01 * np.log(2)).sum()))
    return int(np.bincount(counts).argmax())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cases", type=int, nargs="*", default=range(len(CASES)))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| columns, facets, rows | noise | seed | gap, nats | mode | truth's mode | s |")
    print("|---|---|---|---|---|---|---|")
    for case in options.cases:
        for noise in NOISE:
            for seed in range(options.seeds):
                x, y, u, t = planted(*CASES[case], noise, seed)
                start = time.process_time()
                problem = problem_of(x, y, seed)
                found = search_facets(problem)
                seconds = time.process_time() - start
                guide, elbo = from_truth(u, t, problem)
                print(f"| {CASES[case]} | {noise} | {seed} | {found.elbo - elbo:+.1f} | "
                      f"{facet_mode(found.guide, problem)} | {facet_mode(guide, problem)} | "
                      f"{seconds:.0f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
