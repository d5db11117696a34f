"""Trees whose facets use the columns of one group, in the posterior and in the sparse tree."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    ConvexPolytopeTreeSurvival,
    load,
)
from bayestree.inference import Em, Map, Svi, Vi
from bayestree.runs.schema import RunFile
from bayestree.tables import InputError
from tests.sampling import quickly

# short fits, and a constant column
pytestmark = pytest.mark.filterwarnings("ignore:the fit has not", "ignore:the fit ignores")

CHEAP = {"max_depth": 2, "random_state": 0}
QUICK = Vi(n_steps=15, n_draws=5)
GROUPS = [["a", "b"], ["c", "kind"]]


@pytest.fixture(scope="module")
def table():
    """Classes by a sum of a and b, or by c of a kind; gaps, a constant, and a column of noise."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(240, 4)), columns=["a", "b", "c", "noise"])
    frame["kind"] = rng.choice(["u", "v", "w"], size=240)
    right = (frame["a"] + frame["b"] > 0.5) | (frame["c"] - 2 * (frame["kind"] == "u") > 0.6)
    frame.loc[::9, "a"] = np.nan
    return frame.assign(constant=1.0), np.where(right, "yes", "no")


def used(estimator):
    """The sets of columns that facets use: of each draw and mean of all modes, and of the tree."""
    posteriors = [one.posterior for one in estimator.fitted_.trees]
    planes = [estimator.tree_.hyperplane]
    planes += [values for one in posteriors for values in (one.point["hyperplane"],)]
    planes += [one.draws["hyperplane"] for one in posteriors if "hyperplane" in one.draws]
    rows = np.concatenate([one.reshape(-1, one.shape[-1]) for one in planes])
    names, places = estimator.encoding_.names, estimator.encoding_.places
    return {
        frozenset(name for name, own in zip(names, places, strict=True) if row[own].any())
        for row in rows
    }


def within(sets, *groups):
    return all(any(one <= set(group) for group in groups) for one in sets)


METHODS = {
    "grow": {"inference": "grow"},
    "map": {"inference": Map(epochs=5, steepness=None)},
    "vi": {"inference": QUICK, "n_modes": 2},
    "svi": {"inference": Svi(epochs=5, n_draws=5), "n_modes": 2},
    "laplace": {"prior": "laplace", "inference": Svi(epochs=5, n_draws=5), "n_modes": 1},
    "oblique": {"inference": QUICK, "n_experts": 1, "n_modes": 1, "sparsity": None},
    "full": {"inference": QUICK, "n_modes": 1, "sparsity": 0.0},
}


@pytest.mark.parametrize("method", quickly(METHODS, quick=(0, 1, 2, 5)))
def test_every_facet_uses_one_group(table, method):
    X, y = table
    clf = ConvexPolytopeTreeClassifier(interaction_constraints=GROUPS, **CHEAP | METHODS[method])
    found = used(clf.fit(X, y))
    assert within(found, *GROUPS, {"noise"})  # the rest is a group, too
    assert {"b", "c"} <= set().union(*found)
    free = clone(clf).set_params(interaction_constraints=None).fit(X, y)
    assert not within(used(free), *GROUPS, {"noise"})


@pytest.mark.parametrize(("alias", "most"), [("no_interactions", 1), ("pairwise", 2)])
def test_numbers_of_columns_by_name(table, alias, most):
    X, y = table
    clf = ConvexPolytopeTreeClassifier(
        interaction_constraints=alias, inference=QUICK, n_modes=1, **CHEAP
    )
    assert max(map(len, used(clf.fit(X, y)))) == most
    levels = {own for own in clf.posterior_.model.groups if 5 in own}
    assert (levels == {(5, 6, 7)}) == (most == 1)


def test_notations_of_groups(table):
    X, _ = table
    numbers = {"a": 0, "b": 1, "c": 2, "noise": 3, "kind": 4}
    notations = [
        GROUPS,
        tuple(map(tuple, GROUPS)),
        [set(own) for own in GROUPS],
        [{numbers[name] for name in own} for own in GROUPS],
        np.array([[numbers[name] for name in own] for own in GROUPS]),
        [*GROUPS, ["noise", "constant"]],
    ]
    y = X["b"].to_numpy() > 0
    fits = [
        ConvexPolytopeTreeClassifier(interaction_constraints=one, inference="grow", max_depth=1)
        for one in notations
    ]
    groups = {tree.fit(X, y).posterior_.model.groups for tree in fits}
    (names,) = {tuple(tree.tree_.feature_names) for tree in fits}
    assert names == ("a", "a missing", "b", "c", "noise", "kind=u", "kind=v", "kind=w", "constant")
    assert groups == {((0, 1, 2), (3, 5, 6, 7), (4, 8))}


def test_overlapping_groups(table):
    X, y = table
    groups = [["a", "b"], ["b", "c"], ["noise", "kind", "constant"]]
    clf = ConvexPolytopeTreeClassifier(
        interaction_constraints=groups, inference="grow", **CHEAP
    ).fit(X, y)
    assert within(used(clf), *groups)


def test_other_responses(table):
    X, y = table
    X = X.drop(columns="constant")
    time = np.random.default_rng(1).exponential(np.where(y == "yes", 1.0, 5.0))
    for kind in (ConvexPolytopeTreeRegressor, ConvexPolytopeTreeSurvival):
        tree = kind(interaction_constraints=GROUPS, inference=QUICK, n_modes=1, **CHEAP)
        assert within(used(tree.fit(X, time)), *GROUPS, {"noise"})


