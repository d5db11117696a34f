"""Variational posteriors: by natural or stochastic gradients, and the search for facets."""
