"""The families of the package, and the one of the documentation, keep the contract of leaves."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bayestree.fitted.serialization import KINDS
from bayestree.models import (
    Categorical,
    Gaussian,
    LinearGaussian,
    Logistic,
    Ordinal,
    Outputs,
    Poisson,
    Student,
    Survival,
)
from bayestree.models.leaves import Leaf
from bayestree.testing import LeafContract
from tests.testing.covered import covered

PAGE = Path(__file__).parents[2] / "docs" / "develop" / "own-leaves.md"


def documented():
    """The first block of the page: a family, and a fit that uses it."""
    return re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL).group(1)


BLOCK = documented()
SPACE: dict[str, Any] = {"__name__": "documented"}
exec(BLOCK.split("\nX = ")[0], SPACE)  # the classes, without the fit


class TestCategorical(LeafContract):
    leaf = Categorical(3, 2.4)


class TestGaussian(LeafContract):
    leaf = Gaussian(0.3, 0.5, 3.0, 0.7)


class TestLinearGaussian(LeafContract):
    leaf = LinearGaussian(0.5, 0.7, 3.0, 0.7)
    split_may_lose = True


class TestLogistic(LeafContract):
    leaf = Logistic(3, 0.1, 0.3)
    conjugate = False
    split_may_lose = True

    def identified(self, values):
        return values - values.mean(1, keepdim=True)  # only differences between classes


class TestBinaryLogistic(TestLogistic):
    leaf = Logistic(2, 1.2, 0.8)

    def test_rounding_of_the_sums_of_an_empty_class_does_not_matter(self):
        alone = self.y[self.y[:, 0] == 0]
        sums = self.leaf.statistics(alone, torch.ones(len(alone)).double()).sum(0, keepdim=True)
        rounded = sums.clone()
        rounded[0, 3:6] = torch.tensor([-1e-18, 1e-17, -1e-17])  # of r = (1, x) in class 1
        posteriors = (self.leaf.posterior(one).loc for one in (rounded, sums))
        assert torch.allclose(*posteriors)


class TestOrdinal(LeafContract):
    leaf = Ordinal(4, 6.0, 0.5, (-1.0, -0.2, 1.1))


class TestPoisson(LeafContract):
    leaf = Poisson(3.0, 0.5)


class TestPoissonWithExposure(LeafContract):
    leaf = Poisson(3.0, 0.5)
    extra = (0.2, 1.0, 5.0)


class TestWeibull(LeafContract):
    leaf = Survival(3.0, 2.0, power=1.7, unit=0.6)
    extra = (1.0, 0.0, 1.0)  # the others are censored
    predicts_means = False


class TestExponential(LeafContract):
    leaf = Survival(3.0, 0.5, learned=False)
    predicts_means = False


class TestDocumented(LeafContract):
    leaf = SPACE["Poisson"](3.0, 0.5)
    has_cdf = False


class TestStudent(LeafContract):
    leaf = Student(9.0, 0.3, 0.5, 3.0, 0.7)
    conjugate = False


def test_no_family_is_left_out():
    families = {kind for kind in KINDS if issubclass(kind, Leaf)}
    # several outputs are leaves next to each other, with tests of their own
    assert covered(globals(), "leaf") == families - {Outputs} | {SPACE["Poisson"]}


class TestBroken:
    """The contract notices statistics, draws or predictions of another model."""

    def contract(self, broken):
        return type("Contract", (LeafContract,), {"leaf": broken})

    def test_statistics_of_other_rows(self):
        class Heavier(Gaussian):
            def statistics(self, y, weights):
                return super().statistics(y, weights) * 1.01

        with pytest.raises(AssertionError, match=r"log p\(y\) by Bayes' theorem differs"):
            self.contract(Heavier(0.3, 0.5, 3.0, 0.7)).check()

    def test_draws_of_another_distribution(self):
        class Wider(Gaussian):
            def draw(self, sites, leaf, X=None, known=None):
                return super().draw(sites, leaf, X, known) * 1.1

        contract = self.contract(Wider(0.3, 0.5, 3.0, 0.7))
        with pytest.raises(AssertionError, match="density at draws: the mean of 20000 draws is"):
            contract().test_draws_have_the_density()
        with pytest.raises(AssertionError, match="cdf at"):
            contract().test_intervals_follow_the_draws()

    def test_sites_of_another_shape(self):
        class Single(Gaussian):
            def estimate(self, sums):
                return {n: value[:1] for n, value in super().estimate(sums).items()}

        with pytest.raises(AssertionError):
            self.contract(Single(0.3, 0.5, 3.0, 0.7)).check()


def test_the_documented_family_is_fitted():
    assert len(BLOCK.splitlines()) <= 70
    space: dict[str, Any] = {"__name__": "documented"}
    exec(BLOCK, space)
    # planted rates 2 and 9; 200 rows each, five standard errors, and rows near the boundary
    rates = np.sort(space["found"].point["leaf_rate"])
    for rate, planted in zip(rates, (2.0, 9.0), strict=True):
        assert rate == pytest.approx(planted, abs=5 * np.sqrt(planted / 150))
    assert space["drawn"].shape == (1, 50, 400)
    assert (space["drawn"] == np.floor(space["drawn"])).all()
    mean = space["found"].predictive(space["X"])[0]
    assert np.corrcoef(mean, space["y"])[0, 1] > 0.7
