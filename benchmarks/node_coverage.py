"""How often intervals hold the truth: P(y | x) or E(y | x), P(right) at nodes, and facets.

    python -m benchmarks.node_coverage [SETS] [CELL ...] [--truth]

Truths come from the prior of the package. A node of the printed tree is matched to the true node
that puts at least nine of ten rows on the same side, in either orientation. With --truth, default
fits start all modes at the true tree, instead of grown ones.
"""

import sys
import time
import warnings
from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import torch

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
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


def facets_of(draws: Any, one: Any, X: Any) -> Any:
    """Facets of each node of a draw whose removal alone moves 1 % of the rows."""
    with np.errstate(over="ignore", divide="ignore"):
        rate = np.log(2) * np.exp(-np.maximum(draws["log_weight"][one], -700))
        level = rate + np.log(-np.expm1(-rate))
    activation = np.einsum("vkd,nd->vkn", draws["hyperplane"][one], X)
    over = activation + draws["intercept"][one][..., None] > level[..., None]
    alone = over & (over.sum(axis=1, keepdims=True) == 1)
    return (alone.mean(axis=-1) >= SHARE).sum(axis=1)


def truth(seed: int, n: int, d: int, depth: int, classes: bool) -> Any:
    """An informative set from the prior: model, sites, rows, y and P(right) of all nodes."""
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
        if (
            LEAST_SHARE < root.mean() < 1 - LEAST_SHARE
            and gap > LEAST_GAP
            and len(np.unique(y)) > 1
        ):
            return model, sites, draws, X, y, mean, right


def quantiles(values: Any, weights: Any) -> Any:
    """Central interval of values (S, ...) of draws with weights (S,)."""
    order = np.argsort(values, axis=0)
    total = np.cumsum(weights[order], axis=0)
    low, high = (
        (total >= q * total[-1]).argmax(axis=0) for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    )
    ordered = np.take_along_axis(values, order, axis=0)
    return [np.take_along_axis(ordered, place[None], axis=0)[0] for place in (low, high)]


def measure(seed: int, cell: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Fit a set, and compare what is said of it with the truth."""
    known = truth(seed, *cell)
    kind: Any = ConvexPolytopeTreeClassifier if cell[3] else ConvexPolytopeTreeRegressor
    from_truth = settings.pop("truth", False)
    started = time.process_time()
    with mock.patch.object(Vi, "run_several", started_at(known)) if from_truth else nullcontext():
        fit = kind(max_depth=cell[2], random_state=seed, **settings).fit(*known[3:5])
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


def evaluate(fit: Any, known: Any, seed: int, cell: Any) -> dict[str, Any]:
    _, d, _, classes = cell
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
    low, high = quantiles(values, weights)
    found["y"], found["width"] = ((low <= true) & (true <= high)).mean(), (high - low).mean()
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
    found |= {"right": [], "facets": [], "number": [], "true": [], "right_width": []}
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
        number = facets_of(draws, (0, 0), X[rows])[u]
        low, high = sizes.interval(LEVEL)[v]
        found["facets"].append(float(low <= number <= high))
        found["number"].append(sizes.sizes()[:, v].mean())
        found["true"].append(number)
    return found


def report(name: str, results: list[dict[str, Any]]) -> None:
    def of(key: str) -> Any:
        return np.array([value for one in results for value in np.ravel(one.get(key, []))])

    def pm(key: str) -> str:
        v = of(key)
        return f"{v.mean():.3f} +- {v.std() / max(len(v), 1) ** 0.5:.3f}" if len(v) else "-"

    share = np.mean([len(one.get("right", [])) > 0 for one in results])
    print(
        f"{name}: y {pm('y')} width {pm('width')}; sets with a matched node {share:.2f}, nodes "
        f"{len(of('right'))}; right {pm('right')} width {pm('right_width')}; "
        f"facets {pm('facets')} mean {pm('number')} true {pm('true')}; CPU {pm('cpu')}",
        flush=True,
    )


CELLS = {
    "classes, depth 2": (300, 3, 2, True),
    "classes, depth 1": (300, 3, 1, True),
    "classes, d 10": (300, 10, 2, True),
    "classes, n 1000": (1000, 3, 2, True),
    "numbers, depth 2": (300, 3, 2, False),
    "numbers, depth 1": (300, 3, 1, False),
    "numbers, d 10": (300, 10, 2, False),
    "numbers, n 1000": (1000, 3, 2, False),
}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    methods: dict[str, dict[str, Any]] = {"default": {}, "vi": {"inference": "vi"}}
    if "--truth" in sys.argv:
        methods = {"default, from the truth": {"truth": True}}
    for name in [one for one in sys.argv[2:] if one != "--truth"] or CELLS:
        for method, settings in methods.items():
            found = [measure(seed, CELLS[name], {**settings}) for seed in range(count)]
            report(f"{name}; {method}", found)


if __name__ == "__main__":
    main()
