"""Search for the number of facets of polytope splits, by moves that the ELBO accepts."""

from bayestree.inference.facets.fits import SearchOptions
from bayestree.inference.facets.tree import (
    TreeFacets,
    improve_facets,
    polytope_guide,
    without_unneeded,
)

__all__ = ["SearchOptions", "TreeFacets", "improve_facets", "polytope_guide", "without_unneeded"]
