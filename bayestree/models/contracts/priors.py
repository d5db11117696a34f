"""The contracts of priors on hyperplanes and on weights.

All methods of a prior state one density. Its draws in Pyro and ``log_prob`` must agree, and each
closed form that it has must agree with ``log_prob``.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from pyro import poutine
from scipy import stats

from bayestree._utils.arrays import FloatArray
from bayestree.models.contracts.base import (
    Contract,
    assert_close,
    assert_copied,
    seeded,
    skip_unless,
)
from bayestree.models.priors import Moments, Plates
from bayestree.models.priors.base import FreeSites, Lengths

REAL = ("hyperplane", "intercept", "log_weight")  # sites that are free as they are
SURE = 1e-4  # least p-value of a correct sampler, once in 10,000 tests
N_NODES = 3


class PriorContract(Contract):
    """Tests of what both kinds of priors have in common."""

    prior: ClassVar[Any]
    n_experts: ClassVar[int] = 2
    n_features: ClassVar[int] = 6
    main: ClassVar[tuple[str, ...]]  # sites that every prior of this kind has

    @property
    def _reduced(self) -> Any:
        """The prior with as few sites as possible, to which closed forms belong."""
        return self.prior

    def _closed(self, method: str) -> Any:
        """Return the prior if it has a closed form; skip the test if it has not."""
        skip_unless(self._reduced.implements(method), "a closed form that the prior does not have")
        return self._reduced

    def _trace(self, prior: Any, n_nodes: int = N_NODES, seed: int = 0) -> tuple[Any, Any]:
        """Trace a prior in Pyro; the trace and its sites."""
        size = Lengths(n_nodes, self.n_experts, self.n_features, n_nodes + 1)
        like = torch.empty(0, dtype=torch.float64)
        trace = seeded(
            seed, lambda: poutine.trace(prior.state).get_trace(size, like, Plates.of(size))
        )
        drawn = {n: v for n, v in trace.nodes.items() if v["type"] == "sample"}
        return trace, {n: v["value"] for n, v in drawn.items() if not v["is_observed"]}

    def _free(self, prior: Any, n_nodes: int = N_NODES, seed: int = 0) -> FreeSites:
        """Draw free sites: positive sites by their logarithms."""
        _, sites = self._trace(prior, n_nodes, seed)
        arrays = {name: value.numpy().copy() for name, value in sites.items()}
        return {n: v if n in REAL else np.asarray(np.log(v)) for n, v in arrays.items()}

    def _log_prob(self, prior: Any, free: FreeSites) -> float:
        """Compute the log-density of free sites by ``log_prob`` and the Jacobian."""
        sites = {n: torch.as_tensor(v if n in REAL else np.exp(v)) for n, v in free.items()}
        jacobian = sum(float(v.sum()) for name, v in free.items() if name not in REAL)
        return float(prior.log_prob(sites)) + jacobian

    def test_a_copy_is_equal(self) -> None:
        assert_copied(self.prior)

    def test_draws_in_pyro_have_the_density_log_prob(self) -> None:
        trace, sites = self._trace(self.prior)
        found, expected = float(self.prior.log_prob(sites)), float(trace.log_prob_sum())
        assert_close(found, expected, "log_prob is not what state samples from", rtol=1e-6)
        stated = {*self.main, *self.prior.sites}
        assert set(sites) == stated, f"state samples {sorted(sites)}, sites says {sorted(stated)}"

    def test_a_density_is_one_number(self) -> None:
        prior, values = self._reduced, {"log_prob": self.prior.log_prob(self._trace(self.prior)[1])}
        if prior.implements("log_density"):
            values["log_density"] = prior.log_density(self._free(prior), self.n_experts)
        for name, value in values.items():
            shape, remedy = tuple(np.shape(value)), "sum over nodes, experts and features"
            assert not shape, f"{name} has the shape {shape}, but must be one number: {remedy}"

    def test_log_density_is_log_prob_up_to_a_constant(self) -> None:
        prior = self._closed("log_density")
        frees = [self._free(prior, seed=seed) for seed in range(4)]
        gaps = [self._log_prob(prior, f) - prior.log_density(f, self.n_experts) for f in frees]
        assert_close(
            gaps, gaps[0], "log_prob - log_density differs between draws", rtol=1e-6, atol=1e-6
        )

    def test_log_density_is_a_sum_over_experts(self) -> None:
        prior = self._closed("log_density")
        skip_unless(self.main != ("log_weight",) or not prior.sites, "hyper-priors count once")
        free = self._free(prior)
        parts = [
            prior.log_density({name: value[at] for name, value in free.items()}, self.n_experts)
            for at in np.ndindex(N_NODES, self.n_experts)
        ]
        whole = prior.log_density(free, self.n_experts)
        assert_close(sum(parts), whole, "log_density of single experts", rtol=1e-10)

    def test_expert_log_density_differs_by_the_same_constant(self) -> None:
        prior = self._closed("expert_log_density")
        one, other = (self._free(prior, seed=seed) for seed in (0, 1))
        for name in prior.sites:  # hyper-parameters, which experts share, stay as they are
            other[name] = one[name] if one[name].ndim == 0 else other[name]
        found = [prior.expert_log_density(f, self.n_experts).sum() for f in (one, other)]
        whole = [prior.log_density(f, self.n_experts) for f in (one, other)]
        assert_close(found[0] - found[1], whole[0] - whole[1], "expert_log_density and log_density")

    def test_the_gradient_is_the_slope_of_log_density(self) -> None:
        prior = self._closed("set_gradient")
        free, step = self._free(prior), 1e-6
        into = {name: np.empty_like(value) for name, value in free.items()}
        prior.set_gradient(free, into)
        for name, value in free.items():
            slope = into[name].copy()
            for at in [*np.ndindex(value.shape)][:: 1 + value.size // 50]:
                kept = value[at].copy()
                high, low = (self._shifted(prior, free, name, at, s) for s in (step, -step))
                value[at], slope[at] = kept, (high - low) / (2 * step)
            what = f"set_gradient of {name} against finite differences"
            assert_close(into[name], slope, what, rtol=1e-5, atol=1e-5)

    def test_fresh_experts_are_draws_from_the_prior(self) -> None:
        prior, n = self._closed("draw_expert"), 800
        free, rng = self._free(prior), np.random.default_rng(0)
        shared = [name for name in free if free[name].ndim == 0]
        for name in shared:
            free[name][...] = np.log(getattr(prior, name))
        before = {name: value.copy() for name, value in free.items()}
        drawn: dict[str, list[float]] = {name: [] for name in free if name not in shared}
        for _ in range(n):
            prior.draw_expert(free, (1, 0), rng)
            for name, values in drawn.items():
                values.append(np.ravel(free[name][1, 0])[0])
        expected = self._fresh(prior, n)
        for name, values in drawn.items():
            same = np.array_equal(free[name][0], before[name][0])
            assert same, f"draw_expert changed {name} of another expert"
            reference = expected[name].reshape(n, -1)[:, 0]
            assert_same_law(values, reference, f"{name} by draw_expert and by state")

    def _fresh(self, prior: Any, n: int) -> FreeSites:
        """Draw the sites of n experts."""
        return self._free(prior, n_nodes=n)

    def _shifted(
        self, prior: Any, free: FreeSites, name: str, at: tuple[int, ...], step: float
    ) -> float:
        """Compute the log-density with one number moved, which the caller restores."""
        kept = free[name][at].copy()
        free[name][at] = kept + step
        value = float(prior.log_density(free, self.n_experts))
        free[name][at] = kept
        return value


class WeightPriorContract(PriorContract):
    """Tests of a prior on the log-weights of experts, ``prior``.

    Examples
    --------
    >>> from bayestree.models import GammaProcess
    >>> class TestGammaProcess(WeightPriorContract):
    ...     prior = GammaProcess(2.0, 0.5)
    >>> TestGammaProcess.check()
    {}
    """

    main: ClassVar[tuple[str, ...]] = ("log_weight",)

    def _fresh(self, prior: Any, n: int) -> FreeSites:
        law = prior.law(self.n_experts, torch.zeros((), dtype=torch.float64))
        return {"log_weight": seeded(0, lambda: law.sample((n,))).numpy()}


class HyperplanePriorContract(PriorContract):
    """Tests of a prior on hyperplanes and intercepts, ``prior``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import torch
    >>> from pyro.distributions import Normal
    >>> from bayestree.models import IndependentPrior
    >>> @dataclass(frozen=True)
    ... class Ridge(IndependentPrior):
    ...     scale: float = 1.0
    ...     def laws(self, like):
    ...         law = Normal(like.new_zeros(()), like.new_tensor(self.scale))
    ...         return law, law
    ...     def log_density(self, free, n_experts):
    ...         return -sum((free[n] ** 2).sum() for n in ("hyperplane", "intercept")) / 2
    >>> class TestRidge(HyperplanePriorContract):
    ...     prior = Ridge()
    >>> "test_the_gradient_is_the_slope_of_log_density" in TestRidge.check()  # skipped
    True
    >>> class TestWider(TestRidge):
    ...     prior = Ridge(2.0)
    >>> TestWider.check()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: ...log_prob - log_density differs between draws...
    """

    main: ClassVar[tuple[str, ...]] = ("hyperplane", "intercept")

    @property
    def _reduced(self) -> Any:
        return self.prior.collapsed()

    def test_prior_means_are_means_of_draws(self) -> None:
        prior = self._reduced
        _, sites = self._trace(prior, n_nodes=4_000 if prior.sites else 1)
        means = prior.prior_means(sites["intercept"])
        assert means.keys() == set(prior.sites), f"prior_means has {[*means]}, not {prior.sites}"
        for name, mean in means.items():
            error = float(sites[name].std()) / math.sqrt(sites[name].numel())
            off = abs(float(sites[name].mean() - mean.mean()))
            assert off < 4 * error, f"prior_means of {name} is off by {off / error:.3g} errors"

    def test_the_slope_is_that_of_log_prob(self) -> None:
        prior = self._closed("slope")
        plane = seeded(1, lambda: torch.randn(N_NODES, self.n_experts, self.n_features).double())
        at = plane.clone().requires_grad_()
        intercept = at.new_zeros(at.shape[:-1])
        sites = {"hyperplane": at, "intercept": intercept, **prior.prior_means(intercept)}
        (expected,) = torch.autograd.grad(prior.log_prob(sites), at)
        assert_close(prior.slope(plane), expected, "slope against automatic differentiation")

    def test_the_expectation_is_the_mean_over_independent_coefficients(self) -> None:
        self._check_expectation(correlated=False)

    def test_the_expectation_is_the_mean_over_correlated_coefficients(self) -> None:
        self._check_expectation(correlated=True)

    def test_absent_coefficients_have_no_density(self) -> None:
        """Experts that leave out a feature have the density of experts of the other features."""
        prior, kept = self._closed("absent_log_prob"), [*range(self.n_features - 1), -1]
        _, wide = self._trace(prior)
        wide["hyperplane"][..., -1] = 0.0
        narrow = wide | {"hyperplane": wide["hyperplane"][..., :-1]}
        found = prior.log_prob(wide) - prior.absent_log_prob(wide)
        of_others = prior.among(np.arange(self.n_features) < self.n_features - 1)
        assert_close(found, of_others.log_prob(narrow), "log_prob - absent_log_prob", rtol=1e-10)
        mean = torch.cat((wide["hyperplane"], wide["intercept"].unsqueeze(-1)), dim=-1)
        moments = Moments(mean, 0.3 * mean.square())
        few = Moments(mean[..., kept], moments.variance[..., kept])
        given, width = wide["intercept"], self.n_features
        factors = prior.factors(given, width + 1, mean != 0), of_others.factors(given, width)
        skip_unless(None not in factors, "the mean of the log-density is not known")
        for one, each in zip(factors, (moments, few), strict=True):
            one.eval().refresh(each)
            one.refresh(each)
        pairs = zip(factors, (moments, few), strict=True)
        values = [float(one.expected_log_prior(each).sum()) for one, each in pairs]
        assert_close(values[0], values[1], "expected_log_prior without absent ones", rtol=1e-10)

    def _check_expectation(self, n: int = 400, *, correlated: bool) -> None:
        """E log p(coefficients, further sites) - log q(further sites), under normals and factors.

        Together with the entropy of the coefficients this is the bound that SVI maximises.
        """
        prior, d = self.prior, self.n_features
        generator, shape = torch.Generator().manual_seed(1), (2, self.n_experts, d + 1)
        mean, root = (
            torch.randn(*s, generator=generator, dtype=torch.float64)
            for s in (shape, (*shape, d + 2))
        )
        mean, root = 0.5 * mean, 0.4 * root
        moments = Moments(mean, root.square().sum(-1), root if correlated else None)
        factors = prior.factors(mean[..., -1], d + 1)
        skip_unless(factors is not None, "the mean of the log-density is not known")
        factors.refresh(moments)
        values = []
        for draw in range(n):
            trace = seeded(draw, lambda: self._factor_trace(factors, moments))
            further = {k: v["value"] for k, v in trace.nodes.items() if v["type"] == "sample"}
            skip_unless(further.keys() == set(prior.sites), "factors are of the explicit form")
            noise = torch.randn(*shape[:2], d + 2, 1, generator=generator, dtype=torch.float64)
            if correlated:
                beta = mean + (root @ noise)[..., 0]
            else:
                beta = mean + moments.variance.sqrt() * noise[..., : d + 1, 0]
            sites = {"hyperplane": beta[..., :-1], "intercept": beta[..., -1], **further}
            values.append(float(prior.log_prob(sites) - trace.log_prob_sum()))
        expected = float(factors.eval().expected_log_prior(moments).sum())
        off, error = abs(np.mean(values) - expected), np.std(values) / math.sqrt(n)
        assert off <= 4 * error + 1e-9, (
            f"expected_log_prior is {expected:.6g}, the mean over draws {np.mean(values):.6g} +- "
            f"{error:.3g}"
        )

    def _factor_trace(self, factors: Any, moments: Moments) -> Any:
        plates = Plates.of(Lengths(2, self.n_experts, self.n_features, 3))
        with plates.node, plates.expert:
            return poutine.trace(factors.state).get_trace(moments)

    def test_redrawn_sites_keep_the_joint_law(self) -> None:
        """Each site, alone and relative to the coefficients, has the law of fresh draws."""
        prior = self._closed("redraw")
        free, fresh = (self._free(prior, n_nodes=2_000, seed=seed) for seed in (0, 1))
        before = {name: free[name].copy() for name in prior.sites}
        prior.redraw(free, np.random.default_rng(0))
        size = [np.log(np.abs(one["hyperplane"])).mean(-1) for one in (free, fresh)]
        for name in prior.sites:
            assert (free[name] != before[name]).all(), f"redraw did not draw {name}"
            assert_same_law(free[name], fresh[name], f"{name} by redraw and by state")
            drawn, expected = free[name] - size[0], fresh[name] - size[1]
            what = f"{name} relative to coefficients, by redraw and by state"
            assert_same_law(drawn, expected, what)

    def test_the_precision_is_the_curvature_at_zero(self) -> None:
        prior = self._closed("precision")
        free, step = self._free(prior), 1e-4
        free["hyperplane"][...] = free["intercept"][...] = 0.0
        precision, shape = prior.precision(free), (N_NODES, self.n_experts, self.n_features + 1)
        assert precision.shape == shape, f"precision has shape {precision.shape}, not {shape}"
        for at in np.ndindex(*shape[:2]):
            for site, place, column in (
                ("hyperplane", (*at, 0), 0),
                ("intercept", at, self.n_features),
            ):
                low, middle, high = (
                    self._shifted(prior, free, site, place, s) for s in (-step, 0.0, step)
                )
                curvature = -(low - 2 * middle + high) / step**2
                found = precision[at][column]
                assert_close(found, curvature, f"precision of {site}", rtol=1e-3)


def assert_same_law(
    values: Sequence[float] | FloatArray, others: Sequence[float] | FloatArray, what: str
) -> None:
    """Raise AssertionError if two samples differ, by the test of Kolmogorov and Smirnov."""
    p_value = float(stats.ks_2samp(np.ravel(values), np.ravel(others)).pvalue)
    assert p_value > SURE, f"{what}: another law, with a p-value of {p_value:.3g}"
