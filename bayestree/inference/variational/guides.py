"""The package's own guide: Weibull weights, normal hyperplanes, conjugate leaves."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn
from torch.distributions import kl_divergence

from bayestree import routing
from bayestree._utils.state import generator_state
from bayestree.distributions import LogWeibull
from bayestree.inference.data import Data
from bayestree.inference.pointwise import EXACT, ROWS
from bayestree.inference.sparse_routing import Evaluation, Experts, memberships
from bayestree.inference.streaming import Memory
from bayestree.inference.training import RoutedModule, expert_size
from bayestree.models.leaves import LeafDistribution
from bayestree.models.priors import Moments, Plates, ScaleFactors
from bayestree.models.priors.base import Sites
from bayestree.models.soft_tree import MonotonicityConstraints, SoftTree, support_of
from bayestree.models.splits import joined

LOG_2PI = math.log(2 * math.pi)
SPREAD = 0.1  # initial standard deviation of a coefficient, in units of its node's rms
TAPE = 262_144  # minimum number of normals on a tape, whose sample moments affect the whole fit
SHARPNESS = 5.0  # initial concentration of the Weibulls


def scale_factors(model: SoftTree, sites: Sites) -> ScaleFactors:
    """Return factors of a model's additional sites; ValueError if the guide cannot fit it."""
    model.likelihood.check_mixture("The polytope guide")
    weight, hyperplane = model.priors.weight, model.priors.hyperplane
    support = support_of(model, joined(sites))
    given = sites["intercept"], sites["hyperplane"].shape[-1] + 1
    scales = hyperplane.factors(*given, *(() if support is None else (support,)))
    has_law = weight.implements("law") or not model.split.weighted
    if scales is None or not has_law:
        needed = f"a GammaProcess as the prior on weights, got {weight}"
        if has_law:
            needed = (
                "hyperplanes of InverseGammaScale, Laplace, Spatial, Flat or another prior that "
                f"has expected_log_prob, got {hyperplane}"
            )
        raise ValueError(
            f"The polytope guide needs {needed}: name a Pyro autoguide instead, such as "
            "guide='AutoNormal'."
        )
    return scales


