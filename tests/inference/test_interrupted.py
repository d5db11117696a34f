"""Inference methods with other settings, stopped after a step and resumed, give the same bits.

Their contract interrupts each at its usual settings (tests/testing/test_stages.py).
"""

from functools import cache

import pytest

from bayestree import inference
from bayestree.baselines import random_oblique
from bayestree.inference import Data, GrowthLimits
from bayestree.literature._em_stumps import EndToEndSplitter
from bayestree.literature.bivariate import BivariateSplitter
from bayestree.literature.weighted_oblique import WeightedSplitter
from bayestree.models import Flat, Laplace, Oblique, Priors, named
from bayestree.testing import check_every_stop, same_posterior
from tests.inference.problems import quadrants, soft_tree
from tests.literature.tao_cases import classes, model_of

# Whole fits of every estimator are interrupted in tests/estimators/test_interrupted.py.
pytestmark = pytest.mark.statistical

LIMITS = GrowthLimits(2, min_gain=0.5)


def check(fit, **options):
    return check_every_stop(fit, same_posterior, **options)


@cache
def grown(split="polytope", depth=2):
    model = soft_tree(steepness=3.0, n_experts=3)
    if split == "oblique":
        model = model.with_(split=Oblique())
    limits = GrowthLimits(depth, min_gain=0.5)
    return inference.grow(model, quadrants(120), limits=limits, steps=20, random_state=0)


@cache
def drawn(split):
    """Draws for chains to start at."""
    init = grown(split)
    return inference.svi(init.model, quadrants(60), init=init, epochs=2, n_draws=3, random_state=0)


SPLITTERS = {
    "stumps": lambda model: None,
    "em": lambda model: EndToEndSplitter(model.split, model.leaf, model.priors, epochs=3),
    "bivariate": lambda model: BivariateSplitter(model.leaf),
    "entropy": lambda model: WeightedSplitter(model.leaf),
}
MODELS = {
    "stumps": soft_tree,
    "em": lambda: named.end_to_end(soft_tree().leaf),
    "bivariate": lambda: named.bivariate(soft_tree().leaf),
    "entropy": lambda: named.weighted_oblique(soft_tree().leaf),
}


@pytest.mark.parametrize("name", SPLITTERS)
def test_best_first_growth(name):
    model = MODELS[name]()

    def fit():
        return inference.grow(
            model,
            quadrants(90),
            limits=LIMITS,
            splitter=SPLITTERS[name](model),
            order="best",
            steps=8,
            random_state=0,
        )

    assert check(fit) == ["grow"]


@pytest.mark.parametrize("optimiser", ["adam", "lbfgs"])
@pytest.mark.parametrize("patience", [None, 1])
def test_map(optimiser, patience):
    init, data = grown(), quadrants(120)
    validation = None if patience is None else quadrants(60, seed=7)

    def fit():
        return inference.map(
            init.model,
            data,
            init=init,
            optimiser=optimiser,
            epochs=6 if patience is None else 60,
            batch_size=50,
            learning_rate=0.3,
            validation=validation,
            patience=patience or 10,
            random_state=0,
        )

    assert check(fit, most=2) == ["map"]
    assert patience is None or len(fit().stats["log_joint"]) < 60, "it was to end early"


@pytest.mark.filterwarnings("ignore:The posterior under Flat.. is improper")
@pytest.mark.parametrize("covariance", ["diagonal", "expert"])
@pytest.mark.parametrize("prior", ["scales", "flat"])
def test_svi_with_the_own_guide(covariance, prior):
    init, data = grown(), quadrants(120)
    model = init.model
    if prior == "flat":
        model = model.with_(priors=Priors(model.priors.weight, Flat()))

    def fit():
        return inference.svi(
            model,
            data,
            init=init,
            covariance=covariance,
            epochs=3,
            batch_size=50,
            n_draws=3,
            steepness=1.0,
            random_state=0,
        )

    assert check(fit, most=2) == ["svi"]


@pytest.mark.parametrize(
    "guide",
    [
        "AutoNormal",
        "AutoMultivariateNormal",
        "AutoLowRankMultivariateNormal",
        "AutoLaplaceApproximation",
        "AutoDelta",
    ],
)
def test_svi_with_the_guides_of_pyro(guide):
    init, data = grown("oblique"), quadrants(120)

    def fit():
        return inference.svi(
            init.model,
            data,
            init=init,
            guide=guide,
            epochs=3,
            batch_size=60,
            n_draws=2,
            random_state=0,
        )

    assert check(fit, most=2) == [guide]


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("split", ["polytope", "oblique"])
def test_nuts(split, n_jobs, monkeypatch):
    init, data = drawn(split), quadrants(60)
    monkeypatch.setitem(inference.Nuts.fit.__globals__, "MIN_SECONDS", 0.0)

    def fit():
        return inference.nuts(
            init.model,
            data,
            init=init,
            n_chains=2,
            n_warmup=50,
            n_draws=10,
            max_tree_depth=3,
            n_refreshes=2,
            keep_warmup=split == "oblique",
            n_jobs=n_jobs,
            random_state=0,
        )

    assert check(fit, most=2) == ["nuts"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("prior", [Flat(), Laplace(0.5)], ids=str)
@pytest.mark.parametrize("leaf_ridge", [None, 0.1])
def test_tao(prior, strict, leaf_ridge):
    X, y, weights = classes(200)
    y = y if leaf_ridge is None else abs(X[:, 0] - X[:, 1])
    data, init = Data.of(X, y, weights), random_oblique(X, 4, random_state=0)

    def fit():
        return inference.tao(
            model_of(y, split=Oblique(), prior=prior),
            data,
            init=init,
            sweeps=8,
            patience=3,
            strict=strict,
            leaf_ridge=leaf_ridge,
        )

    assert check(fit) == ["tao"]
