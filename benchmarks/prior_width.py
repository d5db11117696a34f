"""The prior number of facets by the number of columns, and the effect of its calibration.

Run: python benchmarks/prior_width.py prior            # table of results/priors.md
     python benchmarks/prior_width.py scores [SET ...] # 5-fold cross-validation, two seeds
"""

import sys

import numpy as np
from data import REGRESSION, load_all, made
from sklearn.model_selection import KFold, StratifiedKFold

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.models import GammaProcess, InverseGammaScale

KINDS = {"classifier": ConvexPolytopeTreeClassifier, "regressor": ConvexPolytopeTreeRegressor}
WIDTHS = ("none", 10.0)
SETS = (
    *("fourclass", "iris", "glass", "wine", "heart", "vehicle", "breast_cancer", "satimage"),
    *("connect4", "usps", "airfoil", "concrete"),
)
MAX_ROWS, SEEDS = 1000, (0, 1)


def settings_of(kind: str) -> dict[str, dict]:
    """Return the defaults, and settings that differ from them in one respect."""
    own = (0.5, 0.1, 0.1) if kind == "classifier" else (2.0, 1.0, 1.0)
    shape, tau, _ = own
    found: dict[str, dict] = {"default": {}}
    found |= {f"n_experts={k}": {"n_experts": k} for k in (1, 2, 8, 20)}
    for strength in (0.3, 3.0):
        found[f"concentration={strength}"] = {"weight_prior": GammaProcess(strength)}
    for value in (0.5, 1.0, 2.0):
        if value != shape:
            found[f"shape={value}"] = {"prior": InverseGammaScale(value, tau, tau)}
    for value in (0.01, 0.1, 1.0, 10.0):
        if value != tau:
            prior = InverseGammaScale(shape, value, value)
            found[f"shrinkage_shape=shrinkage_rate={value}"] = {"prior": prior}
    found["width=10"] = {"prior": InverseGammaScale(*own, width=10)}
    return found


def prior() -> None:
    for name, kind in KINDS.items():
        for label, settings in settings_of(name).items():
            cells = []
            for d in (2, 10, 100):
                X = np.random.default_rng(1).normal(size=(1000, d))
                found = kind(**settings).prior_size(X, n_draws=1000)
                none = found.probabilities()[0, 0]
                cells.append(f"{found.sizes().mean():.2f} ({none:.2f})")
            print("|", " | ".join([name, label, *cells]), "|", flush=True)


def loss(model, X, y, train, test) -> tuple[float, float]:
    """Share of errors and log loss of the posterior; relative RMSE and coverage of regressors."""
    fitted = model.fit(X[train], y[train])
    if isinstance(model, KINDS["regressor"]):
        low, high = fitted.predict_interval(X[test], 0.9)
        error = np.sqrt(np.mean((fitted.predict(X[test]) - y[test]) ** 2)) / y.std()
        return error, np.mean((low <= y[test]) & (y[test] <= high))
    p = fitted.predict_proba(X[test])
    of_y = p[np.arange(len(test)), np.searchsorted(fitted.classes_, y[test])]
    return np.mean(fitted.classes_[p.argmax(axis=1)] != y[test]), -np.mean(np.log(of_y))


def scores(names) -> None:
    for name in names:
        X, y = load_all(name)
        some = np.random.default_rng(0).permutation(len(y))[:MAX_ROWS]
        X, y = X[some], y[some]
        regression = name in (*REGRESSION, "diabetes")
        kind = KINDS["regressor" if regression else "classifier"]
        found = []
        for seed in SEEDS:
            folds = (KFold if regression else StratifiedKFold)(5, shuffle=True, random_state=seed)
            for train, test in folds.split(X, y):
                models = [
                    made(kind, {"prior_width": width, "random_state": seed}) for width in WIDTHS
                ]
                found.append([loss(model, X, y, train, test) for model in models])
        values = np.array(found)  # (fit, width, score)
        gap = values[:, 1] - values[:, 0]
        error = gap.std(axis=0, ddof=1) / np.sqrt(len(gap))
        cells = [
            f"{values[:, 0, k].mean():.4f} | {values[:, 1, k].mean():.4f} | "
            f"{gap[:, k].mean():+.4f} ± {error[k]:.4f}"
            for k in (0, 1)
        ]
        print("|", " | ".join([name, str(X.shape[1]), *cells]), "|", flush=True)


if __name__ == "__main__":
    what, *chosen = sys.argv[1:] or ["prior"]
    if what == "prior":
        prior()
    else:
        scores(chosen or SETS)
