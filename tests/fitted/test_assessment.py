"""Convergence and leave-one-out scores of fitted trees."""

import math
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import bayestree as bt
from bayestree import inference
from bayestree._utils import arviz_compat
from bayestree.diagnostics import convergence_of
from bayestree.fitted import assessment
from bayestree.inference import Svi, Vi


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def svi(iris):
    clf = bt.ConvexPolytopeTreeClassifier(
        n_modes=1, max_depth=2, n_experts=4, inference=Svi(epochs=40, n_draws=120), random_state=0
    )
    return clf.fit(*iris)


@pytest.fixture
def chains(svi):
    """The same tree, its draws taken for those of two chains of a sampler."""
    clf = bt.ConvexPolytopeTreeClassifier()
    clf.__dict__.update(svi.__dict__)
    posterior = svi.posterior_
    draws = {name: v.reshape(2, 60, *v.shape[2:]) for name, v in posterior.draws.items()}
    stats = {"diverging": np.zeros((2, 60), dtype=bool), "lp": np.arange(120.0).reshape(2, 60)}
    clf.posterior_ = replace(posterior, draws=draws, stats=stats, inference="nuts")
    return clf


class TestConvergence:
    def test_a_variational_fit(self, svi, iris):
        found = svi.check_convergence()
        assert "elbo" in found
        assert found.not_judged == ()
        assert str(found).startswith("Predictions: ")
        np.testing.assert_array_equal(
            found.to_frame()["value"], svi.check_convergence(iris[0]).to_frame()["value"]
        )

    def test_what_is_stored_says_the_same(self, svi, iris):
        found = convergence_of(svi.to_arviz(*iris, n_prior=2))
        assert [*found.checks] == [*svi.check_convergence().checks]

    def test_a_sampler(self, chains, iris):
        for found in (chains.check_convergence(), chains.check_convergence(iris[0])):
            assert found["divergences"].verdict == "ok"
            # the log joint that rises from draw to draw is found out, the rest is in order
            assert found["r_hat"].says.endswith("for lp.")
            assert found["r_hat"].verdict == "failed"
            # four halves of 30 independent draws: R-hat^2 = 29 / 30 + chi^2(3) / 90, where chi^2(3)
            # is below 40 but for one in 10^8 quantities
            assert (found.quantities.drop("lp")["r_hat"] < 1.2).all()

    @pytest.mark.portable
    @pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
    def test_chains_of_nuts(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(80, 2))
        y = rng.uniform(size=80) < 1 / (1 + np.exp(-2 * X[:, 0]))
        clf = bt.ConvexPolytopeTreeClassifier(
            n_modes=1,
            max_depth=1,
            n_experts=1,
            min_gain=1,
            inference=Svi(epochs=100, steepness=1.0),
            random_state=0,
        ).fit(X, y)
        clf.posterior_ = inference.nuts(
            clf.posterior_.model,
            inference.Data.of(clf.fitted_.scaling.standardise(X), y.astype(int)),
            init=clf.posterior_,
            n_chains=2,
            n_draws=100,
            n_warmup=150,
            random_state=0,
        )
        found = clf.check_convergence(X)
        names = ["r_hat", "ess_bulk", "ess_tail", "divergences", "tree_depth", "e_bfmi"]
        assert [check.name for check in found.checks] == names
        assert found["divergences"].verdict == "ok"
        assert found["r_hat"].value < 1.5
        assert list(found.quantities.index) == ["lp", "p_right", "prediction"]
        score = clf.loo(X, y)
        theirs = arviz_compat.arviz().loo(
            clf.to_arviz(X, y, groups=["posterior", "log_likelihood"])
        )
        new = arviz_compat.major_version() > 0
        assert score.elpd == pytest.approx(theirs.elpd if new else theirs.elpd_loo)

    def test_a_point_estimate(self, iris):
        clf = bt.ConvexPolytopeTreeClassifier(max_depth=1, inference="grow", random_state=0)
        found = clf.fit(*iris).check_convergence()
        assert found.checks == ()
        assert "point estimate" in found.not_judged[0]

    def test_before_the_fit(self):
        with pytest.raises(NotFittedError):
            bt.ConvexPolytopeTreeClassifier().check_convergence()


