"""Survival trees against Cox regression, survival forests and gradient boosting, by five folds.

The concordance is Harrell's. The integrated Brier score is over twenty times between the 10 % and
80 % quantiles of the times of the training rows, with the censoring of these. Penalties are chosen
by concordance within the training rows. The sets are those of scikit-survival and lifelines.

Run: python benchmarks/survival.py [NAME ...] [--models NAME ...] [--modes N], with both installed.
"""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from lifelines.datasets import load_rossi
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sksurv import datasets
from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

from bayestree import ConvexPolytopeTreeSurvival
from bayestree.diagnostics import concordance, integrated_brier_score, kaplan_meier

SETS = ("rossi", "gbsg2", "whas500", "veterans")
MODELS = ("weibull", "exponential", "cox", "forest", "boosting", "constant")
PENALTIES = np.geomspace(0.01, 100.0, 5)


def rows_of(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Features, and y as a structured array of event and time."""
    if name == "rossi":
        table = load_rossi()
        y = Surv.from_arrays(table["arrest"] == 1, table["week"])
        return table.drop(columns=["arrest", "week"]), y
    load = {"gbsg2": datasets.load_gbsg2, "whas500": datasets.load_whas500}
    X, y = load.get(name, datasets.load_veterans_lung_cancer)()
    event, when = y.dtype.names
    return X, Surv.from_arrays(y[event], y[when])


def other(model: str) -> object:
    if model == "cox":
        line = make_pipeline(StandardScaler(), CoxPHSurvivalAnalysis())
        return GridSearchCV(line, {"coxphsurvivalanalysis__alpha": PENALTIES}, cv=5)
    if model == "forest":
        return RandomSurvivalForest(min_samples_leaf=15, random_state=0)
    return GradientBoostingSurvivalAnalysis(random_state=0)


def predicted(model: str, X: pd.DataFrame, y: np.ndarray, Xt: pd.DataFrame,
              at: np.ndarray, options: argparse.Namespace) -> tuple:  # fmt: skip
    """Risk scores and survival functions of the test rows, and the number of leaves."""
    if model in ("weibull", "exponential"):
        tree = ConvexPolytopeTreeSurvival(
            leaf=model,
            n_modes=options.modes,
            inference=options.inference,
            random_state=0,
            verbose=False,
        ).fit(X, y)
        return tree.predict(Xt), tree.predict_survival_function(Xt, at), tree.get_n_leaves()
    if model == "constant":
        times, survival = kaplan_meier(y["time"], y["event"])
        steps = np.concatenate([[1.0], survival])[np.searchsorted(times, at, "right")]
        return np.zeros(len(Xt)), np.tile(steps, (len(Xt), 1)), 1
    both = pd.get_dummies(pd.concat([X, Xt]), drop_first=True, dtype=float)
    found = other(model).fit(both.to_numpy()[: len(X)], y)
    rows = both.to_numpy()[len(X) :]
    best = getattr(found, "best_estimator_", found)
    steps = best.predict_survival_function(rows)
    return best.predict(rows), np.array([step(at) for step in steps]), 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--modes", type=int, default=3)
    parser.add_argument("--inference", default="svi")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| set (rows, events) | model | concordance | integrated Brier score | leaves | "
          "s of a fit |\n|---|---|---|---|---|---|")  # fmt: skip
    for name in options.sets:
        X, y = rows_of(name)
        for model in options.models:
            start, each = time.process_time(), []
            folds = StratifiedKFold(5, shuffle=True, random_state=0).split(X, y["event"])
            for own, held in folds:
                train, test = y[own], y[held]
                at = np.linspace(*np.quantile(train["time"], [0.1, 0.8]), 20)
                risk, survival, leaves = predicted(model, X.iloc[own], train, X.iloc[held], at,
                                                   options)  # fmt: skip
                error = integrated_brier_score(
                    test["time"], test["event"], survival, at,
                    reference=(train["time"], train["event"]),
                )  # fmt: skip
                c_index = concordance(test["time"], test["event"], risk)
                each.append((c_index, error, leaves))
            seconds = (time.process_time() - start) / 5
            found, leaves = np.mean(each, axis=0)[:2], np.mean(each, axis=0)[2]
            spread = np.std(each, axis=0, ddof=1)[:2] / np.sqrt(5)
            print(f"| {name} ({len(y)}, {y['event'].sum()}) | {model} | {found[0]:.3f} ± "
                  f"{spread[0]:.3f} | {found[1]:.4f} ± {spread[1]:.4f} | {leaves:.1f} | "
                  f"{seconds:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
