"""Random feature subsets, drawn for each node (E2EDT, section 2.7), which decorrelate trees."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RandomFeatures:
    """``count`` features (or all, if there are fewer), drawn uniformly without replacement."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be 1 or more, got {self.count}.")

    def __call__(self, n_nodes: int, n_features: int, generator: torch.Generator) -> Tensor:
        """Mask of the features of each node, shape (n_nodes, n_features)."""
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
        """Mask of the features of each node, shape (n_nodes, n_features)."""
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
