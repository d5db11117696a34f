"""Leaves of ordered classes, whose probabilities are shrunk towards those of an ordered probit."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
import pyro.distributions as dist
import torch
from scipy.special import ndtr, ndtri
from scipy.special import softmax as softmax_of
from torch import Tensor
from torch.distributions import constraints

from bayestree._utils.arrays import FloatArray
from bayestree.models.criteria import Criterion
from bayestree.models.leaves.base import LeafGradient, most_likely
from bayestree.models.leaves.categorical import Categorical, CategoricalGradient, ClassShares
from bayestree.models.priors import check_positive
from bayestree.models.sites import Sites

ELSEWHERE = 0.02  # share of rows distributed as in all leaves: no class is impossible in a leaf
GRID_LOCATIONS = np.linspace(
    -3, 3, 49
)  # means and noises among which the criterion looks for the best
GRID_NOISES = np.geomspace(0.1, 1.0, 7)
SETS = 8_192  # sets of rows compared at a time
N_LOCATIONS = 32  # of leaves, at quantiles of their normal distribution
NOISES = (0.1, 0.999)  # limits of a calibrated prior
CONCENTRATIONS = (0.5, 1e4)


def class_probabilities(cuts: tuple[float, ...], location: FloatArray, noise: float) -> FloatArray:
    """P(class) for latent normals of mean ``location`` (G,) and deviation ``noise``, (G, C).

    A share ``ELSEWHERE`` of the rows has a standard normal response instead.
    """
    ends = np.array([-np.inf, *cuts, np.inf])
    away = (ends - location[:, None]) / noise
    # the difference of the smaller pair of tails keeps its digits
    found = np.where(away[:, 1:] < 0, np.diff(ndtr(away)), -np.diff(ndtr(-away)))
    return (1 - ELSEWHERE) * found + ELSEWHERE * np.diff(ndtr(ends))


@dataclass(frozen=True)
class OrderedProbit(Criterion):
    """Log-likelihood of an ordered probit model at the best mean and noise of each set of rows.

    Two parameters describe the classes of a set, whatever their number: a split that only
    separates neighbouring classes by chance gains less than by the entropy. The best pair is looked
    for on a grid, so that the value is a maximum of linear functions of the counts.
    """

    cuts: tuple[float, ...]

    def value(self, sums: Tensor) -> Tensor:
        return self._best(sums)[0]

    def ascent(self, side: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        # the gradient of a maximum of linear functions is that of the largest
        value, slope = self._best(torch.stack((side, whole - side)))
        return value.sum(0), slope[0] - slope[1]

    def _best(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Log-likelihood (...), and log-probabilities of the classes (..., C)."""
        table = torch.as_tensor(_table(self.cuts)).to(sums)
        parts = [(some @ table.T).max(-1) for some in sums.reshape(-1, len(table.T)).split(SETS)]
        value = torch.cat([part.values for part in parts]).view(sums.shape[:-1])
        chosen = torch.cat([part.indices for part in parts])
        return value, table[chosen].view(sums.shape)


@lru_cache
def _table(cuts: tuple[float, ...]) -> FloatArray:
    """Log-probabilities of the classes at each point of the grid, shape (G, C)."""
    return np.log(
        np.concatenate([class_probabilities(cuts, GRID_LOCATIONS, s) for s in GRID_NOISES])
    )


class SimplexMixture(dist.MixtureSameFamily):
    """A mixture whose support Pyro's autoguides know how to transform."""

    support = constraints.simplex


@dataclass(frozen=True)
class DirichletMixture(ClassShares):
    """Mixture of Dirichlet distributions of class probabilities, one for each latent location.

    ``concentration`` is (G, C) for the prior of a leaf and (L, G, C) for posteriors, ``log_weight``
    (G,) or (L, G). ``counts`` (L, C) are the rows that a posterior was updated with.
    """

    concentration: Tensor
    log_weight: Tensor
    counts: Tensor | None = None
    prior: "DirichletMixture | None" = None

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        weights = dist.Categorical(logits=self.log_weight, validate_args=False)  # also no leaf
        parts = dist.Dirichlet(self.concentration, validate_args=False)
        yield "leaf_probs", SimplexMixture(weights, parts, validate_args=False)

    def updated(self, counts: Tensor) -> tuple["DirichletMixture", Tensor]:
        """The posterior given counts (..., C), which is conjugate, and their log evidence (...)."""
        grown = self.concentration + counts.unsqueeze(-2)
        joint = self.log_weight + _log_normaliser(grown) - _log_normaliser(self.concentration)
        evidence = joint.logsumexp(-1)
        weight = joint - evidence.unsqueeze(-1)
        return DirichletMixture(grown, weight, counts, self), evidence

    def expected_log_probs(self) -> Tensor:
        """E log P(class | leaf), shape (..., C)."""
        total = self.concentration.sum(-1, keepdim=True)
        each = torch.digamma(self.concentration) - torch.digamma(total)
        return (self.log_weight.exp().unsqueeze(-1) * each).sum(-2)

    def expected_log_density(self, y: Tensor) -> Tensor:
        return self.expected_log_probs().T[y]

    def kl(self) -> Tensor:
        if self.counts is None or self.prior is None:
            return self.log_weight.new_zeros(())
        # posterior / prior = prod_c p_c^(n_c) / evidence
        _, evidence = self.prior.updated(self.counts)
        return ((self.counts * self.expected_log_probs()).sum(-1) - evidence).sum()

    def mean(self) -> dict[str, Tensor]:
        each = self.concentration / self.concentration.sum(-1, keepdim=True)
        return {"leaf_probs": (self.log_weight.exp().unsqueeze(-1) * each).sum(-2)}


