"""Numbers of short fits by every method, family, prior and estimator, beside those recorded.

``python -m tests.test_numbers`` records them in ``tests/data/numbers.json``. What it changes
there has to be meant, such as another default, order of random numbers or step of a method; else it
is a fault. The record says nothing of whether numbers are right: that is for the tests of each
part. Fits are so short that rounding cannot lead them elsewhere.
"""

import json
import sys
import warnings
from dataclasses import is_dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
import torch

import bayestree as bt
from bayestree import models
from bayestree._utils.parameters import parameters_of
from bayestree.inference import Em, Growth, Map, Mcmc, Nuts, Smc, Svi, Vi, memory_mapped
from bayestree.runs.compare import compare
from bayestree.runs.results import diagnose
from bayestree.runs.runner import run
from bayestree.runs.store import open_run
from bayestree.runs.sweep import sweep
from tests.finished import finished
from tests.runs.cases import run_file
from tests.runs.sweep_cases import RUN, numbers, table, written
from tests.test_texts import NUMBER, parts

RECORDED = Path(__file__).parent / "data" / "numbers.json"
N = 48
C, R, S = (
    bt.ConvexPolytopeTreeClassifier,
    bt.ConvexPolytopeTreeRegressor,
    bt.ConvexPolytopeTreeSurvival,
)

rng = np.random.RandomState(3)
Z = rng.normal(size=(N, 2))
kind = rng.randint(3, size=N)
X = pd.DataFrame(
    {"age": 40 + 9 * Z[:, 0], "dose": Z[:, 1], "kind": np.array(["a", "b", "c"])[kind]}
)
X.loc[5::9, "dose"] = np.nan
number = 2 * Z[:, 0] + np.abs(Z[:, 1]) + (kind == 1) + 0.4 * rng.normal(size=N)
time = rng.exponential(np.exp(number / 2)) + 0.01
counts = rng.poisson(np.exp(number / 3)).astype(float)
Y = {
    "two": np.where(number > 1, "yes", "no"),
    "three": np.digitize(number, [0.3, 1.9]),
    "number": 20 + 5 * number,
    "several": np.column_stack((number, Z[:, 1] - Z[:, 0] + 0.3 * rng.normal(size=N))),
    "count": np.column_stack((counts, rng.uniform(0.5, 2, size=N))),
    "time": np.column_stack((time, rng.rand(N) < 0.7)),
}
weights = rng.choice([0.5, 1.0, 2.0, 3.0], size=N)

GROWTH = Growth(steps=12, n_restarts=2)
#: Settings of the methods, the stages before them, and parameters.
METHODS = {
    "grow": (Growth, {"steps": 12, "n_restarts": 2}, (), {}),
    "map": (Map, {"epochs": 2, "batch_size": 20, "steepness": (1.0, 3.0)}, (GROWTH,), {}),
    "vi": (Vi, {"n_steps": 3, "n_draws": 6}, (GROWTH,), {"n_modes": 1}),
    "svi": (Svi, {"epochs": 2, "batch_size": 20, "n_draws": 6}, (GROWTH,), {"n_modes": 1}),
    "mcmc": (
        Mcmc,
        {"n_chains": 2, "n_warmup": 2, "n_draws": 3},
        (GROWTH, Vi(n_steps=3, n_draws=4)),
        {"sparsity": None},
    ),
    "nuts": (
        Nuts,
        {"n_chains": 1, "n_warmup": 2, "n_draws": 3, "max_tree_depth": 2, "n_slides": 2},
        (GROWTH, Svi(epochs=2, n_draws=4)),
        {"sparsity": None},
    ),
    "smc": (
        Smc,
        {"n_chains": 2, "n_particles": 4, "n_draws": 4, "n_rounds": 1},
        (),
        {"max_depth": 1, "sparsity": None},
    ),
}
LIMITS = {"max_depth": 2, "min_rows": 6, "min_leaf": 3, "min_gain": 0.5}
KINDS = {"two": C, "three": C, "time": S}


def by(method, y, **given):
    """Case of a polytope tree, by parameters and settings of its method."""
    kind, default, before, parameters = METHODS[method]
    of_method = (given.keys() & parameters_of(kind).keys()) - {"max_depth"}
    own = default | {name: given.pop(name) for name in of_method}
    found = (LIMITS if method != "smc" else {}) | {"n_experts": 2} | parameters | given
    return y, KINDS.get(y, R), found | {"inference": (*before, kind(**own))}


