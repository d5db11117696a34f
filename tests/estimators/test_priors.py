"""Estimators under each prior on hyperplanes: the fit, its diagnostics, and its file."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    export_text,
    load,
    plots,
)
from bayestree.inference import Map, Nuts, Svi
from bayestree.models import Flat, InverseGammaScale, Laplace, Spatial
from tests.sampling import z_score

PRIORS: dict[str, Any] = {
    "inverse-gamma": (
        InverseGammaScale(0.7, 0.1, 0.1, width=10),
        InverseGammaScale(0.7, 0.1, 0.1, coefficient_scale=5.0 ** (1 / 1.4)),
    ),
    "laplace": ("laplace", Laplace(1.0, intercept_scale=10.0)),
    "flat": ("flat", Flat()),
    "spatial": (Spatial(0.5, (1, 2)), Spatial(0.5, (1, 2))),
}
CHEAP = {
    "n_modes": 1,
    "max_depth": 1,
    "n_experts": 1,
    "random_state": 0,
}
SVI = Svi(epochs=200, n_draws=12, steepness=1.0)
INFERENCES = {
    "map": Map(epochs=200, steepness=1.0),
    "svi": SVI,
    "nuts": [
        Svi(epochs=200, steepness=1.0),
        Nuts(n_chains=1, n_warmup=60, n_draws=30, thinning=4, drop_idle=True),
    ],
}


def overlapping(n=300):
    """Two classes on the sides of a line; the rows hold its coefficients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    score = 3 * (1.5 * X[:, 0] - 0.5 * X[:, 1] + 0.3)
    return 10 * X + 5, np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")


def fitted(prior, inference="svi", kind=ConvexPolytopeTreeClassifier, **others):
    X, y = overlapping()
    if kind is ConvexPolytopeTreeRegressor:
        y = (y == "yes") + 0.1 * np.random.default_rng(1).normal(size=len(y))
    settings = CHEAP | {"inference": INFERENCES[inference]} | others
    return kind(prior=PRIORS[prior][0], **settings).fit(X, y), X, y


@pytest.mark.portable
@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("prior", PRIORS)
def test_diagnostics_and_files(prior, inference, tmp_path):
    model, X, y = fitted(prior, inference)
    assert model.posterior_.model.priors.hyperplane == PRIORS[prior][1]
    planted = np.where((X - 5) @ [1.5, -0.5] + 3 > 0, "yes", "no")
    assert z_score((model.predict(X) != y).astype(int) - (planted != y)) < 4
    for found in (model.polytope_size(), model.facets(), model.shrinkage()):
        assert str(found)
    assert model.split_uncertainty(X).to_frame("node").shape[0] == 1
    proper = PRIORS[prior][1].proper
    assert (model.polytope_size().prior is not None) == proper
    assert "hyperplane" in model.to_arviz().posterior
    assert "leaf" in export_text(model)
    if inference != "map":  # one draw has no spread
        plots.shrinkage_factors(model)
    plots.tree(model)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    assert again.posterior_.model == model.posterior_.model
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.portable
@pytest.mark.parametrize("prior", PRIORS)
def test_regressors(prior):
    model, X, y = fitted(prior, kind=ConvexPolytopeTreeRegressor)
    assert model.score(X, y) > 0.3
    assert str(model.shrinkage())


@pytest.mark.portable
def test_a_greater_rate_shrinks_more():
    sizes, factors = [], []
    X, y = overlapping()
    for rate in (0.1, 30.0):
        model = ConvexPolytopeTreeClassifier(prior=Laplace(rate, 10.0), inference=SVI, **CHEAP)
        model.fit(X, y)
        sizes.append(np.abs(model.posterior_.point["hyperplane"]).sum())
        factors.append(model.shrinkage().kappa.max())
    assert sizes[1] < 0.5 * sizes[0]
    assert factors[0] < 0.2 < factors[1]


@pytest.mark.portable
def test_neighbours_become_alike():
    gaps = []
    X, y = overlapping()
    for strength in (1e-3, 1e3):
        prior = Spatial(strength, (1, 2))
        model = ConvexPolytopeTreeClassifier(prior=prior, inference=SVI, **CHEAP).fit(X, y)
        gaps.append(abs(np.diff(model.posterior_.point["hyperplane"]).item()))
    assert gaps[1] < 0.1 * gaps[0]


def test_what_rows_do_not_hold_is_named():
    X, _ = overlapping()
    y = X[:, 0] > 5
    with pytest.warns(
        ConvergenceWarning, match="do not determine the coefficients of 1 of 1 nodes"
    ):
        ConvexPolytopeTreeClassifier(prior="flat", inference=Svi(epochs=200), **CHEAP).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        ConvexPolytopeTreeClassifier(prior="laplace", inference=Svi(epochs=200), **CHEAP).fit(X, y)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prior": "normal"}, "prior must be"),
        ({"prior": "spatial"}, "prior='spatial' needs image_shape"),
        ({"prior": "spatial", "image_shape": (3, 3)}, "9 pixels, but there are 2 features"),
        ({"prior": Spatial(1.0, (3, 3))}, "9 pixels, but there are 2 features"),
    ],
)
def test_what_cannot_be_is_refused_at_once(bad, message):
    X, y = overlapping(50)
    with pytest.raises(ValueError, match=message):
        ConvexPolytopeTreeClassifier(**CHEAP | bad).fit(X, y)
