"""What a new user sees: a table as it comes through every command at the defaults.

Run: python benchmarks/first_use.py TABLE.csv TARGET [--drop COLUMN ...] [--rows 2000] [--row 3]

All that `fit`, `explain` and `cross_val_score` in Python and `run`, `diagnose`, `summary`,
`explain` and `report` on the command line print is printed, warnings included. The last lines are
scores of three folds (log loss and accuracy, or RMSE and R2), ours beside a constant, a linear
model, a forest and boosting, which tell whether the verdict is right. Of larger tables, ``--rows``
rows are drawn at random.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import bayestree as bt

RUN_FILE = """[data]
path = "{path}"
target = "{target}"
drop = {drop}

[output]
folder = "{folder}"
"""


def encoded(model: Any, ordinal: bool = False) -> Any:
    """The model after the encoding of text that such models need."""
    text = OneHotEncoder(handle_unknown="ignore", min_frequency=2)
    if ordinal:
        text = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    numbers = (
        "passthrough"
        if ordinal
        else make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    )
    return make_pipeline(
        make_column_transformer(
            (text, make_column_selector(dtype_exclude="number")),
            (numbers, make_column_selector(dtype_include="number")),
        ),
        model,
    )


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "bayestree": (
        lambda: bt.ConvexPolytopeTreeClassifier(random_state=0),
        lambda: bt.ConvexPolytopeTreeRegressor(random_state=0),
    ),
    "constant": (lambda: DummyClassifier(strategy="prior"), DummyRegressor),
    "linear": (
        lambda: encoded(LogisticRegression(max_iter=2000)),
        lambda: encoded(RidgeCV(np.logspace(-3, 3, 13))),
    ),
    "forest": (
        lambda: encoded(RandomForestClassifier(random_state=0)),
        lambda: encoded(RandomForestRegressor(random_state=0)),
    ),
    "boosting": (
        lambda: encoded(HistGradientBoostingClassifier(random_state=0), ordinal=True),
        lambda: encoded(HistGradientBoostingRegressor(random_state=0), ordinal=True),
    ),
}


def in_python(X: pd.DataFrame, y: pd.Series, classifies: bool, row: int) -> None:
    model = MODELS["bayestree"][not classifies]()
    print(f"\n>>> model = {type(model).__name__}(random_state=0).fit(X, y)", flush=True)
    begin = time.process_time()
    model.fit(X, y)
    print(f"({time.process_time() - begin:.0f} s of CPU time)")
    print(f">>> model.score(X, y)\n{model.score(X, y):.3f}")
    print(f">>> print(model.explain(X.iloc[[{row}]]))\n{model.explain(X.iloc[[row]])}", flush=True)


def on_the_command_line(path: Path, target: str, drop: list[str], row: int) -> None:
    folder = path.parent
    file, result = folder / f"{path.stem}.toml", folder / "result"
    file.write_text(RUN_FILE.format(path=path.resolve(), target=target, drop=drop, folder=result))
    for verb in (
        ["run", file],
        ["diagnose", result],
        ["summary", result],
        ["explain", result, str(row)],
        ["report", result],
    ):
        print(f"\n$ bayestree {' '.join(map(str, verb))}".replace(f"{folder}/", ""), flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "bayestree.cli", *verb],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(f"{done.stdout.rstrip()}\n(exit code {done.returncode})".replace(f"{folder}/", ""))


def scores(X: pd.DataFrame, y: pd.Series, classifies: bool) -> None:
    measures = ("neg_log_loss", "accuracy") if classifies else ("neg_root_mean_squared_error", "r2")
    folds = (StratifiedKFold if classifies else KFold)(3, shuffle=True, random_state=0)
    print(f"\n| three folds | {' | '.join(measures)} | CPU seconds of a fit |\n|---|---|---|---|")
    for name, both in MODELS.items():
        found = cross_validate(both[not classifies](), X, y, cv=folds, scoring=measures)
        cells = [f"{found[f'test_{one}'].mean():.3f}" for one in measures]
        print(f"| {name} | {' | '.join(cells)} | {found['fit_time'].mean():.2g} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("target")
    parser.add_argument("--drop", nargs="*", default=[])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--row", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sys.stderr = sys.stdout  # warnings in their places
    every = pd.read_csv(options.path)
    every = every[every[options.target].notna()]
    every = every.sample(min(options.rows, len(every)), random_state=0).sort_index()
    frame = every.drop(columns=options.drop)
    y = frame.pop(options.target)
    classifies = not pd.api.types.is_numeric_dtype(y) or y.nunique() <= 20
    print(f"{options.path.stem}: {frame.shape[0]} rows, {frame.shape[1]} columns, y: {y.name}")
    in_python(frame, y, classifies, options.row)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / options.path.name
        every.to_csv(table, index=False)
        on_the_command_line(table, options.target, options.drop, options.row)
    scores(frame, y, classifies)


if __name__ == "__main__":
    main()
