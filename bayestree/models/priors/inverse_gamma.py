"""Sparse hyperplanes by inverse-gamma scales, and all that follows from them in closed form.

With b = ``shrinkage``, beta any of the d + 1 coefficients of an expert and a = ``shape``,

    1 / sigma^2 | beta, b  ~  Gamma(a + 1/2, b + beta^2 / 2)
    log p(beta | b)        =  a log b - (a + 1/2) log(b + beta^2 / 2) + constant
    b | sigma              ~  Gamma(e_0 + (d + 1) a, f_0 + sum of 1 / sigma^2).

These hold for the intercept, and for the d coefficients in units of s = ``coefficient_scale``:
with beta / s and sigma / s in place of beta and sigma, and -log s in the constant.

The bound under factors q(beta) q(sigma) q(b), with q(sigma) at its optimum, is the second line
with E log b, E b and E beta^2 instead of log b, b and beta^2 (docs/concepts/priors.md, "Priors").
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributions import kl_divergence

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.state import cached
from bayestree.distributions import draw_log_gamma, inverse_gamma_scale
from bayestree.models.priors.base import (
    LOG_2PI,
    SITES,
    FreeSites,
    HyperplanePrior,
    Lengths,
    Moments,
    Plates,
    ScaleFactors,
    Site,
    Sites,
    check_positive,
)


@cached
def _shrinkage_law(
    shape: float, rate: float, dtype: torch.dtype, device: torch.device
) -> dist.Gamma:
    # cached: to create a distribution takes longer than to evaluate it in a small tree
    like = torch.empty((), dtype=dtype, device=device)
    return dist.Gamma(like.new_full((), shape), like.new_full((), rate), validate_args=False)


def width_scale(n_features: int, reference: float, shape: float) -> float:
    """Return the scale of coefficients at which beta . x has the spread of ``reference`` features.

    The sum of d independent Student-t variables with nu = 2 ``shape`` degrees of freedom spreads
    as d^(1 / min(nu, 2)): by the largest of them for heavy tails, by their variance otherwise.
    Correlation between the features changes the spread little, as the coefficients are
    independent.
    """
    return float((reference / n_features) ** max(0.5, 0.5 / shape))


@dataclass(frozen=True)
class InverseGammaScale(HyperplanePrior):
    """Sparse hyperplanes through inverse-gamma scales (CPT, eq. 6).

    b_k ~ Gamma(shrinkage_shape, shrinkage_rate) (site ``shrinkage``), and each of the d
    coefficients and the intercept of expert k is Normal(0, sigma_kj^2) with sigma_kj^2 ~
    InverseGamma(shape, b_k). For the coefficients, s^2 b_k takes the place of b_k, with s =
    ``coefficient_scale``. ``explicit`` states the scales as the sites ``hyperplane_scale`` and
    ``intercept_scale``; ``collapsed`` integrates them out: Student-t with 2 ``shape`` degrees of
    freedom and scale sqrt(b_k / shape), the penalty (shape + 1/2) log(1 + beta^2 / 2b) of eq. 15.

    Parameters
    ----------
    shape : float
        a_beta.
    shrinkage_shape, shrinkage_rate : float
        e_0 and f_0, the latter as a rate.
    form : {"collapsed", "explicit"}
    coefficient_scale : float
        Scale s of the coefficients relative to the scale of the intercept; 1 is the paper's
        prior.
    width : float, optional
        For estimators: number of features at which the coefficients have the scale of the
        intercept; 10 is a good value. A fit to d features that vary multiplies
        ``coefficient_scale`` by (width / d)^p, p = 1/2 or, for heavier tails, 1 / (2 ``shape``),
        so that the prior on the number of facets hardly depends on d.
    """

    shape: float = 1.0
    shrinkage_shape: float = 1.0
    shrinkage_rate: float = 1.0
    form: Literal["collapsed", "explicit"] = "collapsed"
    coefficient_scale: float = 1.0
    width: float | None = None

    def __post_init__(self) -> None:
        check_positive(
            shape=self.shape,
            shrinkage_shape=self.shrinkage_shape,
            shrinkage_rate=self.shrinkage_rate,
            coefficient_scale=self.coefficient_scale,
            width=1.0 if self.width is None else self.width,
        )
        if self.form not in ("collapsed", "explicit"):
            raise ValueError(f"form must be 'collapsed' or 'explicit', got {self.form!r}.")

    @property
    def sites(self) -> Mapping[str, Site]:
        scales = ("hyperplane_scale", "intercept_scale") if self.form == "explicit" else ()
        return {name: SITES[name] for name in ("shrinkage", *scales)}

    @property
    def shrinkage_settings(self) -> dict[str, float]:
        return {"scale_shape": self.shape, "coefficient_scale": self.coefficient_scale}

    def collapsed(self) -> "InverseGammaScale":
        return replace(self, form="collapsed")

    def explicit(self) -> "InverseGammaScale":
        return replace(self, form="explicit")

    def prior_means(self, intercept: Tensor) -> dict[str, Tensor]:
        # the joint mode of shrinkages and hyperplanes is a pole at zero
        mean = intercept.new_full((), self.shrinkage_shape / self.shrinkage_rate)
        return {"shrinkage": mean.expand(intercept.shape)}

    # The densities.

    def shrinkage_law(self, like: Tensor) -> dist.Gamma:
        """Return the prior of one shrinkage b."""
        return _shrinkage_law(self.shrinkage_shape, self.shrinkage_rate, like.dtype, like.device)

    @property
    def _square(self) -> float:
        """Factor s^2 of b for the coefficients."""
        return self.coefficient_scale**2

    def squares(self, like: Tensor) -> Tensor:
        """Return factors of b for the coefficients and, last, the intercept: (d + 1,)."""
        factors = like.new_full(like.shape[-1:], self._square)
        factors[-1:].fill_(1.0)  # an assignment would copy from the CPU
        return factors

    def _coefficient(self, shrinkage: Tensor) -> dist.StudentT:
        return dist.StudentT(2 * self.shape, 0.0, (shrinkage / self.shape).sqrt())

    def _coefficient_law(self, b: Tensor) -> TorchDistribution:
        """Return the law of the coefficients of experts given b of each, (..., d)."""
        return self._coefficient(b).to_event(1)

    def state(self, size: Lengths, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        with plates.node, plates.expert:
            shrinkage = pyro.sample("shrinkage", self.shrinkage_law(like))
            # expanded to the plates, so that the distribution below has their batch shape;
            # torch.broadcast_shapes imports sympy, which takes a second
            shrinkage = shrinkage.expand(
                np.broadcast_shapes(shrinkage.shape, (size.n_nodes, size.n_experts))
            )
            wide = (self._square * shrinkage).unsqueeze(-1)
            wide = wide.expand(*shrinkage.shape, size.n_features)
            if self.form == "explicit":
                scale = pyro.sample(
                    "hyperplane_scale", inverse_gamma_scale(self.shape, wide).to_event(1)
                )
                offset_scale = pyro.sample(
                    "intercept_scale", inverse_gamma_scale(self.shape, shrinkage)
                )
                law, offset = dist.Normal(0.0, scale).to_event(1), dist.Normal(0.0, offset_scale)
            else:
                law, offset = self._coefficient_law(wide), self._coefficient(shrinkage)
            hyperplane = pyro.sample("hyperplane", law)
            intercept = pyro.sample("intercept", offset)
        return hyperplane, intercept

    def log_prob(self, sites: Sites) -> Tensor:
        shrinkage = sites["shrinkage"]
        total = self.shrinkage_law(shrinkage).log_prob(shrinkage).sum()
        wide = (self._square * shrinkage).unsqueeze(-1)
        for site, b in (("hyperplane", wide), ("intercept", shrinkage)):
            total = total + self._coefficient_log_probs(sites, site, b).sum()
        return total

    def _coefficient_log_probs(self, sites: Sites, site: str, b: Tensor) -> Tensor:
        if self.form == "collapsed":
            return self.collapsed_log_prob(sites[site], b)
        scale = sites[f"{site}_scale"]
        own = inverse_gamma_scale(self.shape, b).log_prob(scale)
        return own + dist.Normal(0.0, scale).log_prob(sites[site])

    def absent_log_prob(self, sites: Sites) -> Tensor:
        b = (self._square * sites["shrinkage"]).unsqueeze(-1)
        each = self._coefficient_log_probs(sites, "hyperplane", b)
        return each[sites["hyperplane"] == 0].sum()

    @property
    def _constant(self) -> float:
        """Constant of log p(beta | b) = constant + a log b - (a + 1/2) log(b + beta^2 / 2)."""
        return math.lgamma(self.shape + 0.5) - math.lgamma(self.shape) - 0.5 * LOG_2PI

    def collapsed_log_prob(self, value: Tensor, shrinkage: Tensor) -> Tensor:
        """log p(beta | b), in the form of eq. 15: exact where beta^2 is far below b."""
        penalty = (self.shape + 0.5) * torch.log1p(value.square() / (2 * shrinkage))
        return self._constant - 0.5 * shrinkage.log() - penalty

    def slope(self, hyperplane: Tensor) -> Tensor:
        # of -(a + 1/2) log(b + beta^2 / 2)
        b = self._square * self.shrinkage_shape / self.shrinkage_rate
        return hyperplane / (0.5 * hyperplane.square()).add_(b).mul_(-1 / (self.shape + 0.5))

    def expert_log_density(self, free: FreeSites, n_experts: int) -> FloatArray:
        # The sum of the shrinkage's own density, with its Jacobian, and -log(b) / 2 and the
        # penalty of each coefficient.
        b, width = np.exp(free["shrinkage"]), free["hyperplane"].shape[-1] + 1
        ratio = free["hyperplane"] ** 2 / (2 * self._square * b[..., None])
        tail = np.log1p(ratio).sum(axis=-1) + np.log1p(free["intercept"] ** 2 / (2 * b))
        own = (self.shrinkage_shape - 0.5 * width) * free["shrinkage"] - self.shrinkage_rate * b
        return own - (self.shape + 0.5) * tail

    def log_density(self, free: FreeSites, n_experts: int) -> float:
        return float(self.expert_log_density(free, n_experts).sum())

    def set_gradient(self, free: FreeSites, into: FreeSites) -> None:
        b, width = np.exp(free["shrinkage"]), free["hyperplane"].shape[-1] + 1
        plane, offset = free["hyperplane"], free["intercept"]
        into["hyperplane"][...] = -(2 * self.shape + 1) * plane
        into["hyperplane"] /= 2 * self._square * b[..., None] + plane**2
        into["intercept"][...] = -(2 * self.shape + 1) * offset / (2 * b + offset**2)
        # d/d log b of each penalty is half of beta times its gradient
        shrunk = (into["hyperplane"] * plane).sum(-1) + into["intercept"] * offset
        into["shrinkage"][...] = (
            self.shrinkage_shape - 0.5 * width - self.shrinkage_rate * b - 0.5 * shrunk
        )

    # The conditionals.

    def scale_of(self, n_features: int) -> IntArray:
        """Return the number of the scale of each coefficient, (d,)."""
        return np.arange(n_features)

    def draw_precision(self, free: FreeSites, rng: np.random.Generator) -> FloatArray:
        plane = free["hyperplane"] / self.coefficient_scale
        coefficient = np.concatenate([plane, free["intercept"][..., None]], axis=-1)
        b = np.exp(free["shrinkage"])[..., None]
        precision = rng.standard_gamma(self.shape + 0.5, coefficient.shape)
        precision /= b + coefficient**2 / 2
        precision[..., :-1] /= self._square
        return precision

    def redraw(self, free: FreeSites, rng: np.random.Generator) -> None:
        precision = self.draw_precision(free, rng)
        precision[..., :-1] *= self._square
        shape = self.shrinkage_factor_shape(precision.shape[-1])
        rate = self.shrinkage_rate + precision.sum(-1)
        free["shrinkage"][...] = np.log(rng.standard_gamma(shape, rate.shape) / rate)

    def precision(self, free: FreeSites) -> FloatArray:
        # E 1 / sigma^2 at beta = 0
        own = np.asarray((self.shape + 0.5) * np.exp(-free["shrinkage"]))[..., None]
        planes = np.broadcast_to(own / self._square, free["hyperplane"].shape)
        return np.concatenate([planes, own], axis=-1)

    def draw_expert(self, free: FreeSites, expert: Any, rng: np.random.Generator) -> None:
        shape = free["hyperplane"][expert].shape
        log_b = draw_log_gamma(self.shrinkage_shape, self.shrinkage_rate, rng, shape[:-1])
        unit = np.exp(0.5 * log_b) / math.sqrt(self.shape)
        student = rng.standard_t(2 * self.shape, shape)
        free["hyperplane"][expert] = self.coefficient_scale * unit[..., None] * student
        free["intercept"][expert] = unit * rng.standard_t(2 * self.shape, shape[:-1])
        free["shrinkage"][expert] = log_b

    def rescale(self, free: FreeSites, expert: tuple[int, int], length: float) -> None:
        free["shrinkage"][expert] += 2 * length  # b is in units of squared coefficients

    # Under normal coefficients.

    def n_scales(self, width: int, support: Tensor | None) -> Any:
        """Return the number of scales of ``width`` coefficients, or of those of a support."""
        return width if support is None else support.sum(-1)

    def shrinkage_factor_shape(self, n_scales: Any) -> Any:
        """Return the shape of b given its scales, and of its variational factor."""
        return self.shrinkage_shape + n_scales * self.shape

    def shrinkage_factor(self, rate: Tensor, n_scales: int | Tensor) -> dist.Gamma:
        """Return the variational factor of b, of the shape of ``rate``."""
        if not isinstance(n_scales, Tensor):
            n_scales = rate.new_full((), n_scales)
        shape = self.shrinkage_factor_shape(n_scales.to(rate))
        return dist.Gamma(shape, rate, validate_args=False)

    def updated_rate(self, rate: Tensor, square: Tensor, support: Tensor | None = None) -> Tensor:
        """Take one coordinate step of the rate of that factor, given E beta^2 (..., d + 1).

        ``support`` marks the coefficients that count, by default all.
        """
        b = self.shrinkage_factor(rate, self.n_scales(square.shape[-1], support)).mean
        inverse = (b.unsqueeze(-1) + square / (2 * self.squares(square))).reciprocal()
        return self._rate((inverse if support is None else inverse * support).sum(-1))

    def _rate(self, precision: Tensor) -> Tensor:
        return self.shrinkage_rate + (self.shape + 0.5) * precision

    def expected_precision(self, square: Tensor, b: Tensor, support: Tensor | None) -> Tensor:
        """Return E 1 / sigma^2, -2 times the slope of the expected log prior in ``square``."""
        return (self.shape + 0.5) / torch.addcmul(square / 2, b.unsqueeze(-1), self.squares(square))

    def expected_log_prior(
        self, square: Tensor, shrinkage: dist.Gamma, support: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return E log p(beta, sigma, b) plus the entropies of q(sigma) and q(b), per expert.

        ``square`` (..., d + 1) is E beta^2, ``support`` marks the coefficients that count, by
        default all, and ``shrinkage`` is q(b). The second result is :meth:`updated_rate`, without
        another pass over the coefficients.
        """
        log_b = torch.digamma(shrinkage.concentration) - shrinkage.rate.log()
        unit = square / self.squares(square)
        scales, precision = _LogScaleRate.apply(unit, shrinkage.mean, support)
        width = square.shape[-1] if support is None else support.sum(-1).to(square)
        planes = width * (self.shape * log_b + self._constant)
        planes = planes - (width - 1) * math.log(self.coefficient_scale)
        own = kl_divergence(shrinkage, self.shrinkage_law(log_b))
        return planes - (self.shape + 0.5) * scales - own, self._rate(precision)

    def factors(
        self, intercept: Tensor, width: int, support: Tensor | None = None
    ) -> "ShrinkageFactors":
        return ShrinkageFactors(self, intercept, width, support)


