"""A fit that is interrupted leaves its estimator as it was."""

from contextlib import contextmanager
from copy import deepcopy
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import bayestree
from tests.estimators.test_interrupted import CASES, CPT, MAP, SVI, same
from tests.sampling import quickly

pytestmark = pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
# The first case of each estimator, and a mixture of several.
NAMES = [*{kind: name for name, (kind, *_) in reversed(CASES.items())}.values(), "modes"]

#: One of each base class of the estimators.
QUICK = ("survival", "modes", "e2e", "forest", "tao-real", "adf", "oblique")


@contextmanager
def assignments(kind, *, stop_at=None):
    """List the attributes set on estimators of a class; raise before the last, ``stop_at``."""
    seen = []

    def keep(estimator, name, value):
        seen.append(name)
        if len(seen) == stop_at:
            raise KeyboardInterrupt
        object.__setattr__(estimator, name, value)

    with mock.patch.object(kind, "__setattr__", keep, create=True):
        yield seen


def interrupt(fit, estimator):
    """Call a method that fits, and stop it before it sets the first, and the last attribute."""
    kind = type(estimator)
    with assignments(kind) as seen:
        fit(deepcopy(estimator))
    assert len(seen) > 1
    for number in (1, len(seen)):
        with assignments(kind, stop_at=number), pytest.raises(KeyboardInterrupt):
            fit(estimator)


def rows(columns, n=60, seed=0):
    """Rows of named features, and numbers that depend on two of them."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, len(columns))).round(3), columns=list(columns))
    return X, X.iloc[:, 0] * X.iloc[:, 1] + 0.1 * rng.normal(size=n)


def target(kind, score, labels=("over", "under"), scale=1.0):
    if kind.endswith("Classifier"):
        return np.where(score > 0, *labels)
    return scale * (np.exp(score) if kind.endswith("Survival") else score).to_numpy()


def built(name, **changes):
    kind, parameters, _ = CASES[name]
    seed = {} if kind.startswith("Bivariate") else {"random_state": 0}
    return kind, getattr(bayestree, kind)(**parameters | seed | changes)


@pytest.mark.parametrize(
    "name", quickly(NAMES, quick=[i for i, name in enumerate(NAMES) if name in QUICK])
)
def test_an_interrupted_fit_changes_nothing(name):
    kind, estimator = built(name)
    before = dict(vars(estimator))
    X, score = rows("ab")
    other, other_score = rows("uvw", seed=1)

    def fit_others(one):
        one.fit(other, target(kind, other_score, ("yes", "no"), 1e6))

    interrupt(fit_others, estimator)
    assert vars(estimator) == before
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)

    estimator.fit(X, target(kind, score))
    before, predicted = deepcopy(estimator), estimator.predict(X)
    interrupt(fit_others, estimator)
    assert vars(estimator).keys() == vars(before).keys()
    assert same(estimator, before)
    assert estimator.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(estimator.predict(X), predicted)
    if kind.endswith("Classifier"):
        assert estimator.classes_.tolist() == ["over", "under"]


@pytest.mark.parametrize("name", ["modes", "e2e-real"])
def test_an_interrupted_warm_start_changes_nothing(name):
    kind, estimator = built(name, warm_start=True)
    X, score = rows("ab")
    other, other_score = rows("ab", n=80, seed=1)
    estimator.fit(X, target(kind, score))
    before = deepcopy(estimator)
    interrupt(lambda one: one.fit(other, target(kind, other_score)), estimator)
    assert same(estimator, before)


@pytest.mark.parametrize(
    ("kind", "inference"),
    [("ConvexPolytopeTreeClassifier", SVI), ("ConvexPolytopeTreeRegressor", MAP)],
)
def test_an_interrupted_partial_fit_changes_nothing(kind, inference):
    estimator = getattr(bayestree, kind)(**CPT | {"inference": inference}, random_state=0)
    parameters = dict(vars(estimator))
    X, score = rows("ab")
    other, other_score = rows("ab", seed=1)
    interrupt(lambda one: one.partial_fit(X, target(kind, score)), estimator)
    assert vars(estimator) == parameters
    estimator.partial_fit(X, target(kind, score))
    kept = deepcopy(estimator)
    interrupt(lambda one: one.partial_fit(other, target(kind, other_score)), estimator)
    assert same(estimator, kept)
    for name, values in estimator.fitted_.shown.stream.items():
        assert values.tobytes() == kept.fitted_.shown.stream[name].tobytes()
    estimator.partial_fit(other, target(kind, other_score))
    assert same(estimator, kept.partial_fit(other, target(kind, other_score)))
