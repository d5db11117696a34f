"""Which refits without a part of the rows give the log score that a fit has on new rows?

    OMP_NUM_THREADS=1 python benchmarks/refits.py FOLDER --tables NAME ... --out results.jsonl
    OMP_NUM_THREADS=1 python benchmarks/refits.py --simulated 3 --out results.jsonl
    python benchmarks/refits.py --show results.jsonl

FOLDER has ``tables.json``, which gives the ``target`` and the ``kind`` (class, number or count) of
each table, and ``NAME.csv.gz``. The default estimator is fitted to ``--rows`` random rows; the
truth is its mean log score on up to 1,500 of the others. ``--simulated`` draws as many tables with
classes and with numbers, of 20 columns (5 matter) and a category of 60 levels. Estimates from the
rows of the fit, in nats a row (``--skip`` leaves some out):

- ``refits5``, ``refits10``: whole fits without each of the folds (encoding, growth, modes);
- ``warm``: five folds whose fits keep encoding, units and topologies, start at the means
  of the posterior, take 20 steps at the final steepness, and weight the modes anew;
- ``short``: five folds with new growth, 40 steps and none of the steps that follow;
- ``psis``: importance sampling from the draws of each mode, weights as given.

Differences are sums over the rows, with standard errors of paired differences; costs are ratios of
CPU time to that of the fit.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import expit, logsumexp
from sklearn.base import clone

import bayestree as bt
from bayestree._utils.arrays import Fold, split_rows
from bayestree.diagnostics import loo, mixed_loo, stacking_weights
from bayestree.fitted.validation import training_rows
from bayestree.fitting.modes import PRIOR_ROWS, fitted_start
from bayestree.inference import Data, Posterior, Vi, pointwise
from bayestree.inference.variational.factors import Factors, StepRule

ESTIMATES = ("refits5", "refits10", "warm", "short", "psis")
NEW_ROWS, WARM_STEPS, SHORT_STEPS = 1500, 20, 40
STEEP = 6.0  # of numbers, as by default
LEVELS = 60


class Short(Vi):
    """The steps alone, without those that follow while a tree gains."""

    def _settle(self, factors: Factors, *_: Any) -> dict[str, Any]:
        zero = np.zeros(len(factors.topology.nodes))
        return dict.fromkeys(("final_elbo", "n_steps", "elbo_gain", "elbo_gain_error"), zero)


class Warm(Short):
    """Steps under the whole prior and the final steepness from the first on."""

    def _climb(self, factors: Factors, rows: Any, progress: bool) -> torch.Tensor:
        trace = []
        for t in range(self.n_steps):
            rate = self.step_size / (1 + 0.1 * max(0.0, t - 0.6 * self.n_steps))
            rule = StepRule(rate, 1.0, factors.model.steepness, exact=t >= self.n_steps / 2)
            trace.append(self._step(factors, rows, rule))
        return torch.stack(trace)


def restacked(posteriors: list[Posterior], data: Data) -> np.ndarray:
    """Weights of the modes by leave-one-out scores of these rows, as in a fit."""
    weights = data.weights.numpy()
    terms = [pointwise.log_likelihood(one.model, one.each(), data) for one in posteriors]
    scores = np.stack([loo(one[None]).elpd_row / weights for one in terms], axis=1)
    return stacking_weights(scores, row_weights=weights, prior_rows=PRIOR_ROWS)


def warm(full: Any, X: pd.DataFrame, y: np.ndarray, folds: list[Fold]) -> np.ndarray:
    """Log p(y_i | x_i, rows of the other folds), by refits that start from the full fit."""
    scaling, trees = full.fitted_.scaling, full.fitted_.trees
    data, _ = training_rows(full, X, y, None)
    data = data._replace(X=data.X[:, torch.as_tensor(np.flatnonzero(scaling.used))])
    model = trees[0].posterior.model.among(scaling.used)
    found = np.empty(len(y))
    for number, (kept, held) in enumerate(folds):
        rows, new = data.subset(torch.as_tensor(kept)), data.subset(torch.as_tensor(held))
        starts = [fitted_start(one.posterior, model, rows, scaling.used) for one in trees]
        stage = Warm(n_steps=WARM_STEPS, steepness=model.steepness)
        each = stage.run_several(starts, rows, random_state=number)
        density = [pointwise.log_density(one.model, one.each(), new) for one in each]
        found[held] = logsumexp(density, axis=0, b=restacked(each, rows)[:, None])
    return found - np.log(scaling.units.y_scale).sum()


def whole(base: Any, X: pd.DataFrame, y: np.ndarray, folds: list[Fold]) -> np.ndarray:
    """Log p(y_i | x_i, rows of the other folds), by fits that know nothing of the fold."""
    found = np.empty(len(y))
    for kept, held in folds:
        again = clone(base).fit(X.iloc[kept], y[kept])
        found[held] = again.log_score(X.iloc[held], y[held])
    return found


def importance(full: Any, X: pd.DataFrame, y: np.ndarray) -> Any:
    """Leave-one-out score of the mixture by importance sampling, trusted or not."""
    data, _ = training_rows(full, X, y, None)
    each = [one.posterior for one in full.fitted_.trees]
    terms = [pointwise.log_likelihood(one.model, one.each(), data) for one in each]
    return mixed_loo([loo(one[None]) for one in terms], full.fitted_.weights)


def measured(
    name: str, X: pd.DataFrame, y: np.ndarray, kind: str, n_rows: int, skip: list[str]
) -> dict[str, Any]:
    """Scores of all rows by each estimate, of new rows by the fit, and CPU seconds."""
    order = np.random.default_rng(0).permutation(len(y))
    own, new = order[:n_rows], order[n_rows : n_rows + NEW_ROWS]
    if kind == "class":
        new = new[np.isin(y[new], y[own])]
    settings: dict[str, Any] = {"leaf": "poisson"} if kind == "count" else {}
    classes = kind == "class"
    make = bt.ConvexPolytopeTreeClassifier if classes else bt.ConvexPolytopeTreeRegressor
    start = time.process_time()
    full = make(random_state=0, **settings).fit(X.iloc[own], y[own])
    found: dict[str, Any] = {"name": name, "columns": X.shape[1], "s": {}}
    found["s"]["fit"] = time.process_time() - start
    base = make(random_state=0, sparsity=None, **settings)  # which changes no posterior
    X_own, y_own = X.iloc[own].reset_index(drop=True), y[own]
    short = Short(n_steps=SHORT_STEPS, steepness=None if classes else STEEP)
    five, ten = (split_rows(n_rows, y_own if classes else None, k, 0) for k in (5, 10))
    ways: dict[str, Callable[[], np.ndarray]] = {
        "refits5": lambda: whole(base, X_own, y_own, five),
        "refits10": lambda: whole(base, X_own, y_own, ten),
        "warm": lambda: warm(full, X_own, y_own, five),
        "short": lambda: whole(clone(base).set_params(inference=short), X_own, y_own, five),
        "psis": lambda: importance(full, X_own, y_own).elpd_row - (y_scale if not classes else 0),
    }
    y_scale = np.log(full.fitted_.scaling.units.y_scale).sum()
    found["bad"] = len(importance(full, X_own, y_own).bad_rows) / n_rows
    found |= {"new": full.log_score(X.iloc[new], y[new]).tolist()}
    found |= {"fitted": full.log_score(X_own, y_own).tolist()}
    for way in ways.keys() - {*skip}:
        start = time.process_time()
        found[way] = ways[way]().tolist()
        found["s"][way] = time.process_time() - start
    return found


def simulated(kind: str, seed: int, n_rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows with a polytope, two slopes, noise columns, and a category with small effects."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n_rows + NEW_ROWS, 20))
    town = rng.integers(LEVELS, size=len(values))
    inside = (values[:, :3] @ rng.normal(size=(3, 3)) < 0.8).all(axis=1)
    mean = (
        2.0 * inside + 0.5 * values[:, 3] - 0.5 * values[:, 4] + 0.4 * rng.normal(size=LEVELS)[town]
    )
    frame = pd.DataFrame(values, columns=[f"x{j}" for j in range(20)])
    frame["town"] = [f"town {number}" for number in town]
    if kind == "number":
        return frame, mean + rng.normal(size=len(mean))
    return frame, np.where(rng.uniform(size=len(mean)) < expit(mean - 0.7), "yes", "no")


def read(folder: Path, name: str) -> tuple[pd.DataFrame, np.ndarray, str]:
    """Features, y and kind of a table."""
    about = json.loads((folder / "tables.json").read_text())[name]
    frame = pd.read_csv(folder / f"{name}.csv.gz", low_memory=False)
    y = frame.pop(about["target"])
    return frame, (y.astype(str) if about["kind"] == "class" else y).to_numpy(), about["kind"]


def difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    each = one - other
    return each.sum(), np.sqrt(len(each)) * each.std(ddof=1)


def show(lines: list[dict[str, Any]]) -> None:
    """Print a table row by row, and the means over the tables in standard errors."""
    print("| table | fitted | new | " + " | ".join(ESTIMATES) + " | k too large | CPU over a fit |")
    print("|---" * (len(ESTIMATES) + 5) + "|")
    ratios: dict[str, list[tuple[float, float]]] = {name: [] for name in ESTIMATES}
    for line in lines:
        new, five = np.array(line["new"]), np.array(line["refits5"])
        truth, error = new.mean(), new.std(ddof=1) / np.sqrt(len(new))
        cells = [line["name"], f"{np.mean(line['fitted']):.3f}", f"{truth:.3f} ± {error:.3f}"]
        for name in ESTIMATES:
            if name not in line:
                cells.append("")
                continue
            own = np.array(line[name])
            gap, spread = difference(own, five)
            of_mean = own.std(ddof=1) / np.sqrt(len(own))
            z = (own.mean() - truth) / np.hypot(error, of_mean)
            ratios[name].append((gap / spread if spread else 0.0, z))
            paired = "" if name == "refits5" else f" ({gap:+.1f} ± {spread:.1f})"
            cells.append(f"{own.mean():.3f}{paired}")
        cells += [f"{line['bad']:.0%}"]
        cost = line["s"]
        cells += [
            ", ".join(f"{name} {cost[name] / cost['fit']:.1f}" for name in cost if name != "fit")
        ]
        print("| " + " | ".join(cells) + " |")
    for name, found in ((name, found) for name, found in ratios.items() if found):
        paired, truth = np.array(found).T
        print(
            f"{name}: minus refits5, in paired standard errors: mean {paired.mean():+.2f}, "
            f"{(paired > 2).sum()} above 2 and {(paired < -2).sum()} below -2 of {len(paired)}; "
            f"minus new rows, in standard errors: mean {truth.mean():+.2f}, "
            f"{(truth > 2).sum()} above 2, {(truth < -2).sum()} below -2"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--tables", nargs="+", default=[])
    parser.add_argument("--simulated", type=int, default=0)
    parser.add_argument("--rows", type=int, default=250)
    parser.add_argument("--skip", nargs="+", default=[], choices=ESTIMATES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.show:
        show([json.loads(line) for line in options.show.read_text().splitlines()])
        return
    for name in options.tables:
        line = measured(name, *read(options.folder, name), options.rows, options.skip)
        with options.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        show([line])
    for seed in range(options.simulated):
        for kind in ("class", "number"):
            X, y = simulated(kind, seed, options.rows)
            line = measured(f"simulated {kind} {seed}", X, y, kind, options.rows, options.skip)
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            show([line])


if __name__ == "__main__":
    main()
