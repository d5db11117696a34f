"""Priors on the weights of the experts, stated on the log scale."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyro
import pyro.distributions as dist
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
        all nodes, is then sampled by NUTS and Pyro's guides. The fixed value serves MAP, VI and
        the package's own guide, and is only an initial value otherwise.
    """

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
