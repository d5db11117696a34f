"""Leaves of class probabilities."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.models.criteria import Criterion, Entropy
from bayestree.models.leaves.base import Leaf, LeafDistribution, LeafGradient, log_probabilities
from bayestree.models.priors import check_positive
from bayestree.models.sites import Site, Sites


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

    def read(self, free: Mapping[str, FloatArray]) -> FloatArray:
        return log_probabilities(free["leaf_probs"])

    def log_density(self, leaves: FloatArray) -> FloatArray:
        return leaves.take(self.classes, axis=1)

    def prior(self, leaves: FloatArray) -> float:
        # the Jacobian of the log-ratios, prod_c p_c, raises each exponent by one
        return self.pseudo_count * float(leaves.sum())

    def prior_rows(self, leaves: FloatArray) -> FloatArray | float:
        """Number of rows of each class (L, C) that the prior stands for."""
        return self.pseudo_count

    def gradient(
        self, leaves: FloatArray, member: FloatArray, into: Mapping[str, FloatArray]
    ) -> None:
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
        onehot = torch.nn.functional.one_hot(y, self.n_classes).to(weights.dtype)
        return onehot * weights.unsqueeze(-1)

    def expected_y(self, sites: Sites, X: AnyArray | None = None) -> FloatArray:
        return sites["leaf_probs"].numpy()
