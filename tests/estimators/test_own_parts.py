"""Priors and leaves of the user's own: estimators, their files, and the usual mistakes."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndTreeRegressor,
    load,
)
from bayestree._utils.parameters import ParameterError
from bayestree.inference import Map, Svi
from bayestree.models import Categorical, GammaProcess, IndependentPrior, Laplace
from bayestree.models.priors import Moments
from tests.estimators.own_parts import Bare, Counts, Ridge

QUICK = {"max_depth": 1, "n_experts": 2, "random_state": 0}
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    return X, X[:, 0] > 0, rng.poisson(np.where(X[:, 0] > 0, 9, 2)).astype(float)


def test_a_prior_is_a_parameter_like_others(rows):
    X, y, _ = rows
    tree = ConvexPolytopeTreeClassifier(prior=Ridge(2.0), inference="grow", **QUICK)
    assert clone(tree).get_params()["prior"] == Ridge(2.0)
    assert "prior=Ridge(scale=2.0)" in repr(tree)
    search = GridSearchCV(tree, {"prior": [Ridge(0.5), Laplace(3.0, 2.0)]}, cv=2)
    best = search.fit(X[:80], y[:80]).best_estimator_
    assert best.posterior_.model.priors.hyperplane == best.prior
    assert best.set_params(prior="flat").get_params()["prior"] == "flat"


def test_a_family_predicts_its_means_and_intervals(rows):
    X, _, y = rows
    tree = ConvexPolytopeTreeRegressor(leaf=Counts(2.0, 0.5), n_modes=1, **QUICK).fit(X, y)
    assert tree.posterior_.model.leaf == Counts(2.0, 0.5)
    # 150 rows each; five standard errors, and as much again for rows near the boundary
    for rate, planted in zip(np.sort(tree.tree_.value), (2.0, 9.0), strict=True):
        assert rate == pytest.approx(planted, abs=10 * np.sqrt(planted / 150))
    low, high = tree.predict_interval(X, 0.9)
    assert (low == np.floor(low)).all()
    inside = ((low <= y) & (y <= high)).mean()
    assert inside > 0.9 - 4 * np.sqrt(0.9 * 0.1 / len(y))  # discrete intervals hold more
    assert "prediction" in tree.label_free()


def test_means_of_a_family_may_have_any_type():
    class Rounded(Counts):
        def expected_y(self, sites, X=None):
            found = np.array([4, 2], dtype=np.int64)[::-1]
            found.flags.writeable = False
            return found

    probs = np.array([[[0.25, 0.75]], [[1.0, 0.0]]], dtype=np.float32)
    found = Rounded().expectation({}, probs, np.empty((2, 0)))
    np.testing.assert_array_equal(found, [[3.5, 2.0]])


def test_other_soft_trees_take_a_family(rows):
    X, _, y = rows
    tree = EndToEndTreeRegressor(leaf=Counts(), max_depth=1, epochs=5, random_state=0).fit(X, y)
    assert tree.score(X, y) > 0.3


def test_files_name_the_module_and_load_does_not_import_it(rows, tmp_path):
    X, y, counts = rows
    for name, kind, own, target in (
        ("prior", ConvexPolytopeTreeClassifier, {"prior": Ridge(2.0)}, y),
        ("leaf", ConvexPolytopeTreeRegressor, {"leaf": Counts()}, counts),
    ):
        tree = kind(inference=Map(epochs=2, steepness=None), **own, **QUICK).fit(X, target)
        tree.save(tmp_path / name)
        assert load(tmp_path / name).get_params() == tree.get_params()
        np.save(tmp_path / f"{name}.npy", tree.predict(X))
    np.save(tmp_path / "X.npy", X)
    script = """
import sys
import numpy as np
from bayestree import load
for name in ("prior", "leaf"):
    try:
        load(name)
    except ValueError as error:
        print(error)
assert "tests.estimators.own_parts" not in sys.modules
import tests.estimators.own_parts
for name in ("prior", "leaf"):
    assert (load(name).predict(np.load("X.npy")) == np.load(f"{name}.npy")).all()
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for line, kind in zip(ran.stdout.splitlines(), ("Ridge", "Counts"), strict=True):
        module = "tests.estimators.own_parts"
        assert f"the class '{module}:{kind}' is not defined here; import {module} first" in line


