"""SVI against NUTS on small real problems: P(y | x), or E(y | x), side by side.

python benchmarks/posterior.py [SET ...] [--draws 600] [--jobs 2] [--steepness 1]
"""

import argparse
import time

import numpy as np
from data import load

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor, inference
from bayestree._utils.monte_carlo import ess, r_hat
from bayestree.inference import Posterior, Svi

SETS = ("breast683", "pima", "heart", "glass", "airfoil")
TWO = {"glass": 2}  # classes below this number against the others


def problem(name: str):
    """Training and test rows; several classes reduced to two."""
    split = load(name)
    if name in TWO:
        return split._replace(y=split.y < TWO[name], y_test=split.y_test < TWO[name])
    return split


def estimator(name: str, covariance: str, options: argparse.Namespace):
    kind = ConvexPolytopeTreeRegressor if name == "airfoil" else ConvexPolytopeTreeClassifier
    return kind(
        max_depth=2,
        n_experts=5,
        inference=Svi(covariance=covariance, n_draws=400, steepness=options.steepness),
        random_state=options.seed,
    )


def expected(posterior: Posterior, X: np.ndarray) -> np.ndarray:
    """P(last class | x) or E(y | x) of every draw, shape (chain, draw, n)."""
    values = []
    for sites in posterior.each():
        value = posterior.leaf_probs(X, sites) @ posterior.model.leaf.expected_y(sites)
        values.append(value[:, -1] if value.ndim == 2 else value)
    return np.reshape(values, (posterior.n_chains, posterior.n_draws, -1))


def compare(name: str, options: argparse.Namespace) -> None:
    split = problem(name)
    for covariance in ("diagonal", "expert"):
        started = time.perf_counter()
        fitted = estimator(name, covariance, options).fit(split.X, split.y)
        seconds = {covariance: time.perf_counter() - started}
        approximate = fitted.posterior_
        if covariance == "diagonal":
            data = fitted.training_data(split.X, split.y)
            started = time.perf_counter()
            exact = inference.nuts(
                approximate.model,
                data,
                init=approximate,
                n_chains=4,
                n_warmup=options.draws,
                n_draws=options.draws,
                n_jobs=options.jobs,
                random_state=options.seed,
            )
            seconds["nuts"] = time.perf_counter() - started
            rows = fitted.fitted_.scaling.standardise(split.X_test)
            said = expected(exact, rows)
            print(
                f"{name}: {len(split.X)} rows, {approximate.model.topology.n_leaves} leaves; NUTS "
                f"{seconds['nuts']:.0f} s, worst R-hat {r_hat(said).max():.3f}, fewest effective "
                f"draws {ess(said, 'bulk').min():.0f}, "
                f"{int(exact.stats['diverging'].sum())} divergences, log joint R-hat "
                f"{float(r_hat(exact.stats['lp'])):.3f}"
            )
        print(f"  {covariance:<9} {line(expected(approximate, rows), said)}", flush=True)


def line(svi: np.ndarray, nuts: np.ndarray) -> str:
    """Discrepancies of means and of 90 % intervals over the test rows."""
    flat = [draws.reshape(-1, draws.shape[-1]) for draws in (svi, nuts)]
    gap = np.abs(flat[0].mean(axis=0) - flat[1].mean(axis=0))
    low, high = (np.stack([np.quantile(d, p, axis=0) for d in flat]) for p in (0.05, 0.95))
    width = np.median((high - low)[0]) / np.median((high - low)[1])
    ends = np.maximum(np.abs(low[0] - low[1]), np.abs(high[0] - high[1]))
    covered = ((flat[1] >= low[0]) & (flat[1] <= high[0])).mean()
    return (
        f"gap of means: median {np.median(gap):.3f}, worst {gap.max():.3f}; of ends of 90 % "
        f"intervals: median {np.median(ends):.3f}, worst {ends.max():.3f}; width of SVI's to "
        f"NUTS's {width:.2f}; share of NUTS's draws in SVI's interval {covered:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=SETS)
    parser.add_argument("--draws", type=int, default=600)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--steepness", type=float, help="by default that of the estimators, 6")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.names:
        compare(name, options)


if __name__ == "__main__":
    main()
