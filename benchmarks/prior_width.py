"""The prior number of facets by the number of columns, and the effect of its calibration.

Run: python benchmarks/prior_width.py prior            # table of docs/concepts/priors.md
     python benchmarks/prior_width.py scores [SET ...] # 5-fold cross-validation, two seeds
"""

import sys

import numpy as np
from data import REGRESSION, load_all, made
from sklearn.model_selection import KFold, StratifiedKFold

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor

KINDS = {"classifier": ConvexPolytopeTreeClassifier, "regressor": ConvexPolytopeTreeRegressor}
WIDTHS = ("none", 10.0)
SETS = (
    *("fourclass", "iris", "glass", "wine", "heart", "vehicle", "breast_cancer", "satimage"),
    *("connect4", "usps", "airfoil", "concrete"),
)
MAX_ROWS, SEEDS = 1000, (0, 1)


def table(d: int, columns: str, n: int = 1000) -> np.ndarray:
    """Normal rows with independent columns, an autoregression of 0.9, or three factors."""
    rng = np.random.default_rng(1)
    if columns == "factors":
        X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.5 * rng.normal(size=(n, d))
        return (X - X.mean(axis=0)) / X.std(axis=0)
    noise = rng.normal(size=(n, d))
    X = noise.copy()
    for j in range(1, d if columns == "AR(0.9)" else 0):
        X[:, j] = 0.9 * X[:, j - 1] + np.sqrt(1 - 0.81) * noise[:, j]
    return X


def prior() -> None:
    for name, kind in KINDS.items():
        for width in WIDTHS:
            for columns in ("independent", "AR(0.9)", "factors"):
                cells = []
                for d in (2, 10, 30, 100):
                    found = made(kind, {"prior_width": width}).prior_size(
                        table(d, columns), n_draws=500
                    )
                    none = found.probabilities()[0, 0]
                    means = found.cutting.mean(), found.facets.mean()
                    cells.append(f"{means[0]:.2f} ({none:.2f}), box {means[1]:.2f}")
                print("|", " | ".join([f"{name}, {width}", columns, *cells]), "|", flush=True)


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
