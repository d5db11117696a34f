"""What is said of a given posterior, word by word, and its numbers to the last digit.

``python -m tests.test_texts`` records it in ``tests/data/texts``: read what it changes there. Rows,
weights of rows and of modes, and draws are made up, so that no number depends on a fit.
"""

import inspect
import re
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from scipy.sparse import csr_matrix

import bayestree as bt
from bayestree._utils.parameters import declare
from bayestree.inference.posterior import Posterior
from bayestree.inference.stage import Stage
from bayestree.topology import Topology
from tests.estimators.modes import weighted
from tests.test_public_api import methods

RECORDED = Path(__file__).parent / "data" / "texts"
N = 60
SEED = 12
PLANES = [[[2, 0, 0], [0, 0, 1]], [[0, 2, 0], [0, 1, 1]], [[0.3, -2, 0.2], [1, 0, 2]]]
MIDDLE = {
    "hyperplane": np.array(PLANES, dtype=float),
    "intercept": np.array([[-0.5, -1], [-1, -2], [-2, -2]]),
    "log_weight": np.log([[1, 0.5], [2, 0.1], [1, 1]]),
    "shrinkage": np.log([[0.5, 1], [2, 1], [1, 1]]),
    "leaf_probs": np.array([[6, 1, 3], [1, 7, 2], [2, 2, 6], [5, 4, 1]], dtype=float),
    "leaf_mean": np.array([-1, 0, 0.5, 1.5]),
    "leaf_scale": np.array([0.8, 0.4, 0.3, 1.2]),
    "leaf_rate": np.array([0.3, 0.7, 1, 2.5]),
}


@declare
class Given(Stage):
    """Two chains of eight draws of either of two trees."""

    calibrates = False
    several = True

    @property
    def draws(self):
        return 2, 8

    def run_several(self, found, data, **common):
        return [self.drawn(one, mode) for mode, one in enumerate(found)]

    def drawn(self, found, mode):
        rng, draws = np.random.RandomState(SEED + mode), {}
        model = found.model.with_(topology=Topology.complete(2))
        for name in (*(*MIDDLE,)[:4], *model.leaf.sites):
            middle = MIDDLE[name][:, ::-1] if name == "hyperplane" and mode else MIDDLE[name]
            noise = 0.2 * rng.normal(size=(2, 8, *middle.shape))
            of_leaf = name.startswith("leaf") and name != "leaf_mean"
            draws[name] = middle * np.exp(noise) if of_leaf else middle + noise
        if "leaf_probs" in draws:
            draws["leaf_probs"] /= draws["leaf_probs"].sum(-1, keepdims=True)
        draws = {name: values.astype(np.float32) for name, values in draws.items()}
        return Posterior(model, draws, {name: v.mean((0, 1)) for name, v in draws.items()}, "given")


rng = np.random.RandomState(0)
X = pd.DataFrame(rng.normal(size=(2 * N, 3)).round(3), columns=["age", "dose", "size"])
number = (2 * X["age"] + X["dose"].abs() + 0.5 * rng.normal(size=2 * N)).round(3).to_numpy()
time = rng.exponential(np.exp(number / 3)).round(3) + 0.01
Y = {
    "classes": np.array(["low", "high", "top"])[(number > 1).astype(int) + (X["size"] > 0.8)],
    "numbers": number,
    "times": np.column_stack((time, rng.rand(2 * N) < 0.7)),
}
weights = rng.randint(1, 4, size=2 * N).astype(float)
KINDS = {
    "classes": bt.ConvexPolytopeTreeClassifier,
    "numbers": bt.ConvexPolytopeTreeRegressor,
    "times": bt.ConvexPolytopeTreeSurvival,
}
#: Methods that are not asked: fits, settings, parts of a fit, random draws, files, sparse trees.
NOT_ASKED = {
    "encoding_", "evidence", "file_settings", "fit", "fit_files", "get_params", "modes_",
    "near_optimal_trees", "output", "partial_fit", "plan", "plan_", "posterior_", "prior_size",
    "sample_check_", "sample_posterior_predictive", "save", "sparsity_path", "to_arviz",
    "training_data", "tree_", "tree_intervals", "with_objects",
}  # fmt: skip
FIGURES = ("polytope_size", "shrinkage", "shrinkage_factors", "split_uncertainty", "tree")


@cache
def fitted(kind):
    settings = {"inference": Given(), "n_modes": 2, "mode_weights": "equal", "sparsity": None}
    settings |= {"max_depth": 2, "n_experts": 2, "min_leaf": 3, "random_state": 0}
    found = KINDS[kind](**settings).fit(X[:N], Y[kind][:N], weights[:N])
    return weighted(found, [0.7, 0.3])


def arguments(kind):
    """Arguments by their names."""
    fit, y = fitted(kind), Y[kind]
    return {
        "X": X[:N], "y": y[:N], "sample_weight": weights[:N], "weights": weights[:N], "level": 0.8,
        "X_held": X[N:], "y_held": y[N:], "weights_held": weights[N:], "x": X[7:8],
        "times": [0.5, 2.0], "predicted": fit.predict(X[:N]), "method": "psis", "estimator": fit,
        "feature": "dose", "target": "top" if kind == "classes" else 0.9,
        "estimators": {"all": fit, "first": fit.modes_[0]},
    }  # fmt: skip


