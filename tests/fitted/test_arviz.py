"""The posterior of an estimator: for ArviZ, and as draws of y."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import bayestree
from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree._utils import arviz_compat
from bayestree.inference import Svi

DATA = Path(__file__).parents[1] / "data"
FAST = {
    "n_modes": 1,
    "inference": Svi(epochs=20, n_draws=40),
    "n_experts": 4,
    "max_depth": 2,
    "random_state": 0,
}
N = 120


def frame():
    values = np.random.default_rng(0).normal(size=(N, 3))
    return pd.DataFrame(values * [1, 10, 100] + 5, columns=["a", "b", "c"])


def labels(X):
    side = (X["a"] - 5 + (X["b"] - 5) / 10 > 0).to_numpy()
    return np.where(side, "yes", "no")


def reals(X):
    return 1000 + 50 * np.sign(X["a"] - 5).to_numpy() + X["b"].to_numpy()


@pytest.fixture(scope="module")
def clf():
    X = frame()
    return ConvexPolytopeTreeClassifier(**FAST).fit(X, labels(X))


@pytest.fixture(scope="module")
def reg():
    X = frame()
    return ConvexPolytopeTreeRegressor(**FAST).fit(X, reals(X))


@pytest.fixture(params=["clf", "reg"])
def case(request):
    """An estimator, X and y."""
    X = frame()
    y = labels(X) if request.param == "clf" else reals(X)
    return request.getfixturevalue(request.param), X, y


def same(one, other):
    names = list(one.children) if isinstance(one, xr.DataTree) else one.groups()
    for name in names:
        xr.testing.assert_identical(arviz_compat.group(one, name), arviz_compat.group(other, name))


class TestArviz:
    def test_names_and_units_are_those_of_the_data(self, case):
        estimator, X, y = case
        made = estimator.to_arviz(X, y, n_prior=5)
        posterior = arviz_compat.group(made, "posterior")
        assert posterior.feature.to_numpy().tolist() == ["a", "b", "c"]
        constant = arviz_compat.group(made, "constant_data")
        np.testing.assert_allclose(constant.X, X, rtol=1e-12)
        observed = arviz_compat.group(made, "observed_data").obs
        if "class" in posterior.dims:
            assert posterior["class"].to_numpy().tolist() == ["no", "yes"]
            assert (posterior["class"].to_numpy()[observed] == y).all()
        else:
            np.testing.assert_allclose(observed, y, rtol=1e-12)
            drawn = arviz_compat.group(made, "posterior_predictive").obs
            assert abs(float(drawn.mean()) - y.mean()) < 5

    def test_log_likelihood_is_the_density_of_y(self, case):
        """Averaged over the draws: that of the posterior predictive."""
        estimator, X, y = case
        terms = arviz_compat.group(estimator.to_arviz(X, y), "log_likelihood").obs.to_numpy()
        found = np.exp(terms).mean(axis=(0, 1))
        if isinstance(estimator, ConvexPolytopeTreeClassifier):
            expected = estimator.predict_proba(X)[np.arange(N), (y == "yes").astype(int)]
            np.testing.assert_allclose(found, expected, rtol=1e-10)
        else:
            posterior = estimator.posterior_
            standard = (
                X.to_numpy() - estimator.fitted_.scaling.units.center
            ) / estimator.fitted_.scaling.units.scale
            density = [
                posterior.leaf_probs(standard, sites)
                * stats.norm(
                    sites["leaf_mean"] * estimator.fitted_.scaling.units.y_scale
                    + estimator.fitted_.scaling.units.y_center,
                    sites["leaf_scale"] * estimator.fitted_.scaling.units.y_scale,
                ).pdf(y[:, None])
                for sites in posterior.each()
            ]
            np.testing.assert_allclose(found, np.mean(density, axis=0).sum(axis=1), rtol=1e-10)

    def test_without_rows_the_groups_are_those_that_need_none(self, case):
        estimator, _, _ = case
        made = estimator.to_arviz()
        assert "log_prior" in made
        with pytest.raises(ValueError, match="no group 'log_likelihood' among"):
            arviz_compat.group(made, "log_likelihood")

    def test_weights_multiply_the_terms_and_rows_of_none_are_left_out(self, case):
        estimator, X, y = case
        weights = np.arange(N) % 3.0
        plain, weighted = estimator.to_arviz(X, y), estimator.to_arviz(X, y, weights)
        kept = np.flatnonzero(weights)
        found = arviz_compat.group(weighted, "log_likelihood").obs
        np.testing.assert_array_equal(found.row, kept)
        expected = (
            arviz_compat.group(plain, "log_likelihood").obs.to_numpy()[..., kept] * weights[kept]
        )
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        constant = arviz_compat.group(weighted, "constant_data")
        np.testing.assert_array_equal(constant.sample_weight, weights[kept])

    def test_class_weights_multiply_them_too(self):
        X = frame()
        estimator = ConvexPolytopeTreeClassifier(
            class_weight={"no": 1.0, "yes": 3.0}, **FAST | {"inference": Svi(epochs=1, n_draws=40)}
        ).fit(X, labels(X))
        constant = arviz_compat.group(estimator.to_arviz(X, labels(X)), "constant_data")
        np.testing.assert_array_equal(
            constant.sample_weight, np.where(labels(X) == "yes", 3.0, 1.0)
        )

    def test_large_fits_leave_the_log_joint_to_the_conversion(self, case, monkeypatch, any_k):
        estimator, X, y = case
        monkeypatch.setattr(
            importlib.import_module("bayestree.inference.variational.svi"), "DENSITY_ROWS", 100
        )
        large = clone(estimator).fit(X, y)
        assert "log_p" not in large.posterior_.stats
        assert "more than 10,000 rows" in str(large.check_convergence())
        found = arviz_compat.group(large.to_arviz(X, y), "sample_stats")
        for name in ("lp", "log_p"):
            np.testing.assert_allclose(found[name], estimator.posterior_.stats["log_p"], rtol=1e-12)
        assert large.loo(X, y, method="psis").elpd == pytest.approx(
            estimator.loo(X, y, method="psis").elpd, rel=1e-9
        )

    def test_the_recorded_log_joint_is_that_of_these_rows(self, case):
        estimator, X, y = case
        made = estimator.to_arviz(X, y)
        prior = arviz_compat.group(made, "log_prior")
        terms = arviz_compat.group(made, "log_likelihood").obs.sum("row")
        if not isinstance(estimator, ConvexPolytopeTreeClassifier):
            terms = terms + N * np.log(
                estimator.fitted_.scaling.units.y_scale
            )  # lp is on the scale of the draws
        total = terms + sum(prior[name] for name in prior)
        np.testing.assert_allclose(total, arviz_compat.group(made, "sample_stats").lp, rtol=1e-10)

    def test_attributes_name_the_estimator_and_its_seed(self, case):
        estimator, _, _ = case
        attrs = estimator.to_arviz(groups=["posterior"]).attrs
        assert attrs["estimator"] == type(estimator).__name__
        assert attrs["random_state"] == "0"
        assert json.loads(attrs["parameters"])["n_experts"] == 4

    def test_a_loaded_file_gives_the_same(self, case, tmp_path):
        estimator, X, y = case
        estimator.save(tmp_path / "model.safetensors")
        read = bayestree.load(tmp_path / "model.safetensors")
        same(estimator.to_arviz(X, y, n_prior=5), read.to_arviz(X, y, n_prior=5))

    def test_a_warm_up_is_saved(self, tmp_path):
        X = frame()
        estimator = ConvexPolytopeTreeClassifier(
            **FAST | {"inference": Svi(epochs=1, n_draws=40)}
        ).fit(X, labels(X))
        found = estimator.posterior_
        estimator.posterior_ = replace(
            found,
            warmup_draws={name: values[:, :3] for name, values in found.draws.items()},
            warmup_stats={"diverging": np.array([[True, False, False]])},
        )
        estimator.save(tmp_path / "model.safetensors")
        read = bayestree.load(tmp_path / "model.safetensors")
        made = read.to_arviz(n_prior=5)
        same(estimator.to_arviz(n_prior=5), made)
        assert arviz_compat.group(made, "warmup_sample_stats").diverging[0, 0]
        assert arviz_compat.group(made, "warmup_posterior").sizes["draw"] == 3

    def test_a_file_without_densities_has_its_log_joint_from_the_rows(self):
        estimator = bayestree.load(DATA / "iris-v3-nuts.safetensors")
        del estimator.fitted_.shown.posterior.stats["lp"]
        recorded = json.loads((DATA / "iris-v3-nuts.json").read_text())
        X = pd.DataFrame(recorded["X"], columns=recorded["columns"])
        made = estimator.to_arviz(X, recorded["predict"], n_prior=5)
        found = arviz_compat.group(made, "sample_stats")
        assert found.lp.shape == (2, 4)
        assert "log_q" not in found
        assert "lp" not in arviz_compat.group(estimator.to_arviz(n_prior=5), "sample_stats")

    def test_trees_without_a_split_have_groups_too(self, tmp_path):
        X = frame()
        estimator = ConvexPolytopeTreeClassifier(n_modes=1, max_depth=0).fit(X, labels(X))
        made = estimator.to_arviz(X, labels(X), n_prior=5)
        assert arviz_compat.group(made, "prior").sizes["node"] == 0
        made.to_netcdf(tmp_path / "leaf.nc")
        same(made, arviz_compat.arviz().from_netcdf(tmp_path / "leaf.nc").load())

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("X", None), "X and y belong together"),
            ((None, "y"), "X and y belong together"),
            ((None, None, np.ones(N)), "sample_weight needs the rows"),
            (("X", "y", np.zeros(N)), "zero everywhere|at least one non-zero"),
            (("X", "y", -np.ones(N)), "[Nn]egative"),
            (("narrow", "y"), "[Ff]eature names"),
            (("X", "short"), "inconsistent numbers of samples"),
        ],
    )
    def test_rows_that_do_not_fit_are_refused(self, case, arguments, message):
        estimator, X, y = case
        named = {"X": X, "y": y, "narrow": X[["a", "b"]], "short": y[:-1]}
        given = [named[a] if isinstance(a, str) else a for a in arguments]
        with pytest.raises(ValueError, match=message):
            estimator.to_arviz(*given)

    def test_classes_that_the_fit_did_not_see_are_named(self, clf):
        X = frame()
        y = labels(X)
        y[0] = "xx"
        with pytest.raises(
            ValueError, match=r"were absent from the fit, \['xx'\]; the fit had \['no', 'yes'\]"
        ):
            clf.to_arviz(X, y)

    def test_an_estimator_that_is_not_fitted_has_none(self):
        with pytest.raises(NotFittedError):
            ConvexPolytopeTreeRegressor().to_arviz()
        with pytest.raises(NotFittedError):
            ConvexPolytopeTreeRegressor().sample_posterior_predictive(frame())


class TestPosteriorPredictive:
    def test_draws_are_spread_as_the_prediction_says(self, case):
        estimator, X, _ = case
        drawn = estimator.sample_posterior_predictive(X, 2000, random_state=0)
        assert drawn.shape == (2000, N)
        if isinstance(estimator, ConvexPolytopeTreeClassifier):
            assert drawn.dtype == estimator.classes_.dtype
            mean = estimator.predict_proba(X)[:, 1]
            found, sd = (drawn == "yes").mean(0), np.sqrt(mean * (1 - mean))
        else:
            mean, found, sd = estimator.predict(X), drawn.mean(0), drawn.std(0)
        assert (np.abs(found - mean) < 4.5 * sd / np.sqrt(2000) + 1e-9).all()

    def test_by_default_there_is_one_for_each_draw_of_the_posterior(self, case):
        estimator, X, _ = case
        assert estimator.sample_posterior_predictive(X).shape == (40, N)
        assert estimator.sample_posterior_predictive(X, 7).shape == (7, N)

    def test_fewer_draws_are_spread_over_all(self, reg):
        """The first of the posterior's draws is not among few by its place alone."""
        found = []
        posterior = reg.posterior_

        class Watched(type(posterior)):  # type: ignore[misc]
            def sites(self, chain, draw):
                found.append((chain, draw))
                return super().sites(chain, draw)

        twice = {name: np.concatenate([a, a]) for name, a in posterior.draws.items()}
        watched = Watched(posterior.model, twice, posterior.point, "svi")
        estimator = ConvexPolytopeTreeRegressor(**FAST)
        estimator.__dict__.update(reg.__dict__)
        estimator.posterior_ = watched
        for count, expected in ((4, [(0, 0), (0, 20), (1, 0), (1, 20)]), (81, None)):
            found.clear()
            estimator.sample_posterior_predictive(frame()[:2], count)
            if expected is None:
                assert found == [(c, d) for c in range(2) for d in range(40)] + [(0, 0)]
            else:
                assert found == expected

    def test_less_than_one_draw_is_refused(self, reg):
        with pytest.raises(ValueError, match="draws must be 1 or more, got 0"):
            reg.sample_posterior_predictive(frame(), 0)


