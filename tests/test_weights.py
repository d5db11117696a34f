"""Weights count rows: what takes or remembers them answers as for rows that are repeated.

The names that take weights are found by introspection of the public modules: each is asked here, or
excused with a reason. Since fits to weighted and to repeated rows differ by chance, one fit is
asked twice.
"""

import importlib
import inspect
import re
from dataclasses import fields, is_dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import bayestree
from bayestree import diagnostics
from bayestree._utils.arrays import shuffled
from bayestree.diagnostics.scores import Score
from bayestree.estimators.registry import ESTIMATORS
from bayestree.fitting import engine, modes
from bayestree.inference import Data, Map, Vi, calibrated
from bayestree.report.compared import Agreement, agreement_of, differences
from bayestree.report.rows import permutation_importance, rows_of
from bayestree.report.scores import confusion_of, scores_of
from bayestree.report.study import Study, study_of
from bayestree.runs.predict import predict_file
from bayestree.runs.results import diagnose
from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile
from tests.test_public_api import MODULES, methods

N = 89  # rows: no other axis has this length, nor that of the rows of positive weight
OF_ROWS = {"sample_weight", "weights", "weights_held", "row_weights"}
MAP = Map(epochs=3, steepness=None)
SHORT = {"max_depth": 2, "min_leaf": 3, "n_experts": 2, "random_state": 0}
BY_VI = SHORT | {"inference": Vi(n_steps=3, n_draws=6), "n_modes": 2, "mode_weights": "equal"}
BY_MAP = SHORT | {"inference": MAP}
Classifier, Regressor = (
    bayestree.ConvexPolytopeTreeClassifier,
    bayestree.ConvexPolytopeTreeRegressor,
)
#: Estimators, by the kind of their y and what else they are.
KINDS = {
    "classes": Classifier(**BY_VI),
    "numbers": Regressor(**BY_VI),
    "counts": Regressor(leaf="poisson", **BY_MAP),
    "times": bayestree.ConvexPolytopeTreeSurvival(**BY_MAP),
    "classes, a point": Classifier(**BY_MAP),
    "classes, ordered": Classifier(leaf="ordinal", **BY_MAP),
    "classes, regressed": Classifier(leaf="logistic", **BY_MAP | {"max_depth": 1}),
    "numbers, with outliers": Regressor(leaf="student", **BY_MAP),
    "numbers, regressed": Regressor(leaf="linear", **BY_MAP | {"max_depth": 1}),
    "classes, by TAO": bayestree.AlternatingTreeClassifier(max_depth=2, random_state=0),
    "numbers, by TAO": bayestree.AlternatingTreeRegressor(max_depth=2, random_state=0),
    "classes, one split": bayestree.AlternatingTreeClassifier(max_depth=1, random_state=0),
    "numbers, one split": bayestree.AlternatingTreeRegressor(split="axis", max_depth=1),
    "times, one split": bayestree.ConvexPolytopeTreeSurvival(**BY_MAP | {"max_depth": 1}),
}

rng = np.random.default_rng(0)
X = rng.normal(size=(N, 3))
number = 2 * X[:, 0] + np.abs(X[:, 1]) + 0.3 * rng.normal(size=N)
Y = {
    "classes": (number > 1).astype(int) + (X[:, 2] > 0.8),
    "numbers": number,
    "counts": rng.poisson(np.exp(number / 3)).astype(float),
    "times": np.column_stack((rng.exponential(np.exp(number / 3)), rng.random(N) < 0.7)),
}
weights = rng.integers(4, size=N).astype(float)
copies = np.repeat(np.arange(N), weights.astype(int))
positive = np.flatnonzero(weights)


def given(kind, rows=slice(None), of_rows=weights):
    """X, y and weights of some of the rows."""
    return X[rows], Y[kind.partition(",")[0]][rows], of_rows[rows]


def whole_and_copies(kind):
    return given(kind), given(kind, copies, np.ones(N))


@pytest.fixture(scope="module")
def fits():
    """Each of the estimators, fitted with weights."""
    return {kind: clone(one).fit(*given(kind)) for kind, one in KINDS.items()}


