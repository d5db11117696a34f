"""The named parameters of a soft tree: names, shapes and their supports.

Site names are a contract: the Pyro model, the posterior, its files and ArviZ all use them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

Sites = Mapping[str, Tensor]

#: Dimensions of each site, for shapes here and for the coordinates of ArviZ.
DIMENSIONS: dict[str, tuple[str, ...]] = {
    "concentration": (),
    "rate": (),
    "log_weight": ("node", "expert"),
    "weight": ("node", "expert"),
    "hyperplane": ("node", "expert", "feature"),
    "intercept": ("node", "expert"),
    "hyperplane_scale": ("node", "expert", "feature"),
    "intercept_scale": ("node", "expert"),
    "shrinkage": ("node", "expert"),
    "leaf_probs": ("leaf", "class"),
    "leaf_mean": ("leaf",),
    "leaf_scale": ("leaf",),
}


class Size(NamedTuple):
    """How large a tree's parameters are."""

    n_nodes: int
    n_experts: int
    n_features: int
    n_leaves: int

    def shape(self, site: str, n_classes: int = 0) -> tuple[int, ...]:
        """Shape of one draw of a site."""
        lengths = {
            "node": self.n_nodes,
            "expert": self.n_experts,
            "feature": self.n_features,
            "leaf": self.n_leaves,
            "class": n_classes,
        }
        return tuple(lengths[dimension] for dimension in DIMENSIONS[site])
