"""Tree alternating optimisation (TAO) of deterministic trees."""

from bayestree.inference.tao.alternating import Tao, tao

__all__ = ["Tao", "tao"]
