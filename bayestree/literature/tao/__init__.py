"""Tree alternating optimisation (TAO) of deterministic trees."""

from bayestree.literature.tao.alternating import Tao, tao

__all__ = ["Tao", "tao"]
