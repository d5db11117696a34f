"""Samplers of the posterior, and the density and the moves that they share."""
