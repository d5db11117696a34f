"""The contract of families of leaves.

A family states one model of y: its density, draws, statistics, posterior, predictions and intervals
must agree with each other, and with what :class:`bayestree.models.SoftTree` samples in Pyro.
"""

import math
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from pyro import poutine
from scipy.optimize import approx_fprime
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree.models import Oblique, SoftTree
from bayestree.models.contracts.base import (
    Contract,
    assert_close,
    assert_copied,
    assert_mean,
    seeded,
    skip_unless,
)
from bayestree.models.criteria import Criterion
from bayestree.models.leaves import LeafDistribution
from bayestree.topology import Topology

N_LEAVES = 2
N_ROWS = 24


class LeafContract(Contract):
    """Tests of the family ``leaf``, on rows that it generates itself.

    Attributes
    ----------
    leaf : Leaf
    conjugate : bool
        Whether posteriors are exact.
    split_may_lose : bool
        Whether the criterion of growth counts the parameters of a leaf.
    has_cdf : bool
        Whether the family has a distribution function, which quantiles need.
    predicts_means : bool
        Whether predictions are means of y.
    extra : tuple of float, optional
        Values of the auxiliary column of y, repeated over the rows.

    Examples
    --------
    >>> from bayestree.models import Poisson
    >>> class TestPoisson(LeafContract):
    ...     leaf = Poisson(3.0, 0.5)
    >>> TestPoisson.check()
    {}
    >>> class Biased(Poisson):
    ...     def statistics(self, y, weights):
    ...         return super().statistics(y, weights) * 1.01
    >>> class TestBiased(LeafContract):
    ...     leaf = Biased(3.0, 0.5)
    >>> TestBiased().test_the_posterior_is_proportional_to_prior_and_likelihood()
    ... # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: ...log p(y) by Bayes' theorem differs between draws of the sites...
    """

    leaf: ClassVar[Any]
    n_features: ClassVar[int] = 2
    conjugate: ClassVar[bool] = True
    split_may_lose: ClassVar[bool] = False
    has_cdf: ClassVar[bool] = True
    predicts_means: ClassVar[bool] = True
    extra: ClassVar[tuple[float, ...] | None] = None

    @cached_property
    def X(self) -> Tensor:  # noqa: N802 - the field's name for the rows
        """Rows (n, d) of features."""
        return seeded(2, lambda: torch.randn(N_ROWS, self.n_features, dtype=torch.float64))

    @cached_property
    def y(self) -> Tensor:
        """As many rows of each leaf of a draw from the prior, the rows of leaf 0 first."""
        prior = self.leaf.prior(self.X[:0])
        draws = [seeded(seed, prior.sample) for seed in range(N_LEAVES)]
        sites = {name: torch.stack([draw[name] for draw in draws]) for name in self.leaf.sites}
        extra = self._extra_of(N_ROWS)
        drawn = seeded(0, lambda: self.leaf.draw(sites, self._owner, self.X, extra))
        return self._respond(self.X, drawn)

    @property
    def _owner(self) -> Tensor:
        """The leaf of each row."""
        return torch.arange(N_LEAVES).repeat_interleave(N_ROWS // N_LEAVES)

    @cached_property
    def posterior(self) -> LeafDistribution:
        """The posterior of the leaves, given the rows."""
        found: LeafDistribution = self.leaf.posterior(self._sums())
        return found

    def _extra_of(self, n_rows: int) -> Tensor | None:
        """Return the auxiliary column of some rows."""
        if self.extra is None:
            return None
        return torch.tensor(self.extra, dtype=torch.float64).repeat(n_rows)[:n_rows]

    def _respond(self, X: Tensor, values: Tensor) -> Any:
        """Return the response of values of y, with the auxiliary column of the family."""
        extra = self._extra_of(len(X))
        return self.leaf.response(X, values if extra is None else torch.stack((values, extra), 1))

    def _sums(self, copies: float = 1) -> Tensor:
        """Sum the statistics of the rows of each leaf, each row several times."""
        weights = torch.full((N_ROWS,), copies, dtype=torch.float64)
        statistics = self.leaf.statistics(self.y, weights)
        return torch.stack([part.sum(0) for part in statistics.split(N_ROWS // N_LEAVES)])

    def _terms(self) -> Tensor:
        """Sum what growth adds up, by the leaf of each row, of a node that has all rows."""
        weights = torch.ones(N_ROWS, dtype=torch.float64)
        each = self.leaf.growth_terms(self.y, weights)(self.y, weights)
        return torch.stack([part.sum(0) for part in each.split(N_ROWS // N_LEAVES)])

    def _draws(self, distribution: LeafDistribution, n: int) -> list[dict[str, Tensor]]:
        """Draw the sites n times."""
        return seeded(1, lambda: [distribution.sample() for _ in range(n)])

    def test_a_copy_is_equal(self) -> None:
        assert_copied(self.leaf)

    def test_y_is_checked(self) -> None:
        self.leaf.check(self.y)
        missing = self.leaf.response(self.X, torch.full((N_ROWS,), math.nan))
        message = "nothing"
        try:
            self.leaf.check(missing)
        except ValueError as error:
            message = str(error)
        assert "y must" in message, f"check says {message} about missing values of y"

    def test_the_response_holds_y_once(self) -> None:
        target = self.leaf.target(self.y)
        assert target.shape == (N_ROWS,), f"target has shape {tuple(target.shape)}"
        same = torch.equal(self._respond(self.X, target), self.y)
        assert same, "the response of the target is not the response"
        same = torch.equal(self.leaf.response(self.X, self.y), self.y)
        assert same, "response must return a response unchanged"

    def test_a_density_has_a_number_for_each_row_and_leaf(self) -> None:
        (sites,) = self._draws(self.posterior, 1)
        given = self.leaf.log_density(sites, self.y)
        mean = self.posterior.expected_log_density(self.y)
        for name, value in (("log_density", given), ("expected_log_density", mean)):
            found, needed = tuple(value.shape), (N_ROWS, N_LEAVES)
            assert found == needed, f"{name} has the shape {found}, not {needed}: do not sum it"

    def test_the_model_has_the_density_of_its_pyro_trace(self) -> None:
        model = SoftTree(Topology.stump(), Oblique(), leaf=self.leaf)
        weights = seeded(3, lambda: torch.rand(N_ROWS, dtype=torch.float64))
        trace: Any = seeded(4, lambda: poutine.trace(model).get_trace(self.X, self.y, weights))
        shapes = model.shapes(self.n_features)
        sites = {n: node["value"] for n, node in trace.nodes.items() if n in shapes}
        for name, value in sites.items():
            shape = tuple(value.shape)
            assert shape == shapes[name], f"{name} has shape {shape}, not {shapes[name]}"
        joint = float(model.log_joint(sites, self.X, self.y, weights))
        assert_close(joint, float(trace.log_prob_sum()), "log_joint and Pyro's trace", rtol=1e-10)

    def test_the_posterior_is_proportional_to_prior_and_likelihood(self) -> None:
        skip_unless(self.conjugate, "the posterior is approximate")
        rows, evidence = torch.arange(N_ROWS), []
        for sites in self._draws(self.posterior, 5):
            density = self.leaf.log_density(sites, self.y)[rows, self._owner].sum()
            joint = self.leaf.log_prob(sites) + density
            evidence.append(float(joint - self.posterior.log_prob(sites)))
        what = "log p(y) by Bayes' theorem differs between draws of the sites"
        assert_close(evidence, evidence[0], what)

    def test_the_posterior_without_rows_is_the_prior(self) -> None:
        empty = self.leaf.posterior(torch.zeros_like(self._sums()))
        assert_close(float(empty.kl()), 0.0, "divergence without rows", atol=1e-12)
        (sites,) = self._draws(self.posterior, 1)
        expected = float(self.leaf.log_prob(sites))
        found = float(empty.log_prob(sites))
        assert_close(found, expected, "log-density without rows", rtol=1e-10)

    def test_divergence_and_expected_density_are_means_over_the_posterior(self) -> None:
        draws = self._draws(self.posterior, 1500)
        ratios = [float(self.posterior.log_prob(s) - self.leaf.log_prob(s)) for s in draws]
        assert_mean(ratios, float(self.posterior.kl()), "kl")
        densities = torch.stack([self.leaf.log_density(s, self.y) for s in draws]).numpy()
        expected = self.posterior.expected_log_density(self.y).numpy()
        assert_mean(densities, expected, "expected_log_density")

    def test_a_posterior_of_many_rows_is_at_the_estimate(self) -> None:
        sums = self._sums(copies=10_000)
        (sites,) = self._draws(self.leaf.posterior(sums), 1)
        # Standard deviations are about 1 / sqrt(10,000) = 0.01 of each site or less.
        for name, value in self.leaf.estimate(sums).items():
            drawn, best = self.identified(sites[name]), self.identified(value)
            assert_close(drawn, best, f"{name} given many rows", rtol=0.1, atol=0.05)

    def identified(self, values: Tensor) -> Tensor:
        """Return the part of the values (L, ...) of a site that y depends on."""
        return values

    def test_draws_have_the_density(self) -> None:
        """If y ~ m = (p_0 + p_1) / 2, then p_l(y) / m(y) has mean 1; it is at most 2."""
        sums = self._sums()
        sites = self.leaf.estimate(sums + sums.flip(0) / 2)
        owner = torch.arange(N_LEAVES).repeat_interleave(10_000)
        where = self.X[torch.arange(len(owner)) % N_ROWS]
        known = self.leaf.known(self._respond(where, where[:, 0]))
        drawn = seeded(5, lambda: self.leaf.draw(sites, owner, where, known))
        response = drawn if known is None else torch.stack((drawn, known), 1)
        density = self.leaf.log_density(sites, self.leaf.response(where, response))
        ratio = density - torch.logsumexp(density, 1, keepdim=True) + math.log(N_LEAVES)
        assert_mean(ratio.exp().numpy(), 1.0, "density at draws")

    def test_predictions_are_means_of_draws(self) -> None:
        skip_unless(self.predicts_means, "does not predict means")
        sites, here = self.posterior.mean(), self.X[:1]
        zeros, copies = torch.zeros(20_000, dtype=torch.long), here.expand(20_000, -1)
        drawn = seeded(7, lambda: self.leaf.draw(sites, zeros, copies))
        if self.leaf.n_classes:
            drawn = torch.nn.functional.one_hot(drawn, self.leaf.n_classes)
        probs = np.array([[[1.0, 0.0]]])  # of one row and one draw
        expected = self.leaf.expectation(sites, probs, here.numpy())[0, 0]
        assert_mean(drawn.numpy(), expected, "expectation")
        if not self.leaf.n_classes:
            variance = self.leaf.sd_y(sites)[0] ** 2
            assert_mean((drawn.numpy() - expected) ** 2, variance, "square of sd_y")

    def test_mixtures_and_nodes_have_the_density_of_the_leaves(self) -> None:
        sites = self.posterior.mean()
        log_prob = seeded(8, lambda: torch.randn(N_ROWS, N_LEAVES).double()).log_softmax(-1)
        mixture = self.leaf.observe(sites, log_prob, self.X, self.y)
        density = self.leaf.log_density(sites, self.y)
        found, expected = mixture.log_prob(self.leaf.target(self.y)), log_prob + density
        assert_close(found, torch.logsumexp(expected, -1), "density by observe", rtol=1e-6)
        nodes = {name: value.unsqueeze(0) for name, value in sites.items()}
        found = self.leaf.node_log_density(nodes, self.y.unsqueeze(0))[0]
        assert_close(found, density.T, "node_log_density", rtol=1e-6, atol=1e-8)

    def test_intervals_follow_the_draws(self) -> None:
        skip_unless(self.has_cdf and not self.leaf.n_classes, "no distribution function")
        sites, n = self.leaf.estimate(self._sums()), 20_000
        try:
            self.leaf.cdf(sites, self.y.numpy())
        except NotImplementedError:
            raise AssertionError(
                "cdf raises NotImplementedError, but intervals of y need it: define it, as "
                "P(y' <= y_n | leaf) of shape (n, L)"
            ) from None
        known = self.leaf.known(self.y[:1])
        here, zeros = self.X[:1].expand(n, -1), torch.zeros(n, dtype=torch.long)
        many = None if known is None else known.expand(n)
        drawn = seeded(9, lambda: self.leaf.draw(sites, zeros, here, many)).numpy()
        for value in np.quantile(drawn, [0.1, 0.5, 0.9]):
            at = torch.tensor([value], dtype=torch.float64)
            row = at if known is None else torch.stack((at, known), 1)
            below = self.leaf.cdf(sites, self.leaf.response(self.X[:1], row).numpy())[0, 0]
            assert_mean(drawn <= value, below, f"cdf at {value:.3g}")
        low, high = self.leaf.reach(sites, self.X.numpy(), None if known is None else known.numpy())
        assert low <= drawn.min(), f"a draw of {drawn.min():.3g} is below the reach of {low:.3g}"
        assert drawn.max() <= high, f"a draw of {drawn.max():.3g} is above the reach of {high:.3g}"

    def test_moments_describe_means_and_scales(self) -> None:
        sites = self.posterior.mean()
        found = {**sites, **self.leaf.moments({n: v.numpy() for n, v in sites.items()})}
        has = not self.leaf.regresses and "leaf_mean" in found
        skip_unless(has, "no means of whole leaves")
        assert_close(found["leaf_mean"], self.leaf.expected_y(sites), "leaf_mean", rtol=1e-6)
        if "leaf_scale" in found:
            assert_close(found["leaf_scale"], self.leaf.sd_y(sites), "leaf_scale", rtol=1e-6)

    def test_splits_never_lose(self) -> None:
        skip_unless(not self.split_may_lose, "the criterion counts the parameters of a leaf")
        sums = self._terms()
        criterion, whole = self.leaf.criterion, sums.sum(0)
        gain = float(criterion.gain(criterion.split_value(sums[0], whole), whole))
        assert gain > -1e-9, f"a split has a gain of {gain:.3g}"

    def test_the_ascent_is_the_gradient_of_the_criterion(self) -> None:
        sums = self._terms()
        side, whole = sums[0] * 0.7 + sums[1] * 0.2, sums.sum(0)
        criterion = self.leaf.criterion
        value, slope = criterion.ascent(side, whole)
        expected, derived = Criterion.ascent(criterion, side, whole)
        assert_close(value, expected, "value of the criterion by ascent", rtol=1e-6)
        assert_close(slope, derived, "slope of the criterion", rtol=1e-5, atol=1e-8)

    def test_the_gradient_is_the_slope_of_the_density(self) -> None:
        """In all unconstrained sites, with rows that belong to both leaves in part."""
        skip_unless(self.leaf.gradient is not None, "differentiated automatically")
        sites = {name: value.numpy() for name, value in self.posterior.mean().items()}
        free = {}
        for name, site in self.leaf.sites.items():
            logs = np.log(sites[name]) if site.support != "real" else sites[name]
            free[name] = logs[..., :-1] - logs[..., -1:] if site.support == "simplex" else logs
        written = self.leaf.gradient(self.leaf, self.y.numpy())
        member = np.random.default_rng(0).random((N_LEAVES, N_ROWS))
        lengths = np.cumsum([value.size for value in free.values()])[:-1]

        def unpacked(vector: FloatArray) -> dict[str, FloatArray]:
            parts = zip(free.items(), np.split(vector, lengths), strict=True)
            return {name: part.reshape(value.shape) for (name, value), part in parts}

        def value(vector: FloatArray) -> float:
            leaves = written.read(unpacked(vector))
            density = float((member * written.log_density(leaves)).sum())
            return float(written.prior(leaves)) + density

        at = np.concatenate([np.ravel(part) for part in free.values()])
        leaves = written.read(free)
        density = self.leaf.log_density(self.posterior.mean(), self.y).T
        assert_close(written.log_density(leaves), density, "log_density of gradient", rtol=1e-10)
        into = unpacked(np.empty_like(at))
        written.gradient(leaves, member, into)
        found = np.concatenate([np.ravel(part) for part in into.values()])
        slope, what = approx_fprime(at, value), "gradient against finite differences"
        assert_close(found, slope, what, rtol=1e-4, atol=1e-4)