def parts(value, path=""):
    """Numbers and texts of a value, by their places in it."""
    if isinstance(value, torch.Tensor):
        value = value.numpy(force=True)
    if isinstance(value, pd.DataFrame):
        value = {name: column.to_numpy() for name, column in value.items()}
    if is_dataclass(value):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        yield path, np.asarray(value)
        return
    for name, one in value.items():
        yield from parts(one, f"{path}.{name}")


#: A row of weight w is one observation: it has one standard error, and is one of so many rows. The
#: penalty of the linear model is relative to all weights.
OF_SINGLE_ROWS = re.compile(
    r"error$|n_rows$|bins\.rows$|ece\w*\.if_calibrated$|reference$|coverage\.1$|baseline$"
)


def assert_same(found, repeated, rtol=1e-6):
    """Whether answers agree: those about single rows, once for each copy."""
    found, repeated = (dict(parts(one)) for one in (found, repeated))
    assert found.keys() == repeated.keys()
    rows = {N: copies, len(positive): np.searchsorted(positive, copies)}
    for name in found.keys() - set(filter(OF_SINGLE_ROWS.search, found)):
        one = found[name]
        for axis, size in enumerate(one.shape):
            if size in rows and repeated[name].shape[axis] == len(copies):
                one = one.take(rows[size], axis)
        if one.dtype.kind in "fiub":
            np.testing.assert_allclose(one, repeated[name], rtol, atol=1e-9, err_msg=name)
        else:
            assert one.astype(str).tolist() == repeated[name].astype(str).tolist(), name


def donors(_, of_rows):
    """The rows from which others get values, in the place of random ones: those of equal copies."""
    own = np.searchsorted(positive, copies)
    n = len(positive)
    return np.arange(n)[::-1] if len(of_rows) == n else np.searchsorted(own, n - 1 - own)


def in_words(found):
    """What is said of held-out rows, without their number, errors and chance."""
    return re.sub(r"On \d+ held-out rows|\(.*?\)", "", found.says)


def held_out(fit, X, y, w):
    return in_words(fit.check_convergence(X, y, w).held_out)


def log_density(fit, X, y, w, name):
    """A log density of all rows, at the point estimate."""
    posterior, data = fit.posterior_, fit.training_data(X, y, w)
    return getattr(posterior.model, name)(posterior.point_sites(data.X), *data)


def leaf_and_rows(fit, X, y, w):
    data, leaf = fit.training_data(X, y, w), fit.posterior_.model.leaf
    return leaf, data.for_leaf(leaf).y, data.weights


def informed(fit, X, y, w):
    leaf, *rows = leaf_and_rows(fit, X, y, w)
    return leaf.informed(*rows)


def statistics(fit, X, y, w):
    leaf, *rows = leaf_and_rows(fit, X, y, w)
    return leaf.statistics(*rows).sum(0)


def log_likelihood(fit, X, y, w):
    data = fit.training_data(X, y, w)
    found = fit.posterior_.to_arviz(data, groups=["log_likelihood"]).log_likelihood
    return found.obs.sum("row").to_numpy()


#: Properties of a study that rows decide. Others are of the fit, or asked about elsewhere here.
OF_STUDY = (
    "scored",
    "uncertainty_table",
    "training_rows",
    "coverage",
    "calibration",
    "probability",
    "predicted",
)
NOT_OF_ROWS = {
    "encoding", "columns", "width", "trees", "tree", "is_sparse", "is_forest", "soft", "classifies",
    "survives", "labels", "classes", "target", "features", "image_shape", "posterior", "inference",
    "n_draws", "has_draws", "has_split_draws", "n_experts", "sizes", "size_posterior", "size_prior",
    "shrinkage", "convergence",
}  # fmt: skip
ELSEWHERE = {
    "baseline": "scores of it are compared",
    "evaluated": "the scored rows",
    "uncertainty": "of single rows",
    "importance": "test_columns_are_shuffled_among_copies",
    "effects": "importance, and partial_dependence, which takes no weights",
    "near_optimal": "near_optimal_trees",
    "intervals": "tree_intervals, which takes no weights",
}
OF_AGREEMENT = ("share", "counts", "correlation", "apart", "alike", "values")