class PolytopeGuide(RoutedModule):
    """Variational posterior of a soft tree: a Pyro guide with a closed form of its divergence.

    log_weight is log-Weibull (with the left tail of the log-gamma prior, and a closed KL to it);
    hyperplanes and intercepts are normal, with a diagonal covariance or one that is full within
    each expert, log-weight included. Given these, the optimal scales, shrinkages and leaves are
    conjugate and have no parameters of their own. ``sites`` and ``leaf_sums`` (L, c), the sums of
    the leaves' statistics, are initial values. ``memory`` is what earlier rows say. As a Pyro guide
    it belongs to the model with ``InverseGammaScale(form="explicit")``.
    """

    leaf_sums: Tensor
    size: Tensor

    def __init__(
        self,
        model: SoftTree,
        sites: Sites,
        leaf_sums: Tensor,
        *,
        covariance: Literal["diagonal", "expert"] = "diagonal",
        tolerance: float = 0.0,
        memory: Memory | None = None,
    ) -> None:
        super().__init__()
        self.memory = None if memory is None else memory.to(leaf_sums)
        self.scales = scale_factors(model, sites)
        self.model = model
        self.full = covariance == "expert"
        self.tolerance = 0.0 if self.full else tolerance
        coefficient = joined(sites)
        self.support = support_of(model, coefficient)
        size = expert_size(sites["hyperplane"], sites["intercept"], self.support)
        self.register_buffer("size", size)
        self.monotone = MonotonicityConstraints.of(model, sites["hyperplane"])
        # Means are in units of ``size``, so that one step suits every node.
        self.unit_mean = nn.Parameter(coefficient / self.size)
        spread = (SPREAD * self.size).log().expand_as(coefficient)
        self.log_scale = nn.Parameter(spread.clone())
        if model.split.weighted:
            concentration = torch.full_like(sites["log_weight"], math.log(SHARPNESS))
            self.log_concentration = nn.Parameter(concentration)
            # the initial value is the mean of r, not its scale
            self.loc = nn.Parameter(sites["log_weight"] - math.lgamma(1 + 1 / SHARPNESS))
        if self.full:
            # Both in units of the scales: the part of the Cholesky factor below the diagonal, and
            # the shift of the coefficients with one standard deviation of the log-weight.
            width = coefficient.shape[-1]
            self.unit_lower = nn.Parameter(coefficient.new_zeros(*coefficient.shape, width))
            self.unit_tilt = nn.Parameter(torch.zeros_like(coefficient))
        self._tape: Tensor | None = None
        self._tape_seed: Tensor | None = None  # the generator's state before it was drawn
        self.register_buffer("leaf_sums", leaf_sums.clone())
        self.refresh(steps=50)

    # The factors.

    @property
    def log_weight_law(self) -> LogWeibull:
        """Factor of ``log_weight``, shape (V, K)."""
        return LogWeibull(self.log_concentration.exp(), self.loc, validate_args=False)

    @property
    def mean(self) -> Tensor:
        """Means of the coefficients, shape (V, K, d + 1), the intercept last."""
        return self.unit_mean * self.size

    def _signed(self, moments: Moments | None) -> Moments:
        """Return the moments that splits use: coefficients with a sign are drawn and folded."""
        moments = self.moments if moments is None else moments
        if self.monotone is None:
            return moments
        mean, variance = moments.mean, moments.variance
        drawn = self.monotone.fold(mean + self._deviation(variance) * torch.randn_like(mean))
        if self.support is not None:
            drawn = torch.where(self.support, drawn, 0.0)
        free = self.monotone.signs == 0
        return moments._replace(
            mean=torch.where(free, mean, drawn), variance=torch.where(free, variance, 0.0)
        )

    @property
    def moments(self) -> Moments:
        """Moments of the coefficients."""
        mean = self.unit_mean * self.size
        if not self.full:
            variance = (2 * self.log_scale).exp()
            if self.support is not None:
                mean, variance = (torch.where(self.support, of, 0.0) for of in (mean, variance))
            return Moments(mean, variance)
        root = torch.cat((self.factor, self.tilt.unsqueeze(-1)), dim=-1)
        return Moments(mean, root.square().sum(-1), root)

    def _deviation(self, variance: Tensor) -> Tensor:
        """Return standard deviations, or 1 for coefficients that experts do not have."""
        if self.support is not None:  # at 0, a root has no gradient
            variance = torch.where(self.support, variance, 1.0)
        return variance.sqrt()

    @property
    def factor(self) -> Tensor:
        """Cholesky factors given the log-weights, shape (V, K, d + 1, d + 1)."""
        width = self.log_scale.shape[-1]
        unit = self.unit_lower.tril(-1) + torch.eye(width).to(self.unit_lower)
        return self.log_scale.exp().unsqueeze(-1) * unit

    @property
    def tilt(self) -> Tensor:
        """Shift of the coefficients with one sd of the log-weight, shape (V, K, d + 1)."""
        return self.unit_tilt * self.log_scale.exp()

    @property
    def leaf_law(self) -> LeafDistribution:
        sums = self.leaf_sums if self.memory is None else self.leaf_sums + self.memory.sums
        if self.monotone is not None:
            sums = self.monotone.pooled(self.model.leaf, sums)
        return self.model.leaf.posterior(sums)

    @torch.no_grad()
    def refresh(self, steps: int = 1) -> None:
        """Move the factor of ``shrinkage``, if any, to its optimum given the coefficients."""
        moments = self.moments
        for _ in range(steps):
            self.scales.refresh(moments)

    # The bound.

    def _split_kl(self, moments: Moments) -> Tensor:
        """Compute the KL divergence of all factors but the leaves' from the prior, a scalar."""
        flat, log_prior = self.kl_terms(moments)
        kl = flat.sum() - log_prior.sum()
        if self.memory is None:
            return kl
        law = self.log_weight_law if self.model.split.weighted else None
        return kl + self.memory.expected_penalty(moments, law)

    def kl_terms(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Compute divergences from a flat prior, (V, K), and the expected log prior to subtract.

        The entropy of the coefficients given log r is the same for every log r, which shifts only
        their means.
        """
        entropy = self.log_scale + (1 + LOG_2PI) / 2
        flat = -(entropy if self.support is None else entropy * self.support).sum(-1)
        if self.model.split.weighted:
            law = self.model.priors.weight.law(self.model.split.n_experts, self.loc)
            flat = flat + kl_divergence(self.log_weight_law, law)
        return flat, self.scales.expected_log_prior(moments)

    @torch.no_grad()
    def n_facets(self, X: Tensor) -> int:
        """Count the experts that alone, at their means, send rows of [X, 1] right."""
        activation = self.mean.flatten(0, 1) @ X.T
        weight = torch.ones_like(activation[:, :1])
        if self.model.split.weighted:
            weight = self.log_weight_law.mean_exp().view(-1, 1)
        return int((activation > routing.log_odds(routing.LOG2 / weight)).any(1).sum())

    def kl(self, weight: float = 1.0) -> Tensor:
        """Compute the KL divergence from the prior, with ``weight`` for the splits."""
        return weight * self._split_kl(self.moments) + self.leaf_law.kl()

    def leaf_log_probs(self, X: Tensor, steepness: float, moments: Moments | None = None) -> Tensor:
        """Compute log P(leaf | x), (n, L), for fresh coefficients in every row of [X, 1]."""
        score = routing.vote(*self.activations(X, moments))
        return routing.tree_log_probs(score, steepness, self.model.topology)

    def activations(self, X: Tensor, moments: Moments | None = None) -> tuple[Tensor, Tensor]:
        """Draw pre-activations of rows [X, 1], (V, K, n), and log-weights (V, K)."""
        # Local reparameterisation: the pre-activations x . beta are drawn instead of beta, from
        # N(x . mean, x' Cov x). Each row's expectation is the same, and the variance over a batch
        # smaller.
        mean, variance, root = self._signed(moments)
        n_nodes, n_experts, width = mean.shape
        log_weight, standard = self._draw_log_weight()
        if root is not None:
            factor, tilt = root[..., :-1], root[..., -1]
            spread = (factor @ factor.mT).view(-1, width**2)
            squares = (X.unsqueeze(2) * X.unsqueeze(1)).flatten(1)
            mean = mean + tilt * standard.unsqueeze(-1)
        else:
            spread, squares = variance.view(-1, width), X.square()
        center = mean.view(-1, width) @ X.T
        activation = routing.jitter(center, spread @ squares.T, self.noise(center))
        return activation.view(n_nodes, n_experts, len(X)), log_weight

    def _draw_log_weight(self) -> tuple[Tensor, Tensor]:
        """Draw log-weights, and return their distances from the mean in sds, too."""
        if not self.model.split.weighted:
            zero = torch.zeros_like(self.unit_mean[..., 0])
            return zero, zero
        law = self.log_weight_law
        value = law.rsample()
        return value, (value - law.mean) / law.stddev

    def noise(self, like: Tensor) -> Tensor:
        """Draw standard normals; in training, take a stretch of a tape from a random position.

        Fresh draws would take a sixth of the time of a step, and each stretch is a valid sample.
        """
        if not self.training:
            return torch.randn_like(like)
        if self._tape is None or len(self._tape) < 2 * like.numel():
            self._tape_seed = generator_state(like.device)
            self._tape = like.new_empty(max(2 * like.numel(), TAPE)).normal_()
        start = int(torch.randint(len(self._tape) - like.numel() + 1, ()))
        return self._tape[start : start + like.numel()].view_as(like)

    def get_extra_state(self) -> dict[str, Any]:
        """Return routing, and the tape's length and seed, which reproduce it."""
        length = 0 if self._tape is None else len(self._tape)
        tape = {"length": length, "seed": self._tape_seed}
        return super().get_extra_state() | tape

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self._tape, self._tape_seed = None, state["seed"]
        if state["seed"] is not None:
            like = self.unit_mean
            generator = torch.Generator(like.device)
            generator.set_state(state["seed"])
            with torch.no_grad():
                self._tape = like.new_empty(state["length"]).normal_(generator=generator)

    def fit(self, batch: Data, steepness: float) -> tuple[Tensor, Tensor, Tensor]:
        """Compute a one-draw bound on E log p(y | X), divergence of the splits, and sums (L, c).

        Each row's leaf indicator has its optimal factor, which moves the expectation over the
        leaves inside the sum: log sum P(leaf | x) exp(E log p(y | leaf)).
        """
        moments = self.moments
        value, sums = self.expected_fit(batch, steepness, moments)
        return value, self._split_kl(moments), sums

    def expected_fit(
        self, batch: Data, steepness: float, moments: Moments | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the bound and the sums of :meth:`fit`, without the divergence."""
        moments = self.moments if moments is None else moments
        if self.sparse:
            return self.sparse_fit(batch, steepness, self.experts(moments))
        joint = self.leaf_log_probs(batch.X, steepness, moments) + self.log_density(batch.y)
        value = torch.logsumexp(joint, -1) @ batch.weights
        member = joint.detach().softmax(-1)
        return value, member.T @ self.model.leaf.statistics(batch.y, batch.weights)

    def experts(self, moments: Moments | None = None) -> Experts:
        moments = self._signed(moments)
        return Experts(self._draw_log_weight()[0], moments.mean, moments.variance)

    def log_density(self, y: Tensor) -> Tensor:
        return self.leaf_law.expected_log_density(y)

    @torch.no_grad()
    def expected_log_likelihood(self, data: Data) -> Tensor:
        """Estimate E log p(y | X) from one draw, leaves drawn too, at the model's steepness."""
        leaves, steepness = self.leaf_law.sample(), self.model.steepness
        total = data.X.new_zeros(())
        for part in data.parts(ROWS if self.sparse else None, ones=True):
            if self.sparse:
                evaluation = Evaluation(self.experts(), part.X, steepness, self.noise, keep=False)
                density = partial(self.model.leaf.log_density, leaves)
                paths, table = self.explore(part, evaluation, density, EXACT)
                rows = memberships(paths.log_odds, paths, table).log_likelihood
            else:
                log_prob = self.leaf_log_probs(part.X, steepness)
                rows = torch.logsumexp(log_prob + self.model.leaf.log_density(leaves, part.y), -1)
            total = total + rows @ part.weights
        return total

    # Draws.

    def stated(self, steepness: float) -> Callable[..., Any]:
        priors = self.model.priors
        explicit = replace(priors, hyperplane=priors.hyperplane.explicit())
        return self.model.with_(steepness=steepness, priors=explicit)

    def __call__(self, X: Tensor, *_: Any, **__: Any) -> None:
        """Sample the guide's Pyro sites."""
        plates = Plates.of(self.model.size(X.shape[-1]))
        log_weight = None
        with plates.node, plates.expert:
            if self.model.split.weighted:
                log_weight = pyro.sample("log_weight", self.log_weight_law)
            self.scales.state(self.moments)
            self._state_coefficients(log_weight)
        with pyro.plate("leaf", self.model.topology.n_leaves, dim=-1):
            self.leaf_law.state()

    def _state_coefficients(self, log_weight: Tensor | None) -> None:
        law = self._coefficient_law(log_weight)
        if isinstance(law, dist.MultivariateNormal):
            joint = pyro.sample("coefficient", law, infer={"is_auxiliary": True})
            pyro.sample("hyperplane", dist.Delta(joint[..., :-1], event_dim=1))
            pyro.sample("intercept", dist.Delta(joint[..., -1]))
        else:
            loc, scale = law.loc, law.scale
            pyro.sample("hyperplane", dist.Normal(loc[..., :-1], scale[..., :-1]).to_event(1))
            pyro.sample("intercept", dist.Normal(loc[..., -1], scale[..., -1]))

    def _coefficient_law(self, log_weight: Tensor | None) -> dist.Normal | dist.MultivariateNormal:
        """Return the factor of the coefficients given log-weights, (V, K, d + 1)."""
        mean, variance, root = self.moments
        if root is None:
            return dist.Normal(mean, self._deviation(variance))
        if log_weight is not None:
            law = self.log_weight_law
            mean = mean + root[..., -1] * ((log_weight - law.mean) / law.stddev).unsqueeze(-1)
        return dist.MultivariateNormal(mean, scale_tril=root[..., :-1])

    @torch.no_grad()
    def sample(self) -> dict[str, Tensor]:
        """Draw all sites, without scales that are integrated out."""
        log_weight = self.log_weight_law.rsample() if self.model.split.weighted else None
        coefficient = self._coefficient_law(log_weight).sample()
        if self.support is not None:
            coefficient = torch.where(self.support, coefficient, 0.0)
        if self.monotone is not None:
            coefficient = self.monotone.fold(coefficient)
        draw = {"hyperplane": coefficient[..., :-1], "intercept": coefficient[..., -1]}
        if log_weight is not None:
            draw["log_weight"] = log_weight
        return draw | self.scales.sample() | self.leaf_law.sample()

    @torch.no_grad()
    def log_prob(self, sites: Sites) -> Tensor:
        """Compute the log-density of a draw of :meth:`sample`, a scalar."""
        log_weight = sites.get("log_weight")
        law = self._coefficient_law(log_weight)
        coefficient = joined(sites)
        density = law.log_prob(coefficient)
        if self.monotone is not None:  # half the density of a fold, as the model's is
            mirrored = torch.where(self.monotone.signs == 0, coefficient, -coefficient)
            density = torch.logaddexp(density, law.log_prob(mirrored)) - math.log(2)
        total = density.sum() if self.support is None else density[self.support].sum()
        if log_weight is not None:
            total = total + self.log_weight_law.log_prob(log_weight).sum()
        return total + self.scales.log_prob(sites) + self.leaf_law.log_prob(sites)

    @torch.no_grad()
    def point(self) -> dict[str, Tensor]:
        """Return posterior means; ``log_weight`` is the logarithm of the mean weight."""
        mean, variance, _ = self.moments
        if self.monotone is not None:
            mean = self.monotone.folded_mean(mean, self._deviation(variance))
            if self.support is not None:
                mean = torch.where(self.support, mean, 0.0)
        point = {"hyperplane": mean[..., :-1], "intercept": mean[..., -1]}
        if self.model.split.weighted:
            point["log_weight"] = self.log_weight_law.mean_exp().log()
        return point | self.scales.point() | self.leaf_law.mean()
