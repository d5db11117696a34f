"""Does a restructuring leave every fit as it was? Fits of all estimators, recorded bit for bit.

Run: python benchmarks/same_bits.py record FILE.json
     python benchmarks/same_bits.py compare FILE.json

``record`` makes some sixty short fits over all estimators, methods and families of leaves, and
writes digests of their results: the arrays of the model file, predictions, draws, texts,
explanations and diagnostics. ``compare`` repeats the fits with the present code and prints what
differs. The same machine, one thread and the same versions of all libraries are needed.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from data import made
from safetensors import safe_open
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

import bayestree as bt

SHORT: dict[str, Any] = {"max_depth": 2, "epochs": 6, "n_experts": 3, "random_state": 0}
Case = tuple[Callable[..., Any], dict[str, Any], Callable[[], tuple[Any, Any]]]


def iris() -> tuple[Any, Any]:
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2]


def wine() -> tuple[Any, Any]:
    found = load_wine(as_frame=True)
    X = found.data.copy()
    X["shade"] = pd.cut(X["hue"], 4, labels=["a", "b", "c", "d"]).astype(str)
    X.iloc[::7, 2] = np.nan
    return X, found.target.map({0: "red", 1: "white", 2: "rose"})


def two_classes() -> tuple[Any, Any]:
    X, y = load_breast_cancer(return_X_y=True)
    return X[::3, :8], y[::3]


def numbers() -> tuple[Any, Any]:
    X, y = load_diabetes(return_X_y=True)
    return X[::2], y[::2]


def several() -> tuple[Any, Any]:
    X, y = numbers()
    return X, np.column_stack((y, X @ np.arange(X.shape[1])))


def counts() -> tuple[Any, Any]:
    X, y = numbers()
    return X, np.floor(y / 30)


def times() -> tuple[Any, Any]:
    X, y = numbers()
    return X, np.column_stack((np.minimum(y, 200), y < 200))


def digits() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=120)
    return rng.normal(size=(120, 36)) + y[:, None] * np.linspace(-1, 1, 36), y


def cases() -> Iterator[tuple[str, Case]]:
    """Names, and the estimator, its parameters and the rows of each fit."""
    C, R = bt.ConvexPolytopeTreeClassifier, bt.ConvexPolytopeTreeRegressor
    small = {"max_depth": 2, "random_state": 0}
    svi = SHORT | {"inference": "svi", "n_draws": 8}
    one = svi | {"n_modes": 1}
    nuts = SHORT | {
        "inference": "nuts",
        "max_depth": 1,
        "n_warmup": 10,
        "n_draws": 8,
        "n_chains": 2,
    }
    smc = {"inference": "smc", "max_depth": 1, "n_experts": 2, "n_chains": 2, "n_draws": 16}
    smc["random_state"] = 0
    yield "cpt: default", (C, small, wine)
    yield "cpt: svi, three modes", (C, svi, wine)
    yield "cpt: svi, one mode", (C, one, iris)
    yield (
        "cpt: elbo weights, held out",
        (
            C,
            svi | {"mode_weights": "elbo", "validation_fraction": 0.2},
            iris,
        ),
    )
    yield "cpt: held out, stacking", (C, svi | {"validation_fraction": 0.2}, wine)
    yield "cpt: map", (C, SHORT | {"inference": "map"}, wine)
    yield "cpt: map, two modes", (C, SHORT | {"inference": "map", "n_modes": 2}, iris)
    yield "cpt: grow", (C, small | {"inference": "grow"}, wine)
    yield "cpt: nuts", (C, nuts, iris)
    yield "cpt: smc", (C, smc, iris)
    yield "cpt: float32", (C, one | {"dtype": "float32", "batch_size": 32}, wine)
    yield "cpt: laplace", (C, one | {"prior": "laplace"}, iris)
    yield "cpt: spatial", (C, one | {"prior": "spatial", "image_shape": (6, 6)}, digits)
    yield "cpt: width, common", (C, one | {"prior_width": 10, "scaling": "common"}, iris)
    yield "cpt: monotone", (C, svi | {"monotonic_cst": [1] + 7 * [0]}, two_classes)
    yield "cpt: logistic", (C, one | {"leaf": "logistic"}, iris)
    yield "cpt: ordinal", (C, one | {"leaf": "ordinal"}, iris)
    yield "cpt: balanced", (C, one | {"class_weight": "balanced"}, wine)
    yield "numbers: default", (R, small, numbers)
    yield "numbers: svi", (R, svi, numbers)
    yield "numbers: nuts", (R, nuts, numbers)
    yield "numbers: smc", (R, smc, numbers)
    yield "numbers: linear", (R, svi | {"leaf": "linear"}, numbers)
    yield "numbers: student", (R, one | {"leaf": "student"}, numbers)
    yield "numbers: counts", (R, svi | {"leaf": "poisson"}, counts)
    yield "numbers: outputs", (R, svi, several)
    yield "numbers: map", (R, SHORT | {"inference": "map"}, numbers)
    yield "survival", (bt.ConvexPolytopeTreeSurvival, svi, times)
    yield (
        "survival: exponential",
        (
            bt.ConvexPolytopeTreeSurvival,
            one | {"leaf": "exponential"},
            times,
        ),
    )
    seed = {"random_state": 0}
    em = {"max_depth": 2, "epochs": 3, "random_state": 0}
    yield "e2edt", (bt.EndToEndTreeClassifier, em, iris)
    yield "e2edt: numbers", (bt.EndToEndTreeRegressor, em, numbers)
    yield "e2edf", (bt.EndToEndForestClassifier, em | {"n_estimators": 3}, wine)
    yield "e2edf: numbers", (bt.EndToEndForestRegressor, em | {"n_estimators": 3}, numbers)
    yield "wodt", (bt.WeightedObliqueTreeClassifier, {"max_depth": 3} | seed, iris)
    yield "wodt: numbers", (bt.WeightedObliqueTreeRegressor, {"max_depth": 3} | seed, numbers)
    for split in ("axis", "bivariate", "oblique"):
        tao = {"split": split, "max_depth": 3} | seed
        yield f"tao: {split}", (bt.AlternatingTreeClassifier, tao, wine)
        yield f"tao: {split}, numbers", (bt.AlternatingTreeRegressor, tao, numbers)
    yield (
        "tao: random, l1",
        (bt.AlternatingTreeClassifier, {"init": "random", "l1": 1.0} | seed, iris),
    )
    yield "bivariate", (bt.BivariateTreeClassifier, {"max_depth": 3}, wine)
    yield "bivariate: numbers", (bt.BivariateTreeRegressor, {"max_depth": 3}, numbers)
    for splitter in ("hhcart", "oc1", "cart-lc", "co2", "guide"):
        grown = {"splitter": splitter, "max_depth": 3} | seed
        yield f"oblique: {splitter}", (bt.ObliqueTreeClassifier, grown, iris)
    yield (
        "oblique: linear",
        (bt.ObliqueTreeRegressor, {"leaf": "linear", "max_depth": 2} | seed, numbers),
    )
    few = {"epochs": 3, "max_depth": 2} | seed
    yield "lcn", (bt.LocallyConstantTreeClassifier, few, iris)
    yield "lcn: numbers", (bt.LocallyConstantTreeRegressor, few, numbers)
    yield "non-greedy", (bt.NonGreedyTreeClassifier, {"max_depth": 2} | seed, iris)
    yield "non-greedy: numbers", (bt.NonGreedyTreeRegressor, {"max_depth": 2} | seed, numbers)
    few |= {"n_estimators": 2}
    yield "ndf", (bt.NeuralDecisionForestClassifier, few, iris)
    yield "ndf: numbers", (bt.NeuralDecisionForestRegressor, few, numbers)
    yield (
        "adf",
        (bt.AlternatingDecisionForestClassifier, {"n_estimators": 3, "max_depth": 2} | seed, iris),
    )


def digest(value: Any) -> str:
    """A short digest of arrays, texts and what prints."""
    if isinstance(value, tuple | list):
        return digest(" ".join(map(digest, value)))
    if isinstance(value, dict):
        return digest([digest([name, one]) for name, one in sorted(value.items())])
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        text = f"{value.dtype} {value.shape}".encode()
        return hashlib.sha256(text + np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
    return hashlib.sha256(str(value).encode()).hexdigest()[:16]


def arrays_of(model: Any) -> dict[str, str]:
    """Digests of the arrays of the model file, by their names."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        again = bt.load(path)
        with safe_open(path, framework="numpy") as file:
            return {name: digest(file.get_tensor(name)) for name in file.keys()} | {  # noqa: SIM118
                "loaded": digest(again.get_params())
            }