class TestUnconverged:
    """A fit that ends too early says so once, whatever the number of its trees and outputs."""

    @pytest.fixture(autouse=True)
    def full_check(self, monkeypatch):
        monkeypatch.setattr(inference.convergence, "MIN_FURTHER", 50)

    @pytest.mark.parametrize("n_modes", [1, 2])
    def test_a_short_fit_names_the_epochs_in_force_and_those_to_try(self, iris, n_modes):
        clf = bt.ConvexPolytopeTreeClassifier(
            n_modes=n_modes,
            max_depth=1,
            n_experts=2,
            inference=Svi(epochs=2, n_draws=5),
            random_state=0,
        )
        with pytest.warns(ConvergenceWarning) as given:
            clf.fit(*iris)
        assert len(given) == 1
        assert isinstance(given[0].message, bt.UnconvergedWarning)
        assert given[0].filename == __file__
        said = str(given[0].message)
        assert said.startswith("the fit has not converged: elbo = ")
        assert "Set epochs to 1000 (the fit had 2)" in said  # 150 rows are one step an epoch
        assert clf.check_convergence()["elbo"].remedy in said

    def test_several_outputs(self, iris):
        X, _ = iris
        reg = bt.ConvexPolytopeTreeRegressor(
            n_modes=1,
            max_depth=1,
            n_experts=2,
            inference=Svi(epochs=2, n_draws=5),
            random_state=0,
        )
        with pytest.warns(bt.UnconvergedWarning, match="Set epochs to 1000"):
            reg.fit(X[:, :2], X[:, 2:])


