"""Leaves of survival times, some of which are right-censored: exponential and Weibull."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyro.distributions as dist
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.models.leaves.base import most_likely
from bayestree.models.leaves.rates import RANGE, SHAPES, RateLeaf, Terms, marginal
from bayestree.models.priors import check_positive
from bayestree.models.sites import Sites

POWERS = np.geomspace(0.25, 8.0, 16)  # at which sums of powers of times are kept
HAZARD = 53.0  # cumulative hazard that 1e-23 of the rows survive


class _Censored(dist.Weibull):
    """Weibull times, of which those without an event are survived."""

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
    those of events.

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
        if not event.any():
            raise ValueError("event is false in all rows; some row must have an observed event.")

    def informed(self, y: Tensor, weights: Tensor) -> Self:
        times = self.target(y).double()
        heavy = weights.double()
        unit = float(heavy @ times / heavy.sum())
        found = RateLeaf.informed(replace(self, unit=unit), y, weights)
        if not self.learned:
            return found
        return found.calibrate(found.statistics(y, weights).double().sum(0, keepdim=True))

    def exposure(self, time: Any) -> Any:
        """h(t), the cumulative hazard at a rate of 1."""
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
        """The prior and power of highest marginal likelihood, of which an exponential has none.

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
        pooled = float(events.sum() / (self.unit * powers[:, _nearest(1.0)].sum()))

        def parts(free: FloatArray) -> tuple[float, float, float, FloatArray]:
            shape, mean, power = np.exp(free)
            return shape, shape / mean, power, self.unit * np.exp(of_power(free[2]))

        def loss(free: FloatArray) -> float:
            """-log p(times of all leaves), up to a constant, of log shape, log mean, log power."""
            shape, rate, power, exposure = parts(free)
            slopes = events.sum() * np.log(power) + (power - 1) * log_times
            return -marginal(shape, rate, events, exposure) - float(slopes)

        limits = [SHAPES, (pooled / RANGE, pooled * RANGE), (POWERS[0], POWERS[-1])]
        free = most_likely(loss, [1.0, pooled, self.power], limits)
        shape, rate, power, _ = parts(free)
        return replace(self, shape=float(shape), rate=float(rate), power=float(power))

    def distribution(self, sites: Sites) -> dist.Weibull:
        return dist.Weibull(self._scale(sites), torch.full_like(sites["leaf_rate"], self.power))

    def _scale(self, sites: Sites) -> Tensor:
        """Time at which the cumulative hazard is 1."""
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

    def reach(
        self, sites: Sites, X: AnyArray, known: FloatArray | None = None
    ) -> tuple[float, float]:
        slowest = float(sites["leaf_rate"].min()) * self.unit
        return 0.0, self.unit * (HAZARD / slowest) ** (1 / self.power)

    def moments(self, draws: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """The rates as predictions; a variance of times has no meaning beside them."""
        return {"leaf_mean": draws["leaf_rate"]}


def _nearest(power: float) -> int:
    return int(np.abs(POWERS - power).argmin())