inverse, process = models.InverseGammaScale, models.GammaProcess
PRIORS = {
    "inverse gamma": inverse(3.0, 2.0, 0.5, coefficient_scale=0.7),
    "explicit scales": inverse(3.0, 2.0, 0.5, form="explicit"),
    "width": inverse(2.0, width=10.0),
    "columns": models.GroupedScale(2.0, 2.0, 0.5, groups="columns"),
    "laplace": models.Laplace(3.0, 2.0),
    "flat": models.Flat(),
}
LEAVES = {
    ("number", "constant"): models.Gaussian(1.0, 0.5, 3.0, 0.7),
    ("number", "linear"): models.LinearGaussian(0.5, 2.0, 3.0, 0.7),
    ("number", "student"): models.Student(5.0, 0.3, 0.5, 3.0, 0.7),
    ("three", "constant"): models.Categorical(3, 2.0),
    ("three", "logistic"): models.Logistic(3, 1.5, 0.7),
    ("three", "ordinal"): models.Ordinal(3, 5.0, 0.4),
    ("count", "poisson"): models.Poisson(2.0, 0.5),
    ("several", "constant"): "constant",
    ("time", "weibull"): "weibull",
    ("time", "exponential"): "exponential",
}
HYPER = process(1.0, 1.0, (2.0, 3.0), (3.0, 2.0))
OTHERS = {
    "growth, best first": by("grow", "number", order="best", max_leaves=3),
    "growth, some rows": by("grow", "two", rows_per_node=25),
    "growth, held out": by("grow", "three", validation_fraction=0.3, min_gain=0.1),
    "growth of several": by("grow", "several"),
    "map, priced slopes": by("map", "number", leaf=models.LinearGaussian(0.5, 2.0, price=0.5)),
    "map, priced logits": by("map", "three", leaf=models.Logistic(3, 1.5, 0.7, price=0.5)),
    "map, lbfgs": by("map", "three", optimiser="lbfgs"),
    "map, impurity": by("map", "three", objective="impurity"),
    "map, impurity of numbers": by("map", "number", objective="impurity"),
    "map, pyro": by("map", "three", engine="pyro"),
    "map, patience": by("map", "number", epochs=3, patience=1, validation_fraction=0.3),
    "map, chosen steepness": by("map", "number", steepness=None),
    "map, monotone": by("map", "two", monotonic_cst=[1, 0, 0]),
    "map, modes": by("map", "count", monotonic_cst={"age": 1}, n_modes=2, leaf="poisson"),
    "map, interactions": by("map", "number", interaction_constraints="no_interactions"),
    "map, gamma process": by("map", "three", weight_prior=process(0.5, 2.0)),
    "map, learned process": by("map", "three", weight_prior=HYPER),
    "map, literal process": by("map", "three", weight_prior="literal-gamma-process"),
    "map, flat weights": by("map", "three", weight_prior=models.FlatWeights()),
    "map, common units": by("map", "three", scaling="common"),
    "map, balanced": by("map", "three", class_weight="balanced", smoothing=3.0),
    "map, float32": by("map", "number", dtype="float32"),
    "vi, batches": by("vi", "number", batch_size=20),
    "vi, sweeps": by("vi", "three", n_sweeps=2),
    "vi, tempered": by("vi", "three", kl_weight=0.3, steepness=2.0),
    "vi, interactions": by("vi", "three", interaction_constraints=[["age", "kind"]]),
    "vi, modes": by("vi", "number", n_modes=2, mode_weights="stacking", sparsity=None),
    "vi, sparse": by("vi", "three", n_steps=7, n_modes=2, sparsity=0.02, max_columns=2),
    "vi, many columns": by("vi", "three"),
    "svi, many rows": by("svi", "number"),
    "svi, points": by("svi", "two", epochs=4, batch_size=500, n_modes=2, sparsity=0.02, points=3),
    "svi, experts": by("svi", "three", covariance="expert"),
    "svi, tempered": by("svi", "number", kl_weight=0.3, steepness=2.0),
    "svi, pyro": by("svi", "three", engine="pyro"),
    "svi, normal guide": by("svi", "number", guide="AutoNormal"),
    "svi, low rank": by("svi", "three", guide="AutoLowRankMultivariateNormal"),
    "svi, laplace guide": by("svi", "number", guide="AutoLaplaceApproximation"),
    "svi, monotone": by("svi", "two", monotonic_cst=[1, 0, 0]),
    "svi, by the bound": by("svi", "three", n_modes=2, mode_weights="elbo"),
    "svi, single leaves": by("svi", "three", n_modes=2, mode_weights="elbo", min_gain=1e3),
    "svi, held out": by("svi", "three", n_modes=2, validation_fraction=0.3),
    "mcmc, mirror": by("mcmc", "number", n_draws=2, thinning=2, mirror=True, drop_idle=True),
    "mcmc, process": by("mcmc", "two", leaf_rounds=1, weight_prior=process(0.5, 2.0)),
    "nuts, mirror": by("nuts", "three", n_chains=2, n_draws=4, mirror=True, drop_idle=True),
    "nuts, process": by("nuts", "two", weight_prior=HYPER, n_refreshes=1),
    "smc, deep": by("smc", "three", max_depth=2, split_base=0.7, split_power=1.0, max_experts=3),
}
#: Limits beyond which methods approximate, lowered for some of the fits.
LOWERED = {
    "vi, many columns": [("variational.vi", "MOST_FULL", 3)],
    "svi, many rows": [("convergence", "ELBO_ROWS", 160)],
}
#: Settings of trees of the literature, where they have them.
SMALL = {"max_depth": 2, "min_leaf": 3, "min_gain": 0.5, "epochs": 2, "n_estimators": 2}
SMALL |= {"sweeps": 2, "max_iter": 3, "random_state": 0}


