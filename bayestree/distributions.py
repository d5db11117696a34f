"""Log-gamma and log-Weibull distributions.

Gamma variables with a small shape underflow: in float32, 42 % of the draws of Gamma(0.01) are 0.
The weights of a truncated gamma process are therefore represented by their logarithms.
"""

import math
from typing import Any

import numpy as np
import torch
from pyro.distributions import TorchDistribution, TransformedDistribution
from torch import Size, Tensor
from torch.distributions import Gamma, constraints, register_kl
from torch.distributions.transforms import PowerTransform
from torch.distributions.utils import broadcast_all

from bayestree._utils.arrays import FloatArray

EULER = 0.5772156649015329


class _Expandable(TorchDistribution):
    """A distribution whose ``arg_constraints`` name tensors of its batch shape."""

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(type(self), _instance)
        for name in self.arg_constraints:
            setattr(new, name, getattr(self, name).expand(batch_shape))
        TorchDistribution.__init__(new, Size(batch_shape), validate_args=False)
        new._validate_args = self._validate_args
        return new


class LogGamma(_Expandable):
    """Distribution of x = log r for r ~ Gamma(concentration, rate).

    The log-density a x - c exp(x) + a log c - log Gamma(a) is bounded for every a > 0: the
    Jacobian cancels the pole of a gamma density with a < 1 at r = 0. ``concentration`` is the
    shape a > 0 and ``rate`` the rate c > 0 of the gamma variable.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(
        self, concentration: Any, rate: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return torch.digamma(self.concentration) - self.rate.log()

    @property
    def variance(self) -> Tensor:
        return torch.polygamma(1, self.concentration)

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:
        # Gamma(a) = Gamma(a + 1) U^(1/a), computed in logarithms to avoid underflow.
        shape = self._extended_shape(Size(sample_shape))
        concentration = self.concentration.expand(shape)
        boosted = torch._standard_gamma(concentration + 1).log()
        exponential = torch.empty_like(boosted).exponential_()
        return boosted - exponential / concentration - self.rate.log()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, c = self.concentration, self.rate
        return a * (value + c.log()) - c * value.exp() - torch.lgamma(a)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - a * torch.digamma(a) + torch.lgamma(a)


class LogWeibull(_Expandable):
    """Distribution of x = log r for r ~ Weibull(concentration, exp(loc)).

    x = loc + log(E) / concentration with E ~ Exponential(1). Its left tail is exponential with
    rate ``concentration``, as in :class:`LogGamma`, and its KL divergence from the latter
    has a closed form. ``concentration`` is the shape k > 0 of the Weibull variable, and ``loc``
    the logarithm of its scale.
    """

    arg_constraints = {"concentration": constraints.positive, "loc": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self, concentration: Any, loc: Any = 0.0, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.loc = broadcast_all(concentration, loc)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc - EULER / self.concentration

    @property
    def variance(self) -> Tensor:
        return (math.pi / self.concentration) ** 2 / 6

    def mean_exp(self) -> Tensor:
        """Return the mean of r = exp(x): exp(loc) Gamma(1 + 1/k)."""
        return (self.loc + torch.lgamma(1 + 1 / self.concentration)).exp()

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:
        shape = self._extended_shape(Size(sample_shape))
        exponential = torch.empty(shape, dtype=self.loc.dtype, device=self.loc.device)
        # In float32, one draw in 2**24 is exactly 0.
        exponential.exponential_().clamp_min_(torch.finfo(self.loc.dtype).tiny)
        return self.loc + exponential.log() / self.concentration

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        standard = self.concentration * (value - self.loc)
        return self.concentration.log() + standard - standard.exp()

    def entropy(self) -> Tensor:
        return 1 + EULER - self.concentration.log()


class Constant(TorchDistribution):
    """The improper density 1 on the real line.

    It cannot be sampled; ``sample`` returns standard normal values, because Pyro's guides and
    kernels need an initial value of the right shape.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real

    def __init__(
        self, like: Tensor, batch_shape: Any = torch.Size(), validate_args: bool | None = None
    ) -> None:
        self.like = like
        super().__init__(Size(batch_shape), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Constant":
        return Constant(self.like, batch_shape)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        shape = self._extended_shape(Size(sample_shape))
        return torch.randn(shape, dtype=self.like.dtype, device=self.like.device)

    def log_prob(self, value: Tensor) -> Tensor:
        return torch.zeros_like(value)


class _InverseRoot(PowerTransform):
    """x^(-1/2), without ``torch.broadcast_shapes``, which imports sympy and so takes a second."""

    def __init__(self) -> None:
        super().__init__(torch.tensor(-0.5))

    def forward_shape(self, shape: Any) -> Any:
        return shape

    inverse_shape = forward_shape


def inverse_gamma_scale(concentration: Any, rate: Any) -> TransformedDistribution:
    """Return the law of a standard deviation whose square is InverseGamma(concentration, rate)."""
    return TransformedDistribution(Gamma(concentration, rate), [_InverseRoot()])


def draw_log_gamma(
    shape: float, rate: float, rng: np.random.Generator, size: tuple[int, ...] = ()
) -> FloatArray:
    """Draw from :class:`LogGamma` by NumPy, which cannot underflow either."""
    boosted = np.log(rng.standard_gamma(shape + 1, size))
    return boosted - rng.standard_exponential(size) / shape - math.log(rate)


@register_kl(LogGamma, LogGamma)
def _kl_log_gamma(p: LogGamma, q: LogGamma) -> Tensor:
    return torch.distributions.kl_divergence(
        Gamma(p.concentration, p.rate), Gamma(q.concentration, q.rate)
    )


@register_kl(LogWeibull, LogGamma)
def _kl_log_weibull_log_gamma(p: LogWeibull, q: LogGamma) -> Tensor:
    # E_p log q = a (E x + log c) - c E exp(x) - log Gamma(a)
    expected = (
        q.concentration * (p.mean + q.rate.log())
        - q.rate * p.mean_exp()
        - torch.lgamma(q.concentration)
    )
    return -p.entropy() - expected
