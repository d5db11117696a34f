"""Random feature subsets, drawn for each node (E2EDT, section 2.7), which decorrelate trees."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bayestree.estimators._images import check_image, checked_pair
from bayestree.estimators._parameters import MaxFeatures


@dataclass(frozen=True)
class RandomFeatures:
    """``count`` features (or all, if there are fewer), drawn uniformly without replacement."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be 1 or more, got {self.count}.")

    def __call__(self, n_nodes: int, n_features: int, generator: torch.Generator) -> Tensor:
        """Draw a mask of the features of each node, shape (n_nodes, n_features)."""
        order = torch.rand(n_nodes, n_features, generator=generator).argsort(1)
        mask = torch.zeros(n_nodes, n_features, dtype=torch.bool)
        return mask.scatter_(1, order[:, : self.count], value=True)


@dataclass(frozen=True)
class RandomPatch:
    """The pixels of a rectangle at a uniformly random position in the image.

    Sizes are (height, width); the features are the pixels of the image, row by row.
    """

    image_shape: tuple[int, int]
    patch_size: tuple[int, int]

    def __post_init__(self) -> None:
        fits = all(1 <= p <= i for p, i in zip(self.patch_size, self.image_shape, strict=True))
        if not fits:
            raise ValueError(
                f"patch_size must lie between (1, 1) and image_shape {self.image_shape}, got "
                f"{self.patch_size}."
            )

    def __call__(self, n_nodes: int, n_features: int, generator: torch.Generator) -> Tensor:
        """Draw a mask of the features of each node, shape (n_nodes, n_features)."""
        sides = []
        for whole, part in zip(self.image_shape, self.patch_size, strict=True):
            first = torch.randint(whole - part + 1, (n_nodes, 1), generator=generator)
            place = torch.arange(whole)
            sides.append((place >= first) & (place < first + part))
        rows, columns = sides
        mask = rows.unsqueeze(2) & columns.unsqueeze(1)
        if mask[0].numel() != n_features:
            raise ValueError(
                f"image_shape {self.image_shape} has {mask[0].numel()} pixels, but there are "
                f"{n_features} features."
            )
        return mask.flatten(1)


def subset_rule(
    n_features: int,
    max_features: MaxFeatures,
    image_shape: Sequence[int] | None,
    patch_size: Sequence[int] | None,
) -> RandomFeatures | RandomPatch | None:
    """Return the rule for the features that a split may use; None for all of them."""
    if patch_size is not None:
        if max_features is not None:
            raise ValueError(
                f"patch_size={patch_size} and max_features={max_features!r} both select the "
                "features that a split may use; give one of them."
            )
        image = check_image(image_shape, n_features, f"patch_size={patch_size}")
        return RandomPatch(image, checked_pair("patch_size", patch_size))
    if max_features is None:
        return None
    if max_features == "sqrt":
        return RandomFeatures(max(1, math.isqrt(n_features)))
    if isinstance(max_features, float):
        return RandomFeatures(max(1, int(max_features * n_features)))
    return RandomFeatures(int(max_features))