def of(name, **given):
    """Cases of a tree of the literature, for classes and for numbers."""
    for y, end, slope in (("three", "Classifier", "logistic"), ("number", "Regressor", "linear")):
        if kind := getattr(bt, name + end, None):
            known = kind().get_params()
            own = {key: value for key, value in (SMALL | given).items() if key in known}
            if own.get("leaf"):
                own["leaf"] = slope
            if own.keys() >= given.keys():
                yield f"{name} {given or ''} of {y}", (y, kind, own)


LITERATURE = [
    of("BivariateTree", ccp_alpha=0.5, n_orientations=6, max_depth=3),
    of("BivariateTree", criterion="gini"),
    of("BivariateTree", leaf="sloping"),
    *(of("ObliqueTree", splitter=one) for one in ("hhcart", "oc1", "cart-lc", "co2", "guide")),
    of("ObliqueTree", criterion="twoing", max_depth=3),
    of("ObliqueTree", leaf="sloping"),
    of("ObliqueTree", ccp_alpha=0.02, max_depth=3),
    of("WeightedObliqueTree", n_starts=2, max_depth=3),
    *(of("AlternatingTree", split=one) for one in ("oblique", "bivariate", "axis")),
    of("AlternatingTree", l1=0.5, init="random"),
    of("AlternatingTree", leaf="sloping"),
    of("EndToEndTree", refine_epochs=1, max_depth=3),
    of("EndToEndTree", inference=Em(epochs=2), prior="laplace"),
    of("EndToEndTree", inference="svi", n_draws=4, prior="laplace"),
    of("EndToEndForest", max_depth=3),
    of("LocallyConstantTree", width=8, batch_size=20, dropconnect=0.3),
    of("NeuralDecisionForest", batch_size=20),
    of("NonGreedyTree", batch_size=20),
    of("AlternatingDecisionForest", max_depth=3),
]


def cases():
    """Names of fits, and the y, estimator and parameters of each."""
    yield from OTHERS.items()
    for of_tree in LITERATURE:
        yield from of_tree
    methods = [one for one in METHODS if one != "grow"]
    for (y, leaf), method in product(LEAVES, methods):
        if y != "several":
            yield f"{method}, {leaf} of {y}", by(method, y, leaf=LEAVES[y, leaf])
        elif method not in ("nuts", "smc"):  # which are for one output
            yield f"{method}, {leaf} of {y}", by(method, y, sparsity=None)
    for prior, method in product(PRIORS, methods):
        if isinstance(PRIORS[prior], inverse) or method in ("map", "svi"):
            yield f"{method}, {prior}", by(method, "two", prior=PRIORS[prior])


CASES = dict(cases())


@cache
def fitted(name):
    y, kind, parameters = CASES[name]
    seed = {"random_state": 0} if "random_state" in kind().get_params() else {}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        for module, limit, value in (("variational.vi", "MAX_ROUNDS", 1), *LOWERED.get(name, ())):
            patch.setattr(sys.modules[f"bayestree.inference.{module}"], limit, value)
        return kind(**parameters | seed).fit(X, Y[y], weights)


def told(name):
    """What a fit has found, by names: its draws, and the deterministic tree and its predictions."""
    fit, y = fitted(name), Y[CASES[name][0]]
    for number, one in enumerate(getattr(fit, "modes_", [fit])):
        if hasattr(one, "posterior_"):
            posterior = one.posterior_
            yield f"draws {number}", dict(posterior.draws)
            yield f"point {number}", dict(posterior.point)
            yield f"stats {number}", dict(posterior.stats)
        if hasattr(one, "tree_"):
            yield f"tree {number}", one.tree_
    if hasattr(fit, "mode_weights_"):
        yield "modes", fit.mode_weights_
    yield "predicted", (fit.predict_proba if hasattr(fit, "classes_") else fit.predict)(X)
    yield "score", fit.score(X, y, weights)
    if hasattr(fit, "log_score"):
        yield "log score", fit.log_score(X, y)


