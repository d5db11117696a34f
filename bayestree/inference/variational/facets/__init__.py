"""Search for the number of facets of polytope splits, by moves that the ELBO accepts."""