def of_study(fit, X, y, w):
    """What the report says of rows, as those of the fit and as held-out ones."""
    of_fit = study_of(fit, X=X, y=y, weights=w)
    held = study_of(fit, X_held=X[::-1], y_held=y[::-1], weights_held=w[::-1])
    found = {name: getattr(of_fit, name) for name in OF_STUDY[2:]}
    scores = [(scores_of(one).each, confusion_of(one)) for one in (of_fit, held)]
    return found, scores, [one.uncertainty and one.uncertainty_table for one in (of_fit, held)]


def of_one_split(y):
    """Another fit to y."""
    kind = "times" if y.ndim == 2 else "numbers" if y.dtype == float else "classes"
    return clone(KINDS[f"{kind}, one split"]).fit(*given(kind))


def of_agreement(fit, X, y, w):
    """What the comparison says of a fit and a tree of one split."""
    studies = (study_of(one, X=X, y=y, weights=w) for one in (fit, of_one_split(y)))
    found = agreement_of(*studies)
    return {name: getattr(found, name) for name in OF_AGREEMENT} | {
        "said": re.sub(" [0-9.]+ training rows", "", found.sentence(("a", "b")))
    }


#: Functions and methods by their names, and what they answer about X, y and weights.
ASKED = {
    "score": lambda f, X, y, w: f.score(X, y, w),
    "scores": lambda f, X, y, w: f.scores(y, f.predict(X), w),
    "log_score": lambda f, X, y, w: f.log_score(X, y, w),
    "importance": lambda f, X, y, w: f.importance(X, y, w, n_repeats=1),
    "training_data": lambda f, X, y, w: f.training_data(X, y, w)[:2],
    "to_arviz": log_likelihood,
    "check_convergence": held_out,
    "html_report": of_study,
    "html_comparison": of_agreement,
    "log_joint": lambda f, X, y, w: log_density(f, X, y, w, "log_joint"),
    "log_likelihood": lambda f, X, y, w: log_density(f, X, y, w, "log_likelihood"),
    "statistics": statistics,
    "informed": informed,
}
#: Those whose answers about copies differ: they are asked without the rows of weight 0.
WITHOUT_COPIES = {
    "plan": lambda f, X, y, w: str(f.plan(X, y, w)),
    "near_optimal_trees": lambda f, X, y, w: f.near_optimal_trees(X, y, w).to_frame(),
    "loo": lambda f, X, y, w: f.loo(X, y, w, method="kfold", n_folds=2).elpd_row,
}
#: Those whose answers about copies differ, with the reason.
NOT_OF_COPIES = {
    "plan": "a fit processes rows, and its plan says how many",
    "near_optimal_trees": "folds have rows, so that the copies of one may be in several",
    "loo": "all copies of a row are left out together",
}
NOT_COMPARED = NOT_OF_COPIES | {
    "fit": "test_what_fits_remember_counts_copies",
    "partial_fit_classes": "tests/estimators/test_weights.py: a batch is fitted as by fit",
    "partial_fit_numbers": "tests/estimators/test_weights.py: a batch is fitted as by fit",
    "fit_files": "tests/distributed/test_fit_files.py: as a fit of the same rows",
    "regularization_path": "tests/literature/test_tao_estimators.py: fits with weights",
    "of": "Data.of keeps what it is given",
    "concordance": "test_scores_of_arrays_count_copies",
    "calibration": "test_scores_of_arrays_count_copies",
    "held_out_intervals": "check_convergence",
    "stacking_weights": "test_modes_are_weighted_by_copies",
    "mixed_loo": "tests/diagnostics/test_loo.py: all copies of a row are left out together",
    "mixed_convergence": "its weights are those of modes",
    "growth_terms": "tests/models/test_logistic.py: terms of copies; others return ``statistics``",
}


def public():
    """Names of public functions and methods, each with its parameters."""
    for module in (f"bayestree{name}" for name in MODULES):
        home = importlib.import_module(module)
        for value in (getattr(home, name) for name in home.__all__):
            members = methods(value) if inspect.isclass(value) else ()
            calls = [value, *(getattr(value, member) for member in members)]
            for call in filter(inspect.isroutine, filter(callable, calls)):
                yield call.__name__, {*inspect.signature(call).parameters}


def test_whatever_takes_weights_is_asked_or_excused():
    found = {name for name, parameters in public() if parameters & OF_ROWS}
    assert found == ASKED.keys() | NOT_COMPARED.keys()


