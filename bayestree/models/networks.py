"""Splits by user-defined networks: one torch module per node (E2EDT, section 2.4)."""

import math
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyro
import torch
from torch import Tensor, nn
from torch.func import functional_call

from bayestree import routing
from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.state import cached
from bayestree.distributions import Constant
from bayestree.models.priors import Priors
from bayestree.models.priors.base import Lengths, Sites
from bayestree.models.splits import Arrays, Names
from bayestree.routed_tree import Frame, RoutedTree
from bayestree.topology import Topology

PARAMETERS = "parameters."  # prefix of parameter names in ``arrays``
ROWS = 256  # rows evaluated at a time: twice as fast as 1,000, which exceed the cache
PREFIX = "network."  # of site names, followed by the names of the module's parameters
MIXING = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


@dataclass(frozen=True, eq=False, repr=False)
class NetworkTree(RoutedTree):
    """A deterministic tree with a network at each node.

    A row goes right at node v iff the node's network gives (x - center) / scale a log-odds
    above 0. Other attributes are as in :class:`RoutedTree`.
    """

    topology: Topology
    network: "Network"  # creates the modules
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

    def arrays(self) -> dict[str, AnyArray]:
        own = {PARAMETERS + name: value for name, value in self.parameters.items()}
        return super().arrays() | own

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
        """Return the output of a node's network, shape (n,); above 0 a row goes right."""
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


