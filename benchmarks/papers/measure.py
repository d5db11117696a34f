"""One fit after the other into a Parquet file, from which an interrupted run continues."""

import json
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn.model_selection import train_test_split

from benchmarks.data import AbsentError, Split
from benchmarks.papers.methods import METHODS, Method, Settings
from benchmarks.papers.tables import TABLES, Table

KEY = ["table", "set", "method", "column", "seed", "fold"]
COLUMNS = ("defaults", "validated")
MOST_ROWS = 20_000  # to which a setting is fitted that is to be chosen or not


class TooLongError(Exception):
    """A fit took more CPU seconds than it may."""


class Results:
    """The measurements of a file, which is rewritten after each.

    Fits that were given up within ``limit`` seconds are to be repeated.
    """

    def __init__(self, path: Path, limit: float = 0.0) -> None:
        self.path = path
        self.frame = (
            pd.read_parquet(path) if path.exists() else pd.DataFrame(columns=[*KEY, "error"])
        )
        self.done, self.given_up = set(), set()
        for row in self.frame.to_dict("records"):
            if not row["error"] or row["fit_s"] >= limit:
                self._note(row)

    def add(self, row: dict[str, Any]) -> None:
        key = pd.Series({name: row[name] for name in KEY})
        kept = self.frame[~(self.frame[KEY] == key).all(axis=1)]
        self.frame = pd.DataFrame([*kept.to_dict("records"), row])
        self._note(row)
        partial = self.path.with_suffix(".partial")
        self.frame.to_parquet(partial, compression="zstd")
        partial.replace(self.path)

    def _note(self, row: dict[str, Any]) -> None:
        key = tuple(row[name] for name in KEY)
        self.done.add(key)
        if row["error"]:
            self.given_up.add(key[:4])

    def settings(self, key: dict[str, Any]) -> Settings | None:
        """What an earlier seed has chosen on the same rows."""
        fitted = self.frame[self.frame["error"] == ""]
        same = fitted[KEY[:4]] == pd.Series({name: key[name] for name in KEY[:4]})
        found = fitted[same.all(axis=1)]
        return json.loads(found["settings"].iloc[0]) if len(found) else None


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raise TooLongError after so many CPU seconds."""

    def give_up(*_: object) -> None:
        raise TooLongError(f"more than {seconds:g} CPU s")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds or 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def measure(results: Results, tables: list[str], options: Any) -> None:
    """Fit what ``results`` lacks; absent sets, and methods of absent packages, are left out."""
    warnings.simplefilter("ignore")  # of other packages
    for key, rows in _missing(results, tables, options):
        table, method = TABLES[key["table"]], METHODS[key["method"]]
        same_rows = key["column"] == "validated" and table.same_rows
        chosen = results.settings(key) if same_rows else None
        start = time.process_time()
        try:
            row = fitted(table, method, key, rows, options, chosen)
        except AbsentError as absent:
            print(f"{key['method']} is left out: {absent}", flush=True)
            continue
        except Exception as error:  # whatever other packages raise
            row = _failed(error, time.process_time() - start)
        results.add(key | row)
        print(" ".join(map(str, key.values())), _told(row), flush=True)


def _told(row: dict[str, Any]) -> str:
    return row["error"] or (
        f"{row['score']:.4f}, tree {row['tree_score']:.4f}, {row['leaves']:g} leaves, "
        f"{row['search_s']:.1f} and {row['fit_s']:.1f} CPU s, {row['settings']}"
    )


def _failed(error: Exception, seconds: float) -> dict[str, Any]:
    message = str(error).partition("\n")[0]
    text = message if isinstance(error, TooLongError) else f"{type(error).__name__}: {message}"
    names = ("score", "tree_score", "leaves", "depth", "training_score")
    none = dict.fromkeys(names, np.nan)
    rows = np.empty(0, dtype=np.float32)
    return {
        **none,
        "rows": rows,
        "search_s": 0.0,
        "fit_s": seconds,
        "settings": "{}",
        "error": text,
    }


def _missing(
    results: Results, tables: list[str], options: Any
) -> Iterator[tuple[dict[str, Any], Split]]:
    for name in tables:
        table = TABLES[name]
        for data in (one for one in table.sets if one in (options.sets or [one])):
            try:
                for part in table.parts(data, options.seeds or table.seeds):
                    for method, column in product(options.methods, options.columns):
                        key = (name, data, method, column, part.seed, part.fold)
                        if key not in results.done and key[:4] not in results.given_up:
                            yield dict(zip(KEY, key, strict=True)), part.rows
            except AbsentError as absent:
                print(f"{data} is left out: {absent}", flush=True)


def fitted(
    table: Table,
    method: Method,
    key: dict[str, Any],
    rows: Split,
    options: Any,
    chosen: Settings | None,
) -> dict[str, Any]:
    """Score, size and seconds of one fit, with settings chosen on training rows if validated."""
    data, seed = key["set"], key["seed"]
    measured = table.measure(data)
    task = "regression" if measured == "rmse" else "classification"
    fixed = {"max_depth": table.depth[data]} if data in table.depth else {}
    start = time.process_time()
    if chosen is None:
        settings = [{}]
        if key["column"] == "validated":
            known = method.settings(data)
            if len(known) == 1:
                raise AbsentError("it has no settings to choose from")
            settings = known[: options.settings]
            if len(settings) == 1 < len(known) and data not in method.earlier:
                raise AbsentError("validation rows of this set have chosen nothing before")
        chosen = _chosen(method, task, _distinct(settings, fixed), rows, measured, options)
    model = make_model(method, task, chosen, seed)
    searched = time.process_time()
    with limited(options.limit):
        model.fit(rows.X, rows.y)
    done = time.process_time()
    found = row_scores(model, rows.X_test, rows.y_test, measured)
    tree = tree_scores(model, rows, measured)
    return {
        "score": found.mean(),
        "tree_score": np.nan if tree is None else tree.mean(),
        "rows": (found if tree is None else tree).astype(np.float32),
        "leaves": count_leaves(model, rows.X),
        "depth": depth_of(model),
        "training_score": training_score(model, rows, measured),
        "search_s": searched - start,
        "fit_s": done - searched,
        "settings": json.dumps(chosen),
        "error": "",
    }


def make_model(method: Method, task: str, settings: Settings, seed: int) -> Any:
    known = signature(type(method.make(task, {}))).parameters
    settings = settings | {"random_state": seed}
    return method.make(task, {name: value for name, value in settings.items() if name in known})


def _distinct(settings: list[Settings], fixed: Settings) -> list[Settings]:
    """Settings with the fixed values, each once."""
    found = [one | fixed for one in settings]
    return [one for i, one in enumerate(found) if one not in found[:i]]


def _chosen(
    method: Method, task: str, settings: list[Settings], rows: Split, measured: str, options: Any
) -> Settings:
    """The settings whose tree has the best score on a fifth of the training rows.

    They are fitted to the rest, or to MOST_ROWS of it; those that take too long are not chosen.
    """
    if len(settings) < 2:
        return settings[0]
    strata = rows.y if task == "classification" else None
    share = min(4 * len(rows.y) // 5, MOST_ROWS)
    parts = train_test_split(
        rows.X,
        rows.y,
        train_size=share,
        test_size=len(rows.y) // 5,
        stratify=strata,
        random_state=0,
    )
    inner = Split(parts[0], parts[2], parts[1], parts[3])
    found = []
    for one in settings:
        model = make_model(method, task, one, 0)
        try:
            with limited(options.limit):
                model.fit(inner.X, inner.y)
        except TooLongError:
            found.append(-np.inf)
            continue
        tree = tree_scores(model, inner, measured)
        if tree is None:
            tree = row_scores(model, inner.X_test, inner.y_test, measured)
        found.append(-tree.mean() if measured == "rmse" else tree.mean())
        print(f"  validation rows: {tree.mean():.4f} {one}", flush=True)
    return settings[int(np.argmax(found))]


def row_scores(model: Any, X: np.ndarray, y: np.ndarray, measured: str) -> np.ndarray:
    """A number for each test row, whose mean is the score.

    The difference of two scores has the standard error of the mean difference of these numbers. An
    area under the curve and an RMSE are not means of rows; for them the numbers are the score plus
    the influence function of the row (of the area: DeLong et al., 1988).
    """
    if measured == "auc":
        return _areas(model.predict_proba(X)[:, 1], y == model.classes_[1])
    if measured == "rmse":
        square = (model.predict(X) - y) ** 2
        rmse = np.sqrt(square.mean())
        return rmse + (square - rmse**2) / (2 * rmse)
    return (model.predict(X) == y).astype(np.float64)


def _areas(score: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """The share of rows of the other class on the right side of each row, as influences."""
    rank, share = rankdata(score), np.empty(len(score))
    for side in (positive, ~positive):
        below = (rank[side] - rankdata(score[side])) / np.count_nonzero(~side)
        share[side] = below if side is positive else 1 - below
    area = share[positive].mean()
    return area + (share - area) / np.where(positive, positive.mean(), (~positive).mean())


def tree_scores(model: Any, rows: Split, measured: str) -> np.ndarray | None:
    """The scores of the deterministic tree of a model that predicts otherwise by default."""
    if "prediction" not in getattr(model, "get_params", dict)():
        return None
    before = model.prediction
    found = row_scores(model.set_params(prediction="tree"), rows.X_test, rows.y_test, measured)
    model.set_params(prediction=before)
    return found


def training_score(model: Any, rows: Split, measured: str) -> float:
    """The score of the deterministic tree, or of a model without one, on the training rows."""
    own = Split(rows.X, rows.y, rows.X, rows.y)
    tree = tree_scores(model, own, measured)
    return float((row_scores(model, rows.X, rows.y, measured) if tree is None else tree).mean())


def depth_of(model: Any) -> float:
    """The depth of a tree; NaN of several, or if it is not known."""
    return float(model.get_depth()) if hasattr(model, "get_depth") else np.nan


def count_leaves(model: Any, X: np.ndarray) -> float:
    """Leaves of a tree, or of all trees of a forest; NaN if they are not known.

    Of a package that does not count them, those that training rows reach.
    """
    if hasattr(model, "get_n_leaves"):
        return float(model.get_n_leaves())
    if hasattr(model, "nodes_leaves"):  # STree
        return float(model.nodes_leaves()[1])
    if hasattr(model, "estimators_"):
        return sum(count_leaves(tree, X) for tree in model.estimators_)
    if hasattr(model, "apply"):
        return float(len(np.unique(model.apply(X))))
    return np.nan
