"""Variational posteriors, by natural or stochastic gradients."""