def flat(value, path):
    """Pairs of a path in what holds others, and an array of numbers."""
    if is_dataclass(value) or isinstance(value, pd.DataFrame) or hasattr(value, "to_frame"):
        value = parts(value)
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        for key, one in value.items():
            yield from flat(one, f"{path}.{key}")
        return
    array = np.asarray(value)
    if array.dtype.kind in "fiub" and not path.endswith("seconds"):
        yield path, array


def wide():
    """Columns of every kind."""
    rng = np.random.RandomState(5)
    day = pd.Timestamp("2024-02-27 22:10", tz="Europe/Paris")
    size = pd.Categorical(rng.choice(["s", "m", "l"], N), ["s", "m", "l"], ordered=True)
    return X.assign(
        day=[day + pd.Timedelta(minutes=int(m)) for m in rng.randint(540_000, size=N)],
        size=size,
        text=[f"{one:.2f}" for one in rng.normal(size=N)],
        truth=rng.rand(N) < 0.4,
        place=[f"p{one}" for one in rng.randint(32, size=N)],
    )


def by_columns(folder):
    fit = R(**by("map", "number")[2], random_state=0).fit(wide(), Y["number"], weights)
    encoding = fit.encoding_
    yield "columns", {str(i): one for i, one in enumerate(encoding.to_json())}
    yield "encoded", encoding.encode(wide().iloc[::-1])
    yield "filled", encoding.filled(encoding.encode(wide()).to_numpy())
    yield "predicted", fit.predict(wide().iloc[::-1], return_std=True)
    yield "importance", fit.importance(wide(), Y["number"], n_repeats=2, random_state=0)


