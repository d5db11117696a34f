"""Splits: how a node turns a row into a score (CPT paper, eq. 2)."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from bayestree import routing
from bayestree.models.sites import Sites


class Split(Protocol):
    """A family of splits, and what the rest of the package needs to know of it."""

    @property
    def n_experts(self) -> int:
        """Most experts of a node, K."""

    @property
    def weighted(self) -> bool:
        """Whether experts have weights of their own, the site ``log_weight``."""

    def scores(self, sites: Sites, X: torch.Tensor) -> torch.Tensor:
        """Score of each row at each node, shape (n, V); the split is at log 2."""


@dataclass(frozen=True)
class Polytope:
    """A committee of linear experts whose noisy-OR vote sends a row right.

    The left side {s <= log 2} is convex (theorem 1): a polytope of at most ``n_experts`` facets.

    Parameters
    ----------
    n_experts : int
        K, the most facets a node may have (the truncation of the gamma process).
    """

    n_experts: int = 20
    weighted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.n_experts < 1:
            raise ValueError(f"n_experts must be 1 or more, got {self.n_experts}.")

    def scores(self, sites: Sites, X: torch.Tensor) -> torch.Tensor:
        return routing.score(X, sites["log_weight"], sites["hyperplane"], sites["intercept"])


@dataclass(frozen=True)
class Oblique:
    """One expert of weight 1: P(right) is logistic in beta . x + b, the oblique split.

    Parameters
    ----------
    max_features : int, optional
        Most coefficients of a node that are not zero: 1 is the axis-aligned split, 2 the
        bivariate one. Only algorithms that search over features can fit such splits.
    """

    max_features: int | None = None
    n_experts: ClassVar[int] = 1
    weighted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.max_features is not None and self.max_features < 1:
            raise ValueError(f"max_features must be 1 or more, or None, got {self.max_features}.")

    def scores(self, sites: Sites, X: torch.Tensor) -> torch.Tensor:
        return routing.score(X, log_weight(self, sites), sites["hyperplane"], sites["intercept"])


def log_weight(split: Split, sites: Sites) -> torch.Tensor:
    """Log-weights of the experts, shape (..., V, K): a site, or zeros where weights are 1."""
    return sites["log_weight"] if split.weighted else torch.zeros_like(sites["intercept"])
