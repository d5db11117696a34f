"""Leaves in which events occur at a constant rate, with a gamma prior; leaves of counts."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyro.distributions as dist
import torch
from scipy.interpolate import CubicSpline
from scipy.special import gammaincc, gammaln
from torch import Tensor

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.models.criteria import Criterion, Deviance
from bayestree.models.leaves.base import (
    Interval,
    LeafDistribution,
    LeafGradient,
    NumericLeaf,
    most_likely,
)
from bayestree.models.priors.base import FreeSites, Site, Sites, check_positive

SHAPES = (0.1, 20.0)  # of a calibrated prior: rates of leaves vary by a factor of 1.25 or more
RANGE = 1e3  # factor by which a calibrated prior mean may differ from the rate of all rows
POWERS = np.geomspace(0.25, 8.0, 16)  # at which sums of powers of times are kept
HAZARD = 53.0  # cumulative hazard that 1e-23 of the rows survive


class Terms(NamedTuple):
    """log p(y_n | leaf) = events_n log rate - exposure_n rate + constant_n, each (n,)."""

    events: Any
    exposure: Any
    constant: Any

    def log_density(self, rate: Any, log_rate: Any) -> Any:
        """Compute the density (..., n, L) from rates (..., 1, L) and terms (..., n, 1)."""
        return self.events * log_rate - self.exposure * rate + self.constant

    def column(self) -> "Terms":
        """Return the terms of shape (..., n, 1)."""
        return Terms(*(part[..., None] for part in self))


@dataclass(frozen=True)
class GammaRates(LeafDistribution):
    """leaf_rate ~ Gamma(shape, rate) in each leaf; parameters are (L,), or () for a prior."""

    leaf: "RateLeaf"
    shape: Tensor
    rate: Tensor
    prior: "GammaRates | None" = None

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        yield "leaf_rate", dist.Gamma(self.shape, self.rate)

    def expected_log_density(self, y: Tensor) -> Tensor:
        log_rate = torch.digamma(self.shape) - self.rate.log()
        return self.leaf.terms(y).column().log_density(self.shape / self.rate, log_rate)

    def mean(self) -> dict[str, Tensor]:
        return {"leaf_rate": self.shape / self.rate}


class RateGradient(LeafGradient):
    """Logarithms of the rates, shape (1, L)."""

    def __init__(self, leaf: "RateLeaf", y: FloatArray) -> None:
        self.leaf = leaf
        terms = leaf.terms(torch.as_tensor(y, dtype=torch.float64))
        self.terms = Terms(*(part.numpy() for part in terms))

    def read(self, free: FreeSites) -> FloatArray:
        return free["leaf_rate"][None]

    def log_density(self, leaves: FloatArray) -> FloatArray:
        log_rate = leaves[0][:, None]
        return self.terms.log_density(np.exp(log_rate), log_rate)

    def prior(self, leaves: FloatArray) -> float:
        # Gamma(rate | a, b) with the Jacobian of log rate = l is exp(a l - b e^l)
        return float((self.leaf.shape * leaves[0] - self.leaf.rate * np.exp(leaves[0])).sum())

    def gradient(self, leaves: FloatArray, member: FloatArray, into: FreeSites) -> None:
        events = self.leaf.shape + member @ self.terms.events
        exposure = self.leaf.rate + member @ self.terms.exposure
        into["leaf_rate"][...] = events - np.exp(leaves[0]) * exposure


@dataclass(frozen=True)
class RateLeaf(NumericLeaf):
    """Leaves with a rate of events per unit of exposure, and a conjugate prior.

    leaf_rate ~ Gamma(shape, rate). A family defines the ``terms`` of its log-density, which is
    linear in the rate and its logarithm; the first two statistics are exposure and events.
    """

    sites: ClassVar[Mapping[str, Site]] = {"leaf_rate": Site(("leaf",), "positive")}
    gradient: ClassVar[type[LeafGradient] | None] = RateGradient
    quantity: ClassVar[str] = "rate"

    shape: float = 1.0
    rate: float = 1.0

    def __post_init__(self) -> None:
        check_positive(shape=self.shape, rate=self.rate)

    @property
    def criterion(self) -> Criterion:
        return Deviance()

    @abstractmethod
    def terms(self, y: Tensor) -> Terms:
        """Return the terms of log p(y | leaf), for a response (..., n) or (..., n, 2)."""

    def response(self, X: Tensor, y: Tensor) -> Tensor:
        return y if y.ndim == 2 else torch.stack((y, torch.ones_like(y)), dim=1)

    def target(self, y: Tensor) -> Tensor:
        return y if y.ndim == 1 else y[:, 0]

    def informed(self, y: Tensor, weights: Tensor) -> Self:
        """Return a prior worth one event, with the rate of all rows."""
        exposure, events = self.statistics(y, weights).double().sum(0)[:2].tolist()
        return replace(self, shape=1.0, rate=exposure / max(events, 0.5))

    def prior(self, like: Tensor) -> GammaRates:
        return GammaRates(self, like.new_full((), self.shape), like.new_full((), self.rate))

    def posterior(self, sums: Tensor) -> GammaRates:
        exposure, events = sums[..., 0], sums[..., 1]
        return GammaRates(self, self.shape + events, self.rate + exposure, self.prior(sums))

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        terms = self.terms(y)
        return torch.stack((weights * terms.exposure, weights * terms.events), dim=-1)

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        rate = sites["leaf_rate"]
        return self.terms(y).column().log_density(rate, rate.log())

    def node_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        rate = sites["leaf_rate"].unsqueeze(-2)
        return self.terms(y).column().log_density(rate, rate.log()).mT

    def calibrate(self, sums: Tensor) -> Self:
        """Learn the prior: the highest marginal likelihood of a gamma mixture of rates."""
        found = sums[sums[:, 0] > 0].double().cpu().numpy()
        if not len(found):
            return self
        pooled = max(float(found[:, 1].sum()), 0.5) / float(found[:, 0].sum())

        def loss(free: FloatArray) -> float:
            shape, mean = np.exp(free)
            return -marginal(shape, shape / mean, found[:, 1], found[:, 0])

        limits = [SHAPES, (pooled / RANGE, pooled * RANGE)]
        shape, mean = most_likely(loss, [1.0, pooled], limits)
        return replace(self, shape=shape, rate=shape / mean)

    def misfit(self, y: FloatArray, predicted: FloatArray) -> FloatArray:
        rate = torch.as_tensor(predicted)
        return -self.terms(torch.as_tensor(y)).log_density(rate, rate.log()).numpy()

    def expected_y(self, sites: Sites, X: AnyArray | None = None) -> FloatArray:
        """Return the rates, shape (L,): of counts, their mean for an exposure of 1."""
        return sites["leaf_rate"].numpy(force=True)

    def tree_values(self, sums: Tensor) -> dict[str, FloatArray]:
        return {"value": self.estimate(sums)["leaf_rate"].double().numpy()}


def marginal(shape: float, rate: float, events: FloatArray, exposure: FloatArray) -> float:
    """log of the integral of exp(-exposure r) r^events over r ~ Gamma(shape, rate), summed."""
    found = gammaln(shape + events) - gammaln(shape) + shape * np.log(rate)
    return float((found - (shape + events) * np.log(rate + exposure)).sum())


@dataclass(frozen=True)
class Poisson(RateLeaf):
    """Counts: y ~ Poisson(leaf_rate x exposure) in each leaf, leaf_rate ~ Gamma(shape, rate).

    Given the other rows, a count is negative-binomial. A response has the columns y and exposure;
    y alone has an exposure of 1.

    Parameters
    ----------
    shape, rate : float
        Number of prior events of each leaf, and the exposure in which they occur.
    """

    whole: ClassVar[bool] = True
    extra: ClassVar[str | None] = "exposure"
    level_site = "leaf_rate"

    def check(self, y: Tensor) -> None:
        super().check(y)
        counts, exposure = self.response(y[:, None], y).unbind(1)
        wrong = (counts < 0) | (counts != counts.round())
        if wrong.any():
            raise ValueError(
                "y must hold counts, whole numbers of 0 or more, for leaves of the Poisson family, "
                f"got {counts[wrong][0]:g}; use another leaf, such as 'constant'."
            )
        if not (exposure > 0).all():
            raise ValueError(f"exposure must be positive, got {exposure.min():g}.")

    def terms(self, y: Tensor) -> Terms:
        y, exposure = y.unbind(-1)
        return Terms(y, exposure, torch.xlogy(y, exposure) - torch.lgamma(y + 1))

    def known(self, y: Tensor) -> Tensor | None:
        return None if y.ndim == 1 else y[:, 1]

    def distribution(self, sites: Sites) -> dist.Poisson:
        return dist.Poisson(sites["leaf_rate"])

    def observe(
        self, sites: Sites, log_prob: Tensor, X: Tensor | None = None, y: Tensor | None = None
    ) -> dist.TorchDistribution:
        rate = sites["leaf_rate"].expand(log_prob.shape)
        if y is not None:
            rate = rate * self.response(y[:, None], y)[:, 1:]
        return dist.MixtureSameFamily(dist.Categorical(logits=log_prob), dist.Poisson(rate))

    def draw(
        self, sites: Sites, leaf: Tensor, X: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        rate = sites["leaf_rate"][leaf]
        return torch.poisson(rate if known is None else rate * known.to(rate))

    def sd_y(self, sites: Sites) -> FloatArray:
        return np.sqrt(self.expected_y(sites))

    def cdf(self, sites: Sites, y: FloatArray) -> FloatArray:
        count, mean = np.floor(y[:, :1]), y[:, 1:] * self.expected_y(sites)
        return np.where(count < 0, 0.0, gammaincc(np.maximum(count, 0.0) + 1, mean))

    def reach(self, sites: Sites, X: AnyArray, known: FloatArray | None = None) -> Interval:
        # P(y >= m + x) <= exp(-x^2 / (2 m + 2 x / 3)), below 1e-23 for x = 10 sqrt(m) + 40
        mean = float(self.expected_y(sites).max()) * (1.0 if known is None else float(known.max()))
        return -1.0, mean + 10 * mean**0.5 + 40


class _Censored(dist.Weibull):
    """Weibull times; rows without an event survive them."""

    def __init__(self, scale: Tensor, concentration: Tensor, event: Tensor) -> None:
        super().__init__(scale, concentration, validate_args=False)
        self.event = event

    def expand(self, batch_shape: Any, _instance: Any = None) -> "_Censored":
        parts = (self.scale, self.concentration, self.event)
        return _Censored(*(part.expand(batch_shape) for part in parts))

    def log_prob(self, value: Tensor) -> Tensor:
        survived = -((value / self.scale) ** self.concentration)
        return torch.where(self.event > 0, super().log_prob(value), survived)


@dataclass(frozen=True)
class Survival(RateLeaf):
    """Right-censored times with a Weibull distribution in each leaf; exponential for power 1.

    A leaf has the survival function S(t) = exp(-leaf_rate h(t)) with h(t) = unit (t / unit)^power
    and leaf_rate ~ Gamma(shape, rate): its rate is the number of events per unit of time that a row
    at risk has on average up to the time ``unit``. With a power common to all leaves their hazards
    are proportional, and the gamma prior is conjugate (Ibrahim, Chen and Sinha, "Bayesian Survival
    Analysis", 2001, section 2.2). A response has the columns time and event, which is 1 if
    the event was observed at this time and 0 if it had not occurred until then; times alone are
    times of events.

    Parameters
    ----------
    shape, rate : float
        Number of prior events of each leaf, and the time at risk in which they occur.
    power : float
        Power of time: hazards rise above 1, and fall below.
    unit : float
        Time at which the hazards of all powers agree.
    learned : bool
        Whether the power is chosen by empirical Bayes, or is fixed.
    """

    extra: ClassVar[str | None] = "event"

    power: float = 1.0
    unit: float = 1.0
    learned: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(power=self.power, unit=self.unit)

    def check(self, y: Tensor) -> None:
        super().check(y)
        time, event = self.response(y[:, None], y).unbind(1)
        if not (time > 0).all():
            raise ValueError(
                f"y must hold times above 0, got {time.min():g}; for an event at the very start, "
                "give a time shorter than the others."
            )
        if not ((event == 0) | (event == 1)).all():
            raise ValueError(
                "event must be true (or 1) where the event was observed, and false (or 0) where "
                f"the time is censored, got {event[(event != 0) & (event != 1)][0]:g}."
            )

    def informed(self, y: Tensor, weights: Tensor) -> Self:
        if not self.response(y[:, None], y)[:, 1].any():
            raise ValueError("event is false in all rows; some row must have an observed event.")
        times = self.target(y).double()
        heavy = weights.double()
        unit = float(heavy @ times / heavy.sum())
        found = RateLeaf.informed(replace(self, unit=unit), y, weights)
        if not self.learned:
            return found
        return found.calibrate(found.statistics(y, weights).double().sum(0, keepdim=True))

    def exposure(self, time: Any) -> Any:
        """Return h(t), the cumulative hazard at a rate of 1."""
        return self.unit * (time / self.unit) ** self.power

    def terms(self, y: Tensor) -> Terms:
        time, event = y.unbind(-1)
        log_slope = np.log(self.power) + (self.power - 1) * (time / self.unit).log()
        return Terms(event, self.exposure(time), event * log_slope)

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        found = super().statistics(y, weights)
        if not self.learned:
            return found
        time, event = y.unbind(-1)
        log_time = (time / self.unit).log()
        powers = torch.as_tensor(POWERS).to(weights)
        sums = (log_time.unsqueeze(-1) * powers).exp() * weights.unsqueeze(-1)
        return torch.cat((found, (weights * event * log_time).unsqueeze(-1), sums), dim=-1)

    def calibrate(self, sums: Tensor) -> Self:
        """Learn prior and power: the highest marginal likelihood of the leaves.

        Sums of powers of times between those that are kept are interpolated: their logarithm is
        convex in the power, and smooth.
        """
        if not self.learned:
            return super().calibrate(sums)
        found = sums[sums[:, 0] > 0].double().cpu().numpy()
        events, log_times, powers = found[:, 1], found[:, 2].sum(), found[:, 3:]
        if not events.any():
            return self
        of_power = CubicSpline(np.log(POWERS), np.log(powers), axis=0 if powers.ndim == 1 else 1)
        pooled = float(events.sum() / (self.unit * powers[:, np.abs(POWERS - 1.0).argmin()].sum()))

        def loss(free: FloatArray) -> float:
            shape, mean, power = np.exp(free)
            exposure = self.unit * np.exp(of_power(free[2]))
            slopes = events.sum() * np.log(power) + (power - 1) * log_times
            return -marginal(shape, shape / mean, events, exposure) - float(slopes)

        limits = [SHAPES, (pooled / RANGE, pooled * RANGE), (POWERS[0], POWERS[-1])]
        shape, mean, power = most_likely(loss, [1.0, pooled, self.power], limits)
        return replace(self, shape=shape, rate=shape / mean, power=power)

    def distribution(self, sites: Sites) -> dist.Weibull:
        return dist.Weibull(self._scale(sites), torch.full_like(sites["leaf_rate"], self.power))

    def _scale(self, sites: Sites) -> Tensor:
        """Return the time at which the cumulative hazard is 1."""
        return self.unit * (sites["leaf_rate"] * self.unit) ** (-1 / self.power)

    def observe(
        self, sites: Sites, log_prob: Tensor, X: Tensor | None = None, y: Tensor | None = None
    ) -> dist.TorchDistribution:
        if y is None:
            return super().observe(sites, log_prob)
        scale = self._scale(sites).expand(log_prob.shape)
        event = self.response(y[:, None], y)[:, 1:].expand(log_prob.shape)
        leaves = _Censored(scale, torch.full_like(scale, self.power), event)
        return dist.MixtureSameFamily(dist.Categorical(logits=log_prob), leaves)

    def cdf(self, sites: Sites, y: FloatArray) -> FloatArray:
        time = np.maximum(y[:, :1], 0.0)
        return -np.expm1(-self.exposure(time) * sites["leaf_rate"].numpy())

    def reach(self, sites: Sites, X: AnyArray, known: FloatArray | None = None) -> Interval:
        slowest = float(sites["leaf_rate"].min()) * self.unit
        return 0.0, self.unit * (HAZARD / slowest) ** (1 / self.power)

    def moments(self, draws: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Return the rates as predictions; a variance of times has no meaning next to them."""
        return {"leaf_mean": draws["leaf_rate"]}
