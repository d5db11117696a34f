"""Priors on the weights of the experts, stated on the log scale, and how they are learned.

Empirical Bayes: the most probable hyperparameters given the posterior of the parameters. Each
hyperparameter h has a gamma hyper-prior with shape s and rate r, which has the density
s log h - r h in log h, up to a constant. The *weak* one, s = 1 and r = 1 / h_0, has its mode at the
value h_0 from which learning starts, and vanishes at both ends: without it, rows that do not
determine a rate or a shape would leave it undefined, or move it to 0 or infinity. It weighs as much
as one variable: s adds to n a in n a log c - c sum r, the log-likelihood of the rate c of n gamma
variables, and to n in n log a + a sum log(c r), about the log-likelihood of a small shape a. 95 %
of its mass lie within [0.03 h_0, 3.7 h_0].
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyro
import pyro.distributions as dist
from scipy.optimize import brentq
from scipy.special import digamma, gammaln
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree.distributions import Constant, LogGamma, draw_log_gamma
from bayestree.models.priors.base import (
    SITES,
    FreeSites,
    HyperPriors,
    Lengths,
    Plates,
    Site,
    Sites,
    WeightPrior,
    check_positive,
)

Pair = tuple[float, float] | None  # shape and rate of a hyper-prior, if there is one

REACH = 30.0  # natural logarithms that one update may change a hyperparameter by


@dataclass(frozen=True)
class GammaProcess(WeightPrior):
    """Gamma process truncated at K atoms: r_k ~ Gamma(concentration / K, rate) (CPT, sec. 3.2).

    It is stated on the log scale, where the density is bounded.

    Parameters
    ----------
    concentration : float
        gamma_0: the prior mean of the summed weight is ``concentration / rate``.
    rate : float
        c_0.
    concentration_prior, rate_prior : (float, float), optional
        Shape and rate of a gamma hyper-prior. The site ``concentration`` (``rate``), shared by
        all nodes, is then sampled by NUTS and Pyro's guides, and learned by the package's own
        guide. The fixed value serves MAP, and is only an initial value otherwise.
    """

    learnable: ClassVar[tuple[str, ...]] = ("concentration", "rate")

    concentration: float = 1.0
    rate: float = 1.0
    concentration_prior: tuple[float, float] | None = None
    rate_prior: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_positive(concentration=self.concentration, rate=self.rate)
        for name in ("concentration_prior", "rate_prior"):
            pair = getattr(self, name)
            if pair is not None:
                check_positive(**{f"{name}[{i}]": value for i, value in enumerate(pair)})

    @property
    def hyper_priors(self) -> HyperPriors:
        pairs = {"concentration": self.concentration_prior, "rate": self.rate_prior}
        return {site: pair for site, pair in pairs.items() if pair is not None}

    @property
    def sites(self) -> Mapping[str, Site]:
        return {name: SITES[name] for name in self.hyper_priors}

    def fixed(self) -> Self:
        return replace(self, concentration_prior=None, rate_prior=None)

    def learned(self, log_weight: LogGamma, hyper_priors: HyperPriors) -> Self:
        start = self.concentration, self.rate
        hyper = hyper_priors.get("concentration"), hyper_priors.get("rate")
        parts = log_weight.batch_shape[-1]
        found = most_probable_gamma(GammaSums.of(log_weight), start, hyper, parts)
        return replace(self, concentration=found[0], rate=found[1])

    def law(self, n_experts: int, like: Tensor, sites: Sites | None = None) -> LogGamma:
        sites = sites or {}
        concentration = sites.get("concentration", like.new_full((), self.concentration))
        rate = sites.get("rate", like.new_full((), self.rate))
        return LogGamma(concentration / n_experts, rate, validate_args=False)

    def state(self, size: Lengths, like: Tensor, plates: Plates) -> Tensor:
        hyper = {
            site: pyro.sample(site, dist.Gamma(like.new_full((), shape), like.new_full((), rate)))
            for site, (shape, rate) in self.hyper_priors.items()
        }
        with plates.node, plates.expert:
            return pyro.sample("log_weight", self.law(size.n_experts, like, hyper))

    def log_prob(self, sites: Sites) -> Tensor:
        value = sites["log_weight"]
        hyper = {site: sites[site] for site in self.hyper_priors}
        total = self.law(value.shape[-1], value, hyper).log_prob(value).sum()
        for site, (shape, rate) in self.hyper_priors.items():
            law = dist.Gamma(value.new_full((), shape), value.new_full((), rate))
            total = total + law.log_prob(sites[site])
        return total

    def _atom(self, free: FreeSites, n_experts: int) -> tuple[float, float]:
        """Return the shape a and rate c of one weight."""
        fixed = {"concentration": self.concentration, "rate": self.rate}
        value = {name: float(np.exp(free[name])) if name in free else fixed[name] for name in fixed}
        return value["concentration"] / n_experts, value["rate"]

    def expert_log_density(self, free: FreeSites, n_experts: int) -> FloatArray:
        x, (a, c) = free["log_weight"], self._atom(free, n_experts)
        return a * x - c * np.exp(x)

    def log_density(self, free: FreeSites, n_experts: int) -> float:
        # of x = log r: a x - c exp(x), with a log c - log Gamma(a) where either is unknown
        x, (a, c) = free["log_weight"], self._atom(free, n_experts)
        total = float(self.expert_log_density(free, n_experts).sum())
        if self.hyper_priors:
            total += np.size(x) * float(a * np.log(c) - gammaln(a))
        for site, (shape, rate) in self.hyper_priors.items():
            total += float(shape * free[site] - rate * np.exp(free[site]))
        return total

    def set_gradient(self, free: FreeSites, into: FreeSites) -> None:
        x, (a, c) = free["log_weight"], self._atom(free, free["log_weight"].shape[-1])
        into["log_weight"][...] = a - c * np.exp(x)
        # along log a and log c
        slopes = {
            "concentration": lambda: a * (x.sum() + x.size * (np.log(c) - digamma(a))),
            "rate": lambda: x.size * a - c * np.exp(x).sum(),
        }
        for site, (shape, rate) in self.hyper_priors.items():
            into[site][...] = slopes[site]() + shape - rate * np.exp(free[site])

    def draw_expert(self, free: FreeSites, expert: Any, rng: np.random.Generator) -> None:
        a, c = self._atom(free, free["log_weight"].shape[-1])
        weight = free["log_weight"]
        weight[expert] = draw_log_gamma(a, c, rng, weight[expert].shape)


class _ImproperWeights(WeightPrior):
    """A penalty on flat log-weights."""

    proper: ClassVar[bool] = False

    def state(self, size: Lengths, like: Tensor, plates: Plates) -> Tensor:
        with plates.node, plates.expert:
            value: Tensor = pyro.sample("log_weight", Constant(like))
        pyro.factor("log_weight_penalty", self.log_prob({"log_weight": value}))
        return value


@dataclass(frozen=True)
class LiteralGammaProcess(_ImproperWeights):
    """The weight penalty of eq. 15 as printed, on r itself and with a floor under r.

    -(gamma_0/K - 1) log r + c_0 r is unbounded below as r -> 0 for gamma_0 < K; below ``floor``
    it is held constant. For MAP only: without the floor it removes every expert.
    """

    concentration: float = 1.0
    rate: float = 1.0
    floor: float = 1e-6

    def __post_init__(self) -> None:
        check_positive(concentration=self.concentration, rate=self.rate, floor=self.floor)

    def log_prob(self, sites: Sites) -> Tensor:
        value = sites["log_weight"]
        shape = self.concentration / value.shape[-1]
        floored = value.clamp_min(math.log(self.floor))
        return ((shape - 1) * floored - self.rate * value.exp()).sum()


@dataclass(frozen=True)
class FlatWeights(_ImproperWeights):
    """An improper constant density on the log-weights of the experts."""

    def log_prob(self, sites: Sites) -> Tensor:
        return sites["log_weight"].new_zeros(())


class GammaSums(NamedTuple):
    """Number of gamma variables r, and sums of their posterior means of log r and r."""

    n: int
    log: float
    total: float

    @classmethod
    def of(cls, log_r: LogGamma) -> "GammaSums":
        """Sum the means of variables with such posteriors."""
        mean = log_r.concentration / log_r.rate
        return cls(mean.numel(), float(log_r.mean.sum()), float(mean.sum()))


def most_probable_gamma(
    sums: GammaSums, start: tuple[float, float], hyper: tuple[Pair, Pair], parts: int = 1
) -> tuple[float, float]:
    """Find hyperparameters g and c of many variables r ~ Gamma(g / ``parts``, c).

    ``hyper`` has the hyper-priors of g and c; where one is None, its hyperparameter stays as in
    ``start``. With a = g / parts, the objective is

        n (a log c - log Gamma(a)) + a sum E log r - c sum E r + the log hyper-priors.

    It is concave in log c, and with the best c for each a, its slope in a decreases.
    """
    (g, c), (of_g, of_c), (n, log_sum, total) = start, hyper, sums

    def rate(g: float) -> float:
        return c if of_c is None else (of_c[0] + n * g / parts) / (of_c[1] + total)

    def slope(g: float) -> float:
        return (n * (math.log(rate(g)) - digamma(g / parts)) + log_sum) / parts

    if of_g is not None:
        g = most_probable(slope, g, of_g)
    return g, rate(g)


def most_probable(
    slope: Callable[[float], float], start: float, hyper: tuple[float, float]
) -> float:
    """Find the h > 0 where log likelihood, of decreasing ``slope``, and log hyper-prior peak."""
    shape, rate = hyper

    def along_log(log_h: float) -> float:
        h = math.exp(log_h)
        return h * (slope(h) - rate) + shape

    middle = math.log(start)
    return math.exp(brentq(along_log, middle - REACH, middle + REACH))