@dataclass(frozen=True)
class Network:
    """A split by a torch module with one output, the log-odds f of going right.

    Every node has separate parameters, the sites ``"network.NAME"`` with the nodes as first
    dimension. P(right) is logistic in f, as for :class:`Oblique`; the prior is flat.

    Parameters
    ----------
    build : callable
        Creates a module for a number of features, n_features -> nn.Module, that maps rows (n, d)
        on the scale of the fit to f, (n, 1) or (n,). A function, a class whose instances compare
        equal if they build the same module, or :class:`SmallConvNet`.

    Raises
    ------
    TypeError
        If ``build`` cannot be called or hashed, or does not return a module when first used.
    ValueError
        When first used, if the module has no parameters, or has buffers, frozen parameters,
        dropout or batch normalisation, an output of another shape, or an output that depends on
        other rows or on chance.

    Examples
    --------
    >>> from torch import nn
    >>> from bayestree.models import Network
    >>> def two_layers(n_features):
    ...     return nn.Sequential(nn.Linear(n_features, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> split = Network(two_layers)
    """

    build: Callable[[int], nn.Module]
    n_experts: ClassVar[int] = 1
    weighted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.build) or not isinstance(self.build, Hashable):
            raise TypeError(
                "build must be a hashable callable, n_features -> nn.Module, got "
                f"{self.build!r}; use a function or a frozen dataclass with __call__."
            )

    def module(self, n_features: int) -> nn.Module:
        """Create and check a module, initialised from torch's generator."""
        module = self.build(n_features)
        _check(module, n_features)
        return module.eval()

    def shapes(self, size: Lengths) -> dict[str, tuple[int, ...]]:
        template = _template(self, size.n_features, threading.get_ident())
        return {
            PREFIX + name: (size.n_nodes, *value.shape)
            for name, value in template.named_parameters()
        }

    def parameters(self, sites: Iterable[str]) -> tuple[str, ...]:
        return tuple(site for site in sites if site.startswith(PREFIX))

    def start(self, n_nodes: int, n_features: int, like: Tensor) -> dict[str, Tensor]:
        """Initialise the parameters of new modules."""
        sites = {
            site: like.new_empty(shape)
            for site, shape in self.shapes(Lengths(n_nodes, 1, n_features, n_nodes + 1)).items()
        }
        for node in range(n_nodes):
            for name, value in self.module(n_features).named_parameters():
                sites[PREFIX + name][node] = value.detach()
        return sites

    def state(self, priors: Priors, size: Lengths, like: Tensor) -> dict[str, Tensor]:
        """Sample the sites from a flat prior; ``priors`` apply to linear splits only."""
        with pyro.plate("node", size.n_nodes, dim=-1):
            return {
                site: pyro.sample(site, Constant(like, shape[1:]).to_event(len(shape) - 1))
                for site, shape in self.shapes(size).items()
            }

    def log_priors(self, priors: Priors, sites: Sites) -> dict[str, Tensor]:
        """Return the log-density of the sites, 0 everywhere."""
        return {"network": next(iter(sites.values())).new_zeros(())}

    def log_odds(self, sites: Sites, X: Tensor, needed: Tensor | None = None) -> Tensor:
        """Return the output f of each node's network, shape (n, V); 0 where it is not needed."""
        n_nodes = len(sites[self.parameters(sites)[0]])
        if needed is None or needed.numel() == 0:
            return self.node_log_odds(sites, X.expand(n_nodes, *X.shape)).T
        columns = []
        for node, rows in enumerate(needed.T):
            column = X.new_zeros(len(X))
            column[rows] = self._of_node(sites, node, X[rows])
            columns.append(column)
        return torch.stack(columns, dim=1)

    def node_log_odds(self, sites: Sites, X: Tensor) -> Tensor:
        """Return the output (V, m) of each node's network for its rows X (V, m, d)."""
        n_nodes, n_rows, _ = X.shape
        if n_nodes == 0 or n_rows == 0:
            return X.new_zeros(n_nodes, n_rows)
        return torch.stack([self._of_node(sites, node, X[node]) for node in range(n_nodes)])

    def _of_node(self, sites: Sites, node: int, X: Tensor) -> Tensor:
        """Return the output (n,) of one node's network."""
        if len(X) == 0:
            return X.new_zeros(0)
        template = _template(self, X.shape[1], threading.get_ident())
        values = {name.removeprefix(PREFIX): sites[name][node] for name in self.parameters(sites)}
        parts = [functional_call(template, values, (part,)) for part in X.split(ROWS)]
        return torch.cat(parts).reshape(-1)

    def scores(self, sites: Sites, X: Tensor) -> Tensor:
        """Score softplus(f) of each row at each node, shape (n, V); the split is at f = 0."""
        odds = self.log_odds(sites, X)
        return routing.vote(odds.T.unsqueeze(1), odds.new_zeros(odds.shape[1], 1))

    def tree(self, topology: Topology, point: Arrays, frame: Frame) -> NetworkTree:
        values = {k.removeprefix(PREFIX): v for k, v in point.items() if k.startswith(PREFIX)}
        empty = np.zeros(topology.n_leaves)
        return NetworkTree(topology, self, values, value=empty, leaf_rows=empty, **frame)

    def restored(self, topology: Topology, arrays: Arrays, names: Names) -> NetworkTree:
        own = {k.removeprefix(PARAMETERS): v for k, v in arrays.items() if k.startswith(PARAMETERS)}
        others: dict[str, Any] = {k: v for k, v in arrays.items() if not k.startswith(PARAMETERS)}
        return NetworkTree(topology, self, own, **others, **names)