def answer(call, known):
    return call(**{key: known[key] for key in inspect.signature(call).parameters if key in known})


def of_methods(known):
    fit = known["estimator"]
    for name in sorted(methods(type(fit)) - NOT_ASKED):
        one = getattr(fit, name)
        yield name, described(answer(one, known) if callable(one) else one)


def of_figures(known):
    for name in FIGURES:
        censored = known["y"].ndim == 2
        own = known | {"y": None} | ({"X": None} if name == "tree" else {}) if censored else known
        yield name, drawn(np.ravel(answer(getattr(bt.plots, name), own))[0].figure)


def of_exports(known):
    for name in ("export_text", "export_rules", "export_dot", "export_json"):
        yield name, getattr(bt, name)(known["estimator"]).splitlines()
    yield "plan_", str(known["estimator"].plan_).splitlines()


def of_pages(known):
    for name in ("html_report", "html_comparison"):
        yield name, in_words(answer(getattr(bt, name), known))


PARTS = {"methods": of_methods, "figures": of_figures, "exports": of_exports, "pages": of_pages}


def described(value, name=""):
    """Lines of a text, scale and moments of numbers, and those of the parts of what holds such."""
    kind = type(value)
    if kind.__module__.startswith("bayestree") and kind.__str__ is not object.__str__:
        yield from str(value).splitlines()
        for key, _ in inspect.getmembers(kind, lambda one: isinstance(one, property)):
            yield from described(getattr(value, key), f".{key}")
    if isinstance(value, csr_matrix):
        value = value.toarray()
    if isinstance(found := parts(value), dict):
        for key, one in found.items():
            yield from described(one, f"{name}.{key}")
    elif isinstance(value, np.ndarray | float | int | str | tuple | list):
        yield f"{name} {digest(np.asarray(value))}"


def parts(value):
    """What holds others, as a mapping: columns of tables, of each kind, and fields."""
    if hasattr(value, "to_frame"):
        by = inspect.signature(value.to_frame, eval_str=True).parameters.get("by")
        options = get_args(by.annotation) if by else ()
        return {one: value.to_frame(one) for one in options} or parts(value.to_frame())
    if isinstance(value, pd.DataFrame):
        return {"index": value.index.to_numpy()} | {k: v.to_numpy() for k, v in value.items()}
    if isinstance(value, xr.Dataset):
        return {key: one.to_numpy() for key, one in value.items()}
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return value


def digest(values):
    if values.dtype.kind not in "fiub" or not values.size:
        return " ".join(map(str, values.ravel()[:30]))
    flat = np.nan_to_num(values.astype(np.float64).ravel(), posinf=9, neginf=-9)
    scale = np.abs(flat).max(initial=0.0)
    share = flat / (scale or 1.0)
    in_order = (share * np.cos(np.arange(len(share)))).mean()
    return f"{values.shape} {scale:.4g} {share.mean():.4f} {share.std():.4f} {in_order:.4f}"


def drawn(figure):
    """The texts of a figure, and its lines, points and bars."""
    yield " | ".join(filter(None, (one.get_text() for one in figure.findobj(Text))))
    for ax in figure.axes:
        yield from (digest(np.asarray(one.get_xydata())) for one in ax.lines)
        yield from (digest(np.ma.getdata(one.get_offsets())) for one in ax.collections)
        bars = [one.get_bbox().bounds for one in ax.patches if isinstance(one, Rectangle)]
        yield digest(np.array(bars))


def in_words(page):
    """The texts of a page and those that describe its figures, but for powers beside ticks."""
    page = re.sub(r"<(script|style|symbol|defs|tspan)\b.*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r'<[^>]*(?:aria-label|alt)="([^"]*)"[^>]*>', r"\n\1\n", page)
    lines = re.sub(r"<[^>]*>", "\n", page.replace("&nbsp;", " ")).splitlines()
    said = (" ".join(line.split()) for line in lines)
    return [line for line in said if line and "Generated by" not in line]


def said(kind, part):
    """Every line that is said, where it is said first."""
    lines = []
    for name, own in PARTS[part](arguments(kind)):
        lines += [f"## {name}", *("\n".join(own).splitlines())]
    return [*dict.fromkeys(map(str.rstrip, lines))]


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")


@pytest.mark.portable
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_is_what_was_recorded(kind, part, any_k):
    """But for the rounding of other machines: by one in the last digit, or a tenth per mille."""
    recorded = (RECORDED / f"{kind}, {part}.txt").read_text(encoding="utf-8").splitlines()
    found = said(kind, part)
    for line, own in zip(found, recorded, strict=False):
        assert NUMBER.sub("#", line) == NUMBER.sub("#", own)
        for one, other in zip(NUMBER.findall(line), NUMBER.findall(own), strict=True):
            last = 10.0 ** -len(other.partition(".")[2]) if "." in other else 0.0
            allowed = max(1.01 * last, 1e-4 * float(other))
            assert abs(float(one) - float(other)) <= allowed, f"{line}\nwas: {own}"
    assert len(found) == len(recorded)


if __name__ == "__main__":
    RECORDED.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("bayestree.diagnostics.loo"), "MAX_BAD_SHARE", 1.0)  # any_k
        for kind, part in product(KINDS, PARTS):
            text = "\n".join(said(kind, part))
            (RECORDED / f"{kind}, {part}.txt").write_text(f"{text}\n", encoding="utf-8")