@pytest.fixture(scope="module")
def noise():
    """A single leaf, and new rows."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    clf = bt.ConvexPolytopeTreeClassifier(
        inference=Vi(n_draws=20), n_modes=2, max_depth=0, random_state=0
    )
    return clf.fit(X[:200], y[:200]), X[200:], y[200:]


class TestNothingFound:
    """A single leaf, whose draws are exact, is a result."""

    def test_classes(self, noise):
        clf, X, y = noise
        found = clf.check_convergence()
        assert found.settled == "yes"
        assert found.predictions.startswith("the tree found nothing: it has a single leaf")
        judged = clf.check_convergence(X, y)
        assert judged.predictions.startswith(
            "the tree found nothing: they are no better than the class frequencies. On 200"
        )

    def test_a_tree_that_found_something(self, svi, iris):
        known = svi.check_convergence(*iris).held_out
        assert known.better
        assert "below the score of the class frequencies" in known.says


class TestHeldOut:
    def test_classes(self, svi, iris):
        X, y = iris
        found = svi.check_convergence(X, y)
        right = (svi.predict(X) == y).mean()
        assert found.held_out.says.startswith(f"On 150 held-out rows, accuracy is {right:.1%} ")
        assert found.held_out.says in found.predictions
        assert [*found.checks] == [*svi.check_convergence(X).checks]

    def test_numbers(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(60, 2))
        y = X[:, 0] + rng.normal(size=60)
        reg = bt.ConvexPolytopeTreeRegressor(
            n_modes=1,
            max_depth=1,
            n_experts=2,
            inference=Svi(epochs=10, n_draws=40),
            random_state=0,
        ).fit(X, y)
        low, high = reg.predict_interval(X, 0.9)
        share = ((y >= low) & (y <= high)).mean()
        assert f"{share:.1%} of the values" in reg.check_convergence(X, y).predictions
        both = reg.in_interval(X, y, [0.5, 0.9])
        assert both.shape == (2, 60)
        np.testing.assert_array_equal(both[1], (y >= low) & (y <= high))
        # no interval holds values so far away
        assert reg.check_convergence(X, y + 1e3).predictions.startswith("use with care")
        with pytest.raises(ValueError, match=r"y must have shape \(60,\)"):
            reg.check_convergence(X, y[:3])

    def test_what_cannot_be_judged(self, svi, iris):
        X, y = iris
        with pytest.raises(ValueError, match="give X as well"):
            svi.check_convergence(y=y)
        with pytest.raises(ValueError, match="not among the classes"):
            svi.check_convergence(X, y + 7)


class TestLabelFree:
    def test_predictions_are_those_of_the_posterior(self, svi, iris):
        rows = iris[0][:20]
        found = svi.label_free(rows)
        mean = found["prediction"].mean(("chain", "draw"))
        # rows come in the order of their main direction
        np.testing.assert_allclose(
            np.sort(mean, axis=0), np.sort(svi.predict_proba(rows), axis=0), rtol=1e-9
        )
        assert list(found["class"].to_numpy()) == ["0", "1", "2"]
        assert list(found["node"].to_numpy()) == list(svi.posterior_.model.topology.node_labels)

    def test_by_default_rows_of_the_fit_are_compared(self, svi, iris):
        kept = svi.fitted_.shown.sample
        assert (kept[:, None] == iris[0][None]).all(axis=2).any(axis=1).all()
        assert len(kept) == 150
        found, given = svi.label_free(n_rows=7), svi.label_free(iris[0], n_rows=7)
        assert found.equals(given)

    def test_models_of_earlier_versions_are_compared_at_made_up_rows(self, svi):
        fitted = svi.fitted_.shown
        old = copy(svi)
        old.fitted_ = old.fitted_.alone(replace(fitted, reach=fitted.reach._replace(sample=None)))
        assert old.label_free(n_rows=7).sizes["row"] == 7
        standard = fitted.scaling.standardise(old.fitted_.shown.sample)
        assert (np.abs(standard) <= 2).all()

    def test_few_rows_of_many_columns_are_kept(self):
        X = np.random.default_rng(0).normal(size=(60, 1500))
        fit = bt.ConvexPolytopeTreeClassifier(inference="grow", max_depth=1, random_state=0)
        assert len(fit.fit(X, X[:, 0] > 0).fitted_.shown.sample) == 26

    def test_a_loaded_model_gives_the_same(self, svi, tmp_path):
        svi.save(tmp_path / "m.safetensors")
        loaded = bt.load(tmp_path / "m.safetensors")
        assert loaded.label_free().equals(svi.label_free())

    def test_nodes_that_few_rows_reach(self, svi, iris):
        # one row reaches one side only: the others are compared at the rows of the whole
        found = svi.label_free(iris[0][:1])
        assert found.sizes["point"] == 1
        assert np.isfinite(found["p_right"]).all()

    def test_nodes_are_those_of_the_posterior(self, svi, iris):
        # the tree's node 0 taken for the posterior's node 1, and compared there
        fitted, X = svi.fitted_.shown, iris[0]
        n = len(fitted.reach.nodes)
        other = replace(fitted, reach=fitted.reach._replace(nodes=np.arange(1, n + 1)))
        assert list(assessment._rows_of_nodes(other, X, 5)) == list(range(1, n + 1))
        assert list(assessment._rows_of_nodes(fitted, X, 5)) == fitted.reach.nodes.tolist()

    def test_a_single_leaf(self):
        X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
        clf = bt.ConvexPolytopeTreeClassifier(n_modes=1, max_depth=0, random_state=0)
        clf.fit(X, y)
        assert set(clf.label_free()) == {"prediction", "lp"}
        assert set(clf.label_free(X)) == {"prediction", "lp"}
        # independent draws of the posterior itself
        assert clf.check_convergence().faithful

    def test_bad_rows(self, svi):
        with pytest.raises(ValueError, match="n_rows must be 1 or more, got 0"):
            svi.label_free(n_rows=0)
        with pytest.raises(ValueError, match="features"):
            svi.label_free(np.zeros((3, 2)))


class TestLoo:
    def test_a_sampler(self, chains, iris, any_k):
        found = chains.loo(*iris)
        assert not found.corrected
        assert found.elpd_row.shape == (150,)
        fitted = np.log(svi_probability(chains, iris)).sum()
        assert found.p_loo == pytest.approx(fitted - found.elpd)

    @pytest.mark.portable
    def test_a_regression(self, any_k):
        X, y = load_diabetes(return_X_y=True)
        reg = bt.ConvexPolytopeTreeRegressor(
            n_modes=1,
            max_depth=1,
            n_experts=2,
            inference=Svi(epochs=30, n_draws=100),
            random_state=0,
        ).fit(X, y)
        reg.posterior_ = replace(reg.posterior_, stats={})
        # normal noise about the best constant: log density of each row in the units of y
        constant = -len(y) * (np.log(y.std()) + 0.5 * np.log(2 * np.pi * math.e))
        assert constant < reg.loo(X, y).elpd < constant + len(y)

    def test_only_the_rows_of_the_fit(self, svi, iris):
        X, y = iris
        with pytest.raises(ValueError, match="sum to 149, those of the fit to 150"):
            svi.loo(X[1:], y[1:])
        with pytest.raises(ValueError, match="sum to 300"):
            svi.loo(X, y, np.full(150, 2.0))

    def test_held_out_rows(self, iris):
        clf = bt.ConvexPolytopeTreeClassifier(
            max_depth=1, inference="grow", validation_fraction=0.2, random_state=0
        )
        with pytest.raises(ValueError, match="fit with validation_fraction=0"):
            clf.fit(*iris).loo(*iris, method="psis")

    def test_a_point_estimate(self, iris):
        clf = bt.ConvexPolytopeTreeClassifier(max_depth=1, inference="grow", random_state=0)
        with pytest.raises(ValueError, match="one draw is a point estimate"):
            clf.fit(*iris).loo(*iris, method="psis")


def svi_probability(clf, data):
    X, y = data
    return clf.predict_proba(X)[np.arange(len(y)), y]
