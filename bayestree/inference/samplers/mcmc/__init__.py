"""Metropolis-within-Gibbs sampling of trees of given topology, all chains at once."""
