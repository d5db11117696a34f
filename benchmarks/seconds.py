# ruff: noqa: PLC0415 - the environments have different packages
"""The default beside a forest of 300 trees and stochtree's BART: log scores and CPU seconds.

    python benchmarks/seconds.py rows hitters cars ...            # store the folds
    python benchmarks/seconds.py fit ours hitters cars ...        # also: forest
    PYTHONPATH=OTHER_CHECKOUT python benchmarks/seconds.py --as before fit ours hitters cars ...
    /tmp/bart/bin/python benchmarks/seconds.py fit bart hitters cars ...   # pip install stochtree
    python benchmarks/seconds.py table hitters cars ...

Tables of real_tables.py, on which nothing was tuned (and of their packages), two folds of at most
1,500 rows; heart and pima in five folds of their training rows, as in bart.py. One thread; seconds
are CPU time of fit and prediction. Forest and BART take numbers imputed by the median and one-hot
text. A forest's density of a number is normal around its mean, with the standard deviation of its
out-of-bag residuals. Probabilities of classes get an admixture of .1 % of equal ones.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

UNIFORM = 0.001
FIVE = ("heart", "pima")


def store(names: list[str], folder: Path) -> None:
    """Store rows and folds of tables, as tables and as numbers."""
    import pandas as pd
    from data import load
    from real_tables import TABLES, numeric
    from sklearn.model_selection import KFold, StratifiedKFold

    for name in names:
        if name in FIVE:
            X, y = load(name)[:2]
            frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
            classifies = True
        else:
            table = TABLES[name]()
            frame, y, classifies = table.X, table.y, table.classifies
        y = np.unique(y, return_inverse=True)[1] if classifies else y.astype(float)
        kind = (StratifiedKFold if classifies else KFold)(
            5 if name in FIVE else 2, shuffle=True, random_state=0
        )
        for number, (train, test) in enumerate(kind.split(frame, y)):
            encode = numeric("passthrough").fit(frame.iloc[train])
            parts = {"y": y[train], "y_new": y[test], "classifies": np.array(classifies)}
            parts |= {"X": encode.transform(frame.iloc[train]).astype(float)}
            parts |= {"X_new": encode.transform(frame.iloc[test]).astype(float)}
            np.savez(folder / f"{name}-{number}.npz", **parts)
            both = (frame.iloc[train], frame.iloc[test])
            pd.to_pickle(both, folder / f"{name}-{number}.pkl")


def of_probabilities(share: np.ndarray, y: np.ndarray) -> np.ndarray:
    own = share[np.arange(len(y)), y]
    return np.log((1 - UNIFORM) * own + UNIFORM / share.shape[1])


def of_normal(gap: np.ndarray, sd: Any) -> np.ndarray:
    return -0.5 * (gap / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)


def ours(rows: Any, tables: Any) -> np.ndarray:
    import torch

    import bayestree as bt

    torch.set_num_threads(1)
    kind = "Classifier" if rows["classifies"] else "Regressor"
    model = getattr(bt, f"ConvexPolytopeTree{kind}")(random_state=0).fit(tables[0], rows["y"])
    if rows["classifies"]:
        return of_probabilities(model.predict_proba(tables[1]), rows["y_new"])
    return model.log_score(tables[1], rows["y_new"])


def forest(rows: Any, _: Any) -> np.ndarray:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    if rows["classifies"]:
        model = RandomForestClassifier(300, random_state=0).fit(rows["X"], rows["y"])
        return of_probabilities(model.predict_proba(rows["X_new"]), rows["y_new"])
    model = RandomForestRegressor(300, oob_score=True, random_state=0).fit(rows["X"], rows["y"])
    sd = np.std(rows["y"] - model.oob_prediction_)
    return of_normal(rows["y_new"] - model.predict(rows["X_new"]), sd)


def bart(rows: Any, _: Any) -> np.ndarray:
    from stochtree import BARTModel, OutcomeModel

    y, general = rows["y"].astype(float), {"random_seed": 1, "num_threads": 1}
    classifies, n_classes = bool(rows["classifies"]), int(y.max()) + 1
    if classifies and n_classes > 2:
        raise SystemExit("BART is for two classes here.")
    if classifies:
        general["outcome_model"] = OutcomeModel("binary", "probit")
    model = BARTModel()
    model.sample(X_train=rows["X"], y_train=y, general_params=general)
    if classifies:
        share = model.predict(rows["X_new"], terms="y_hat", scale="probability").mean(axis=1)
        return of_probabilities(np.column_stack([1 - share, share]), rows["y_new"])
    mean = model.predict(rows["X_new"], terms="y_hat")
    sd = np.sqrt(model.extract_parameter("sigma2_global"))
    terms = of_normal(rows["y_new"][:, None] - mean, sd)
    top = terms.max(axis=1)
    return top + np.log(np.exp(terms - top[:, None]).mean(axis=1))


def fit(method: str, names: list[str], folder: Path, label: str) -> None:
    """Store log scores of the test rows, and seconds."""
    if method == "ours":  # imports do not count
        import bayestree as bt

        _ = bt.ConvexPolytopeTreeClassifier, bt.ConvexPolytopeTreeRegressor
    for name in names:
        for path in sorted(folder.glob(f"{name}-?.npz")):
            rows = dict(np.load(path))
            tables: Any = None
            if method == "ours":
                import pandas as pd

                tables = pd.read_pickle(path.with_suffix(".pkl"))
            started = time.process_time()
            try:
                scores = METHODS[method](rows, tables)
            except SystemExit:
                continue
            seconds = time.process_time() - started
            np.savez(folder / f"{path.stem}={label}.npz", scores=scores, seconds=seconds)
            print(f"{path.stem} {label}: {scores.mean():.3f}, {seconds:.2f} s", flush=True)


def table(names: list[str], folder: Path, labels: list[str]) -> None:
    """Print a row for each table: log score, its paired difference from ours, and CPU seconds."""
    print("| table | " + " | ".join(labels) + " |")
    print("|---" * (len(labels) + 1) + "|")
    for name in names:
        cells, first = [], None
        for label in labels:
            files = sorted(folder.glob(f"{name}-?={label}.npz"))
            if not files:
                cells.append("")
                continue
            found = [np.load(file) for file in files]
            scores = np.concatenate([one["scores"] for one in found])
            seconds = np.mean([one["seconds"] for one in found])
            cell = f"{scores.mean():.3f}; {seconds:.2f}"
            if first is None:
                first = scores, seconds
            else:
                gap = first[0] - scores
                error = gap.std(ddof=1) / np.sqrt(len(gap))
                cell += f" ({gap.mean():+.3f} ± {error:.3f}; {first[1] / seconds:.1f} x)"
            cells.append(cell)
        print(f"| {name} | " + " | ".join(cells) + " |")


METHODS = {"ours": ours, "forest": forest, "bart": bart}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("rows", "fit", "table"))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/seconds"))
    parser.add_argument("--as", dest="label")
    asked = parser.parse_args()
    asked.folder.mkdir(exist_ok=True)
    warnings.simplefilter("ignore")
    if asked.task == "rows":
        store(asked.names, asked.folder)
    elif asked.task == "fit":
        method, *names = asked.names
        fit(method, names, asked.folder, asked.label or method)
    else:
        table(asked.names, asked.folder, ["ours", "before", "forest", "bart"])


if __name__ == "__main__":
    main()
