"""Leaves of class probabilities."""

import math
from collections.abc import Iterator, Mapping
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

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.models.criteria import Criterion, Entropy
from bayestree.models.leaves.base import (
    Leaf,
    LeafDistribution,
    LeafGradient,
    log_probabilities,
    most_likely,
)
from bayestree.models.priors.base import FreeSites, Site, Sites, check_positive

ELSEWHERE = 0.02  # share of rows distributed as in all leaves: no class is impossible in a leaf
#: Means and noises among which the criterion looks for the best.
GRID_LOCATIONS = np.linspace(-3, 3, 49)
GRID_NOISES = np.geomspace(0.1, 1.0, 7)
SETS = 8_192  # sets of rows compared at a time
N_LOCATIONS = 32  # of leaves, at quantiles of their normal distribution
NOISES = (0.1, 0.999)  # limits of a calibrated prior
CONCENTRATIONS = (0.5, 1e4)


class ClassShares(LeafDistribution):
    """A distribution of the class probabilities of each leaf."""

    def sample(self) -> dict[str, Tensor]:
        # A float32 draw of a small-shape Dirichlet can hold an exact 0, whose log is infinite.
        probs = super().sample()["leaf_probs"]
        return {"leaf_probs": probs.clamp_min(torch.finfo(probs.dtype).tiny)}


@dataclass(frozen=True)
class Dirichlet(ClassShares):
    """Dirichlet distribution of class probabilities; ``concentration`` is (L, C) or (C,)."""

    concentration: Tensor
    prior: LeafDistribution | None = None

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        yield "leaf_probs", dist.Dirichlet(self.concentration, validate_args=False)

    def expected_log_density(self, y: Tensor) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return (torch.digamma(self.concentration) - torch.digamma(total)).T[y]

    def mean(self) -> dict[str, Tensor]:
        return {"leaf_probs": self.concentration / self.concentration.sum(-1, keepdim=True)}


class CategoricalGradient(LeafGradient):
    """Log-probabilities (L, C); their unconstrained form is log-ratios to the last class."""

    def __init__(self, leaf: "Categorical", y: FloatArray) -> None:
        self.pseudo_count = leaf.pseudo_count
        self.classes = y.astype(np.int64)
        self.indicator = np.eye(leaf.n_classes)[self.classes]  # (n, C)

    def read(self, free: FreeSites) -> FloatArray:
        return log_probabilities(free["leaf_probs"])

    def log_density(self, leaves: FloatArray) -> FloatArray:
        return leaves.take(self.classes, axis=1)

    def prior(self, leaves: FloatArray) -> float:
        # the Jacobian of the log-ratios, prod_c p_c, raises each exponent by one
        return self.pseudo_count * float(leaves.sum())

    def prior_rows(self, leaves: FloatArray) -> FloatArray | float:
        """Number of rows of each class (L, C) that the prior stands for."""
        return self.pseudo_count

    def gradient(self, leaves: FloatArray, member: FloatArray, into: FreeSites) -> None:
        # sum_c n_c log p_c has gradient n_c - n p_c in the log-ratios
        counts = member @ self.indicator + self.prior_rows(leaves)
        expected = counts.sum(-1, keepdims=True) * np.exp(leaves)
        into["leaf_probs"][...] = (counts - expected)[:, :-1]


