"""Contracts of priors and of families of leaves, as tests."""
