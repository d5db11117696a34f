"""How a growing tree is given its splits: one call for all nodes that are ready."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from bayestree.inference.data import Data


class FittedSplit(NamedTuple):
    """One node's split at 1/2, and what it is worth.

    Attributes
    ----------
    sites : mapping of Tensor
        Values of the split's sites for this node.
    right : Tensor of bool
        Side of each of the node's rows.
    gain : float
        In nats: by how much the split raises the log-likelihood of the rows.
    """

    sites: Mapping[str, Tensor]
    right: Tensor
    gain: float

    @classmethod
    def restored(cls, state: tuple[Any, ...], device: torch.device) -> Self:
        """From a tuple of its attributes, which lie in the main memory."""
        sites, right, gain = state
        there = {name: site.to(device) for name, site in sites.items()}
        return cls(there, right.to(device), gain)


class Splitter(Protocol):
    """Fits the splits of many nodes at once."""

    @property
    def rows_per_node(self) -> int:
        """Most rows of a node in a batch."""

    def numbers_per_row(self, n_features: int) -> int:
        """Numbers that a row of a node takes in a batch, for memory."""

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """The split of each node, given the numbers of its rows; None where there is none."""