def test_with_monotone_columns(table):
    X, y = table
    clf = ConvexPolytopeTreeClassifier(
        interaction_constraints=GROUPS, monotonic_cst={"a": 1, "b": 1}, n_modes=1,
        inference=Svi(epochs=5, n_draws=5), **CHEAP,
    )  # fmt: skip
    assert within(used(clf.fit(X, y)), *GROUPS, {"noise"})
    line = X[:8].loc[np.repeat(X.index[:8], 30)].assign(b=np.tile(np.linspace(-4, 4, 30), 8))
    risen = np.diff(clf.predict_proba(line)[:, 1].reshape(8, 30), axis=1)
    assert (risen >= -1e-5).all()


@pytest.fixture(scope="module")
def fitted(table):
    settings = {"inference": QUICK, "n_modes": 2, "warm_start": True}
    clf = ConvexPolytopeTreeClassifier(interaction_constraints=GROUPS, **CHEAP | settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clf.fit(*table)


def test_files_and_warm_starts_keep_the_groups(fitted, table, tmp_path):
    sets = [set(own) for own in GROUPS]
    fitted.set_params(interaction_constraints=sets).save(tmp_path / "tree.safetensors")
    restored = load(tmp_path / "tree.safetensors")
    assert restored.interaction_constraints == sets
    assert restored.posterior_.model.groups == fitted.posterior_.model.groups != ()
    restored.fit(*table)
    assert within(used(restored), *GROUPS, {"noise"})
    with pytest.raises(ValueError, match="other interaction_constraints: restore them"):
        restored.set_params(interaction_constraints=None).fit(*table)


def test_what_reads_a_fitted_tree(fitted, table):
    X, y = table
    near = fitted.near_optimal_trees(X, y, without=["a"])
    for tree in near.trees:
        names = np.array(fitted.encoding_.feature_names)
        facets = [set(names[row != 0]) for row in tree.hyperplane]
        levels = {"c", "kind=u", "kind=v", "kind=w"}
        assert all(one <= {"b"} or one <= levels or one <= {"noise"} for one in facets)
    assert fitted.prior_size(X, n_draws=20, random_state=0).probabilities().shape[0] == 1
    attributes = fitted.modes_[0].to_arviz(X, y).posterior.attrs["model"]
    assert '"groups": [[0, 1, 2], [3, 5, 6, 7], [4, 8]]' in attributes


def test_a_run_file_has_lists(table):
    parts = {
        "data": {"path": "x.csv", "target": "y", "task": "classification"},
        "model": {"interaction_constraints": GROUPS},
    }
    clf = RunFile.from_parts(parts, "run.toml").estimator("classification")
    clf.set_params(inference="grow", **CHEAP)
    assert within(used(clf.fit(*table)), *GROUPS, {"noise", "constant"})
    for wrong in (["a", "b"], "three", [["a", 1]]):
        parts["model"]["interaction_constraints"] = wrong
        with pytest.raises(InputError, match="a list of lists of strings"):
            RunFile.from_parts(parts, "run.toml")


REFUSED = [
    ([["a", "x9"]], "interaction_constraints: 'x9' is not a column of the fit"),
    ([[0, 9]], "interaction_constraints: column 9 does not exist; the fit had 6"),
    ([["a"], []], "has a group without columns"),
    ([["a", "b", "a"]], "names a column twice in the group"),
    (["a", "b"], "'no_interactions' or 'pairwise', or a list of lists of strings"),
    ([[0, "b"]], "or a list of lists of integers of 0 or more, or None"),
    ([[-1]], "or a list of lists of integers of 0 or more, or None"),
    ("none", "'no_interactions' or 'pairwise'"),
    ({"a": 1}, "'no_interactions' or 'pairwise'"),
]


@pytest.mark.parametrize(("groups", "message"), REFUSED)
def test_wrong_groups_are_refused(table, groups, message):
    with pytest.raises(ValueError, match=message):
        ConvexPolytopeTreeClassifier(interaction_constraints=groups, **CHEAP).fit(*table)


UNSUPPORTED = [
    "nuts",
    "mcmc",
    "smc",
    Em(),
    Svi(covariance="expert", n_draws=5),
    Svi(guide="AutoNormal", n_draws=5),
]


@pytest.mark.parametrize("inference", UNSUPPORTED, ids=str)
def test_other_methods_are_refused(table, inference):
    with pytest.raises(ValueError, match="use inference='vi', 'map', 'grow', or 'svi' with guide"):
        ConvexPolytopeTreeClassifier(
            interaction_constraints=GROUPS, random_state=0, inference=inference
        ).fit(*table)


@pytest.mark.parametrize("prior", ["flat", "spatial"])
def test_other_priors_are_refused(table, prior):
    X = table[0][["a", "b", "c", "noise"]].fillna(0.0)
    with pytest.raises(ValueError, match="use prior='inverse-gamma' or 'laplace'"):
        ConvexPolytopeTreeClassifier(
            interaction_constraints=[["a", "b"]], prior=prior, image_shape=(2, 2)
        ).fit(X, table[1])


@pytest.mark.portable
def test_planted_groups_are_found():
    """Facets of two groups of three: the tree of the groups predicts as well as the truth."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(500, 6)), rng.normal(size=(4000, 6))

    def right(X):
        return (X[:, 0] + X[:, 1] > 0.5) | (X[:, 2] - X[:, 3] > 0.5)

    clf = ConvexPolytopeTreeClassifier(
        interaction_constraints=[[0, 1], [2, 3], [4, 5]], max_depth=1, n_modes=1, random_state=0
    ).fit(X, right(X))
    facets = {tuple(np.flatnonzero(row).tolist()) for row in clf.tree_.hyperplane}
    assert facets == {(0, 1), (2, 3)}
    # Facets off by a tenth of a standard deviation would lose about 4 % of the rows on each of the
    # two; four standard errors of 4,000 rows are 1.2 % at most.
    assert clf.score(new, right(new)) > 0.9
