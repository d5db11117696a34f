"""Sequential Monte Carlo over trees."""

from bayestree.inference.smc.method import Smc, smc

__all__ = ["Smc", "smc"]
