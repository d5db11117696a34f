"""Leaves: what a leaf says of y, its prior, and its estimate from soft counts."""

import math
from dataclasses import dataclass, replace
from typing import Protocol, Self

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import kl_divergence

from bayestree.distributions import inverse_gamma_scale
from bayestree.models.priors import check_positive
from bayestree.models.sites import Sites

LEAST_VARIANCE = 1e-6  # of a leaf; y that its leaves explain wholly has no finite density


class LeafPosterior(Protocol):
    """Conjugate posterior of all leaves."""

    def expected_log_density(self, y: Tensor) -> Tensor:
        """E log p(y_n | leaf), shape (n, L)."""

    def kl(self) -> Tensor:
        """Divergence from the prior, a scalar."""

    def state(self) -> None:
        """Sample the sites in Pyro."""

    def sample(self) -> dict[str, Tensor]:
        """One draw of the sites."""

    def log_prob(self, sites: Sites) -> Tensor:
        """Log-density of the sites, a scalar."""

    def mean(self) -> dict[str, Tensor]:
        """Posterior means of the sites."""


class Leaf(Protocol):
    """A family of leaf distributions with a conjugate prior."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites of the leaves."""

    def state(self, n_leaves: int, like: Tensor) -> dict[str, Tensor]:
        """Sample the sites of the leaves and return them by name."""

    def log_prob(self, sites: Sites) -> Tensor:
        """Log prior density of the sites, a scalar."""

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        """log p(y_n | leaf), shape (n, L)."""

    def own_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        """log p(y | leaf), shape (V, S, m), of values y (V, m) at S leaves of their own node.

        The sites are of shape (V, S, ...).
        """

    def observe(self, sites: Sites, log_prob: Tensor) -> dist.TorchDistribution:
        """Law of y given the log-probabilities of the leaves, shape (n, L)."""

    def draw(self, sites: Sites, leaf: Tensor) -> Tensor:
        """One y for each row, given the numbers (n,) of their leaves."""

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        """Sufficient statistics of each row, shape (n, c)."""

    def estimate(self, sums: Tensor) -> dict[str, Tensor]:
        """Sites given sums (L, c) of the statistics over the leaves (CPT, eq. 12, 17)."""

    def posterior(self, sums: Tensor) -> "LeafPosterior":
        """Conjugate posterior of the leaves given such sums."""

    def calibrate(self, sums: Tensor) -> Self:
        """The family whose prior expects leaves of such sums (empirical Bayes)."""


@dataclass(frozen=True)
class Categorical:
    """Class probabilities with a symmetric Dirichlet prior; y holds class numbers.

    Parameters
    ----------
    n_classes : int
    concentration : float
        Pseudo-rows that each leaf starts with, spread evenly over the classes: the Dirichlet has
        ``concentration / n_classes`` for each (Perks' prior at 1).
    """

    n_classes: int
    concentration: float = 1.0

    def __post_init__(self) -> None:
        if self.n_classes < 2:
            raise ValueError(f"n_classes must be 2 or more, got {self.n_classes}.")
        check_positive(concentration=self.concentration)

    @property
    def pseudo_count(self) -> float:
        """Of each class in each leaf."""
        return self.concentration / self.n_classes

    @property
    def sites(self) -> tuple[str, ...]:
        return ("leaf_probs",)

    def law(self, like: Tensor) -> dist.Dirichlet:
        """Prior of one leaf."""
        return dist.Dirichlet(like.new_full((self.n_classes,), self.pseudo_count))

    def state(self, n_leaves: int, like: Tensor) -> dict[str, Tensor]:
        with pyro.plate("leaf", n_leaves, dim=-1):
            return {"leaf_probs": pyro.sample("leaf_probs", self.law(like))}

    def log_prob(self, sites: Sites) -> Tensor:
        probs = sites["leaf_probs"]
        return self.law(probs).log_prob(probs).sum()

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        return sites["leaf_probs"].log().T[y]

    def own_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        log_probs = sites["leaf_probs"].log()
        return log_probs.gather(-1, y.unsqueeze(1).expand(-1, log_probs.shape[1], -1))

    def observe(self, sites: Sites, log_prob: Tensor) -> dist.TorchDistribution:
        joint = log_prob.unsqueeze(-1) + sites["leaf_probs"].log()
        return dist.Categorical(logits=joint.logsumexp(-2))

    def draw(self, sites: Sites, leaf: Tensor) -> Tensor:
        return dist.Categorical(logits=sites["leaf_probs"].log()[leaf]).sample()

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        onehot = torch.nn.functional.one_hot(y, self.n_classes).to(weights.dtype)
        return onehot * weights.unsqueeze(-1)

    def estimate(self, sums: Tensor) -> dict[str, Tensor]:
        counts = sums + self.pseudo_count
        return {"leaf_probs": counts / counts.sum(-1, keepdim=True)}

    def posterior(self, sums: Tensor) -> "DirichletPosterior":
        return DirichletPosterior(self, sums + self.pseudo_count)

    def calibrate(self, sums: Tensor) -> Self:
        return self


