"""The two sides of a split: fixed subtrees, or leaves that are updated."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from bayestree.models.leaves import Leaf


class SideState(NamedTuple):
    """Log-likelihoods of the rows on the two sides, for each of several fits.

    They include the log-probability of reaching the node.
    """

    log_left: Tensor  # (fit, row)
    log_right: Tensor  # (fit, row)
    value: Tensor  # (fit,): minus the divergence of the leaves from their prior

    def take(self, which: Tensor) -> "SideState":
        """Some of the fits."""
        return SideState(*(part[which] for part in self))


class Sides(Protocol):
    """The two sides of a split."""

    def update(self, left: Tensor, right: Tensor, weights: Tensor) -> SideState:
        """State given the responsibilities (fit, row) of the sides and the rows' weights."""

    def take(self, index: Tensor) -> "Sides":
        """The sides for some of the rows."""


class FixedSides(NamedTuple):
    """Subtrees with fixed log-likelihoods of the rows (row,)."""

    log_left: Tensor
    log_right: Tensor

    def update(self, left: Tensor, right: Tensor, weights: Tensor) -> SideState:
        shape = left.shape
        return SideState(
            self.log_left.expand(shape), self.log_right.expand(shape), left.new_zeros(len(left))
        )

    def take(self, index: Tensor) -> "FixedSides":
        return FixedSides(self.log_left[index], self.log_right[index])


class LeafSides(NamedTuple):
    """Two leaves, updated in closed form."""

    leaf: Leaf
    y: Tensor  # (row,)
    log_reach: Tensor | None = None  # (row,): log-probability of reaching the node

    def update(self, left: Tensor, right: Tensor, weights: Tensor) -> SideState:
        statistics = self.leaf.statistics(self.y, weights)
        log_left, left_kl = self._leaf(left @ statistics)
        log_right, right_kl = self._leaf(right @ statistics)
        return SideState(log_left, log_right, -left_kl - right_kl)

    def _leaf(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Expected log-densities (fit, row) and divergences (fit,) of one leaf."""
        density = self.leaf.posterior(sums).expected_log_density(self.y).T
        divergence = torch.stack([self.leaf.posterior(one).kl() for one in sums.split(1)])
        return density if self.log_reach is None else density + self.log_reach, divergence

    def take(self, index: Tensor) -> "LeafSides":
        reach = None if self.log_reach is None else self.log_reach[index]
        return LeafSides(self.leaf, self.y[index], reach)
