"""How often intervals hold the truth: P(y | x) or E(y | x), P(right) at nodes, and facets.

    python -m benchmarks.node_coverage [SETS] [CELL ...] [--truth | --vi]

Truths come from the prior of the package: all that it gives, or informative ones alone; or their
root is a polytope of one to three facets, each of which alone cuts off 3 % of the rows. A node of
the printed tree is matched to the true node that puts at least nine of ten rows on the same side,
in either orientation. Standard errors are those of sums over sets, whose nodes and points depend
on each other. With --truth, default fits start all modes at the true tree, instead of grown ones;
--vi fits without sweeps.
"""

import sys
import time
import warnings
from contextlib import nullcontext
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree._utils.monte_carlo import central_interval
from bayestree.diagnostics.draws import branch_log_probs, scores
from bayestree.inference import Posterior, Vi
from bayestree.inference.pointwise import leaf_sums
from bayestree.models import (
    Categorical,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.models.soft_tree import sample_prior
from bayestree.topology import Topology

LEVEL, MATCHED, POINTS = 0.9, 0.8, 20  # agreement .8: nine of ten rows on the same side
SHARE = 0.01
LEAST_SHARE, LEAST_GAP = 0.15, 0.35  # of an informative set
ALONE, LENGTH, ABSENT = 0.03, 6.0, -50.0  # planted facets: rows of each, slope, weight of others


class Cell(NamedTuple):
    """What a set is like; facets are those of a planted root."""

    rows: int
    columns: int
    depth: int
    classes: bool
    informative: bool = True
    facets: int = 0


def facets_of(draws: Any, one: Any, X: Any) -> Any:
    """Facets of each node of a draw whose removal alone moves 1 % of the rows."""
    with np.errstate(over="ignore", divide="ignore"):
        rate = np.log(2) * np.exp(-np.maximum(draws["log_weight"][one], -700))
        level = rate + np.log(-np.expm1(-rate))
    activation = np.einsum("vkd,nd->vkn", draws["hyperplane"][one], X)
    over = activation + draws["intercept"][one][..., None] > level[..., None]
    alone = over & (over.sum(axis=1, keepdims=True) == 1)
    return (alone.mean(axis=-1) >= SHARE).sum(axis=1)


def plant(sites: Any, facets: int, X: Any, slope: float, rng: Any) -> bool:
    """Make the root a polytope with two unlike sides, and tell whether the rows show it."""
    u = rng.normal(size=(facets, X.shape[1]))
    u *= slope / np.linalg.norm(u, axis=1, keepdims=True)
    share = rng.uniform(0.5, 1.0, facets) * min(0.5, 0.75 / facets)
    offset = -np.array([np.quantile(X @ a, 1 - q) for a, q in zip(u, share, strict=True)])
    out = X @ u.T + offset > 0
    sites["hyperplane"][0, :facets], sites["intercept"][0, :facets] = map(
        torch.as_tensor, (u, offset)
    )
    sites["log_weight"][0] = torch.where(
        torch.arange(len(sites["log_weight"][0])) < facets, 0.0, ABSENT
    )
    if "leaf_probs" in sites:
        sites["leaf_probs"][:] = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    else:
        sites["leaf_mean"][:], sites["leaf_scale"][:] = torch.tensor([-1.0, 1.0]), 0.5
    alone = (out & (out.sum(1, keepdims=True) == 1)).mean(0)
    return bool(alone.min() >= ALONE)


def truth(seed: int, cell: Cell) -> Any:
    """A set of a cell: model, sites, rows, y, its means and P(right) of all nodes."""
    n, d, depth, classes = cell[:4]
    prior = InverseGammaScale(0.5, 0.1, 0.1) if classes else InverseGammaScale(2.0)
    leaf = Categorical(2) if classes else Gaussian()
    model = SoftTree(
        Topology.complete(depth), Polytope(4), Priors(GammaProcess(), prior), leaf,
        steepness=1.0 if classes else 6.0,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    while True:
        X = rng.normal(size=(n, d))
        sites = {
            k: v[0]
            for k, v in sample_prior(model, d, 1, random_state=int(rng.integers(2**31))).items()
        }
        if cell.facets and not plant(sites, cell.facets, X, LENGTH / model.steepness, rng):
            continue
        shares = model.leaf_log_probs(sites, torch.as_tensor(X)).exp().numpy()
        z = (shares.cumsum(1) < rng.random((n, 1))).sum(1).clip(max=shares.shape[1] - 1)
        draws = {k: v.numpy()[None, None] for k, v in sites.items()}
        left, right = (
            np.exp(part) for part in branch_log_probs(scores(draws, (0, 0), X), model.steepness)
        )
        if classes:
            probs = sites["leaf_probs"].numpy()
            y = (rng.random(n) < probs[z, 1]).astype(int)
            mean = shares @ probs[:, 1]
        else:
            y = sites["leaf_mean"].numpy()[z] + sites["leaf_scale"].numpy()[
                z
            ] * rng.standard_normal(n)
            mean = shares @ sites["leaf_mean"].numpy()
        root = right[:, 0]
        gap = abs((root * mean).sum() / root.sum() - (left[:, 0] * mean).sum() / left[:, 0].sum())
        gap = gap if classes else gap / y.std()
        shown = LEAST_SHARE < root.mean() < 1 - LEAST_SHARE and gap > LEAST_GAP
        if (shown or not cell.informative) and len(np.unique(y)) > 1:
            return model, sites, draws, X, y, mean, right


def score(low: Any, high: Any, true: Any) -> Any:
    """Interval score: the width, and what the truth is outside times 2 / (1 - LEVEL)."""
    outside = np.maximum(low - true, 0) + np.maximum(true - high, 0)
    return (high - low + 2 / (1 - LEVEL) * outside).mean()


def measure(seed: int, cell: Cell, settings: dict[str, Any]) -> dict[str, Any]:
    """Fit a set, and compare what is said of it with the truth."""
    known = truth(seed, cell)
    kind: Any = ConvexPolytopeTreeClassifier if cell.classes else ConvexPolytopeTreeRegressor
    from_truth = settings.pop("truth", False)
    started = time.process_time()
    with mock.patch.object(Vi, "run_several", started_at(known)) if from_truth else nullcontext():
        fit = kind(max_depth=cell.depth, random_state=seed, **settings).fit(*known[3:5])
    return {"cpu": time.process_time() - started, **evaluate(fit, known, seed, cell)}


def started_at(known: Any) -> Any:
    """Return Vi.run_several with the true tree in the place of those that it is given."""
    truth, sites, _, X = known[:4]
    plane, offset = sites["hyperplane"], sites["intercept"]
    offset = offset + plane @ torch.as_tensor(X.mean(axis=0))
    plane = plane * torch.as_tensor(X.std(axis=0))
    split = {"hyperplane": plane, "intercept": offset, "log_weight": sites["log_weight"]}
    run = Vi.run_several

    def run_several(stage: Any, found: Any, data: Any, **common: Any) -> Any:
        model = found[0].model.with_(topology=truth.topology)
        sums = leaf_sums(model, split, data.for_leaf(model.leaf))
        start = Posterior.from_point(model, split | model.leaf.estimate(sums), "grow")
        return run(stage, [start] * len(found), data, **common)

    return run_several


def evaluate(fit: Any, known: Any, seed: int, cell: Cell) -> dict[str, Any]:
    _, d, _, classes = cell[:4]
    model, sites, draws, X, _, _, right = known
    found: dict[str, Any] = {}
    mixture, tree = fit.fitted_, fit.tree_
    points = np.random.default_rng([seed, 1]).normal(size=(POINTS, d))
    groups = [*mixture.drawn(points)]
    values = np.concatenate([g for g, _ in groups])
    values = values[..., 1] if classes else values
    weights = np.concatenate([w for _, w in groups])
    t = {k: torch.as_tensor(v) for k, v in sites.items()}
    shares = model.leaf_log_probs(t, torch.as_tensor(points)).exp().numpy()
    true = shares @ (sites["leaf_probs"].numpy()[:, 1] if classes else sites["leaf_mean"].numpy())
    low, high = central_interval(values, weights, mixture.chains, LEVEL)
    found["y"], found["width"] = ((low <= true) & (true <= high)).mean(), (high - low).mean()
    found["score"] = score(low, high, true)
    if not tree.n_nodes:
        return found
    sides = np.array([tree.goes_right(v, X) for v in range(tree.n_nodes)]).T
    visited = [step[1] for step in tree.walk(X)]
    reached = np.zeros_like(sides)
    for v, rows in enumerate(visited):
        reached[rows, v] = True
    hard = right > 0.5
    stated, sizes = fit.split_uncertainty(points, level=LEVEL), fit.polytope_size()
    of_truth = np.exp(branch_log_probs(scores(draws, (0, 0), points), model.steepness)[1])
    found |= {"right": [], "facets": [], "number": [], "true": [], "excess": []}
    found |= {"right_width": [], "right_score": []}
    for v in range(tree.n_nodes):
        rows = reached[:, v]
        agree = 2 * (sides[rows, v][:, None] == hard[rows]).mean(axis=0) - 1
        u = np.abs(agree).argmax()
        if abs(agree[u]) < MATCHED:
            continue
        true = of_truth[:, u] if agree[u] > 0 else 1 - of_truth[:, u]
        low, high = stated.interval[:, v].T
        found["right"].append(((low <= true) & (true <= high)).mean())
        found["right_width"].append((high - low).mean())
        found["right_score"].append(score(low, high, true))
        number = facets_of(draws, (0, 0), X[rows])[u]
        low, high = sizes.interval(LEVEL)[v]
        found["facets"].append(float(low <= number <= high))
        found["number"].append(sizes.sizes()[:, v].mean())
        found["true"].append(number)
        found["excess"].append(found["number"][-1] - number)
    return found


def report(name: str, results: list[dict[str, Any]]) -> None:
    def pm(key: str) -> str:
        sums = np.array([np.sum(one.get(key, [])) for one in results])
        sizes = np.array([np.size(one.get(key, [])) for one in results])
        if not sizes.any():
            return "-"
        mean = sums.sum() / sizes.sum()
        error = ((sums - mean * sizes) ** 2).sum() ** 0.5 / sizes.sum()
        return f"{mean:.3f} ({error:.3f})"

    matched = np.array([len(one.get("right", [])) for one in results])
    print(
        f"{name}, {len(results)} sets: y {pm('y')} width {pm('width')} score {pm('score')}; sets "
        f"with a matched node {np.mean(matched > 0):.2f}, nodes {matched.sum()}; right "
        f"{pm('right')} width {pm('right_width')} score {pm('right_score')}; facets {pm('facets')} "
        f"mean {pm('number')} true {pm('true')} difference {pm('excess')}; CPU {pm('cpu')}",
        flush=True,
    )


CELLS = {
    "classes, depth 2": Cell(300, 3, 2, True),
    "classes, depth 1": Cell(300, 3, 1, True),
    "classes, d 10": Cell(300, 10, 2, True),
    "classes, n 1000": Cell(1000, 3, 2, True),
    "numbers, depth 2": Cell(300, 3, 2, False),
    "numbers, depth 1": Cell(300, 3, 1, False),
    "numbers, d 10": Cell(300, 10, 2, False),
    "numbers, n 1000": Cell(1000, 3, 2, False),
    "classes, prior": Cell(300, 3, 2, True, informative=False),
    "numbers, prior": Cell(300, 3, 2, False, informative=False),
    **{
        f"{kind}, {facets} planted": Cell(300, 3, 1, kind == "classes", facets=facets)
        for kind in ("classes", "numbers")
        for facets in (1, 2, 3)
    },
}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    method, settings = "default", {}
    if "--truth" in sys.argv:
        method, settings = "default, from the truth", {"truth": True}
    elif "--vi" in sys.argv:
        method, settings = "vi", {"inference": "vi"}
    for name in [one for one in sys.argv[2:] if not one.startswith("--")] or CELLS:
        found = [measure(seed, CELLS[name], {**settings}) for seed in range(count)]
        report(f"{name}; {method}", found)


if __name__ == "__main__":
    main()
