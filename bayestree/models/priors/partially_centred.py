"""Factors of the scales of an ``InverseGammaScale`` that the coefficients follow.

With lambda = s^2 tau / sigma^2, tau = ``shrinkage`` and s = ``coefficient_scale`` (1 for the
intercept), the prior is tau ~ Gamma(e_0, f_0), lambda ~ Gamma(a, 1), independently, and
beta ~ N(0, sigma^2). The factors are log-Weibull in log tau and log lambda, whose divergences from
the prior are closed, and

    beta = exp(t) b,   t = rho (log sigma - h),   b normal,

with h the log sigma of the start and rho between 0 (centred: beta does not depend on sigma) and 1
(non-centred: beta / sigma does not). The divergence of beta from N(0, sigma^2), given sigma, is

    sum over j of  (E beta^2 / sigma^2 - 1) / 2 - (log sd(b) + t - log sigma),

so that a coefficient about which the rows say nothing costs almost nothing: its factors return to
the prior, sigma with it. Factors that are independent of sigma pay for every such coefficient
(docs/concepts/variational.md, "The cost of idle coefficients").
"""

import math
from dataclasses import replace

import pyro
import torch
from pyro.distributions import TransformedDistribution
from scipy.special import digamma
from torch import Tensor, nn
from torch.distributions import kl_divergence
from torch.distributions.transforms import AffineTransform, ExpTransform

from bayestree.distributions import EULER, LogGamma, LogWeibull, nearest_weibull
from bayestree.models.priors.base import (
    LOG_2PI,
    DrawnScales,
    HyperPriors,
    Moments,
    ScaleFactors,
    Sites,
)
from bayestree.models.priors.gamma import GammaSums, most_probable, most_probable_gamma
from bayestree.models.priors.inverse_gamma import InverseGammaScale, ShrinkageFactors

SHARPNESS = {"shrinkage": 5.0, "precision": 1.5}  # initial concentrations of the log-Weibulls
LOGIT_RHO = 2.0  # nearly non-centred: from lower values the bound rises more slowly
RESET_LOGIT_RHO = 5.0  # without rows, the best rho is 1


