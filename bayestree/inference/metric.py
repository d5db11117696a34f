"""Whitening: coordinates in which a posterior has about the same width in every direction.

Sampling in these coordinates with a unit mass matrix is equivalent to sampling in the original
ones with the precision as mass matrix. The coefficients of an expert, which are as correlated
as the features, are transformed jointly; all other coordinates are scaled individually.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.potential import Layout

MAX_WIDTH = 64  # maximum number of coefficients of an expert that are transformed jointly
MIN_INFORMATION = 1e-3  # minimum information: without data, a coordinate has a scale of about 30
GUESS_COUNT = 5  # number of gradients to which a guess of one coordinate is equivalent


class Precision(NamedTuple):
    """Mean squares and, within blocks, mean products of gradients of a log-density.

    E[g g'] is the Fisher information: for a normal density, whose gradient is -P (x - mu), it is
    P Cov(x) P = P, so these are the diagonal and the blocks of the precision.
    """

    squares: FloatArray  # (m,)
    products: FloatArray  # (B, w, w)


def expert_blocks(layout: Layout) -> IntArray:
    """Indices of the coefficients of each expert in a vector, (B, w); empty if w is too large."""
    places = layout.free(np.arange(layout.length, dtype=np.float64))
    joined = np.concatenate([places["hyperplane"], places["intercept"][..., None]], axis=-1)
    width = joined.shape[-1]
    blocks = joined.reshape(-1, width) if width <= MAX_WIDTH else np.empty((0, 0))
    return blocks.astype(np.int64)


@dataclass
class Information:
    """Running estimate of a density's precision from gradients, shrunk towards a prior guess."""

    blocks: IntArray
    guess: Precision
    count: int = 0
    squares: FloatArray = field(default_factory=lambda: np.zeros(0))
    products: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.squares, self.products = (np.zeros_like(part) for part in self.guess)

    @classmethod
    def of(cls, gradients: FloatArray, blocks: IntArray) -> Precision:
        """Estimate from gradients (n, m) only; blocks are shrunk towards their diagonal."""
        squares = np.mean(gradients**2, axis=0)
        diagonal = squares[blocks][..., None] * np.eye(blocks.shape[1])
        information = cls(blocks, Precision(squares, diagonal))
        for gradient in gradients:
            information.add(gradient)
        return information.estimate

    def state_dict(self) -> dict[str, Any]:
        return {
            "guess": tuple(self.guess),
            "count": self.count,
            "squares": self.squares,
            "products": self.products,
        }

    @classmethod
    def restored(cls, blocks: IntArray, state: Mapping[str, Any]) -> Self:
        information = cls(blocks, Precision(*state["guess"]), state["count"])
        information.squares, information.products = state["squares"], state["products"]
        return information

    def add(self, gradient: FloatArray) -> None:
        """Add a gradient, shape (m,)."""
        self.count += 1
        self.squares += gradient**2
        parts = gradient[self.blocks]
        self.products += parts[:, :, None] * parts[:, None, :]

    @property
    def estimate(self) -> Precision:
        """Weighted mean: the guess counts as 5 gradients, or 5 plus its width for a block."""
        wide = GUESS_COUNT + self.blocks.shape[1]
        return Precision(
            (self.squares + GUESS_COUNT * self.guess.squares) / (self.count + GUESS_COUNT),
            (self.products + wide * self.guess.products) / (self.count + wide),
        )


class Whitening:
    """A linear change of coordinates, x = A u with A A' the inverse of a precision.

    With the Cholesky factor P = L L' of a block, A = L'^-1: x = L'^-1 u, u = L' x, and a gradient
    in u is A' = L^-1 times that in x. ``curvature`` (m,) is an additional precision.
    """

    def __init__(self, precision: Precision, blocks: IntArray, curvature: FloatArray) -> None:
        self.blocks = blocks
        self.scale = 1 / np.sqrt(np.maximum(precision.squares, MIN_INFORMATION) + curvature)
        extra = (MIN_INFORMATION + curvature[blocks])[..., None] * np.eye(blocks.shape[1])
        factor, inverse = _factors(precision.products + extra)
        self.factor, self.root = factor, inverse.swapaxes(-1, -2)

    def white(self, position: FloatArray) -> FloatArray:
        """Coordinates u of a position x."""
        return self._mixed(position, 1 / self.scale, self.factor.swapaxes(-1, -2))

    def position(self, white: FloatArray) -> FloatArray:
        """Position x of coordinates u."""
        return self._mixed(white, self.scale, self.root)

    def gradient(self, gradient: FloatArray) -> FloatArray:
        """Gradient with respect to u from that with respect to x."""
        return self._mixed(gradient, self.scale, self.root.swapaxes(-1, -2))

    def _mixed(self, vector: FloatArray, scale: FloatArray, matrices: FloatArray) -> FloatArray:
        mixed = scale * vector
        mixed[self.blocks] = (matrices @ vector[self.blocks][..., None])[..., 0]
        return mixed


def _factors(precision: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower Cholesky factors of matrices (B, w, w), and their inverses."""
    factor = np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
    return factor, np.asarray(np.linalg.inv(factor), dtype=np.float64)
