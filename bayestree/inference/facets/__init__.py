"""Search for the number of facets of polytope splits, by moves that the ELBO accepts."""

from bayestree.inference.facets.bound import SearchOptions
from bayestree.inference.facets.search import (
    TreeFacets,
    improve_facets,
    polytope_guide,
    without_unneeded,
)

__all__ = ["SearchOptions", "TreeFacets", "improve_facets", "polytope_guide", "without_unneeded"]