#: Those that take rows and no weights: all but the last answer about single rows.
UNWEIGHTED = {
    "apply", "predict", "predict_proba", "predict_interval", "predict_median", "in_interval",
    "predict_survival_function", "decision_path", "shapley_values", "co_membership", "label_free",
    "rule_probability", "split_uncertainty", "sample_posterior_predictive",
    # averages over rows that are a sample to look at, which may be drawn by their weights
    "interactions", "partial_dependence", "column_inclusion", "prior_size", "tree_intervals",
}  # fmt: skip


def test_methods_of_estimators_without_weights_are_known():
    found = {
        call.__name__
        for name in ESTIMATORS
        for call in (
            getattr(getattr(bayestree, name), one) for one in methods(getattr(bayestree, name))
        )
        if callable(call)
        and {"X", "y"} & (own := {*inspect.signature(call).parameters})
        and not own & OF_ROWS
    }
    assert found == UNWEIGHTED


def test_all_that_a_report_says_of_rows_is_asked_or_excused():
    named = {
        kind: {n for n, one in vars(kind).items() if isinstance(one, property | cached_property)}
        for kind in (Study, Agreement)
    }
    assert named[Study] == {*OF_STUDY, *NOT_OF_ROWS, *ELSEWHERE}
    assert named[Agreement] <= {*OF_AGREEMENT}


def asked(name, kind):
    """Whether an estimator answers."""
    if name == "html_comparison":
        return kind.split(", ")[0] in ("classes", "numbers", "times")
    own = {"statistics", "informed", "log_joint", "log_likelihood"}
    return name == "html_report" or hasattr(KINDS[kind], "loo" if name in own else name)


def assert_equal(one, other):
    for (place, own), (_, others) in zip(parts(one), parts(other), strict=True):
        np.testing.assert_array_equal(own, others, err_msg=place)


pairs = [(name, kind) for name in ASKED for kind in KINDS if asked(name, kind)]


@pytest.mark.parametrize(("name", "kind"), pairs)
def test_a_fit_counts_copies(fits, name, kind, monkeypatch):
    monkeypatch.setattr("bayestree.fitted.explanations.shuffled", donors)
    fit, ask = fits[kind], ASKED[name]
    assert_same(ask(fit, *given(kind)), ask(fit, *given(kind, copies, np.ones(N))))


@pytest.mark.parametrize("name", WITHOUT_COPIES)
def test_rows_of_weight_zero_do_not_count(fits, name):
    """Nor do others count alike: the answer is another if weights are exchanged."""
    kind, ask = "times, one split", WITHOUT_COPIES[name]
    fit = fits[kind]
    found = ask(fit, *given(kind))
    assert_equal(found, ask(fit, *given(kind, positive)))
    if name != "plan":
        exchanged = weights.copy()
        exchanged[positive] = weights[positive[::-1]]
        with pytest.raises(AssertionError):
            assert_equal(found, ask(fit, *given(kind, of_rows=exchanged)))


def with_errors(fit, X, y, w):
    """What report and comparison say of held-out rows with a standard error."""
    held = {"X_held": X, "y_held": y, "weights_held": w}
    one, other = (study_of(each, **held) for each in (fit, of_one_split(y)))
    scores, found = (scores_of(one), scores_of(other)), one.calibration
    return scores[0].each, found and found.to_frame(), differences(one, other, scores)


#: Answers with standard errors.
WITH_ERRORS = {
    "importance": ASKED["importance"],
    "check_convergence": lambda f, X, y, w: re.sub(
        r"On \d+ held-out rows", "", f.check_convergence(X, y, w).held_out.says
    ),
    "html_comparison": with_errors,
}
stated = [(name, kind) for name in WITH_ERRORS for kind in KINDS if asked(name, kind)]


