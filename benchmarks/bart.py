# ruff: noqa: PLC0415 - the two environments have different packages
"""BART and a random forest beside the default mixture and the sampler, by cross-validation.

BART (stochtree) lives in an environment of its own; predictions are exchanged as files in --folder:

    python benchmarks/bart.py ours pima concrete --methods mixture smc forest
    python -m venv /tmp/bart && /tmp/bart/bin/pip install stochtree
    /tmp/bart/bin/python benchmarks/bart.py bart pima concrete --methods bart bart-100
    python benchmarks/bart.py table pima concrete

Five folds of the training rows (at most --rows), the same for all. BART has 200 trees, 20
warm-start sweeps and 1,000 draws of one chain (or the number in its name); the forest has 300
trees, and for numbers a normal with the out-of-bag deviation; all else is default. Classes are two;
BART uses the probit link. Seconds are those of fit and prediction, the median of the folds.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FOLDS, TREES = 5, 300
UNIFORM = 0.001  # share of equal probabilities that makes every log score finite
LEVEL = 0.9
SMC = {"n_draws": 200, "n_chains": 2, "max_experts": 4}  # far fewer particles than the default
RESAMPLES = 100
Found = dict[str, np.ndarray]


def share(name: str, folder: Path, n_rows: int) -> Found:
    """Rows and folds of a set, stored for the other environment."""
    from data import REGRESSION, load, load_all
    from sklearn.model_selection import KFold, StratifiedKFold

    own = name in ("breast_cancer", "diabetes")
    X, y = load_all(name) if own else load(name)[:2]
    kept = np.sort(np.random.default_rng(0).permutation(len(y))[:n_rows])
    X, y = X[kept], y[kept]
    is_class = name not in (*REGRESSION, "diabetes")
    if is_class:
        _, y = np.unique(y, return_inverse=True)
    kind = (StratifiedKFold if is_class else KFold)(FOLDS, shuffle=True, random_state=0)
    fold = np.empty(len(y), dtype=int)
    for number, (_, held) in enumerate(kind.split(X, y)):
        fold[held] = number
    rows = {"X": X, "y": y, "fold": fold, "is_class": np.array(is_class)}
    np.savez(folder / f"{name}.npz", **rows)
    return rows


def fit_folds(rows: Found, fit: Callable[..., Found], path: Path) -> None:
    """Store what ``fit`` says about the rows of each fold, fitted to the others.

    The files are those of ``path`` with the number of the fold; those that exist are kept, so that
    a run can be continued.
    """
    X, y, fold = rows["X"], rows["y"], rows["fold"]
    for number in range(FOLDS):
        own = path.with_name(f"{path.name}-{number}.npz")
        if not own.exists():
            held, start = fold == number, time.process_time()
            found = fit(X[~held], y[~held], X[held], y[held])
            seconds = time.process_time() - start
            np.savez(own, seconds=seconds, **found)
            print(f"{own.stem}: {seconds:.1f} CPU s", flush=True)


def of_folds(fold: np.ndarray, path: Path) -> Found | None:
    """The stored predictions and seconds of all rows; None if a fold is missing."""
    found: Found = {}
    files = [path.with_name(f"{path.name}-{number}.npz") for number in range(FOLDS)]
    if not all(file.exists() for file in files):
        return None
    for number, file in enumerate(files):
        for key, value in np.load(file).items():
            found.setdefault(key, np.empty(len(fold)))[fold == number] = value
    return found


def mixture_fit(is_class: bool, method: str) -> Callable[..., Found]:
    """P(y | x) of the class, or log density, mean and interval, by this package."""
    import bayestree as bt

    inference: Any = bt.inference.Smc(**SMC) if method == "smc" else "auto"

    def fit(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> Found:
        if is_class:
            clf = bt.ConvexPolytopeTreeClassifier(inference=inference, random_state=0).fit(X, y)
            return {"p": clf.predict_proba(X_new)[:, 1]}
        reg = bt.ConvexPolytopeTreeRegressor(inference=inference, random_state=0).fit(X, y)
        log_p = reg.log_score(X_new, y_new)
        low, high = reg.predict_interval(X_new, LEVEL)
        return {"log_p": log_p, "mean": reg.predict(X_new), "low": low, "high": high}

    return fit


def forest_fit(is_class: bool) -> Callable[..., Found]:
    from scipy.stats import norm
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    def fit(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> Found:
        if is_class:
            clf = RandomForestClassifier(TREES, random_state=0).fit(X, y)
            return {"p": clf.predict_proba(X_new)[:, 1]}
        reg = RandomForestRegressor(TREES, random_state=0, oob_score=True).fit(X, y)
        law = norm(reg.predict(X_new), np.sqrt(np.mean((reg.oob_prediction_ - y) ** 2)))
        low, high = law.interval(LEVEL)
        return {"log_p": law.logpdf(y_new), "mean": law.mean(), "low": low, "high": high}

    return fit


def bart_fit(is_class: bool, n_draws: int) -> Callable[..., Found]:
    from stochtree import BARTModel, OutcomeModel

    def fit(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> Found:
        general: dict[str, Any] = {"random_seed": 1, "num_threads": 1}
        if is_class:
            general["outcome_model"] = OutcomeModel("binary", "probit")
        model = BARTModel()
        model.sample(
            X_train=X,
            y_train=y.astype(float),
            num_gfr=20,
            num_mcmc=n_draws,
            general_params=general,
        )
        if is_class:
            each = model.predict(X_new, terms="y_hat", scale="probability")
            return {"p": each.mean(axis=1)}
        mean, sd = model.predict(X_new, terms="y_hat"), model.extract_parameter("sigma2_global")
        sd = np.sqrt(sd)
        z = (y_new[:, None] - mean) / sd
        terms = -0.5 * z**2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
        top = terms.max(axis=1)
        log_p = top + np.log(np.exp(terms - top[:, None]).mean(axis=1))
        noise = np.random.default_rng(0).normal(size=(10, *mean.shape))
        drawn = np.moveaxis(mean + sd * noise, 0, -1).reshape(len(mean), -1)
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
        return {"log_p": log_p, "mean": mean.mean(axis=1), "low": low, "high": high}

    return fit


def fitted(names: list[str], methods: list[str], folder: Path, n_rows: int) -> None:
    """Fit methods to sets, and store what they predict."""
    for name in names:
        path = folder / f"{name}.npz"
        rows = dict(np.load(path)) if path.exists() else share(name, folder, n_rows)
        is_class = bool(rows["is_class"])
        for method in methods:
            kind, _, n_draws = method.partition("-")
            if kind == "bart":
                fit = bart_fit(is_class, int(n_draws or 1000))
            elif method == "forest":
                fit = forest_fit(is_class)
            else:
                fit = mixture_fit(is_class, method)
            fit_folds(rows, fit, folder / f"{name}-{method}")


def of_classes(y: np.ndarray, found: Found) -> Found:
    """Log score and Brier score (summed over both classes) of each row."""
    p = found["p"]
    own = np.where(y == 1, p, 1 - p)
    return {
        "log score": np.log((1 - UNIFORM) * own + UNIFORM / 2),
        "Brier": 2 * (1 - own) ** 2,
    }


def of_numbers(y: np.ndarray, found: Found) -> Found:
    """Log density, squared error, and whether the interval holds y, for each row."""
    return {
        "log score": found["log_p"],
        "squared error": (y - found["mean"]) ** 2,
        "coverage": ((found["low"] <= y) & (y <= found["high"])).astype(float),
    }


def ece_difference(y: np.ndarray, p: np.ndarray, first: np.ndarray) -> tuple[float, float]:
    """ECE of p minus that of ``first``, with a standard error by bootstrap over the rows."""
    from bayestree.diagnostics import calibration

    def ece(rows: np.ndarray, p: np.ndarray) -> float:
        both = np.column_stack([1 - p[rows], p[rows]])
        return calibration(y[rows], both, classes=np.array([0, 1])).ece.value

    whole = np.arange(len(y))
    draws = [np.random.default_rng(seed).choice(whole, len(whole)) for seed in range(RESAMPLES)]
    gaps = [ece(rows, p) - ece(rows, first) for rows in draws]
    return ece(whole, p) - ece(whole, first), float(np.std(gaps, ddof=1))


def table(names: list[str], methods: list[str], folder: Path) -> None:
    """Print the scores, and their paired differences from the first method, in Markdown."""
    ratios: dict[str, list[float]] = {}
    for name in names:
        rows = np.load(folder / f"{name}.npz")
        y, is_class = rows["y"], bool(rows["is_class"])
        first: Found = {}
        own = 0.0  # seconds of the first method
        for method in methods:
            found = of_folds(rows["fold"], folder / f"{name}-{method}")
            if found is None:
                continue
            scores = (of_classes if is_class else of_numbers)(y, found)
            cells = [f"{name} ({rows['X'].shape[0]} x {rows['X'].shape[1]})", method]
            for key, values in scores.items():
                text = f"{values.mean():.4g}"
                if first and key != "coverage":
                    gap = values - first[key]
                    text += f" ({gap.mean():+.3g} ± {gap.std(ddof=1) / np.sqrt(len(gap)):.2g})"
                cells.append(f"{key} {text}")
            if is_class:
                cells.append(_ece(y, found["p"], first.get("p")))
            seconds = float(np.median(found["seconds"]))
            first, own = first or scores | ({"p": found["p"]} if is_class else {}), own or seconds
            ratios.setdefault(method, []).append(own / seconds)
            cells.append(f"{seconds:.2f} CPU s ({own / seconds:.1f} x)")
            print(f"| {' | '.join(cells)} |", flush=True)
    for method, each in ratios.items():
        print(f"{method}: ratio of CPU median {np.median(each):.1f}, largest {max(each):.1f}")


def _ece(y: np.ndarray, p: np.ndarray, first: np.ndarray | None) -> str:
    from bayestree.diagnostics import calibration

    found = calibration(y, np.column_stack([1 - p, p]), classes=np.array([0, 1])).ece
    text = f"ECE {found.value:.3f} ± {found.error:.3f} (if calibrated {found.if_calibrated:.3f}"
    if first is not None:
        gap, error = ece_difference(y, p, first)
        text += f"; {gap:+.3f} ± {error:.3f}"
    return f"{text})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("ours", "bart", "table"))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--folder", type=Path, default=Path("bart"))
    parser.add_argument("--rows", type=int, default=1000)
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True, parents=True)
    warnings.simplefilter("ignore")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.what == "table":
        usual = ["mixture", "smc", "forest", "bart", "bart-100"]
        table(options.names, options.methods or usual, options.folder)
    else:
        methods = options.methods or ["bart" if options.what == "bart" else "mixture"]
        fitted(options.names, methods, options.folder, options.rows)


if __name__ == "__main__":
    main()