@dataclass(frozen=True)
class Categorical(Leaf):
    """Class probabilities with a symmetric Dirichlet prior; y holds class numbers.

    Parameters
    ----------
    n_classes : int
    concentration : float
        Prior rows of each leaf, spread evenly over the classes: the Dirichlet has
        ``concentration / n_classes`` for each (Perks' prior at 1).
    """

    sites: ClassVar[Mapping[str, Site]] = {"leaf_probs": Site(("leaf", "class"), "simplex")}
    averages: ClassVar[bool] = True
    loss: ClassVar[str] = "misclassification"
    impurity: ClassVar[str] = "mutual-information"
    gradient: ClassVar[type[LeafGradient] | None] = CategoricalGradient

    n_classes: int
    concentration: float = 1.0

    def __post_init__(self) -> None:
        if self.n_classes < 2:
            raise ValueError(f"n_classes must be 2 or more, got {self.n_classes}.")
        check_positive(concentration=self.concentration)

    @property
    def criterion(self) -> Criterion:
        return Entropy()

    @property
    def level_site(self) -> str | None:  # type: ignore[override]
        return "leaf_probs" if self.n_classes == 2 else None

    def level(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        mass = sums.sum(-1)
        return mass, sums[..., 1] / mass

    def check(self, y: Tensor) -> None:
        if y.is_floating_point() or not ((y >= 0) & (y < self.n_classes)).all():
            raise ValueError(
                f"y must hold class numbers from 0 to {self.n_classes - 1} as integers, got values "
                f"from {y.min().item()} to {y.max().item()} of {y.dtype}."
            )

    @property
    def pseudo_count(self) -> float:
        """Prior rows of each class in each leaf."""
        return self.concentration / self.n_classes

    def prior(self, like: Tensor) -> LeafDistribution:
        return Dirichlet(like.new_full((self.n_classes,), self.pseudo_count))

    def posterior(self, sums: Tensor) -> LeafDistribution:
        return Dirichlet(sums + self.pseudo_count, self.prior(sums))

    def distribution(self, sites: Sites) -> dist.Categorical:
        return dist.Categorical(logits=sites["leaf_probs"].log())

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        return sites["leaf_probs"].log().T[y]

    def node_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        log_probs = sites["leaf_probs"].log()
        return log_probs.gather(-1, y.unsqueeze(1).expand(-1, log_probs.shape[1], -1))

    def observe(
        self, sites: Sites, log_prob: Tensor, X: Tensor | None = None, y: Tensor | None = None
    ) -> dist.TorchDistribution:
        joint = log_prob.unsqueeze(-1) + sites["leaf_probs"].log()
        return dist.Categorical(logits=joint.logsumexp(-2))

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        found = weights.new_zeros(*y.shape, self.n_classes)
        return found.scatter_(-1, y.unsqueeze(-1), weights.unsqueeze(-1))

    def expected_y(self, sites: Sites, X: AnyArray | None = None) -> FloatArray:
        return sites["leaf_probs"].numpy(force=True)


def class_probabilities(cuts: tuple[float, ...], location: FloatArray, noise: float) -> FloatArray:
    """Return P(class) (G, C) of latent normals of mean ``location`` (G,) and s. d. ``noise``.

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
        # a maximum of linear functions has the gradient of the largest
        value, slope = self._best(torch.stack((side, whole - side)))
        return value.sum(0), slope[0] - slope[1]

    def _best(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-likelihood (...), and log-probabilities of the classes (..., C)."""
        table = torch.as_tensor(_table(self.cuts)).to(sums)
        parts = [(some @ table.T).max(-1) for some in sums.reshape(-1, len(table.T)).split(SETS)]
        value = torch.cat([part.values for part in parts]).view(sums.shape[:-1])
        chosen = torch.cat([part.indices for part in parts])
        return value, table[chosen].view(sums.shape)


@lru_cache
def _table(cuts: tuple[float, ...]) -> FloatArray:
    """Return log-probabilities of the classes at each point of the grid, shape (G, C)."""
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
        """Return the conjugate posterior given counts (..., C), and their log evidence (...)."""
        grown = self.concentration + counts.unsqueeze(-2)
        joint = self.log_weight + _log_normaliser(grown) - _log_normaliser(self.concentration)
        evidence = joint.logsumexp(-1)
        weight = joint - evidence.unsqueeze(-1)
        return DirichletMixture(grown, weight, counts, self), evidence

    def expected_log_probs(self) -> Tensor:
        """Return E log P(class | leaf), shape (..., C)."""
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
    """Probabilities of ordered classes, shrunk towards an ordered probit model.

    A latent response of unit variance is cut at ``cuts`` into the classes. In a leaf it has the
    mean m ~ Normal(0, 1 - noise^2) and the standard deviation ``noise`` about it. The class
    probabilities phi(m) that follow are the base of a Dirichlet prior with ``concentration`` prior
    rows; m is integrated over ``N_LOCATIONS`` values. Rows of a class therefore also raise the
    probabilities of its neighbours, while many rows determine each class, whether or not the probit
    model holds. The prior is conjugate.

    Parameters
    ----------
    n_classes : int
    concentration : float
        Prior rows of each leaf.
    noise : float
        Standard deviation of the latent response within a leaf, relative to all rows. At
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
        """Return the same with the cuts at which the classes are as frequent as in these rows."""
        counts = self.statistics(y, weights).sum(0).double().numpy(force=True)
        shares = np.cumsum(counts + 0.5)  # a class without rows has finite cuts
        return replace(self, cuts=tuple(ndtri(shares[:-1] / shares[-1]).tolist()))

    def base(self) -> FloatArray:
        """Return the class probabilities of the probit model at each latent mean, shape (G, C)."""
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
        """Learn noise and concentration: the highest marginal likelihood of the leaves."""
        counts = sums[sums.sum(-1) > 0].double().cpu()

        def loss(free: FloatArray) -> float:
            noise, concentration = np.exp(free).tolist()
            evidence = replace(self, noise=noise, concentration=concentration).evidence(counts)
            return -float(evidence.sum())

        start = [self.noise, self.concentration]
        noise, concentration = most_likely(loss, start, [NOISES, CONCENTRATIONS])
        return replace(self, noise=noise, concentration=concentration)


def _log_normaliser(concentration: Tensor) -> Tensor:
    """Return the log of the integral of prod_c p_c^(a_c - 1), shape (...), of a (..., C)."""
    return torch.lgamma(concentration).sum(-1) - torch.lgamma(concentration.sum(-1))