def streamed(name, folder):
    y, kind, parameters = CASES[name]
    fit, half = kind(**parameters, random_state=0), slice(N // 2, None)
    fit.partial_fit(X[: N // 2], Y[y][: N // 2], sample_weight=weights[: N // 2])
    fit.partial_fit(X[half], Y[y][half], sample_weight=weights[half])
    yield "draws", dict(fit.posterior_.draws)
    yield "tree", fit.tree_


def continued(name, folder):
    y, kind, parameters = CASES[name]
    fit = kind(**parameters, random_state=0, warm_start=True).fit(X, Y[y], weights)
    yield "tree", fit.fit(X, Y[y], weights[::-1]).tree_


def from_files(folder):
    table = X.assign(y=Y["number"], n=weights)
    table.to_parquet(folder / "table.parquet")
    fit = R(**by("svi", "number")[2], random_state=0)
    fit.fit_files(folder, "y", weights="n", n_workers=1, sample_rows=30)
    yield "tree", fit.tree_
    yield "draws", dict(fit.posterior_.draws)
    yield "check", fit.sample_check_


def of_runs(kinds, folder):
    runs = [open_run(finished(kind)) for kind in kinds]
    found = compare(runs)
    yield "table", found.table
    yield "said", [float(one) for one in NUMBER.findall(str(found))]
    yield "metrics", {str(i): one.metrics for i, one in enumerate(runs)}
    yield "held out", {str(i): diagnose(one).checks.held_out for i, one in enumerate(runs)}


def mapped(folder):
    """Numbers in a file, of which twenty rows are in memory at a time."""
    np.save(folder / "rows.npy", Z)
    rows = np.load(folder / "rows.npy", mmap_mode="r")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_mapped, "HELD", 40)
        for method in ("map", "svi"):
            fit = C(**by(method, "three")[2], random_state=0).fit(rows, Y["three"], weights)
            yield f"draws of {method}", dict(fit.posterior_.draws)
            yield f"tree of {method}", fit.tree_


def of_sweep(folder):
    file = written(folder, run=RUN.replace("target", 'weights = "depth"\ntarget'))
    table().assign(depth=np.arange(90) % 3 + 0.5).to_csv(folder / "data.csv", index=False)
    yield "table", numbers(sweep(file).table)


def of_weighted_run(folder):
    X.assign(y=Y["two"], n=weights).to_csv(folder / "data.csv", index=False)
    data, model = {"weights": "n", "target": "y", "test_fraction": 0.5}, {"max_depth": 1}
    made = run(run_file(folder, data=data | {"drop": []}, model=model))
    yield "metrics", made.metrics


def of_path(folder):
    start = bt.AlternatingTreeClassifier(max_depth=2, sweeps=2, random_state=0)
    given = X[:30], Y["three"][:30], [3.0, 0.3, 0.0], X[30:], Y["three"][30:]
    yield "path", bt.regularization_path(start, *given, sample_weight=weights[:30])


def asked(name, method, given=(), options=MappingProxyType({})):
    """What a fit answers."""
    known = {"X": X, "y": Y[CASES[name][0]], "weights": weights}
    answer = getattr(fitted(name), method)(*(known.get(one, one) for one in given), **options)
    if hasattr(answer, "groups"):
        names = answer.groups() if callable(answer.groups) else answer.groups  # in any order
        answer = {one: dict(answer[one].data_vars) for one in sorted(names) if one != "/"}
    yield method, answer


#: What is asked of the fits above: the method, its arguments and options.
ROWS = ("X", "y", "weights")
PREDICTIVE = ("sample_posterior_predictive", ("X", 9), {"random_state": 0})
ASKED = {
    "evidence": ("smc, constant of number", "evidence"),
    "evidence of classes": ("smc, constant of three", "evidence"),
    "intervals": ("vi, sparse", "tree_intervals", ("X",), {"level": 0.8}),
    "intervals of points": ("svi, points", "tree_intervals", ("X",), {"level": 0.8}),
    "sparse path": ("vi, sparse", "sparsity_path"),
    "near-optimal": ("vi, sparse", "near_optimal_trees", ROWS),
    "near-optimal without": ("svi, points", "near_optimal_trees", ROWS, {"without": "kind"}),
    "near-optimal topologies": ("smc, deep", "near_optimal_trees", ROWS),
    "sizes of the prior": ("vi, columns", "prior_size", ("X",), {"n_draws": 9}),
    "predictive draws": ("vi, modes", *PREDICTIVE),
    "predictive counts": ("vi, poisson of count", *PREDICTIVE),
    "refits": ("svi, constant of number", "loo", ROWS, {"n_folds": 3}),
    "refits of classes": ("map, constant of three", "loo", ROWS, {"n_folds": 3}),
    "container": ("vi, constant of three", "to_arviz", ROWS, {"n_prior": 5}),
    "container of times": ("svi, weibull of time", "to_arviz", ROWS, {"n_prior": 5}),
}
#: Fits to other tables.
FITS = {
    "columns of every kind": by_columns,
    "streamed": partial(streamed, "svi, constant of number"),
    "streamed classes": partial(streamed, "map, constant of three"),
    "continued": partial(continued, "svi, constant of three"),
    "runs": partial(of_runs, ("svi", "other prior", "map")),
    "runs, numbers": partial(of_runs, ("numbers", "numbers, other prior", "numbers, tao")),
    "runs, evidence": partial(of_runs, ("smc", "smc, oblique")),
    "run with weights": of_weighted_run,
    "path": of_path,
    "files": from_files,
    "mapped": mapped,
    "sweep": of_sweep,
}
NAMES = [*CASES, *ASKED, *FITS]


def number_of(values):
    """A sum with weights that tell places and signs apart, of size 1 for values of size 1."""
    one = np.nan_to_num(np.asarray(values, dtype=np.float64).ravel(), posinf=9, neginf=-9)
    return (one * np.cos(np.arange(one.size))).sum() / np.sqrt(max(one.size, 1))


def found(name, folder):
    """Arrays of a case, by its parts and their paths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in FITS:
            told_of = FITS[name](folder)
        else:
            told_of = told(name) if name in CASES else asked(*ASKED[name])
        return {key: dict(flat(value, "")) for key, value in told_of}


@cache
def recorded():
    return json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.mark.portable
@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_those_recorded(name, tmp_path):
    own = recorded()[name]
    for part, arrays in found(name, tmp_path).items():
        assert len(arrays) == len(own[part]), f"{part} holds {[*arrays]}"
        for (path, values), number in zip(arrays.items(), own[part], strict=True):
            size = float(np.abs(np.nan_to_num(values, posinf=9, neginf=-9)).max(initial=0.0))
            some = 1e-2 if "gain" in path or "acceptance" in path else 1e-4  # small differences
            close = pytest.approx(number, rel=some, abs=some * size)
            assert number_of(values) == close, f"{part}{path}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    lines = []
    for name in NAMES:
        with TemporaryDirectory() as folder:
            parts_of = found(name, Path(folder))
        own = {
            part: [float(f"{number_of(one):.7g}") for one in arrays.values()]
            for part, arrays in parts_of.items()
        }
        lines.append(f"{json.dumps(name)}: {json.dumps(own)}")
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