@dataclass(frozen=True)
class SmallConvNet:
    """The small convolutional network of E2EDT, section 3.4, for :class:`Network`.

    Convolution 5 x 5 to 3 channels, max-pooling 2 x 2, ReLU; convolution 5 x 5 to 6 channels,
    max-pooling 2 x 2, ReLU; a layer of 50 units, ReLU; a layer of one.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (channels, height, width) of the image in each row.

    Raises
    ------
    ValueError
        If the image is smaller than 16 x 16, or, when called, rows have another size.
    """

    image_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        shape = tuple(self.image_shape)
        object.__setattr__(self, "image_shape", shape)
        if len(shape) not in (2, 3) or min(shape) < 1 or min(shape[-2:]) < 16:
            raise ValueError(
                "image_shape must be (height, width) or (channels, height, width) of 16 x 16 "
                f"pixels or more, got {shape}."
            )

    def __call__(self, n_features: int) -> nn.Module:
        """Build the network for rows of ``n_features`` columns."""
        if n_features != math.prod(self.image_shape):
            raise ValueError(
                f"image_shape {self.image_shape} has {math.prod(self.image_shape)} pixels, but "
                f"rows have {n_features} columns; set the shape of the image in each row."
            )
        *channels, height, width = self.image_shape
        left = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
        single: Any = {"dtype": torch.float32}  # whatever the default is
        return nn.Sequential(
            nn.Unflatten(1, (*(channels or [1]), height, width)),
            nn.Conv2d(channels[0] if channels else 1, 3, 5, **single),
            _MaxPool(),
            nn.ReLU(),
            nn.Conv2d(3, 6, 5, **single),
            _MaxPool(),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(6 * left[0] * left[1], 50, **single),
            nn.ReLU(),
            nn.Linear(50, 1, **single),
        )


class _MaxPool(nn.Module):
    """Max-pooling 2 x 2: ``nn.MaxPool2d(2)``, three times as fast without gradients."""

    def forward(self, image: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return nn.functional.max_pool2d(image, 2)
        height, width = (side // 2 * 2 for side in image.shape[-2:])
        tall = torch.maximum(image[..., :height:2, :width], image[..., 1:height:2, :width])
        return torch.maximum(tall[..., ::2], tall[..., 1::2])


@cached
def _template(split: Network, n_features: int, thread: int) -> nn.Module:  # noqa: ARG001
    """Build a module that is evaluated with the parameters of one node after another.

    There is one per thread, because a call temporarily replaces its parameters. Its creation must
    not advance the generator, or later draws would depend on the state of this cache.
    """
    with torch.random.fork_rng(devices=[]):
        return split.module(n_features)


def _check(module: nn.Module, n_features: int) -> None:
    """Raise unless the module is a function of one row and of trainable parameters."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"build must return a torch.nn.Module, got {type(module).__name__}.")
    mixing = [name for name, part in module.named_modules() if isinstance(part, MIXING)]
    if mixing:
        raise ValueError(
            "the module that build returns has dropout or batch normalisation "
            f"({', '.join(mixing)}), which make a row's side depend on chance or on other rows; "
            "remove them, or use LayerNorm or GroupNorm."
        )
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise ValueError(
            f"the module that build returns has buffers ({', '.join(buffers)}), which are not "
            "sites and would be lost; create constants inside forward."
        )
    frozen = [name for name, value in module.named_parameters() if not value.requires_grad]
    if frozen or not list(module.parameters()):
        raise ValueError(
            "the module that build returns must have parameters, all of them trainable"
            + (f"; these have requires_grad=False: {', '.join(frozen)}." if frozen else ".")
        )
    _check_output(module, n_features)


@torch.no_grad()
def _check_output(module: nn.Module, n_features: int) -> None:
    """Raise unless the output is (n, 1) or (n,) and each row's is independent of other rows."""
    dtype = next(module.parameters()).dtype
    rows = torch.linspace(-1, 1, 3 * n_features, dtype=dtype).view(3, n_features)
    together = module.eval()(rows)
    if not isinstance(together, Tensor) or together.shape not in ((3,), (3, 1)):
        shape = tuple(together.shape) if isinstance(together, Tensor) else type(together).__name__
        raise ValueError(
            "the module that build returns must map rows (n, d) to log-odds (n, 1) or (n,); it "
            f"maps (3, {n_features}) to {shape}."
        )
    alone = torch.cat([module(row.unsqueeze(0)).reshape(1) for row in rows])
    if not torch.allclose(together.reshape(3), alone, rtol=1e-3, atol=1e-5):
        raise ValueError(
            "the module that build returns must be a deterministic function of each row; its "
            "outputs for single rows and for all rows together differ."
        )
