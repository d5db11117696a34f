"""Leaves of several outputs, which are independent given the leaf."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.models.criteria import Criterion
from bayestree.models.leaves.base import LeafDistribution, NumericLeaf
from bayestree.models.leaves.gaussian import Gaussian, NormalInverseGamma
from bayestree.models.sites import Site, Sites

WIDTH = 3  # number of statistics of an output


@dataclass(frozen=True)
class Together(Criterion):
    """Sum of the log-likelihoods of a split over the outputs, by the criteria of each."""

    parts: tuple[Criterion, ...]

    def _each(self, sums: Tensor) -> Iterator[tuple[Criterion, Tensor]]:
        return zip(self.parts, sums.split(WIDTH, -1), strict=True)

    def value(self, sums: Tensor) -> Tensor:
        first, *others = (part.nats(part.value(own), own) for part, own in self._each(sums))
        return sum(others, start=first)

    def split_value(self, side: Tensor, whole: Tensor) -> Tensor:
        both = zip(self._each(side), whole.split(WIDTH, -1), strict=True)
        first, *others = (
            part.nats(part.split_value(own, total), total) for (part, own), total in both
        )
        return sum(others, start=first)

    def ascent(self, side: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        both = zip(self._each(side), whole.split(WIDTH, -1), strict=True)
        nats, slopes = zip(*(part.ascent(own, total) for (part, own), total in both), strict=True)
        return torch.stack(nats).sum(0), torch.cat(slopes, dim=-1)


@dataclass(frozen=True)
class Product(LeafDistribution):
    """Independent distributions of the outputs, whose sites have them as last dimension."""

    parts: tuple[NormalInverseGamma, ...]
    prior: "Product | None" = None

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        for name, law in _joined(self.parts).conditionals(sites):
            yield name, law.to_event(1)

    def expected_log_density(self, y: Tensor) -> Tensor:
        each = (part.expected_log_density(own) for part, own in zip(self.parts, y.T, strict=True))
        return torch.stack([*each]).sum(0)

    def kl(self) -> Tensor:
        return torch.stack([part.kl() for part in self.parts]).sum()

    def mean(self) -> dict[str, Tensor]:
        return _joined(self.parts).mean()


def _joined(parts: tuple[NormalInverseGamma, ...]) -> NormalInverseGamma:
    def stacked(name: str) -> Tensor:
        shape = parts[0].shape
        values = [torch.as_tensor(getattr(part, name)).to(shape) for part in parts]
        return torch.stack([value.expand(shape.shape) for value in values], dim=-1)

    return NormalInverseGamma(
        stacked("loc"), stacked("strength"), stacked("shape"), stacked("rate")
    )


@dataclass(frozen=True)
class Outputs(NumericLeaf):
    """Normal leaves of several outputs: y (n, q), one ``Gaussian`` for each, given the leaf.

    Parameters
    ----------
    parts : tuple of Gaussian
        The prior of each output; y has mean 0 and variance 1 in each.
    """

    sites: ClassVar[Mapping[str, Site]] = {
        "leaf_scale": Site(("leaf", "output"), "positive"),
        "leaf_mean": Site(("leaf", "output")),
    }
    standardised: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    quantity: ClassVar[str] = "means"

    parts: tuple[Gaussian, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("parts must hold one Gaussian for each output, got none.")

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        return len(self.parts)

    @property
    def criterion(self) -> Criterion:
        return Together(tuple(part.criterion for part in self.parts))

    def check(self, y: Tensor) -> None:
        super().check(y)
        if y.ndim != 2 or y.shape[1] != self.n_outputs:
            raise ValueError(
                f"y must have {self.n_outputs} columns, one for each output, got the shape "
                f"{tuple(y.shape)}."
            )

    def prior(self, like: Tensor) -> Product:
        return Product(tuple(part.prior(like) for part in self.parts))

    def posterior(self, sums: Tensor) -> Product:
        own = zip(self.parts, sums.split(WIDTH, -1), strict=True)
        return Product(tuple(part.posterior(some) for part, some in own), self.prior(sums))

    def distribution(self, sites: Sites) -> dist.Independent:
        return dist.Normal(sites["leaf_mean"], sites["leaf_scale"]).to_event(1)

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        each = [part.statistics(own, weights) for part, own in zip(self.parts, y.T, strict=True)]
        return torch.cat(each, dim=-1)

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        return self.distribution(sites).log_prob(y.unsqueeze(1))

    def node_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        leaves = {name: sites[name].unsqueeze(2) for name in self.sites}
        return self.distribution(leaves).log_prob(y.unsqueeze(1))

    def calibrate(self, sums: Tensor) -> Self:
        own = zip(self.parts, sums.split(WIDTH, -1), strict=True)
        return replace(self, parts=tuple(part.calibrate(some) for part, some in own))

    def expectation(self, sites: Sites, probs: AnyArray, X: AnyArray) -> FloatArray:
        values = self.expected_y(sites, X).reshape(*probs.shape[1:], -1)
        return np.matmul(probs.swapaxes(0, 1), values)

    def misfit(self, y: FloatArray, predicted: FloatArray) -> FloatArray:
        return ((y - predicted) ** 2).sum(axis=1)
