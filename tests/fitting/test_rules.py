"""Combinations of parameters that are refused, rule by rule."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.datasets import load_iris
from torch import nn

from bayestree import (
    BivariateTreeClassifier,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndTreeClassifier,
    EndToEndTreeRegressor,
    NonGreedyTreeRegressor,
    ObliqueTreeClassifier,
)
from bayestree._utils.parameters import ParameterError
from bayestree.estimators._tree import check_without_rows
from bayestree.estimators.registry import ESTIMATORS, estimator_class
from bayestree.fitting.rules import STREAMING, rules_of
from bayestree.inference import Em, Map, Svi, memory_mapped
from bayestree.literature.plane_searches import OC1
from bayestree.models import GroupedScale, Laplace, Network

CLASSIFIER, REGRESSOR = ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
WITHOUT_EFFECT = {
    "warm_start": (True, "every run starts from the prior"),
    "validation_fraction": (0.2, "it does not use held-out rows"),
    "max_leaves": (2, "only max_depth limits the trees"),
    "min_rows": (9.0, "only max_depth limits the trees"),
    "min_leaf": (40, "only max_depth limits the trees"),
    "min_gain": (1.0, "only max_depth limits the trees"),
}


def linear(n_features):
    return nn.Linear(n_features, 1)


@dataclass(frozen=True)
class Several(Laplace):
    """A prior whose density is not one number."""

    def log_prob(self, sites):
        return sites["hyperplane"]


# An estimator whose fit to four columns breaks the rule, and what the message says.
REFUSED = {
    "device": (CLASSIFIER, {"device": "meta"}, "device 'meta' cannot be used here: "),
    "prior or leaf of the user": (
        CLASSIFIER,
        {"prior": Several()},
        "cannot be used for 4 features: log_prob has the shape (3, 2, 4), but must be one number",
    ),
    "leaf and dtype": (
        REGRESSOR,
        {"leaf": "linear", "dtype": "float32"},
        "leaf='linear' needs double precision",
    ),
    "sparsity and image_shape": (
        CLASSIFIER,
        {"max_columns": 2, "image_shape": (2, 2)},
        r"max_columns=2 cannot be combined with image_shape=(2, 2), which gives",
    ),
    "sparsity of rows in a file": (
        CLASSIFIER,
        {"max_columns": 2, "inference": "grow"},
        "max_columns=2 cannot be used, because sparse facets need the rows in memory",
    ),
    "model and method": (
        CLASSIFIER,
        {"inference": "smc", "max_depth": 4},
        "max_depth must be at most 3 for inference='smc', got 4",
    ),
    "mode_weights and inference": (
        CLASSIFIER,
        {"n_modes": 2, "mode_weights": "elbo", "inference": "nuts"},
        "mode_weights='elbo' needs inference='vi' or 'svi', got 'nuts'",
    ),
    "mode_weights and draws": (
        CLASSIFIER,
        {"n_modes": 2, "mode_weights": "stacking", "inference": "map"},
        "inference='map' is a point estimate: use mode_weights='equal', or hold rows out",
    ),
    "monotonic_cst and leaf": (
        CLASSIFIER,
        {"monotonic_cst": [1, 0, 0, 0]},
        "monotonic_cst needs two classes, or one output",
    ),
    "n_modes and sampled topologies": (
        CLASSIFIER,
        {"inference": "smc", "n_modes": 2},
        "inference='smc' cannot use n_modes above 1: n_chains sets the number of its runs.",
    ),
    "several outputs": (
        REGRESSOR,
        {"inference": "smc"},
        "y with several columns cannot be combined with inference='smc', which is for one output",
    ),
    "init and max_depth": (
        NonGreedyTreeRegressor,
        {"init": "random", "max_depth": 17},
        "max_depth must be 16 or less, got 17.",
    ),
    "scaling and leaf": (
        NonGreedyTreeRegressor,
        {"scaling": "none", "leaf": "linear"},
        "scaling='none' leaves features as they are",
    ),
    "criterion and leaf": (
        BivariateTreeClassifier,
        {"criterion": "gini", "leaf": "logistic"},
        "criterion='gini' is for constant leaves, got leaf='logistic'",
    ),
    "splitter": (
        ObliqueTreeClassifier,
        {"splitter": OC1(n_restarts=-1)},
        "n_restarts must be an integer of 0 or more, got -1",
    ),
    "split and what needs coefficients": (
        EndToEndTreeClassifier,
        {"split": Network(linear), "prior": "laplace"},
        "need split='oblique', because a network has no coefficients for features; got {'prior': ",
    ),
    "features of a split": (
        EndToEndTreeClassifier,
        {"patch_size": (2, 2)},
        "needs image_shape",
    ),
    "features of a split and inference": (
        EndToEndTreeClassifier,
        {"max_features": 2, "inference": "svi"},
        "max_features and patch_size fix coefficients at 0",
    ),
    "refine_epochs and Em": (
        EndToEndTreeClassifier,
        {"inference": Em(), "refine_epochs": 7},
        "refine_epochs=7 would be ignored: inference=Em() has its own epochs; set them there.",
    ),
    "image_shape": (
        EndToEndTreeClassifier,
        {"image_shape": (2, 3)},
        "image_shape (2, 3) has 6 pixels, and X has 4 features.",
    ),
    "split and leaf": (
        EndToEndTreeRegressor,
        {"leaf": "linear", "split": Network(linear)},
        "leaf='linear' needs split='oblique'; use leaf='constant' with the network",
    ),
} | {
    f"{name} and sampled topologies": (
        CLASSIFIER,
        {"inference": "smc", name: value},
        f"inference='smc' cannot use {name}={value!r}: {reason}",
    )
    for name, (value, reason) in WITHOUT_EFFECT.items()
}

# Rules about the numbers of columns, classes and outputs, and about the machine of the fit.
OF_ROWS = {
    "prior or leaf of the user",
    "device",
    "monotonic_cst and leaf",
    "several outputs",
    "sparsity of rows in a file",
    "image_shape",
}

# Settings of a fit with warm_start=True, and those of a second one.
NOT_CONTINUED = {
    "warm_start and splits": (
        {"n_experts": 3},
        {"n_experts": 4},
        "change n_experts or split back, or set warm_start=False",
    ),
    "warm_start and n_modes": (
        {"n_modes": 2},
        {"n_modes": 3},
        "continues from 2 fitted modes: set n_modes=2, or warm_start=False",
    ),
    "warm_start and monotonic_cst": (
        {"monotonic_cst": [1, 0, 0, 0]},
        {"monotonic_cst": None},
        "was fitted with another monotonic_cst: restore it",
    ),
    "warm_start and interaction_constraints": (
        {"interaction_constraints": "no_interactions"},
        {"interaction_constraints": [[0, 1]]},
        "was fitted with other interaction_constraints: restore them",
    ),
}

NOT_IN_BATCHES = {
    "class_weight in batches": ({"class_weight": "balanced"}, "got class_weight='balanced'"),
    "inference in batches": ({"inference": "nuts"}, "needs inference='map' or 'svi', got 'nuts'"),
    "n_modes in batches": ({"n_modes": 3}, "updates a single tree, got n_modes=3: set n_modes=1"),
    "guide in batches": ({"inference": Svi(kl_weight=0.5)}, "own guide and kl_weight=1"),
    "engine in batches": ({"inference": Map(engine="pyro")}, "needs engine='direct'"),
    "sparsity in batches": ({"max_columns": 2}, "cannot use max_columns=2, because sparse facets"),
    "monotonic_cst in batches": ({"monotonic_cst": [1, 0, 0, 0]}, "set monotonic_cst=None"),
    "interaction_constraints in batches": (
        {"interaction_constraints": "pairwise"},
        "set interaction_constraints=None",
    ),
}


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.mark.parametrize("rule", REFUSED)
def test_a_combination_is_refused(iris, rule, tmp_path, monkeypatch):
    (X, y), (kind, settings, said) = iris, REFUSED[rule]
    if rule == "sparsity of rows in a file":
        monkeypatch.setattr(memory_mapped, "HELD", X.size - 1)
        np.save(tmp_path / "X.npy", X)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
    if rule == "several outputs":
        y = np.column_stack((y, y))
    with pytest.raises(ParameterError) as caught:
        kind(**settings).fit(X, y)
    assert said in str(caught.value)


@pytest.mark.parametrize("rule", REFUSED)
def test_a_combination_is_refused_without_rows(rule):
    kind, settings, said = REFUSED[rule]
    if rule in OF_ROWS:
        check_without_rows(kind(**settings))
        return
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared
        check_without_rows(kind(**settings))
    assert said in str(caught.value)


@pytest.mark.parametrize("name", [name for name, one in ESTIMATORS.items() if isinstance(one, str)])
def test_the_defaults_need_no_rows_to_be_accepted(name):
    given = estimator_class(name)()
    before = vars(given).copy()
    check_without_rows(given)
    assert vars(given) == before


@pytest.mark.parametrize(
    "settings",
    [
        {"monotonic_cst": {"a": 1, "b": 0}, "inference": "svi"},
        {"monotonic_cst": [0, 0, 0], "inference": "vi"},
        {
            "interaction_constraints": [["a", "b"], ["c"]],
            "prior": GroupedScale(groups=[["a", "b", "c"]]),
        },
        {"image_shape": (28, 28), "prior": "spatial"},
        {"leaf": "logistic", "warm_start": True, "max_depth": None},
    ],
)
def test_columns_that_some_table_may_have(settings):
    check_without_rows(CLASSIFIER(**settings))


@pytest.mark.parametrize("rule", NOT_CONTINUED)
def test_a_fit_is_not_continued_with_another_model(iris, rule):
    (X, y), (first, second, said) = iris, NOT_CONTINUED[rule]
    quick = {"inference": "grow", "max_depth": 1, "warm_start": True, "random_state": 0}
    clf = CLASSIFIER(**quick | first).fit(X, y > 0)
    with pytest.raises(ParameterError) as caught:
        clf.set_params(**second).fit(X, y > 0)
    assert said in str(caught.value)


@pytest.mark.parametrize("rule", NOT_IN_BATCHES)
def test_batches_are_refused(rule):
    changes, said = NOT_IN_BATCHES[rule]
    clf = CLASSIFIER(**{"n_modes": 1} | changes)
    with pytest.raises(AttributeError) as caught:
        clf.partial_fit  # noqa: B018 - its absence is what is tested
    assert said in f"{caught.value} {caught.value.__cause__}"


def test_every_rule_has_a_case_and_a_name_of_its_own():
    own = [kind for kind, module in ESTIMATORS.items() if isinstance(module, str)]
    rules = {rule for kind in own for rule in rules_of(estimator_class(kind))} | {*STREAMING}
    names = [rule.name for rule in rules]
    assert len(names) == len(set(names))
    assert {*names} == {*REFUSED, *NOT_CONTINUED, *NOT_IN_BATCHES}
