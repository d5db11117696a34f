"""Priors, each of which states its Pyro sites and says the log-density of given values.

``state`` is called inside the Pyro model; ``log_prob`` is the same density as a pure tensor
function of the sites, for inference that goes around Pyro. Tests hold the two equal.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bayestree.distributions import Constant, LogGamma, inverse_gamma_scale
from bayestree.models.moments import Moments
from bayestree.models.sites import Sites, Size


class Plates(NamedTuple):
    """The plates of the experts' sites, entered by both priors."""

    node: pyro.plate
    expert: pyro.plate

    @classmethod
    def of(cls, size: Size) -> "Plates":
        """The plates of a tree."""
        return cls(
            pyro.plate("node", size.n_nodes, dim=-2), pyro.plate("expert", size.n_experts, dim=-1)
        )


class WeightPrior(Protocol):
    """What is believed of the weights of the experts."""

    @property
    def proper(self) -> bool:
        """Whether it is a distribution, from which values can be drawn."""

    def state(self, size: Size, like: Tensor, plates: Plates) -> Tensor:
        """Sample the site ``log_weight`` [node, expert], of dtype and device of ``like``."""

    def log_prob(self, sites: Sites) -> Tensor:
        """Log-density of the sites, a scalar."""


class HyperplanePrior(Protocol):
    """What is believed of the hyperplanes and intercepts of the experts."""

    @property
    def proper(self) -> bool:
        """Whether it is a distribution, from which values can be drawn."""

    @property
    def differentiable(self) -> bool:
        """Whether its log-density has a gradient almost everywhere, which fits can follow."""

    def state(self, size: Size, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        """Sample the sites ``hyperplane`` and ``intercept`` and return them."""

    def log_prob(self, sites: Sites) -> Tensor:
        """Log-density of the sites, a scalar."""


def check_positive(**values: float) -> None:
    """Refuse numbers that are not positive and finite.

    Raises
    ------
    ValueError
        With the name of the first such number.
    """
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive and finite, got {value}.")


@dataclass(frozen=True)
class GammaProcess:
    """Gamma process truncated at K atoms: r_k ~ Gamma(concentration / K, rate) (CPT, sec. 3.2).

    Stated on the log scale, where the density is bounded.

    Parameters
    ----------
    concentration : float
        gamma_0: the prior mean of the summed weight is ``concentration / rate``.
    rate : float
        c_0.
    concentration_prior, rate_prior : (float, float), optional
        Shape and rate of a gamma hyper-prior; the site ``concentration`` (``rate``), shared by
        all nodes, is then sampled and the fixed value is its start only.
    """

    concentration: float = 1.0
    rate: float = 1.0
    concentration_prior: tuple[float, float] | None = None
    rate_prior: tuple[float, float] | None = None
    proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(concentration=self.concentration, rate=self.rate)
        for name in ("concentration_prior", "rate_prior"):
            pair = getattr(self, name)
            if pair is not None:
                check_positive(**{f"{name}[{i}]": value for i, value in enumerate(pair)})

    @property
    def hyper_priors(self) -> dict[str, tuple[float, float]]:
        """Shape and rate of the hyper-priors in force, by site."""
        pairs = {"concentration": self.concentration_prior, "rate": self.rate_prior}
        return {site: pair for site, pair in pairs.items() if pair is not None}

    def law(self, n_experts: int, like: Tensor, sites: Sites | None = None) -> LogGamma:
        """Law of one log-weight, given the hyper-parameters among ``sites``."""
        sites = sites or {}
        concentration = sites.get("concentration", like.new_tensor(self.concentration))
        rate = sites.get("rate", like.new_tensor(self.rate))
        return LogGamma(concentration / n_experts, rate)

    def state(self, size: Size, like: Tensor, plates: Plates) -> Tensor:
        hyper = {
            site: pyro.sample(site, dist.Gamma(like.new_tensor(shape), like.new_tensor(rate)))
            for site, (shape, rate) in self.hyper_priors.items()
        }
        with plates.node, plates.expert:
            value: Tensor = pyro.sample("log_weight", self.law(size.n_experts, like, hyper))
        return value

    def log_prob(self, sites: Sites) -> Tensor:
        value = sites["log_weight"]
        hyper = {site: sites[site] for site in self.hyper_priors}
        total = self.law(value.shape[-1], value, hyper).log_prob(value).sum()
        for site, (shape, rate) in self.hyper_priors.items():
            law = dist.Gamma(value.new_tensor(shape), value.new_tensor(rate))
            total = total + law.log_prob(sites[site])
        return total


@dataclass(frozen=True)
class LiteralGammaProcess:
    """The weight penalty of eq. 15 as printed, on r itself and with a floor under r.

    -(gamma_0/K - 1) log r + c_0 r is unbounded below as r -> 0 for gamma_0 < K; below ``floor``
    it is held constant. For MAP only: taken literally it kills every expert.
    """

    concentration: float = 1.0
    rate: float = 1.0
    floor: float = 1e-6
    proper: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive(concentration=self.concentration, rate=self.rate, floor=self.floor)

    def state(self, size: Size, like: Tensor, plates: Plates) -> Tensor:
        with plates.node, plates.expert:
            value: Tensor = pyro.sample("log_weight", Constant(like))
        pyro.factor("log_weight_penalty", self.log_prob({"log_weight": value}))
        return value

    def log_prob(self, sites: Sites) -> Tensor:
        value = sites["log_weight"]
        shape = self.concentration / value.shape[-1]
        floored = value.clamp_min(math.log(self.floor))  # the floor is the method's own
        return ((shape - 1) * floored - self.rate * value.exp()).sum()


@dataclass(frozen=True)
class InverseGammaScale:
    """Sparse hyperplanes through inverse-gamma scales (CPT, eq. 6).

    b_k ~ Gamma(shrinkage_shape, shrinkage_rate) (site ``shrinkage``), sigma_kj^2 ~
    InverseGamma(shape, b_k), and each of the d coefficients and the intercept of expert k is
    Normal(0, sigma_kj^2). ``explicit`` states the scales as the sites ``hyperplane_scale`` and
    ``intercept_scale``; ``collapsed`` integrates them out: Student-t with 2 ``shape`` degrees of
    freedom and scale sqrt(b_k / shape), the penalty (shape + 1/2) log(1 + beta^2 / 2b) of eq. 15.

    Parameters
    ----------
    shape : float
        a_beta.
    shrinkage_shape, shrinkage_rate : float
        e_0 and f_0, the latter as a rate.
    form : {"collapsed", "explicit"}
    """

    shape: float = 1.0
    shrinkage_shape: float = 1.0
    shrinkage_rate: float = 1.0
    form: Literal["collapsed", "explicit"] = "collapsed"
    proper: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(
            shape=self.shape,
            shrinkage_shape=self.shrinkage_shape,
            shrinkage_rate=self.shrinkage_rate,
        )
        if self.form not in ("collapsed", "explicit"):
            raise ValueError(f"form must be 'collapsed' or 'explicit', got {self.form!r}.")

    def shrinkage_law(self, like: Tensor) -> dist.Gamma:
        """Prior of one shrinkage b."""
        return dist.Gamma(
            like.new_tensor(self.shrinkage_shape), like.new_tensor(self.shrinkage_rate)
        )

    def _coefficient(self, shrinkage: Tensor) -> dist.StudentT:
        return dist.StudentT(2 * self.shape, 0.0, (shrinkage / self.shape).sqrt())

    def state(self, size: Size, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        width = (size.n_features,)
        with plates.node, plates.expert:
            shrinkage = pyro.sample("shrinkage", self.shrinkage_law(like))
            # expanded to the plates so that the wide law below knows its batch shape
            shrinkage = shrinkage.expand(
                torch.broadcast_shapes(shrinkage.shape, (size.n_nodes, size.n_experts))
            )
            wide = shrinkage.unsqueeze(-1).expand(*shrinkage.shape, *width)
            if self.form == "explicit":
                scale = pyro.sample(
                    "hyperplane_scale", inverse_gamma_scale(self.shape, wide).to_event(1)
                )
                offset_scale = pyro.sample(
                    "intercept_scale", inverse_gamma_scale(self.shape, shrinkage)
                )
                coefficient, offset = dist.Normal(0.0, scale), dist.Normal(0.0, offset_scale)
            else:
                coefficient, offset = self._coefficient(wide), self._coefficient(shrinkage)
            hyperplane = pyro.sample("hyperplane", coefficient.to_event(1))
            intercept = pyro.sample("intercept", offset)
        return hyperplane, intercept

    def log_prob(self, sites: Sites) -> Tensor:
        shrinkage = sites["shrinkage"]
        total = self.shrinkage_law(shrinkage).log_prob(shrinkage).sum()
        for site, b in (("hyperplane", shrinkage.unsqueeze(-1)), ("intercept", shrinkage)):
            value = sites[site]
            if self.form == "explicit":
                scale = sites[f"{site}_scale"]
                total = total + inverse_gamma_scale(self.shape, b).log_prob(scale).sum()
                total = total + dist.Normal(0.0, scale).log_prob(value).sum()
            else:
                total = total + self._collapsed_log_prob(value, b).sum()
        return total

    def _collapsed_log_prob(self, value: Tensor, shrinkage: Tensor) -> Tensor:
        """The Student-t density as in eq. 15, in a third of the passes over memory."""
        a = self.shape
        constant = math.lgamma(a + 0.5) - math.lgamma(a) - 0.5 * math.log(2 * math.pi)
        penalty = (a + 0.5) * torch.log1p(value.square() / (2 * shrinkage))
        return constant - 0.5 * shrinkage.log() - penalty


@dataclass(frozen=True)
class Flat:
    """No prior: an improper constant density on hyperplanes and intercepts."""

    proper: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True

    def state(self, size: Size, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        with plates.node, plates.expert:
            law = Constant(like)
            wide = Constant(like, (size.n_nodes, size.n_experts, size.n_features)).to_event(1)
            hyperplane = pyro.sample("hyperplane", wide)
            intercept = pyro.sample("intercept", law)
        return hyperplane, intercept

    def log_prob(self, sites: Sites) -> Tensor:
        return sites["intercept"].new_zeros(())

    def expected_log_prob(self, moments: Moments) -> Tensor:
        """Mean of the log-density under normal factors: nothing."""
        return moments.mean.new_zeros(())


@dataclass(frozen=True)
class FlatWeights:
    """No prior on the log-weights of the experts: an improper constant density."""

    proper: ClassVar[bool] = False

    def state(self, size: Size, like: Tensor, plates: Plates) -> Tensor:
        with plates.node, plates.expert:
            value: Tensor = pyro.sample("log_weight", Constant(like))
        return value

    def log_prob(self, sites: Sites) -> Tensor:
        return sites["log_weight"].new_zeros(())


@dataclass(frozen=True)
class Priors:
    """The priors of a soft tree, on weights and on hyperplanes."""

    weight: WeightPrior = GammaProcess()
    hyperplane: HyperplanePrior = InverseGammaScale()
