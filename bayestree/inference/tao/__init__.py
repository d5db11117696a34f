"""Tree alternating optimisation (TAO) of deterministic trees."""

from bayestree.inference.tao.alternating import tao

__all__ = ["tao"]