@pytest.mark.parametrize(("name", "kind"), stated)
def test_errors_are_those_without_rows_of_vanishing_weight(fits, name, kind, monkeypatch):
    """They would be smaller if such rows were counted."""
    order = np.arange(N)
    order[positive] = positive[::-1]
    donors = {N: order, len(positive): np.arange(len(positive))[::-1]}
    monkeypatch.setattr("bayestree.fitted.explanations.shuffled", lambda _, w: donors[len(w)])
    simulated = [Score(0.0, 0.0, 0.0)] * 3
    monkeypatch.setattr("bayestree.diagnostics.scores._gaps", lambda *_: simulated)
    rows = given(kind, positive), given(kind, of_rows=np.maximum(weights, 1e-9))
    found, other = (dict(parts(WITH_ERRORS[name](fits[kind], *own))) for own in rows)
    assert found.keys() == other.keys()
    for place, one in found.items():
        if one.dtype.kind in "fiub":
            np.testing.assert_allclose(one, other[place], 1e-6, 1e-6, err_msg=place)
        else:
            assert one.tolist() == other[place].tolist(), place


#: Cheap settings of all estimators.
CHEAP = SHORT | {"inference": MAP, "n_estimators": 2, "epochs": 2, "leaf_steps": 1, "sweeps": 2}
CHEAP |= {"n_orientations": 2, "smoothing": 0.5, "max_iter": 3}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_fits_remember_counts_copies(name, monkeypatch):
    """The deterministic tree and the statistics of its nodes, for the posterior of a fit."""
    made = []

    def recorded(form, posterior, rows, data, scaling):
        found = derive(form, posterior, rows, data, scaling)
        made.append((form, posterior, rows, data, scaling, found))
        return found

    derive = engine.HardForm.of
    monkeypatch.setattr(engine.HardForm, "of", recorded)
    kind = getattr(bayestree, name)
    one = kind(**{key: value for key, value in CHEAP.items() if key in kind().get_params()})
    y = "times" if "Survival" in name else "numbers" if "Regressor" in name else "classes"
    found = one.fit(*given(y))
    for form, posterior, rows, data, scaling, (tree, reach) in made:
        row = np.repeat(np.arange(len(rows.X)), rows.weights.astype(int))
        ones = np.ones(len(row))
        again = rows._replace(X=rows.X[row], y=rows.y[row], weights=ones)
        if rows.extra is not None:
            again = again._replace(extra=rows.extra[row])
        other = Data.of(data.X[row], data.y[row], ones, dtype=data.X.dtype)
        repeated = derive(form, posterior, again, other, scaling)
        assert_same(arrays_of(tree, reach), arrays_of(*repeated))
    again = clone(one).fit(*given(y, positive))
    assert_equal(found.predict(X), again.predict(X))


def arrays_of(tree, reach):
    """The leaves, and for the diagnostics all but the rows that were kept."""
    found = {name: getattr(tree, name) for name in ("value", "leaf_rows", "slope")}
    return found if reach is None else found | reach._replace(sample=None)._asdict()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if asked("statistics", kind)])
def test_priors_of_leaves_are_learned_from_copies(fits, kind):
    posterior, data = fits[kind].posterior_, fits[kind].training_data
    found = [calibrated(posterior, data(*given(kind, *own))) for own in ((), (copies, np.ones(N)))]
    assert_same(found[0].leaf, found[1].leaf, rtol=1e-4)  # of an optimiser


def test_modes_are_weighted_by_copies(monkeypatch):
    """Their scores are those of single rows, which enter the weights and the gain as copies."""
    made, score = [], modes._scores
    monkeypatch.setattr(modes, "_scores", lambda *own: made.append(own) or score(*own))
    clone(KINDS["classes"]).set_params(mode_weights="stacking").fit(*given("classes"))
    stages, trees, rows = made[0]
    number = np.repeat(np.arange(len(rows.X)), rows.weights.int())
    repeated = Data.of(rows.X[number], rows.y[number])
    scores, leaf = score(stages, trees, rows), trees[0].posterior.model.leaf
    found = modes._weigh("stacking", trees, scores, rows)
    assert 0.05 < found.min() < 0.45
    other = modes._weigh("stacking", trees, scores[number], repeated)
    np.testing.assert_allclose(found, other, atol=1e-4)
    gain, again = (
        modes._gain(own, found, leaf, one)
        for own, one in ((scores, rows), (scores[number], repeated))
    )
    assert gain["unseen_gain"] == pytest.approx(again["unseen_gain"])
    # equal draws, of which none is more probable without a row
    for one in trees:
        draws = {
            name: values[:, :1].repeat(6, axis=1) for name, values in one.posterior.draws.items()
        }
        alike = [replace(one, posterior=replace(one.posterior, draws=draws))]
        each = (
            score(stages, alike, rows._replace(weights=own))
            for own in (rows.weights, rows.weights**0)
        )
        np.testing.assert_allclose(*each)


