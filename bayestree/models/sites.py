"""The named parameters of a soft tree: names, dimensions and supports.

Site names are a contract: the Pyro model, the posterior, its files and ArviZ all use them.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from torch import Tensor

Sites = Mapping[str, Tensor]


class Site(NamedTuple):
    """Dimensions of a site, for its shape and its coordinates in ArviZ, and its support."""

    dimensions: tuple[str, ...]
    support: Literal["real", "positive", "simplex"] = "real"


#: The sites of splits and priors; leaves declare their own.
SITES: dict[str, Site] = {
    "concentration": Site((), "positive"),
    "rate": Site((), "positive"),
    "log_weight": Site(("node", "expert")),
    "weight": Site(("node", "expert"), "positive"),
    "hyperplane": Site(("node", "expert", "feature")),
    "intercept": Site(("node", "expert")),
    "hyperplane_scale": Site(("node", "expert", "feature"), "positive"),
    "intercept_scale": Site(("node", "expert"), "positive"),
    "shrinkage": Site(("node", "expert"), "positive"),
}


class Size(NamedTuple):
    """Lengths of the dimensions of a tree's sites; ``n_classes`` is 0 for numeric leaves."""

    n_nodes: int
    n_experts: int
    n_features: int
    n_leaves: int
    n_classes: int = 0
    n_outputs: int = 1

    def shape(self, dimensions: tuple[str, ...]) -> tuple[int, ...]:
        """Shape of one draw of a site with these dimensions."""
        names = ("node", "expert", "feature", "leaf", "class", "output")
        lengths = dict(zip(names, self, strict=True))
        return tuple(lengths[dimension] for dimension in dimensions)
