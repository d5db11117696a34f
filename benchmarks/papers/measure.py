"""One fit after the other into a Parquet file, from which an interrupted run continues."""

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score, mean_squared_error, roc_auc_score
from sklearn.model_selection import train_test_split

from benchmarks.data import Split
from benchmarks.papers.methods import METHODS, AbsentError, Method, Settings
from benchmarks.papers.tables import TABLES, Table

KEY = ["table", "set", "method", "column", "seed", "fold"]
COLUMNS = ("defaults", "validated")


class Results:
    """The measurements of a file, which is rewritten after each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frame = pd.read_parquet(path) if path.exists() else pd.DataFrame(columns=KEY)
        self.done = set(self.frame[KEY].itertuples(index=False, name=None))

    def add(self, row: dict[str, Any]) -> None:
        self.frame = pd.DataFrame([*self.frame.to_dict("records"), row])
        self.done.add(tuple(row[name] for name in KEY))
        partial = self.path.with_suffix(".partial")
        self.frame.to_parquet(partial)
        partial.replace(self.path)


def measure(results: Results, tables: list[str], options: Any) -> None:
    """Fit what ``results`` lacks; a method whose package is absent is left out by name."""
    warnings.simplefilter("ignore")  # of other packages
    for key, rows in _missing(results, tables, options):
        name, data, method, column = key["table"], key["set"], key["method"], key["column"]
        try:
            row = key | fitted(TABLES[name], data, METHODS[method], column, rows, key["seed"])
        except AbsentError as absent:
            print(f"{method} is left out: {absent}", flush=True)
            continue
        results.add(row)
        print(
            f"{name} {data} {method} {column} {key['seed']}.{key['fold']}: {row['score']:.4f}, "
            f"{row['leaves']:g} leaves, {row['fit_s']:.1f} CPU s",
            flush=True,
        )


def _missing(
    results: Results, tables: list[str], options: Any
) -> Iterator[tuple[dict[str, Any], Split]]:
    for name in tables:
        table = TABLES[name]
        for data in (one for one in table.published if one in (options.sets or [one])):
            for part in table.parts(data, options.seeds or table.seeds):
                for method in options.methods:
                    for column in options.columns:
                        key = (name, data, method, column, part.seed, part.fold)
                        if key not in results.done:
                            yield dict(zip(KEY, key, strict=True)), part.rows


def fitted(
    table: Table, data: str, method: Method, column: str, rows: Split, seed: int
) -> dict[str, Any]:
    """Score, size and seconds of one fit, with settings chosen on training rows if validated."""
    measured = table.measure(data)
    task = "regression" if measured == "rmse" else "classification"
    fixed = {"max_depth": table.depth[data]} if data in table.depth else {}
    start = time.process_time()
    chosen: Settings = {}
    if column == "validated":
        chosen = _chosen(method, task, fixed, rows, measured, seed)
    searched = time.process_time()
    model = _made(method, task, chosen | fixed, seed).fit(rows.X, rows.y)
    done = time.process_time()
    return {
        "score": score(model, rows.X_test, rows.y_test, measured),
        "tree_score": _tree_score(model, rows, measured),
        "leaves": float(model.get_n_leaves()) if hasattr(model, "get_n_leaves") else np.nan,
        "search_s": searched - start,
        "fit_s": done - searched,
        "settings": json.dumps(chosen | fixed),
    }


def _made(method: Method, task: str, settings: Settings, seed: int) -> Any:
    model = method.make(task, {})
    known = model.get_params()
    settings = settings | {"random_state": seed}
    return model.set_params(**{name: v for name, v in settings.items() if name in known})


def _chosen(
    method: Method, task: str, fixed: Settings, rows: Split, measured: str, seed: int
) -> Settings:
    """The settings with the best score on a fifth of the training rows."""
    settings = [one for one in method.settings() if not (one.keys() & fixed.keys())] or [
        {name: value for name, value in one.items() if name not in fixed}
        for one in method.settings()
    ]
    settings = [one for i, one in enumerate(settings) if one not in settings[:i]]
    if len(settings) < 2:
        return settings[0]
    strata = rows.y if task == "classification" else None
    X, held, y, y_held = train_test_split(
        rows.X, rows.y, test_size=0.2, stratify=strata, random_state=seed
    )
    found = [
        score(_made(method, task, one | fixed, seed).fit(X, y), held, y_held, measured)
        for one in settings
    ]
    return settings[int(np.argmin(found) if measured == "rmse" else np.argmax(found))]


def score(model: Any, X: np.ndarray, y: np.ndarray, measured: str) -> float:
    """Score of the predictions by default: of the posterior, where there are draws."""
    if measured == "auc":
        return float(roc_auc_score(y, model.predict_proba(X)[:, 1]))
    if measured == "rmse":
        return float(np.sqrt(mean_squared_error(y, model.predict(X))))
    return float(accuracy_score(y, model.predict(X)))


def _tree_score(model: Any, rows: Split, measured: str) -> float:
    """Score of the deterministic tree; NaN for other models."""
    if "prediction" not in model.get_params():
        return np.nan
    before = model.prediction
    found = score(model.set_params(prediction="tree"), rows.X_test, rows.y_test, measured)
    model.set_params(prediction=before)
    return found