class TestMethods:
    def test_auto_selects_a_method_that_can_fit_the_prior(self):
        def last(prior):
            return ConvexPolytopeTreeClassifier(prior=prior)._before_rows().last

        assert last(Ridge()) == Svi()
        assert last(Bare()) == Svi(guide="AutoNormal")

    def test_refits_find_a_way_as_the_fit_did(self, rows, monkeypatch):
        monkeypatch.setitem(Svi.__init__.__kwdefaults__, "epochs", 2)
        X, y = (part[:60] for part in rows[:2])
        tree = ConvexPolytopeTreeClassifier(prior=Bare(), n_modes=1, sparsity=None, **QUICK)
        assert tree.fit(X, y).loo(X, y, n_folds=2).n_folds == 2

    def test_the_mean_of_a_density_by_quadrature(self):
        mean, sd = torch.tensor([[[0.5, -2.0, 1.0]]]).double(), torch.tensor([0.3, 0.9, 1.5])
        moments = Moments(mean, sd.double().square().expand(mean.shape))
        square = float(moments.square.sum())
        exact = -3 * np.log(2.0 * np.sqrt(2 * np.pi)) - square / (2 * 2.0**2)
        assert float(Ridge(2.0).expected_log_prob(moments)) == pytest.approx(exact, rel=1e-10)
        kinked = Laplace(2.0, 3.0)  # of which polynomials are an approximation
        found = float(IndependentPrior.expected_log_prob(kinked, moments))
        assert found == pytest.approx(float(kinked.expected_log_prob(moments)), rel=0.02)

    def test_the_mean_of_the_density_is_known_for_independent_coefficients(self, rows):
        tree = ConvexPolytopeTreeClassifier(
            prior=Ridge(), inference=Svi(epochs=2, kl_weight=0.5, n_draws=3), **QUICK
        )
        assert tree.fit(*rows[:2]).posterior_.draws["hyperplane"].shape[1] == 3

    @pytest.mark.parametrize(
        ("prior", "inference", "message"),
        [
            (Ridge(), "vi", "or inference='svi'"),
            (Ridge(), "mcmc", "or inference='svi'"),
            (Ridge(), "smc", "inference='nuts' and 'svi' fit other priors too"),
            (Bare(), "svi", "guide='AutoNormal' or another Pyro autoguide, or inference='map'"),
            (Bare(), "nuts", "guide='AutoNormal' or another Pyro autoguide, or inference='map'"),
        ],
    )
    def test_others_are_refused_with_those_that_can(self, rows, prior, inference, message):
        tree = ConvexPolytopeTreeClassifier(prior=prior, inference=inference, **QUICK)
        with pytest.raises(ParameterError, match=message):
            tree.fit(*rows[:2])


class NotSummed(Bare):
    def log_prob(self, sites):
        return dist.Normal(0.0, self.scale).log_prob(sites["hyperplane"])


class WithoutIntercept(Bare):
    def log_prob(self, sites):
        return dist.Normal(0.0, self.scale).log_prob(sites["hyperplane"]).sum()


class OtherGradient(Ridge):
    def log_density(self, free, n_experts):
        return sum(-(free[s] ** 2).sum() for s in ("hyperplane", "intercept")) / 2

    def set_gradient(self, free, into):
        for site in ("hyperplane", "intercept"):
            into[site][...] = free[site]


class OtherMean(Ridge):
    def expected_log_prob(self, moments):
        return -moments.square.sum() / 2


class OtherRate(GammaProcess):
    def log_prob(self, sites):
        return super().log_prob(sites) + sites["log_weight"].exp().sum((-2, -1))


class Mutable(Ridge):
    __hash__ = None


@dataclass(frozen=True)
class Fixed(Ridge):
    scale: tuple = (1.0, 2.0, 3.0)


class TotalOfRows(Counts):
    def log_density(self, sites, y):
        return super().log_density(sites, y).sum(0)


class OtherSums(Counts):
    def statistics(self, y, weights):
        return super().statistics(y, weights) * 2


class WithoutIntervals(Counts):
    def cdf(self, sites, y):
        raise NotImplementedError


class OtherDraws(Counts):
    def draw(self, sites, leaf, X=None, known=None):
        return super().draw(sites, leaf, X, known) + 1


class TestMistakes:
    """Each is refused before the fit, with the method at fault."""

    @pytest.mark.parametrize(
        ("prior", "message"),
        [
            (NotSummed(), r"log_prob has the shape \(3, 2, 2\), but must be one number"),
            (WithoutIntercept(), "log_prob is not what state samples from"),
            (OtherGradient(), "set_gradient of hyperplane against finite differences"),
            (OtherMean(), "expected_log_prior is"),
            (Mutable(), "it has no hash; decorate Mutable with @dataclass"),
            (Fixed(), "cannot be used for 2 features: RuntimeError in the test that a density"),
        ],
    )
    def test_in_a_prior(self, rows, prior, message):
        tree = ConvexPolytopeTreeClassifier(prior=prior, inference="grow")
        with pytest.raises(ParameterError, match=message):
            tree.fit(*rows[:2])

    def test_in_a_prior_on_weights(self, rows):
        tree = ConvexPolytopeTreeClassifier(weight_prior=OtherRate(), inference="grow")
        with pytest.raises(ParameterError, match="log_prob is not what state samples from"):
            tree.fit(*rows[:2])

    @pytest.mark.parametrize(
        ("leaf", "message"),
        [
            (TotalOfRows(), r"log_density has the shape \(2,\), not \(24, 2\)"),
            (OtherSums(), r"log p\(y\) by Bayes' theorem differs"),
            (WithoutIntervals(), "cdf raises NotImplementedError, but intervals of y need it"),
            (OtherDraws(), "density at draws"),
        ],
    )
    def test_in_a_family(self, rows, leaf, message):
        tree = ConvexPolytopeTreeRegressor(leaf=leaf, inference="grow")
        with pytest.raises(ParameterError, match=message):
            tree.fit(rows[0], rows[2])

    def test_other_objects(self, rows):
        X, y, counts = rows
        for tree, target, message in (
            (ConvexPolytopeTreeClassifier(prior=Ridge), y, "or a HyperplanePrior, got <class"),
            (ConvexPolytopeTreeClassifier(prior=Counts()), y, "or a HyperplanePrior, got Counts"),
            (ConvexPolytopeTreeClassifier(leaf=Categorical(3)), y, "for 3 classes, and y has 2"),
            (ConvexPolytopeTreeRegressor(leaf=Categorical(3)), counts, "or a NumericLeaf, got"),
        ):
            with pytest.raises(ParameterError, match=message):
                tree.fit(X, target)
