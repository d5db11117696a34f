"""Splits: how a node turns a row into a score (CPT paper, eq. 2)."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from bayestree.models.sites import Sites


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


@dataclass(frozen=True)
class Oblique:
    """One expert of weight 1: P(right) is logistic in beta . x + b, the oblique split."""

    n_experts: ClassVar[int] = 1
    weighted: ClassVar[bool] = False


Split = Polytope | Oblique


def log_weight(split: Split, sites: Sites) -> torch.Tensor:
    """Log-weights of the experts, shape (..., V, K): a site, or zeros where weights are 1."""
    return sites["log_weight"] if split.weighted else torch.zeros_like(sites["intercept"])