@dataclass(frozen=True)
class Gaussian:
    """Normal leaves with conjugate priors; meant for y of mean 0 and variance 1.

    leaf_scale^2 ~ InverseGamma(shape, rate), leaf_mean ~ Normal(mean, leaf_scale^2 / strength).

    Parameters
    ----------
    mean, strength : float
        Prior mean of a leaf, and the pseudo-rows it is worth.
    shape, rate : float
        Of the inverse-gamma prior of a leaf's variance.
    """

    mean: float = 0.0
    strength: float = 0.1
    shape: float = 2.0
    rate: float = 0.2

    def __post_init__(self) -> None:
        check_positive(strength=self.strength, shape=self.shape, rate=self.rate)

    @property
    def sites(self) -> tuple[str, ...]:
        return ("leaf_scale", "leaf_mean")

    def state(self, n_leaves: int, like: Tensor) -> dict[str, Tensor]:
        with pyro.plate("leaf", n_leaves, dim=-1):
            scale = pyro.sample("leaf_scale", self._scale_law(like))
            mean = pyro.sample("leaf_mean", self._mean_law(scale))
        return {"leaf_scale": scale, "leaf_mean": mean}

    def log_prob(self, sites: Sites) -> Tensor:
        scale, mean = sites["leaf_scale"], sites["leaf_mean"]
        total = self._scale_law(scale).log_prob(scale) + self._mean_law(scale).log_prob(mean)
        return total.sum()

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        return dist.Normal(sites["leaf_mean"], sites["leaf_scale"]).log_prob(y.unsqueeze(-1))

    def own_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        mean, scale = (sites[name].unsqueeze(-1) for name in ("leaf_mean", "leaf_scale"))
        return dist.Normal(mean, scale).log_prob(y.unsqueeze(1))

    def observe(self, sites: Sites, log_prob: Tensor) -> dist.TorchDistribution:
        mean, scale = (sites[name].expand(log_prob.shape) for name in ("leaf_mean", "leaf_scale"))
        return dist.MixtureSameFamily(dist.Categorical(logits=log_prob), dist.Normal(mean, scale))

    def draw(self, sites: Sites, leaf: Tensor) -> Tensor:
        return dist.Normal(sites["leaf_mean"][leaf], sites["leaf_scale"][leaf]).sample()

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        return torch.stack((weights, weights * y, weights * y**2), dim=-1)

    def estimate(self, sums: Tensor) -> dict[str, Tensor]:
        return self.posterior(sums).mean()

    def posterior(self, sums: Tensor) -> "NormalInverseGammaPosterior":
        mass, first, second = sums.unbind(-1)
        strength = mass + self.strength
        loc = (first + self.strength * self.mean) / strength
        spread = second + self.strength * self.mean**2 - strength * loc**2
        # Rounding can leave the spread of equal values just below zero.
        rate = self.rate + spread.clamp_min(0.0) / 2
        return NormalInverseGammaPosterior(self, loc, strength, self.shape + mass / 2, rate)

    def calibrate(self, sums: Tensor) -> Self:
        """The same strength of belief in leaf scales, about the pooled one of the sums.

        The prior's mean precision is that of the rows about their leaves' means. With a large
        ``shape`` all leaves are then nearly as wide, which keeps the mixture from chasing the
        density of y at the expense of its mean.
        """
        mass, first, second = sums.unbind(-1)
        # Empty leaves have no mean; rounding can leave a spread just below zero.
        spread = (second - first**2 / mass.clamp_min(torch.finfo(mass.dtype).tiny)).clamp_min(0.0)
        pooled = float(spread.sum() / mass.sum())
        return replace(self, rate=self.shape * max(pooled, LEAST_VARIANCE))

    def _scale_law(self, like: Tensor) -> dist.TorchDistribution:
        return inverse_gamma_scale(like.new_tensor(self.shape), like.new_tensor(self.rate))

    def _mean_law(self, scale: Tensor) -> dist.Normal:
        return dist.Normal(self.mean, scale / self.strength**0.5)


