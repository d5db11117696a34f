"""Do the chains of NUTS (or MCMC) agree at the defaults, and what do they cost?

Run: BAYESTREE_DATA=... python benchmarks/mixing.py [SET...] [--inference mcmc] [--jobs 2]
     [--set NAME=VALUE...]
     BAYESTREE_DATA=... python benchmarks/mixing.py [SET...] --compare nuts mcmc [--depths 1 2]
Worst R-hat and fewest effective draws, bulk and tail, by ``check_convergence``: of P(y | x) (of the
mean, for numbers) at up to 100 rows, of P(right) at rows of each node, of the number of facets that
alone cut off 1 % of a node's rows, and of the log-likelihood; facet probabilities of the root
beside those of the default fit.

With --compare, samplers start from one fit by SVI of each depth, and CPU seconds are those of the
sampler alone: NUTS in a run shorter than its default, MCMC in that of estimators. Worst R-hat and
fewest effective draws of P(y | x) at some 50 rows and of the log joint, and the former in a CPU
second.
"""

import argparse
import time
import warnings

import numpy as np
import torch
from data import REGRESSION, load_all
from sklearn.datasets import load_breast_cancer

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree._utils.monte_carlo import ess, r_hat
from bayestree.inference import Mcmc, Nuts

SETS = ("iris", "breast3", "breast30", "heart", "pima", "wine", "glass", "vehicle", "diabetes")
QUANTITIES = ("prediction", "p_right", "facets", "log_likelihood")
NUMBERS = (*REGRESSION, "diabetes")
MIN_SPREAD = 1e-3  # quantities that vary less are constant


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in ("breast3", "breast30"):
        X, y = load_breast_cancer(return_X_y=True)
        return (X[:, [0, 1, 4]] if name == "breast3" else X), y
    return load_all(name)


def agreement(values: np.ndarray) -> str:
    """Worst R-hat and fewest effective draws of quantities (chain, draw, ...)."""
    flat = values.reshape(*values.shape[:2], -1).astype(float)
    flat = flat[..., flat.std((0, 1)) > MIN_SPREAD]
    if not flat.shape[2]:
        return "constant"
    worst = max(float(r_hat(flat[..., j])) for j in range(flat.shape[2]))
    least = min(float(ess(flat[..., j], "bulk")) for j in range(flat.shape[2]))
    return f"{worst:.3f} {least:.0f}"


def shares(counts: np.ndarray) -> str:
    """Probabilities of 0, 1, 2, ... facets."""
    return " ".join(f"{share:.2f}" for share in np.bincount(counts.ravel()) / counts.size)


def compare(name: str, samplers: list[str], depths: list[int], changes: dict[str, float]) -> None:
    """Print a line for each sampler and depth."""
    X, y = rows_of(name)
    kind = ConvexPolytopeTreeRegressor if name in NUMBERS else ConvexPolytopeTreeClassifier
    for depth in depths:
        svi = kind(n_modes=1, max_depth=depth, random_state=0).fit(X, y)
        data, start = svi.training_data(X, y), svi.posterior_
        rows = data.X[:: max(1, len(data.X) // 50)].numpy()
        for sampler in samplers:
            if sampler == "nuts":
                short = {"n_warmup": 150, "n_draws": 100, "thinning": 2}
                stage = Nuts.from_keywords(short | changes)
            else:
                stage = Mcmc.from_keywords(changes)
            began = time.process_time()
            found = stage.run(start, data, random_state=0)
            cpu = time.process_time() - began
            predicted = np.concatenate([*found.expectations(rows)])
            predicted = predicted.reshape(found.n_chains, found.n_draws, -1)
            said = agreement(predicted)
            each = f"{float(said.split()[1]) / cpu:.2f}" if " " in said else "-"
            print(
                f"{name}, depth {depth}, {sampler}: {found.model.topology.n_nodes} nodes x "
                f"{found.model.split.n_experts} experts, {len(data.X)} rows, {data.X.shape[1]} "
                f"columns, {cpu:.1f} CPU s; P(y | x) {said}, log joint "
                f"{agreement(found.stats['lp'])}; {each} a second",
                flush=True,
            )


def report(name: str, method: str, jobs: int, changes: dict[str, float]) -> None:
    X, y = rows_of(name)
    kind = ConvexPolytopeTreeRegressor if name in NUMBERS else ConvexPolytopeTreeClassifier
    default = kind(random_state=0).fit(X, y)
    began = time.perf_counter(), time.process_time()
    stage = Nuts if method == "nuts" else Mcmc
    chains = stage(**{**stage.in_estimators, **changes})
    est = kind(random_state=0, n_jobs=jobs, inference=chains).fit(X, y)
    wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    table = est.check_convergence(n_rows=100).quantities
    said = "; ".join(
        f"{one} {row.r_hat:.3f}, {row.ess_bulk:.0f}, {row.ess_tail:.0f} ({row.worst})"
        for one, row in table.iterrows()
        if one in QUANTITIES
    )
    counts = np.asarray(est.polytope_size(max_draws=1_000).sizes())
    by_default = np.asarray(default.polytope_size(max_draws=1_000).sizes())
    posterior = est.posterior_
    model, stats = posterior.model, posterior.stats
    trajectories = (
        f"{stats['reached_max_treedepth'].mean():.0%} truncated, "
        f"{int(stats['diverging'].sum())} divergences; "
        if method == "nuts"
        else ""
    )
    print(
        f"{name}: {model.topology.n_nodes} nodes x {model.split.n_experts} experts, {len(X)} rows, "
        f"{X.shape[1]} columns, {posterior.n_chains} chains of {posterior.n_draws} draws, "
        f"{wall:.0f} s ({cpu:.0f} CPU in this process), {trajectories}"
        f"R-hat, effective draws (bulk, tail): {said}; facets of the root "
        f"{shares(counts[..., 0])}, by the default {shares(by_default[..., 0])}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=(*SETS, "airfoil"))
    parser.add_argument("--inference", choices=["nuts", "mcmc"], default="nuts")
    parser.add_argument("--compare", nargs="+", choices=["nuts", "mcmc"])
    parser.add_argument("--depths", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    changes = {
        name: float(v) if "." in v else int(v)
        for name, _, v in (pair.partition("=") for pair in options.set)
    }
    for name in options.sets:
        if options.compare:
            compare(name, options.compare, options.depths, changes)
        else:
            report(name, options.inference, options.jobs, changes)


if __name__ == "__main__":
    main()
