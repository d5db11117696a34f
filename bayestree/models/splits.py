"""Splits: how a node turns a row into a score (CPT paper, eq. 2)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayestree import routing
from bayestree.models.priors import Plates, Priors
from bayestree.models.priors.base import SITES, Lengths, Sites
from bayestree.routed_tree import Frame, RoutedTree
from bayestree.topology import Topology
from bayestree.tree import Tree

Arrays = Mapping[str, NDArray[Any]]
Names = Mapping[str, Any]  # feature_names, class_names and quantity


class Split(Protocol):
    """A family of splits."""

    @property
    def n_experts(self) -> int:
        """Maximum number of experts of a node, K."""

    @property
    def weighted(self) -> bool:
        """Whether experts have weights, the site ``log_weight``."""

    def scores(self, sites: Sites, X: Tensor) -> Tensor:
        """Score of each row at each node, shape (n, V); the split is at log 2."""

    def shapes(self, size: Lengths) -> dict[str, tuple[int, ...]]:
        """Return the shape of each differentiable site, with the nodes as first dimension."""

    def parameters(self, sites: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the sites that belong to the split."""

    def state(self, priors: Priors, size: Lengths, like: Tensor) -> dict[str, Tensor]:
        """Sample its sites inside the Pyro model and return them."""

    def log_priors(self, priors: Priors, sites: Sites) -> dict[str, Tensor]:
        """Return the log-density of each group of its parameters, scalars."""

    def log_odds(self, sites: Sites, X: Tensor, needed: Tensor | None = None) -> Tensor:
        """Return log-odds of going right of each row at each node, shape (n, V).

        ``needed`` (n, V) marks the entries that are used, by default all. A split that is
        evaluated row by row may skip the others and return 0.
        """

    def tree(self, topology: Topology, point: Arrays, frame: Frame) -> RoutedTree:
        """Build the deterministic tree of ``point``, in units of ``frame``, without leaf values."""

    def restored(self, topology: Topology, arrays: Arrays, names: Names) -> RoutedTree:
        """Restore a deterministic tree from its ``arrays()`` and names."""


class StumpSplit(Split, Protocol):
    """A split that can be fitted to many nodes at once from a random start."""

    def start(self, n_nodes: int, n_features: int, like: Tensor) -> dict[str, Tensor]:
        """Draw parameters of ``n_nodes`` nodes, on the dtype and device of ``like``."""

    def node_log_odds(self, sites: Sites, X: Tensor) -> Tensor:
        """Return log-odds (V, m) of the rows X (V, m, d) of each node."""


class _Linear:
    """Base of splits by linear experts: sites and priors of the experts."""

    weighted: ClassVar[bool]

    @property
    def _names(self) -> tuple[str, ...]:
        return ("hyperplane", "intercept", *("log_weight",) * self.weighted)

    def shapes(self, size: Lengths) -> dict[str, tuple[int, ...]]:
        return {name: size.shape(SITES[name].dimensions) for name in self._names}

    def parameters(self, sites: Iterable[str]) -> tuple[str, ...]:
        return self._names

    def state(self, priors: Priors, size: Lengths, like: Tensor) -> dict[str, Tensor]:
        plates = Plates.of(size)
        sites: dict[str, Tensor] = {}
        if self.weighted:
            sites["log_weight"] = priors.weight.state(size, like, plates)
            pyro.deterministic("weight", sites["log_weight"].exp())
        sites["hyperplane"], sites["intercept"] = priors.hyperplane.state(size, like, plates)
        return sites

    def tree(self, topology: Topology, point: Arrays, frame: Frame) -> Tree:
        plane, offset = point["hyperplane"], point["intercept"]
        weight = np.exp(point["log_weight"]) if self.weighted else np.ones_like(offset)
        return Tree.from_standardised(topology, weight, plane, offset, **frame)

    def restored(self, topology: Topology, arrays: Arrays, names: Names) -> Tree:
        fields: dict[str, Any] = {**arrays, **names}
        return Tree(topology, **fields)

    def log_priors(self, priors: Priors, sites: Sites) -> dict[str, Tensor]:
        parts = {"hyperplane": priors.hyperplane.log_prob(sites)}
        if self.weighted:
            parts["weight"] = priors.weight.log_prob(sites)
        return parts


@dataclass(frozen=True)
class Polytope(_Linear):
    """A committee of linear experts whose noisy-OR vote sends a row right.

    The left side {s <= log 2} is convex (theorem 1): a polytope of at most ``n_experts`` facets.

    Parameters
    ----------
    n_experts : int
        K, the maximum number of facets of a node (the truncation of the gamma process).
    """

    n_experts: int = 20
    weighted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.n_experts < 1:
            raise ValueError(f"n_experts must be 1 or more, got {self.n_experts}.")

    def scores(self, sites: Sites, X: Tensor) -> Tensor:
        return routing.score(X, sites["log_weight"], sites["hyperplane"], sites["intercept"])

    def log_odds(self, sites: Sites, X: Tensor, needed: Tensor | None = None) -> Tensor:
        return routing.log_odds(self.scores(sites, X))


@dataclass(frozen=True)
class Oblique(_Linear):
    """One expert of weight 1: P(right) is logistic in beta . x + b, the oblique split.

    Parameters
    ----------
    max_features : int, optional
        Maximum number of nonzero coefficients of a node: 1 is the axis-aligned split, 2 the
        bivariate one. Only algorithms that search over features can fit such splits.
    """

    max_features: int | None = None
    n_experts: ClassVar[int] = 1
    weighted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.max_features is not None and self.max_features < 1:
            raise ValueError(f"max_features must be 1 or more, or None, got {self.max_features}.")

    def scores(self, sites: Sites, X: Tensor) -> Tensor:
        return routing.score(X, log_weight(self, sites), sites["hyperplane"], sites["intercept"])

    def log_odds(self, sites: Sites, X: Tensor, needed: Tensor | None = None) -> Tensor:
        # node-major in memory, which is how trees are walked
        return torch.addmm(sites["intercept"], sites["hyperplane"].squeeze(1), X.T).T

    def node_log_odds(self, sites: Sites, X: Tensor) -> Tensor:
        plane = sites["hyperplane"].transpose(1, 2)
        return torch.baddbmm(sites["intercept"].unsqueeze(1), X, plane).squeeze(-1)

    def start(self, n_nodes: int, n_features: int, like: Tensor) -> dict[str, Tensor]:
        """Draw coefficients and intercepts uniformly on the unit sphere (E2EDT, sec. 3.1)."""
        shape = (n_nodes, 1, n_features + 1)
        drawn = torch.randn(shape, dtype=like.dtype, device=like.device)
        drawn = drawn / drawn.norm(dim=-1, keepdim=True)
        return {"hyperplane": drawn[..., :-1].contiguous(), "intercept": drawn[..., -1].clone()}


def log_weight(split: Split, sites: Sites) -> Tensor:
    """Return log-weights of the experts, (..., V, K): a site, or zeros where weights are 1."""
    return sites["log_weight"] if split.weighted else torch.zeros_like(sites["intercept"])


def joined(sites: Sites) -> Tensor:
    """Join hyperplanes and intercepts, as last coefficients, shape (V, K, d + 1)."""
    return torch.cat((sites["hyperplane"], sites["intercept"].unsqueeze(-1)), dim=-1)