@dataclass(frozen=True)
class DirichletPosterior:
    """Dirichlet of each leaf's class probabilities; ``concentration`` is (L, C)."""

    prior: Categorical
    concentration: Tensor

    @property
    def law(self) -> dist.Dirichlet:
        """All leaves at once."""
        return dist.Dirichlet(self.concentration, validate_args=False)

    def expected_log_density(self, y: Tensor) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return (torch.digamma(self.concentration) - torch.digamma(total)).T[y]

    def kl(self) -> Tensor:
        prior = self.prior.law(self.concentration).expand(self.law.batch_shape)
        return kl_divergence(self.law, prior).sum()

    def state(self) -> None:
        pyro.sample("leaf_probs", self.law)

    def sample(self) -> dict[str, Tensor]:
        # A float32 draw of a small-shape Dirichlet can hold an exact 0, whose log is infinite.
        probs = self.law.sample()
        return {"leaf_probs": probs.clamp_min(torch.finfo(probs.dtype).tiny)}

    def log_prob(self, sites: Sites) -> Tensor:
        return self.law.log_prob(sites["leaf_probs"]).sum()

    def mean(self) -> dict[str, Tensor]:
        return {"leaf_probs": self.law.mean}


@dataclass(frozen=True)
class NormalInverseGammaPosterior:
    """Normal-inverse-gamma of each leaf's mean and variance; all parameters are (L,)."""

    prior: Gaussian
    loc: Tensor
    strength: Tensor
    shape: Tensor
    rate: Tensor

    def expected_log_density(self, y: Tensor) -> Tensor:
        precision = self.shape / self.rate
        log_precision = torch.digamma(self.shape) - self.rate.log()
        square = (y.unsqueeze(-1) - self.loc) ** 2 * precision + 1 / self.strength
        return (log_precision - math.log(2 * math.pi) - square) / 2

    def kl(self) -> Tensor:
        prior, like = self.prior, self.shape
        variances = kl_divergence(
            dist.Gamma(self.shape, self.rate),
            dist.Gamma(like.new_tensor(prior.shape), like.new_tensor(prior.rate)),
        )
        ratio = prior.strength / self.strength
        shift = prior.strength * (self.loc - prior.mean) ** 2 * self.shape / self.rate
        return (variances + (ratio - 1 - ratio.log() + shift) / 2).sum()

    def state(self) -> None:
        scale = pyro.sample("leaf_scale", self._scale_law())
        pyro.sample("leaf_mean", self._mean_law(scale))

    def sample(self) -> dict[str, Tensor]:
        scale = self._scale_law().sample()
        return {"leaf_scale": scale, "leaf_mean": self._mean_law(scale).sample()}

    def log_prob(self, sites: Sites) -> Tensor:
        scale, mean = sites["leaf_scale"], sites["leaf_mean"]
        total = self._scale_law().log_prob(scale) + self._mean_law(scale).log_prob(mean)
        return total.sum()

    def mean(self) -> dict[str, Tensor]:
        return {"leaf_scale": (self.rate / self.shape).sqrt(), "leaf_mean": self.loc}

    def _scale_law(self) -> dist.TorchDistribution:
        return inverse_gamma_scale(self.shape, self.rate)

    def _mean_law(self, scale: Tensor) -> dist.Normal:
        return dist.Normal(self.loc, scale / self.strength.sqrt())
