"""Estimators that sample by NUTS: everything downstream accepts several chains."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import r2_score

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    export_text,
    inference,
    load,
)
from bayestree._utils.arviz_compat import group
from bayestree.inference import Nuts, Svi
from bayestree.inference.pointwise import log_joint

SAMPLER = {"n_chains": 2, "n_warmup": 20, "n_draws": 25, "thinning": 2, "drop_idle": True}
SHORT = {"max_depth": 1, "n_experts": 2, "min_gain": 1.0, "random_state": 0}


def short(svi=None, **settings):
    """Parameters of a fit with short chains, and other settings of these."""
    return SHORT | {"inference": [svi or Svi(epochs=10), Nuts(**SAMPLER | settings)]}


def rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [100.0, 0.01] + [5000.0, 0.3]
    return X, np.where((X[:, 0] > 5000) ^ (rng.random(n) < 0.1), "high", "low")


def heights(y):
    return 50 + 10 * (y == "high") + np.random.default_rng(1).normal(size=len(y))


@pytest.fixture(scope="module")
def classifier():
    return ConvexPolytopeTreeClassifier(**short()).fit(*rows())


@pytest.fixture(scope="module")
def regressor():
    X, y = rows()
    target = heights(y)
    return ConvexPolytopeTreeRegressor(**short()).fit(X, target), X, target


class TestClassifier:
    def test_posterior(self, classifier):
        posterior = classifier.posterior_
        assert posterior.inference == "nuts"
        assert posterior.draws["intercept"].shape == (2, 25, 1, 2)
        assert posterior.stats["lp"].shape == (2, 25)
        assert posterior.model.steepness == 6.0

    @pytest.mark.portable
    def test_predictions(self, classifier):
        X, y = rows(2000, seed=5)
        probability, sd = classifier.predict_proba(X, return_std=True)
        np.testing.assert_allclose(probability.sum(1), 1)
        assert (sd >= 0).all()
        assert (sd > 0).any()
        # The truth is right in 0.9 of the rows, and a border with a row in eight on its wrong side
        # in 0.8; the last term is four standard errors.
        assert classifier.score(X, y) > 0.8 - 4 * np.sqrt(0.8 * 0.2 / len(X))
        scaled = (
            X - classifier.fitted_.scaling.units.center
        ) / classifier.fitted_.scaling.units.scale
        mean, _ = classifier.posterior_.predictive(scaled)
        np.testing.assert_allclose(probability, mean)

    def test_lp_is_the_log_joint_of_the_training_rows(self, classifier):
        X, y = rows()
        sample_stats = group(classifier.to_arviz(X, y), "sample_stats")
        np.testing.assert_allclose(sample_stats["lp"], classifier.posterior_.stats["lp"])

    def test_sampled_again_by_the_function_itself(self, classifier):
        posterior, data = classifier.posterior_, classifier.training_data(*rows())
        again = log_joint(posterior.model, [*posterior.each()], data)
        np.testing.assert_allclose(np.reshape(again, (2, 25)), posterior.stats["lp"])
        mirrored = inference.nuts(
            posterior.model, data, init=posterior, mirror=True, n_chains=1, n_warmup=5, n_draws=5
        )
        assert mirrored.settings["mirror"]

    def test_to_arviz(self, classifier):
        X, y = rows()
        container = classifier.to_arviz(X, y)
        posterior = group(container, "posterior")
        assert dict(posterior.sizes) | {"chain": 2, "draw": 25} == dict(posterior.sizes)
        stats = group(container, "sample_stats")
        for name in ("diverging", "energy", "tree_depth", "reached_max_treedepth", "step_size"):
            assert stats[name].dims == ("chain", "draw")
        assert posterior.attrs["inference"] == "nuts"

    def test_warm_up_that_was_kept(self, classifier):
        posterior = classifier.posterior_
        early = {name: value[:, :7] for name, value in posterior.draws.items()}
        stats = {name: value[:, :7] for name, value in posterior.stats.items()}
        kept = replace(posterior, warmup_draws=early, warmup_stats=stats)
        container = kept.to_arviz()
        assert group(container, "warmup_posterior").sizes["draw"] == 7
        assert group(container, "warmup_sample_stats")["lp"].shape == (2, 7)

    def test_diagnostics(self, classifier):
        size = classifier.polytope_size()
        assert size.facets.shape == (2, 25, classifier.tree_.n_nodes)
        assert classifier.facets(0).counts.sum() == size.cutting.sum()
        assert classifier.shrinkage().weight.shape == (2, 25, classifier.tree_.n_nodes, 2)
        found = classifier.split_uncertainty(rows()[0][:5])
        assert found.mean.shape == (5, classifier.tree_.n_nodes)

    @pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
    def test_convergence(self, classifier, any_k):
        X, y = rows()
        found = classifier.check_convergence(X)
        names = {check.name for check in found.checks}
        assert {"r_hat", "divergences", "tree_depth", "e_bfmi"} <= names
        assert not {"pareto_k", "elbo"} & names
        assert np.isfinite(classifier.loo(X, y).elpd)

    def test_saved_and_loaded(self, classifier, tmp_path):
        classifier.save(tmp_path / "model.safetensors")
        again = load(tmp_path / "model.safetensors")
        X, _ = rows(seed=5)
        np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
        for name, value in classifier.posterior_.stats.items():
            np.testing.assert_array_equal(again.posterior_.stats[name], value)
            assert again.posterior_.stats[name].dtype == value.dtype
        assert again.posterior_.settings == classifier.posterior_.settings
        one, two = classifier.check_convergence(X), again.check_convergence(X)
        assert [check.verdict for check in one.checks] == [check.verdict for check in two.checks]

    def test_settings_reach_the_sampler(self, monkeypatch):
        seen = {}

        def fake(self, model, data, *, init, **_):
            seen.update(vars(self), rows=len(data.X))
            return init

        monkeypatch.setattr(inference.Nuts, "fit", fake)
        ConvexPolytopeTreeClassifier(**short(), n_jobs=2).fit(*rows(60))
        expected = {"n_chains": 2, "n_warmup": 20, "n_draws": 25, "n_jobs": 2, "rows": 60}
        assert seen | expected == seen

    def test_text(self, classifier):
        assert "x0" in export_text(classifier)


class TestRegressor:
    @pytest.mark.portable
    def test_predictions(self, regressor):
        model, X, y = regressor
        mean, sd = model.predict(X, return_std=True)
        assert mean.shape == sd.shape == y.shape
        fresh, label = rows(2000, seed=5)
        # Compared with the planted means, 59 and 51, so that noise in the rows plays no part. A
        # border with a row in eight on its wrong side would leave half of their variance.
        planted = np.where(fresh[:, 0] > 5000, 59, 51)
        assert r2_score(planted, model.predict(fresh)) > 0.5
        low, high = model.predict_interval(fresh, 0.9)
        y = heights(label)
        # The ends of the interval are estimates from 120 rows.
        error = np.sqrt(0.9 * 0.1 * (1 / 120 + 1 / len(y)))
        assert ((low < y) & (y < high)).mean() > 0.9 - 4 * error

    def test_leaves_are_sampled(self, regressor):
        model, X, y = regressor
        assert model.posterior_.draws["leaf_mean"].shape == (2, 25, 2)
        assert (model.posterior_.draws["leaf_scale"] > 0).all()
        stats = group(model.to_arviz(X, y), "sample_stats")
        np.testing.assert_allclose(stats["lp"], model.posterior_.stats["lp"])


def test_weights_of_rows_reach_the_sampler():
    X, y = rows(60)
    weight = np.random.default_rng(0).uniform(0.5, 3, len(X))
    quick = short(n_warmup=2, n_draws=3, n_chains=1)
    model = ConvexPolytopeTreeClassifier(**quick).fit(X, y, sample_weight=weight)
    stats = group(model.to_arviz(X, y, weight), "sample_stats")
    np.testing.assert_allclose(stats["lp"], model.posterior_.stats["lp"])


@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_noise_ends_in_one_leaf():
    """If growth finds no split, NUTS has nothing to sample."""
    X, _ = rows(80)
    y = np.random.default_rng(3).integers(2, size=80)
    model = ConvexPolytopeTreeClassifier(**short() | {"min_gain": 1e3}).fit(X, y)
    assert model.get_n_leaves() == 1
    np.testing.assert_allclose(model.predict_proba(X[:2])[0].sum(), 1)


@pytest.mark.parametrize(("name", "value"), [("n_chains", 0), ("n_warmup", -1), ("n_draws", 0)])
def test_settings_out_of_range(name, value):
    with pytest.raises(ValueError, match=name):
        ConvexPolytopeTreeClassifier(**short(**{name: value})).fit(*rows(40))
