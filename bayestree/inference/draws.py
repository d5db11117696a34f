"""Named draws of one soft tree's parameters."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayestree._utils.state import InUsualState
from bayestree._utils.wording import counted
from bayestree.models.priors.base import Sites
from bayestree.models.soft_tree import SoftTree

Arrays = Mapping[str, NDArray[Any]]
WIDTH = 90  # of a part of the model, when draws are printed


@dataclass(frozen=True, eq=False)
class Draws(InUsualState):
    """Draws of the parameters of a soft tree; a point estimate is one draw.

    Parameters
    ----------
    model : SoftTree
        Model of the draws, with the final topology.
    draws : mapping of arrays, each of shape (chain, draw, ...)
        Draws by site name (see ``bayestree.models.priors.base``).
    point : mapping of arrays
        The MAP estimate or posterior mean of each site, which gives the deterministic tree.
    inference : str
        Name of the inference method.
    stats : mapping of arrays
        Recorded quantities: ``elbo`` by step, ``log_p`` and ``log_q`` by draw, ``loss`` by epoch.
    settings : mapping
        Settings of the inference method, for reports.
    warmup_draws, warmup_stats : mapping of arrays
        Draws and statistics of a sampler's adaptation; not part of the posterior.
    """

    model: SoftTree
    draws: Arrays
    point: Arrays
    inference: str
    stats: Arrays = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    warmup_draws: Arrays = field(default_factory=dict)
    warmup_stats: Arrays = field(default_factory=dict)

    def __repr__(self) -> str:
        model, kind = self.model, type(self).__name__
        parts = [*map(repr, (model.split, *vars(model.priors).values(), model.leaf))]
        return "\n    ".join(
            [
                f"{kind} by {self.inference!r}: {counted(self.n_chains, 'chain')} of "
                f"{counted(self.n_draws, 'draw')}, {counted(model.topology.n_leaves, 'leaf')}",
                *(part if len(part) <= WIDTH else f"{part[:WIDTH]}..." for part in parts),
                *(f"{name} {values.shape}" for name, values in self.draws.items()),
            ]
        )

    @classmethod
    def from_point(cls, model: SoftTree, sites: Sites, inference: str, **recorded: Any) -> Self:
        """Create a posterior of one draw."""
        point = {name: value.detach().cpu().numpy() for name, value in sites.items()}
        draws = {name: value[None, None] for name, value in point.items()}
        return cls(model, draws, point, inference, **recorded)

    @property
    def variational(self) -> bool:
        """Whether the draws come from a variational fit."""
        return "elbo" in self.stats

    @property
    def n_chains(self) -> int:
        return int(next(iter(self.draws.values())).shape[0])

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""
        return int(next(iter(self.draws.values())).shape[1])

    def sites(self, chain: int, draw: int) -> dict[str, Tensor]:
        """Return one draw as tensors."""
        return {name: torch.as_tensor(values[chain, draw]) for name, values in self.draws.items()}

    def joined(self, draws: slice) -> dict[str, Tensor]:
        """Join the sites of consecutive draws, chain after chain, to the sites of one wide tree.

        The nodes (leaves) of each draw follow the nodes of the draw before; other sites are left
        out.
        """
        found = {}
        for name, values in self.draws.items():
            if values.ndim > 2:
                each = values.reshape(self.n_chains * self.n_draws, *values.shape[2:])[draws]
                wide = each.reshape(each.shape[0] * each.shape[1], *each.shape[2:])
                found[name] = torch.as_tensor(wide)
        return found

    def point_sites(self, like: Tensor | None = None) -> dict[str, Tensor]:
        """Return the point estimate as tensors, on the dtype and device of ``like`` if given."""
        sites = {name: torch.as_tensor(values) for name, values in self.point.items()}
        return sites if like is None else {name: value.to(like) for name, value in sites.items()}

    def thinned(self, most: int) -> Self:
        """Return at most ``most`` evenly spaced draws of each chain."""
        step = -(-self.n_draws // most)
        return replace(self, draws={name: value[:, ::step] for name, value in self.draws.items()})

    def each(self) -> Iterator[dict[str, Tensor]]:
        """Yield every draw of every chain as tensors."""
        for chain in range(self.n_chains):
            for draw in range(self.n_draws):
                yield self.sites(chain, draw)

    @property
    def model_of_draws(self) -> SoftTree:
        """Model of the sites that were drawn: collapsed if these exclude the scales."""
        return self.model if "hyperplane_scale" in self.draws else self.model.collapsed()

    def weight(self) -> NDArray[Any]:
        """Compute the weights of the experts of the point estimate, shape (V, K)."""
        if self.model.split.weighted:
            return np.exp(self.point["log_weight"])
        return np.ones_like(self.point["intercept"])