class TestUse:
    """ArviZ's own functions take what to_arviz makes."""

    pytestmark = [
        pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning"),
        # ArviZ 0.23 with pandas 3 and Matplotlib 3.11
        pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.sort_values"),
        pytest.mark.filterwarnings("ignore:Passing a dict or None as alias_mapping"),
        # ArviZ 1.x, of class numbers
        pytest.mark.filterwarnings("ignore:Variables obs in:UserWarning"),
    ]

    def test_summary_and_loo(self, case):
        estimator, X, y = case
        az = arviz_compat.arviz()
        made = estimator.to_arviz(X, y)
        leaf = (
            "leaf_probs" if "leaf_probs" in arviz_compat.group(made, "posterior") else "leaf_mean"
        )
        table = az.summary(made, var_names=[leaf])
        assert table.index[0].startswith(f"{leaf}[L")
        loo = az.loo(made)
        assert loo.n_data_points == N
        compared = az.compare({"one": made, "other": made})
        assert list(compared.index) == ["one", "other"]

    @pytest.mark.parametrize("kind", [ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor])
    def test_summary_and_loo_of_the_default(self, kind):
        X = frame()
        y = labels(X) if kind is ConvexPolytopeTreeClassifier else reals(X)
        made = kind(random_state=0).fit(X, y).to_arviz(X, y)
        az, terms = arviz_compat.arviz(), arviz_compat.group(made, "log_likelihood").obs.to_numpy()
        table = az.summary(made, var_names=["prediction"])
        assert table.index[0].startswith("prediction[")
        whole = np.logaddexp.reduce(terms, axis=(0, 1)) - np.log(terms[:, :, 0].size)
        new, loo = arviz_compat.major_version() > 0, az.loo(made)
        assert 0 < (loo.p if new else loo.p_loo) < N / 4
        assert (loo.elpd if new else loo.elpd_loo) < whole.sum()

    def test_plots(self, case):
        estimator, X, y = case
        az = arviz_compat.arviz()
        made = estimator.to_arviz(X, y)
        old = arviz_compat.major_version() == 0
        az.plot_trace(made, var_names=["shrinkage"], coords={"node": ["root"]})
        az.plot_forest(made, var_names=["weight"], coords={"node": ["root"]})
        az.plot_ppc(made) if old else az.plot_ppc_dist(made, num_samples=10)
        plt.close("all")


class TestTrainingData:
    def test_on_the_scale_of_the_draws(self, case):
        estimator, X, y = case
        weights = np.arange(N) % 3.0
        data = estimator.training_data(X, y, weights)
        kept = weights > 0
        standard = (X.to_numpy() - estimator.tree_.center) / estimator.tree_.scale
        np.testing.assert_allclose(data.X, standard[kept])
        np.testing.assert_array_equal(data.weights, weights[kept])
        if hasattr(estimator, "classes_"):
            np.testing.assert_array_equal(estimator.classes_[data.y], y[kept])
        else:
            np.testing.assert_allclose(data.y, ((y - y.mean()) / y.std())[kept])

    def test_what_is_refused(self, clf):
        with pytest.raises(NotFittedError):
            ConvexPolytopeTreeClassifier().training_data(frame(), labels(frame()))
        with pytest.raises(ValueError, match="classes that were absent from the fit"):
            clf.training_data(frame(), np.full(N, "perhaps"))
