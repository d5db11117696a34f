"""Splitters, which fit the splits of a growing tree: one call for all nodes that are ready."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from bayestree.inference.data import Data


class FittedSplit(NamedTuple):
    """The split of one node at P(right) = 1/2, and its gain."""

    sites: Mapping[str, Tensor]  # values of the split's sites for this node
    right: Tensor  # side of each of the node's rows
    gain: float  # increase of the log-likelihood of the rows, in nats

    @classmethod
    def restored(cls, state: tuple[Any, ...], device: torch.device) -> Self:
        """Restore a split from a tuple of its attributes in CPU memory."""
        sites, right, gain = state
        moved = {name: site.to(device) for name, site in sites.items()}
        return cls(moved, right.to(device), gain)


class Splitter(Protocol):
    """Fits the splits of many nodes at once."""

    @property
    def rows_per_node(self) -> int:
        """Maximum number of rows of a node in a batch."""

    def numbers_per_row(self, n_features: int) -> int:
        """Return the memory per row in a batch, in numbers."""

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """Split each node, given the numbers of its rows; None if there is no split."""


class NodeByNode(ABC):
    """A splitter that searches the nodes one by one, without padding."""

    rows_per_node = 1

    def numbers_per_row(self, n_features: int) -> int:
        return 1

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """Split each node; None if there is no split."""
        return [self.split(data.take(members)) for members in rows]

    @abstractmethod
    def split(self, data: Data) -> FittedSplit | None:
        """Split the rows of a node; None if no split leaves enough of them on each side."""
