"""Rows whose features are the pixels of an image."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any


def check_image(
    image_shape: Sequence[int] | None, n_features: int, setting: str
) -> tuple[int, int]:
    """Height and width of the image of ``n_features`` pixels that a setting needs."""
    if image_shape is None:
        raise ValueError(
            f"{setting} needs image_shape, the height and width of the image in each row."
        )
    height, width = checked_pair("image_shape", image_shape)
    if height * width != n_features:
        raise ValueError(
            f"image_shape {(height, width)} has {height * width} pixels, and X has {n_features} "
            "features."
        )
    return height, width


def checked_pair(name: str, value: Sequence[Any]) -> tuple[int, int]:
    """Height and width as two integers; ValueError for anything else."""
    if len(value) != 2 or not all(isinstance(v, Integral) and int(v) >= 1 for v in value):
        raise ValueError(f"{name} must be two integers of 1 or more, got {value!r}.")
    return int(value[0]), int(value[1])