class PartiallyCentred(ScaleFactors):
    """Log-Weibull factors of shrinkages and scales, started at the conjugate factors ``start``.

    ``moments`` describes the coefficients at the start.
    """

    followed = True
    prior: InverseGammaScale
    reference: Tensor

    def __init__(self, start: ShrinkageFactors, moments: Moments) -> None:
        super().__init__(start.prior, moments.mean[..., 0])
        shrinkage = start.law.mean.log()
        square = (start.scale_rate(moments) / (self.prior.shape + 0.5)).log()
        squares = self.prior.squares(moments.mean).log()
        # keeps the means of tau and of log lambda, so that t is about 0 at the start
        k, own = SHARPNESS["shrinkage"], SHARPNESS["precision"]
        self.loc = nn.Parameter(shrinkage - math.lgamma(1 + 1 / k))
        self.log_concentration = nn.Parameter(torch.full_like(shrinkage, math.log(k)))
        precision = shrinkage.unsqueeze(-1) + squares - square
        self.precision_loc = nn.Parameter(precision + EULER / own)
        self.log_precision_concentration = nn.Parameter(torch.full_like(square, math.log(own)))
        self.logit_rho = nn.Parameter(torch.full_like(square, LOGIT_RHO))
        self.register_buffer("reference", self._at_means().log_scale)

    @property
    def law(self) -> LogWeibull:
        """Factor of log tau, shape (V, K)."""
        return LogWeibull(self.log_concentration.exp(), self.loc, validate_args=False)

    @property
    def precision_law(self) -> LogWeibull:
        """Factor of log lambda, shape (V, K, d + 1)."""
        concentration = self.log_precision_concentration.exp()
        return LogWeibull(concentration, self.precision_loc, validate_args=False)

    def _scales(self, shrinkage: Tensor, precision: Tensor) -> DrawnScales:
        """Return the scales at log tau (V, K) and log lambda (V, K, d + 1)."""
        square = shrinkage.unsqueeze(-1) + self.prior.squares(precision).log() - precision
        return DrawnScales(shrinkage, 0.5 * square)

    @torch.no_grad()
    def _at_means(self) -> DrawnScales:
        return self._scales(self.law.mean_exp().log(), self.precision_law.mean)

    def _stretch(self, log_scale: Tensor) -> Tensor:
        """Return the t of the coefficients."""
        return self.logit_rho.sigmoid() * (log_scale - self.reference)

    def _follow(self, moments: Moments, scales: DrawnScales) -> Moments:
        factor = self._stretch(scales.log_scale).exp()
        root = None if moments.root is None else moments.root * factor.unsqueeze(-1)
        return Moments(moments.mean * factor, moments.variance * factor.square(), root, scales)

    def drawn(self, moments: Moments) -> Moments:
        scales = self._scales(self.law.rsample(), self.precision_law.rsample())
        return self._follow(moments, scales)

    def given(self, moments: Moments, sites: Sites) -> Moments:
        wide, own = sites["hyperplane_scale"], sites["intercept_scale"].unsqueeze(-1)
        scales = DrawnScales(sites["shrinkage"].log(), torch.cat((wide, own), dim=-1).log())
        return self._follow(moments, scales)

    def expected_log_prior(self, moments: Moments) -> Tensor:
        # t is in the entropy of beta, to which the bound adds the entropy of b only
        assert moments.scales is not None
        log_scale = moments.scales.log_scale
        terms = self._stretch(log_scale) - log_scale - LOG_2PI / 2
        terms = terms - 0.5 * moments.square * (-2 * log_scale).exp()
        prior = self.prior
        law = LogGamma(log_scale.new_full((), prior.shrinkage_shape), prior.shrinkage_rate)
        of_shrinkage = kl_divergence(self.law, law)
        own = LogGamma(log_scale.new_full((), prior.shape), 1.0)
        of_precision = kl_divergence(self.precision_law, own)
        return (terms - of_precision).sum(-1) - of_shrinkage

    def reset(self, experts: Tensor) -> Tensor:
        prior, like = self.prior, self.loc
        shrinkage = nearest_weibull(
            LogGamma(like.new_full((), prior.shrinkage_shape), prior.shrinkage_rate)
        )
        precision = nearest_weibull(LogGamma(like.new_full((), prior.shape), 1.0))
        self.loc[experts] = shrinkage.loc
        self.log_concentration[experts] = shrinkage.concentration.log()
        self.precision_loc[experts] = precision.loc
        self.log_precision_concentration[experts] = precision.concentration.log()
        self.logit_rho[experts] = RESET_LOGIT_RHO
        self.reference[experts] = self._at_means().log_scale[experts]
        return self.reference[experts]

    def learned(self, moments: Moments, hyper_priors: HyperPriors) -> InverseGammaScale:
        log_precision = self.precision_law.projected.mean
        n, log_sum = log_precision.numel(), float(log_precision.sum())
        of_a, of_e, of_f = (hyper_priors.get(name) for name in self.prior.learnable)
        a, *start = self.prior.learned_values.values()
        if of_a is not None:
            a = most_probable(lambda a: log_sum - n * float(digamma(a)), a, of_a)
        sums = GammaSums.of(self.law.projected)
        e, f = most_probable_gamma(sums, (start[0], start[1]), (of_e, of_f))
        return replace(self.prior, shape=a, shrinkage_shape=e, shrinkage_rate=f)

    def state(self, moments: Moments) -> Moments:
        shrinkage = pyro.sample("shrinkage", TransformedDistribution(self.law, [ExpTransform()]))
        # log sigma = (log tau + log s^2 - log lambda) / 2
        top = self._scales(shrinkage.log(), torch.zeros_like(self.precision_loc)).log_scale
        law = self.precision_law
        parts = (slice(None, -1), -1)
        wide, own = (
            TransformedDistribution(
                LogWeibull(law.concentration[..., part], law.loc[..., part]),
                [AffineTransform(top[..., part], -0.5), ExpTransform()],
            )
            for part in parts
        )
        sites = {
            "shrinkage": shrinkage,
            "hyperplane_scale": pyro.sample("hyperplane_scale", wide.to_event(1)),
            "intercept_scale": pyro.sample("intercept_scale", own),
        }
        return self.given(moments, sites)

    def sample(self, moments: Moments) -> dict[str, Tensor]:
        assert moments.scales is not None
        return _sites(moments.scales)

    def log_prob(self, sites: Sites) -> Tensor:
        # the ratio p / q of draws with their scales, which are drawn here instead of integrated
        # out, is that of draws without them if log p(scales | coefficients, shrinkages) is
        # subtracted: lambda ~ Gamma(a + 1/2, 1 + beta^2 / (2 s^2 tau))
        log_shrinkage = sites["shrinkage"].log()
        coefficient = torch.cat((sites["hyperplane"], sites["intercept"].unsqueeze(-1)), dim=-1)
        scale = torch.cat((sites["hyperplane_scale"], sites["intercept_scale"].unsqueeze(-1)), -1)
        unit = self.prior.squares(coefficient) * sites["shrinkage"].unsqueeze(-1)
        precision = unit.log() - 2 * scale.log()
        exact = LogGamma(unit.new_full((), self.prior.shape + 0.5), 1 + coefficient**2 / (2 * unit))
        total = self.precision_law.log_prob(precision).sum() - exact.log_prob(precision).sum()
        return total + (self.law.log_prob(log_shrinkage) - log_shrinkage).sum()

    def point(self) -> dict[str, Tensor]:
        return _sites(self._at_means())


def _sites(scales: DrawnScales) -> dict[str, Tensor]:
    """Return the sites of scales."""
    scale = scales.log_scale.exp()
    return {
        "shrinkage": scales.log_shrinkage.exp(),
        "hyperplane_scale": scale[..., :-1],
        "intercept_scale": scale[..., -1],
    }
