"""Deterministic trees with networks as splits, with the interface of ``bayestree.tree.Tree``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree.routed_tree import Frame, RoutedTree
from bayestree.topology import Topology

PARAMETERS = "parameters."  # prefix of parameter names in ``arrays``
ROWS = 256  # rows evaluated at a time: twice as fast as 1,000, which exceed the cache


class Builder(Protocol):
    """Creates modules; implemented by ``bayestree.models.Network``."""

    def module(self, n_features: int) -> nn.Module:
        """A new module for rows with ``n_features`` columns."""


@dataclass(frozen=True, eq=False, repr=False)
class NetworkTree(RoutedTree):
    """A deterministic tree with a network at each node.

    A row goes right at node v iff the node's network gives (x - center) / scale a log-odds
    above 0. Other attributes are those of :class:`RoutedTree`.
    """

    topology: Topology
    network: Builder  # creates the modules
    parameters: Mapping[str, AnyArray]  # parameters of the modules by name, (V, ...) each
    value: FloatArray
    leaf_rows: FloatArray
    center: FloatArray
    scale: FloatArray
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    quantity: str = "mean"
    split_name: ClassVar[str] = "network"
    side_names: ClassVar[tuple[str, str]] = ("left", "right")

    @classmethod
    def of(
        cls, topology: Topology, network: Builder, parameters: Mapping[str, AnyArray], frame: Frame
    ) -> "NetworkTree":
        """A tree without leaf values."""
        empty = np.zeros(topology.n_leaves)
        return cls(topology, network, parameters, value=empty, leaf_rows=empty, **frame)

    def arrays(self) -> dict[str, AnyArray]:
        own = {PARAMETERS + name: value for name, value in self.parameters.items()}
        return super().arrays() | own

    @classmethod
    def restored(
        cls,
        topology: Topology,
        network: Builder,
        arrays: Mapping[str, AnyArray],
        names: Mapping[str, Any],
    ) -> "NetworkTree":
        """Restore a tree from its :meth:`arrays`."""
        own = {k.removeprefix(PARAMETERS): v for k, v in arrays.items() if k.startswith(PARAMETERS)}
        others: dict[str, Any] = {k: v for k, v in arrays.items() if not k.startswith(PARAMETERS)}
        others |= names
        return cls(topology, network, own, **others)

    def __repr__(self) -> str:
        return (
            f"NetworkTree(n_leaves={self.n_leaves}, depth={self.depth}, "
            f"n_features={self.n_features})"
        )

    @cached_property
    def modules(self) -> tuple[nn.Module, ...]:
        """The network of each node, with its parameters."""
        found = []
        for node in range(self.n_nodes):
            # Random initial parameters are replaced and must not advance the caller's generator.
            with torch.random.fork_rng(devices=[]):
                module = self.network.module(self.n_features)
            own = {name: torch.as_tensor(value[node]) for name, value in self.parameters.items()}
            module.to(next(iter(own.values())).dtype)
            with torch.no_grad():
                for name, parameter in module.named_parameters():
                    parameter.copy_(own[name])
            found.append(module)
        return tuple(found)

    def log_odds(self, node: int, X: FloatArray) -> FloatArray:
        """Output of a node's network, shape (n,); above 0 a row goes right."""
        module = self.modules[node]
        dtype = next(module.parameters()).dtype
        rows = torch.as_tensor((X - self.center) / self.scale, dtype=dtype)
        with torch.inference_mode():
            parts = [module(part).reshape(-1) for part in rows.split(ROWS)]
        return torch.cat(parts).double().numpy()

    def score(self, node: int, X: FloatArray) -> FloatArray:
        return np.logaddexp(0.0, self.log_odds(node, X))

    def goes_right(self, node: int, X: FloatArray) -> BoolArray:
        return self.log_odds(node, X) > 0

    def collapse(self, bypass: IntArray) -> "NetworkTree":
        topology, nodes, leaves = self.topology.collapse(bypass)
        return self._with(
            topology=topology,
            parameters={name: value[nodes] for name, value in self.parameters.items()},
            value=self.value[leaves],
            leaf_rows=self.leaf_rows[leaves],
        )