def group(found: Any) -> dict[str, str]:
    """Digests of the groups of a container of ArviZ."""
    named = found.groups() if callable(found.groups) else [g for g in found.groups if g != "/"]
    return {
        name: digest({v: a.to_numpy() for v, a in found[name].data_vars.items()}) for name in named
    }


def observed(model: Any, X: Any, y: Any) -> dict[str, str]:
    """Digests of what the fitted estimator says, by the call."""
    few = X[:5]
    calls: dict[str, Callable[[], Any]] = {
        "predict": lambda: model.predict(X),
        "predict_proba": lambda: model.predict_proba(X),
        "std": lambda: (model.predict_proba if hasattr(model, "classes_") else model.predict)(
            X, return_std=True
        ),
        "interval": lambda: model.predict_interval(X, 0.8),
        "score": lambda: model.score(X, y),
        "apply": lambda: model.apply(X),
        "decision_path": lambda: model.decision_path(X).toarray(),
        "sample": lambda: model.sample_posterior_predictive(few, 7, random_state=0),
        "text": lambda: bt.export_text(model),
        "rules": lambda: bt.export_rules(model),
        "json": lambda: bt.export_json(model),
        "dot": lambda: bt.export_dot(model),
        "polytope_size": lambda: model.polytope_size(max_draws=4).to_frame().to_csv(),
        "facets": lambda: model.facets(max_draws=4).to_frame().to_csv(),
        "shrinkage": lambda: model.shrinkage().to_frame("coefficient").to_csv(),
        "split_uncertainty": lambda: model.split_uncertainty(few).to_frame().to_csv(),
        "convergence": lambda: model.check_convergence(X, y),
        "co_membership": lambda: model.co_membership(few),
        "loo": lambda: model.loo(X, y),
        "arviz": lambda: group(model.to_arviz(X, y, n_prior=5)),
        "explain": lambda: model.explain(few[:1]),
        "importance": lambda: model.importance(few, y[:5], n_repeats=2, random_state=0),
        "shapley": lambda: model.shapley_values(few[:1], X[:20]),
        "dependence": lambda: model.partial_dependence(X[:20], 0),
        "prior_size": lambda: model.prior_size(X, n_draws=5),
    }
    found = {}
    for name, call in calls.items():
        try:
            found[name] = digest(call())
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def measured(only: str) -> dict[str, dict[str, str]]:
    torch.set_num_threads(1)
    found = {}
    for name, (kind, parameters, rows) in cases():
        if only not in name:
            continue
        X, y = rows()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = made(kind, parameters).fit(X, y)
            with contextlib.suppress(TypeError):
                found[name] = arrays_of(model) | observed(model, X, y)
        print(name, file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="part of the names of the fits to make")
    options = parser.parse_args()
    found = measured(options.only)
    if options.verb == "record":
        options.file.write_text(json.dumps(found, indent=1))
        return
    before = json.loads(options.file.read_text())
    differing = 0
    for name, fit in found.items():
        for what, value in before[name].items():
            if fit.get(what) != value:
                differing += 1
                print(f"{name}: {what}: {value} before, {fit.get(what)} now")
    print(f"{len(found)} fits compared, {differing} differences")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