class OrdinalGradient(CategoricalGradient):
    """As for any classes, with the gradient of a mixture of Dirichlet priors."""

    def __init__(self, leaf: "Ordinal", y: FloatArray) -> None:
        super().__init__(leaf, y)
        prior = leaf.prior(torch.zeros((), dtype=torch.float64))
        self.concentration = prior.concentration.numpy()
        self.constant = (prior.log_weight - _log_normaliser(prior.concentration)).numpy()

    def _joint(self, leaves: FloatArray) -> FloatArray:
        return leaves @ self.concentration.T + self.constant

    def prior(self, leaves: FloatArray) -> float:
        # the Jacobian of the log-ratios, prod_c p_c, raises each exponent by one
        return float(np.logaddexp.reduce(self._joint(leaves), axis=-1).sum())

    def prior_rows(self, leaves: FloatArray) -> FloatArray:
        return softmax_of(self._joint(leaves), axis=-1) @ self.concentration


@dataclass(frozen=True)
class Ordinal(Categorical):
    """Probabilities of ordered classes, near those of an ordered probit model.

    Let a latent response of unit variance, cut at ``cuts`` into the classes, have the mean m ~
    Normal(0, 1 - noise^2) in a leaf and the standard deviation ``noise`` about it. The class
    probabilities phi(m) that follow are the base of a Dirichlet prior with ``concentration`` prior
    rows; m is integrated over ``N_LOCATIONS`` values. Rows of a class therefore also raise the
    probabilities of its neighbours, while many rows determine each class by itself, whether or not
    the probit model holds. The prior is conjugate.

    Parameters
    ----------
    n_classes : int
    concentration : float
        Prior rows of each leaf.
    noise : float
        Standard deviation of the latent response within a leaf, relative to that of all rows. At
        1 all leaves have the same base, and classes do not inform one another.
    cuts : tuple of float, optional
        The C - 1 increasing cuts of a standard normal; by default, classes are equally frequent.
    """

    ordered: ClassVar[bool] = True
    gradient: ClassVar[type[LeafGradient] | None] = OrdinalGradient

    concentration: float = 10.0
    noise: float = 0.6
    cuts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(noise=self.noise)
        if self.noise > 1:
            raise ValueError(f"noise must be at most 1, got {self.noise}.")
        if not self.cuts:
            shares = np.arange(1, self.n_classes) / self.n_classes
            object.__setattr__(self, "cuts", tuple(ndtri(shares).tolist()))
        if len(self.cuts) != self.n_classes - 1 or not (np.diff(self.cuts) > 0).all():
            raise ValueError(
                f"cuts must hold {self.n_classes - 1} increasing numbers, one between each two of "
                f"{self.n_classes} classes, got {self.cuts}."
            )

    @property
    def criterion(self) -> Criterion:
        return OrderedProbit(self.cuts)

    def informed(self, y: Tensor, weights: Tensor) -> Self:
        """The same with the cuts at which the classes are as frequent as in these rows."""
        counts = self.statistics(y, weights).sum(0).double().numpy(force=True)
        shares = np.cumsum(counts + 0.5)  # a class without rows has finite cuts
        return replace(self, cuts=tuple(ndtri(shares[:-1] / shares[-1]).tolist()))

    def base(self) -> FloatArray:
        """Class probabilities of the probit model at each latent mean, shape (G, C)."""
        level = (np.arange(N_LOCATIONS) + 0.5) / N_LOCATIONS
        location = math.sqrt(1 - self.noise**2) * ndtri(level)
        return class_probabilities(self.cuts, location, self.noise)

    def prior(self, like: Tensor) -> DirichletMixture:
        concentration = like.new_tensor(self.concentration * self.base())
        weight = like.new_full((N_LOCATIONS,), -math.log(N_LOCATIONS))
        return DirichletMixture(concentration, weight)

    def posterior(self, sums: Tensor) -> DirichletMixture:
        return self.prior(sums).updated(sums)[0]

    def evidence(self, sums: Tensor) -> Tensor:
        """Log marginal likelihood of the rows of each leaf, shape (L,)."""
        return self.prior(sums).updated(sums)[1]

    def calibrate(self, sums: Tensor) -> Self:
        """The prior of highest marginal likelihood of the leaves: noise and concentration."""
        counts = sums[sums.sum(-1) > 0].double().cpu()

        def loss(free: FloatArray) -> float:
            noise, concentration = np.exp(free).tolist()
            evidence = replace(self, noise=noise, concentration=concentration).evidence(counts)
            return -float(evidence.sum())

        start = [self.noise, self.concentration]
        noise, concentration = np.exp(most_likely(loss, start, [NOISES, CONCENTRATIONS])).tolist()
        return replace(self, noise=noise, concentration=concentration)


def _log_normaliser(concentration: Tensor) -> Tensor:
    """Logarithm of the integral of prod_c p_c^(a_c - 1), shape (...), of a (..., C)."""
    return torch.lgamma(concentration).sum(-1) - torch.lgamma(concentration.sum(-1))
