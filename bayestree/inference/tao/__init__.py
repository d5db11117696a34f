"""TAO: the tree alternating optimisation of deterministic trees."""

from bayestree.inference.tao.alternating import Tao, tao

__all__ = ["Tao", "tao"]