def test_scores_of_arrays_count_copies():
    p, (time, event) = 1 / (1 + np.exp(-X[:, 0])), Y["times"].T
    label = (Y["numbers"] > 0).astype(int)
    found = diagnostics.calibration(label, p, weights=weights)
    assert_same(found, diagnostics.calibration(label[copies], p[copies]))
    assert_same(
        diagnostics.concordance(time, event, p, weights),
        diagnostics.concordance(time[copies], event[copies], p[copies]),
    )
    # the standard error of a mean of single rows with unequal shares
    share = weights / weights.sum()
    right = (p > 0.5) == label
    error = np.sqrt(share**2 @ (right - share @ right) ** 2)
    assert found.accuracy.error == pytest.approx(error)
    assert found.n_rows == len(positive)


def test_columns_are_shuffled_among_copies(fits, monkeypatch):
    mass, rng, n = np.where(X[:, 0] > 0.5, 4.0, 1.0), np.random.default_rng(0), 3000
    taken = np.bincount(np.concatenate([shuffled(rng, mass) for _ in range(n)])) / n
    # each row has a value of this one N times with a small probability
    expected = N * mass / mass.sum()
    assert (np.abs(taken - expected) < 4.5 * np.sqrt(expected / n)).all()
    assert sorted(shuffled(rng, np.full(N, 2.0))) == [*range(N)]
    # with a share q of the rows on one side of the only split, 2 q (1 - q) of them change sides
    monkeypatch.setattr("bayestree.report.rows.SHUFFLES", n)
    fit = fits["numbers, one split"]
    (column,) = np.flatnonzero(fit.tree_.hyperplane[0])
    rows, share = rows_of(fit, X, weights=mass, held_out=True), mass / mass.sum()
    found = permutation_importance([fit.tree_], rows, fit.encoding_).nodes[0][0, column]
    side = share @ fit.tree_.goes_right(0, X)
    sd = np.sqrt(share**2 @ np.full(N, 0.25))  # of one shuffle, at most
    assert found == pytest.approx(2 * side * (1 - side), abs=4 * sd / np.sqrt(n))


@pytest.fixture(scope="module", params=["kind", "price"])
def weighted_run(request, tmp_path_factory):
    """A run with a column of weights, and its table."""
    folder = tmp_path_factory.mktemp("weighted")
    named = {"kind": np.where(Y["numbers"] > 0, "big", "small"), "price": Y["numbers"]}
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(**named, copies=weights)
    frame.to_csv(folder / "rows.csv", index=False)
    drop = [name for name in named if name != request.param]
    data = {"path": "rows.csv", "target": request.param, "weights": "copies", "drop": drop}
    parts = {
        "title": "weights",
        "data": data | {"test_fraction": 0.5},
        "model": {"card": "cpt", "max_depth": 1, "n_experts": 2, "min_leaf": 3},
        "inference": {"card": "svi", "n_modes": 1, "epochs": 9, "n_draws": 8},
        "output": {"folder": "run", "draws": False, "report": False},
    }
    return run(RunFile.from_parts(parts, folder / "run.toml")), frame


def test_scores_of_predictions_count_copies(weighted_run, tmp_path):
    made, frame = weighted_run
    one = frame.assign(copies=1)
    tables = {"weighted": frame, "repeated": one.loc[copies], "single": one}
    found = {}
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        given = made.folder, tmp_path / f"{name}.csv", tmp_path / f"{name} predicted.csv"
        found[name] = predict_file(*given).scores
    assert found["weighted"] == pytest.approx(found["repeated"])
    assert found["weighted"] != pytest.approx(found["single"])


def test_the_verdict_on_a_run_counts_copies(weighted_run):
    made, rows = weighted_run[0], weighted_run[0].rows()
    each = np.repeat(np.arange(len(rows.X_held)), rows.weights_held.astype(int))
    found = made.estimator, rows.X_held.iloc[each], rows.y_held[each], None
    assert in_words(diagnose(made).checks.held_out) == held_out(*found)
