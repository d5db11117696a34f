"""The priors of the package keep their contracts."""

from inspect import isabstract

import pytest

from bayestree import models
from bayestree.models import (
    FeatureCount,
    Flat,
    FlatWeights,
    GammaProcess,
    GroupedScale,
    InverseGammaScale,
    Laplace,
    LiteralGammaProcess,
    Spatial,
)
from bayestree.models.priors import Prior
from bayestree.testing import HyperplanePriorContract, WeightPriorContract
from tests.testing.covered import covered


class TestCollapsed(HyperplanePriorContract):
    prior = InverseGammaScale(0.7, 2.0, 0.5)


class TestExplicit(HyperplanePriorContract):
    prior = InverseGammaScale(2.5, 2.0, 0.5, form="explicit")


class TestScaled(HyperplanePriorContract):
    prior = InverseGammaScale(0.7, 2.0, 0.5, coefficient_scale=0.3)


class TestScaledExplicit(HyperplanePriorContract):
    prior = InverseGammaScale(2.5, 2.0, 0.5, "explicit", 3.0)


class TestGrouped(HyperplanePriorContract):
    prior = GroupedScale(0.7, 2.0, 0.5, coefficient_scale=0.3, groups=((0, 3), (1, 2, 5)))


class TestFlat(HyperplanePriorContract):
    prior = Flat()


class TestLaplace(HyperplanePriorContract):
    prior = Laplace(2.0)


class TestProperLaplace(HyperplanePriorContract):
    prior = Laplace(2.0, intercept_scale=3.0)


class TestSpatial(HyperplanePriorContract):
    prior = Spatial(0.7, (2, 3))


class TestSpatialWithChannels(HyperplanePriorContract):
    prior = Spatial(0.7, (1, 3, 2))


class TestFeatureCount(HyperplanePriorContract):
    prior = FeatureCount(0.5, pair=1.3)


class TestGamma(WeightPriorContract):
    prior = GammaProcess(2.0, 0.5)


class TestGammaOfUnknownParameters(WeightPriorContract):
    prior = GammaProcess(concentration_prior=(2.0, 1.0), rate_prior=(3.0, 2.0))


class TestGammaOfUnknownRate(WeightPriorContract):
    prior = GammaProcess(rate_prior=(3.0, 2.0))


class TestLiteralGamma(WeightPriorContract):
    prior = LiteralGammaProcess()


class TestFlatWeights(WeightPriorContract):
    prior = FlatWeights()


def test_no_prior_is_left_out():
    every = (getattr(models, name) for name in models.__all__)
    priors = {one for one in every if isinstance(one, type) and issubclass(one, Prior)}
    assert covered(globals(), "prior") == {one for one in priors if not isabstract(one)}


class TestBroken:
    """The contracts notice a density, a closed form or a sampler that is another one."""

    def test_a_density_that_is_not_sampled_from(self):
        class Doubled(Laplace):
            def log_prob(self, sites):
                return 2 * super().log_prob(sites)

        class Contract(HyperplanePriorContract):
            prior = Doubled(2.0, intercept_scale=3.0)

        with pytest.raises(AssertionError, match="log_prob is not what state samples from"):
            Contract.check()

    def test_a_closed_form_of_another_density(self):
        class Shifted(Laplace):
            def log_density(self, free, n_experts):
                return super().log_density(free, n_experts) * 1.001

            def expected_log_prob(self, moments):
                return super().expected_log_prob(moments) + 20.0

        class Contract(HyperplanePriorContract):
            prior = Shifted(2.0)

        with pytest.raises(AssertionError, match="log_prob - log_density differs"):
            Contract().test_log_density_is_log_prob_up_to_a_constant()
        with pytest.raises(AssertionError, match="set_gradient of hyperplane against finite"):
            Contract().test_the_gradient_is_the_slope_of_log_density()
        with pytest.raises(AssertionError, match="expected_log_prior is"):
            Contract().test_the_expectation_is_the_mean_over_independent_coefficients()

    def test_a_sampler_of_another_law(self):
        class Wide(InverseGammaScale):
            def redraw(self, free, rng):
                super().redraw(free, rng)
                free["shrinkage"] += 0.2

            def draw_expert(self, free, expert, rng):
                super().draw_expert(free, expert, rng)
                free["hyperplane"][expert] *= 4

        class Contract(HyperplanePriorContract):
            prior = Wide(0.7, 2.0, 0.5)

        with pytest.raises(AssertionError, match="shrinkage by redraw and by state: another law"):
            Contract().test_redrawn_sites_keep_the_joint_law()
        with pytest.raises(AssertionError, match="hyperplane by draw_expert"):
            Contract().test_fresh_experts_are_draws_from_the_prior()