class ShrinkageFactors(ScaleFactors):
    """Factors of the shrinkages and scales of ``InverseGammaScale``: the optimum, or nearly.

    Only the rates of the shrinkages (V, K) are stored; the scales follow from them.
    """

    prior: InverseGammaScale
    rate: Tensor

    def __init__(
        self, prior: InverseGammaScale, intercept: Tensor, width: int, support: Tensor | None = None
    ) -> None:
        super().__init__(prior, intercept)
        self.width, self.support = width, support
        self.register_buffer("rate", torch.ones_like(intercept))

    @property
    def law(self) -> dist.Gamma:
        """Factor of ``shrinkage``, shape (V, K)."""
        n_scales = self.prior.n_scales(self.width, self.support)
        return self.prior.shrinkage_factor(self.rate, n_scales)

    def scale_rate(self, moments: Moments) -> Tensor:
        """Return the rates of the inverse-gamma factors of the squared scales, (V, K, d + 1)."""
        b = self.law.mean.unsqueeze(-1) * self.prior.squares(moments.mean)
        return b + moments.square / 2

    def refresh(self, moments: Moments) -> None:
        self.rate.copy_(self.prior.updated_rate(self.rate, moments.square, self.support))

    def expected_precision(self, moments: Moments) -> Tensor:
        return self.prior.expected_precision(moments.square, self.law.mean, self.support)

    def expected_log_prior(self, moments: Moments) -> Tensor:
        value, rate = self.prior.expected_log_prior(moments.square, self.law, self.support)
        if self.training:
            self.rate.copy_(rate)
        return value

    def state(self, moments: Moments) -> None:
        pyro.sample("shrinkage", self.law)
        shape, rate = self.prior.shape + 0.5, self.scale_rate(moments)
        wide = inverse_gamma_scale(shape, rate[..., :-1]).to_event(1)
        pyro.sample("hyperplane_scale", wide)
        pyro.sample("intercept_scale", inverse_gamma_scale(shape, rate[..., -1]))

    def sample(self) -> dict[str, Tensor]:
        return {"shrinkage": self.law.sample()}

    def log_prob(self, sites: Sites) -> Tensor:
        return self.law.log_prob(sites["shrinkage"]).sum()

    def point(self) -> dict[str, Tensor]:
        return {"shrinkage": self.law.mean}


class _LogScaleRate(torch.autograd.Function):
    """Sums over coefficients of log(rate) and of 1 / rate, rate = b + E beta^2 / 2."""

    @staticmethod
    def forward(
        ctx: Any, square: Tensor, b: Tensor, support: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        rate = (0.5 * square).add_(b.unsqueeze(-1))
        logs = rate.log()
        if support is not None:
            logs, rate = logs * support, rate.masked_fill_(~support, math.inf)
        total, inverse = logs.sum(-1), rate.reciprocal_()
        precision = inverse.sum(-1)
        ctx.save_for_backward(inverse, precision)
        ctx.mark_non_differentiable(precision)
        return total, precision

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor | None, None]:
        inverse, precision = ctx.saved_tensors
        of_b = grad * precision if ctx.needs_input_grad[1] else None
        return inverse * (0.5 * grad).unsqueeze(-1), of_b, None
