"""Images as features, and the random subsets of features that splits may use."""

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from bayestree.estimators._parameters import MaxFeatures
from bayestree.inference.splitters.feature_subsets import RandomFeatures, RandomPatch


def subset_rule(
    n_features: int,
    max_features: MaxFeatures,
    image_shape: Sequence[int] | None,
    patch_size: Sequence[int] | None,
) -> RandomFeatures | RandomPatch | None:
    """The rule for the features that a split may use; None for all of them."""
    if patch_size is not None:
        if max_features is not None:
            raise ValueError(
                f"patch_size={patch_size} and max_features={max_features!r} both select the "
                "features that a split may use; give one of them."
            )
        image = check_image(image_shape, n_features, f"patch_size={patch_size}")
        return RandomPatch(image, _pair("patch_size", patch_size))
    if max_features is None:
        return None
    if max_features == "sqrt":
        return RandomFeatures(max(1, math.isqrt(n_features)))
    if isinstance(max_features, float):
        return RandomFeatures(max(1, int(max_features * n_features)))
    return RandomFeatures(int(max_features))


def check_image(
    image_shape: Sequence[int] | None, n_features: int, setting: str
) -> tuple[int, int]:
    """Height and width of the image of ``n_features`` pixels that a setting needs."""
    if image_shape is None:
        raise ValueError(
            f"{setting} needs image_shape, the height and width of the image in each row."
        )
    height, width = _pair("image_shape", image_shape)
    if height * width != n_features:
        raise ValueError(
            f"image_shape {(height, width)} has {height * width} pixels, and X has {n_features} "
            "features."
        )
    return height, width


def _pair(name: str, value: Sequence[Any]) -> tuple[int, int]:
    if len(value) != 2 or not all(isinstance(v, Integral) and int(v) >= 1 for v in value):
        raise ValueError(f"{name} must be two integers of 1 or more, got {value!r}.")
    return int(value[0]), int(value[1])
