"""Variational factors of what a prior states beside the hyperplanes: shrinkages and scales.

Given normal factors of the coefficients they are conjugate, or there are none.
"""

import math
from typing import Any, Protocol

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributions import kl_divergence

from bayestree.distributions import inverse_gamma_scale
from bayestree.models.moments import ExpectedPrior, Moments
from bayestree.models.priors import HyperplanePrior, InverseGammaScale
from bayestree.models.sites import Sites

LOG_2PI = math.log(2 * math.pi)


class ScaleFactors(Protocol):
    """What a guide asks of the prior on hyperplanes."""

    def expected_log_prior(self, moments: Moments) -> Tensor:
        """E log-density of coefficients and own sites, plus the latters' entropies, a scalar."""

    def refresh(self, moments: Moments) -> None:
        """Bring the own factors nearer their optimum given the coefficients."""

    def state(self, moments: Moments) -> None:
        """State the own Pyro sites, inside the plates of nodes and experts."""

    def sample(self) -> dict[str, Tensor]:
        """One draw of the own sites but the scales, which are integrated out."""

    def log_prob(self, sites: Sites) -> Tensor:
        """Log-density of such a draw, a scalar."""

    def point(self) -> dict[str, Tensor]:
        """Means of the own sites."""


class NoScales(nn.Module):
    """A prior that has no sites but hyperplanes and intercepts."""

    def __init__(self, prior: ExpectedPrior, intercept: Tensor) -> None:
        super().__init__()
        self.prior = prior
        self.zero = intercept.new_zeros(())

    def expected_log_prior(self, moments: Moments) -> Tensor:
        return self.prior.expected_log_prob(moments)

    def refresh(self, moments: Moments) -> None:
        pass

    def state(self, moments: Moments) -> None:
        pass

    def sample(self) -> dict[str, Tensor]:
        return {}

    def log_prob(self, sites: Sites) -> Tensor:
        return self.zero

    def point(self) -> dict[str, Tensor]:
        return {}


class ConjugateScales(nn.Module):
    """Shrinkages and scales of ``InverseGammaScale``.

    Parameters
    ----------
    prior : InverseGammaScale
    intercept : Tensor, shape (V, K)
        Of the shape of the shrinkages.
    width : int
        d + 1.
    """

    rate: Tensor

    def __init__(self, prior: InverseGammaScale, intercept: Tensor, width: int) -> None:
        super().__init__()
        self.prior = prior
        self.concentration = prior.shrinkage_shape + width * prior.shape
        self.register_buffer("rate", torch.ones_like(intercept))

    @property
    def law(self) -> dist.Gamma:
        """Factor of ``shrinkage``, shape (V, K)."""
        shape = self.rate.new_tensor(self.concentration)
        return dist.Gamma(shape, self.rate, validate_args=False)

    def scale_rate(self, moments: Moments) -> Tensor:
        """Rates of the inverse-gamma factors of the squared scales, shape (V, K, d + 1)."""
        second_moment = moments.mean.square() + moments.variance
        return self.law.mean.unsqueeze(-1) + second_moment / 2

    def refresh(self, moments: Moments) -> None:
        self._update(self.scale_rate(moments).reciprocal().sum(-1))

    def _update(self, expected_precision: Tensor) -> None:
        prior = self.prior
        self.rate.copy_(prior.shrinkage_rate + (prior.shape + 0.5) * expected_precision)

    def expected_log_prior(self, moments: Moments) -> Tensor:
        a, width = self.prior.shape, moments.mean.shape[-1]
        shrinkage = self.law
        log_b = torch.digamma(shrinkage.concentration) - shrinkage.rate.log()
        constant = math.lgamma(a + 0.5) - math.lgamma(a) - LOG_2PI / 2
        scales, precision = _LogScaleRate.apply(moments.mean, moments.variance, shrinkage.mean)
        own = kl_divergence(shrinkage, self.prior.shrinkage_law(log_b)).sum()
        value: Tensor = width * (a * log_b + constant).sum() - (a + 0.5) * scales.sum() - own
        if self.training:
            # One coordinate step, at no further pass over the coefficients.
            self._update(precision)
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
        total: Tensor = self.law.log_prob(sites["shrinkage"]).sum()
        return total

    def point(self) -> dict[str, Tensor]:
        return {"shrinkage": self.law.mean}


def scale_factors(
    prior: HyperplanePrior, intercept: Tensor, width: int
) -> NoScales | ConjugateScales | None:
    """The factors of a prior on hyperplanes of d + 1 = ``width`` coefficients; None if not known.

    A prior of a person's own is known if it has ``expected_log_prob``.
    """
    if isinstance(prior, InverseGammaScale):
        return ConjugateScales(prior, intercept, width)
    return NoScales(prior, intercept) if isinstance(prior, ExpectedPrior) else None


class _LogScaleRate(torch.autograd.Function):
    """Sums over coefficients of log(rate) and 1 / rate, rate = b + (mean^2 + variance) / 2."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        rate = torch.addcmul(variance, mean, mean).mul_(0.5).add_(b.unsqueeze(-1))
        total = rate.log().sum(-1)
        inverse = rate.reciprocal_()
        precision = inverse.sum(-1)
        ctx.save_for_backward(mean, inverse)
        ctx.mark_non_differentiable(precision)
        return total, precision

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        # b has no gradient: it stands at its optimum, where the bound is flat in it.
        mean, inverse = ctx.saved_tensors
        slope = inverse * grad.unsqueeze(-1)
        return mean * slope, slope.mul_(0.5), None
