"""Coordinates in which a posterior is about as wide in every direction.

A sampler that moves in them with a unit mass matrix moves in the old ones with the mass matrix
that is their precision. The coefficients of an expert, correlated as the features are, are turned
together; all other coordinates are scaled one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.potential import Layout

WIDEST = 64  # coefficients of an expert that are turned together, at most
LEAST = 1e-3  # information of a coordinate that the data say nothing of: it moves by some 30
WORTH = 5  # gradients that a guess of one coordinate is worth


class Learnt(NamedTuple):
    """Mean squares and, within blocks, mean products of gradients.

    Where a density is normal, the diagonal and the blocks of its precision.

    Attributes
    ----------
    squares : array, shape (m,)
    products : array, shape (B, w, w)
    """

    squares: FloatArray
    products: FloatArray


def expert_blocks(layout: Layout) -> IntArray:
    """Places of the coefficients of each expert in a vector, shape (B, w); none if too wide."""
    places = layout.free(np.arange(layout.length, dtype=np.float64))
    joined = np.concatenate([places["hyperplane"], places["intercept"][..., None]], axis=-1)
    width = joined.shape[-1]
    blocks = joined.reshape(-1, width) if width <= WIDEST else np.empty((0, 0))
    return blocks.astype(np.int64)


@dataclass
class Information:
    """What gradients say of a density's precision, drawn towards a guess."""

    blocks: IntArray
    guess: Learnt
    count: int = 0
    squares: FloatArray = field(default_factory=lambda: np.zeros(0))
    products: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.squares, self.products = (np.zeros_like(part) for part in self.guess)

    @classmethod
    def of(cls, gradients: FloatArray, blocks: IntArray) -> Learnt:
        """From gradients (n, m) alone; within blocks the diagonal counts for the width."""
        squares = np.mean(gradients**2, axis=0)
        own = squares[blocks]
        diagonal = own[..., None] * np.eye(blocks.shape[1])
        information = cls(blocks, Learnt(squares, diagonal))
        for gradient in gradients:
            information.add(gradient)
        return information.estimate

    def state_dict(self) -> dict[str, Any]:
        """All but the blocks."""
        return {
            "guess": tuple(self.guess),
            "count": self.count,
            "squares": self.squares,
            "products": self.products,
        }

    @classmethod
    def restored(cls, blocks: IntArray, state: Mapping[str, Any]) -> Self:
        """From its state."""
        information = cls(blocks, Learnt(*state["guess"]), state["count"])
        information.squares, information.products = state["squares"], state["products"]
        return information

    def add(self, gradient: FloatArray) -> None:
        """Take in a gradient, shape (m,)."""
        self.count += 1
        self.squares += gradient**2
        own = gradient[self.blocks]
        self.products += own[:, :, None] * own[:, None, :]

    @property
    def estimate(self) -> Learnt:
        """The guess counts for five gradients, of a block for as many as it is wide and five."""
        wide = WORTH + self.blocks.shape[1]
        return Learnt(
            (self.squares + WORTH * self.guess.squares) / (self.count + WORTH),
            (self.products + wide * self.guess.products) / (self.count + wide),
        )


class Whitening:
    """A linear change of coordinates, x = A u with A A' the inverse of a precision.

    Parameters
    ----------
    learnt : Learnt
    blocks : array of int, shape (B, w)
    curvature : array, shape (m,)
        Precision beyond what was learnt.
    """

    def __init__(self, learnt: Learnt, blocks: IntArray, curvature: FloatArray) -> None:
        self.blocks = blocks
        self.scale = 1 / np.sqrt(np.maximum(learnt.squares, LEAST) + curvature)
        extra = (LEAST + curvature[blocks])[..., None] * np.eye(blocks.shape[1])
        factor, inverse = _factors(learnt.products + extra)
        self.factor, self.root = factor, inverse.swapaxes(-1, -2)

    def white(self, position: FloatArray) -> FloatArray:
        """u of a position x."""
        return self._mixed(position, 1 / self.scale, self.factor.swapaxes(-1, -2))

    def position(self, white: FloatArray) -> FloatArray:
        """x of u."""
        return self._mixed(white, self.scale, self.root)

    def gradient(self, gradient: FloatArray) -> FloatArray:
        """Gradient in u from one in x."""
        return self._mixed(gradient, self.scale, self.root.swapaxes(-1, -2))

    def _mixed(self, vector: FloatArray, scale: FloatArray, matrices: FloatArray) -> FloatArray:
        mixed = scale * vector
        mixed[self.blocks] = (matrices @ vector[self.blocks][..., None])[..., 0]
        return mixed


def _factors(precision: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower Cholesky factors, and their inverses, of matrices (B, w, w)."""
    factor = np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
    return factor, np.asarray(np.linalg.inv(factor), dtype=np.float64)
