"""From the parameters of an estimator to the random subsets of features of its splits."""

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
    """Which features a split may use; None where all of them.

    Parameters
    ----------
    n_features : int
    max_features : {"sqrt"}, int, float or None
        The square root of the features, a number of them, or a share of them.
    image_shape, patch_size : (int, int) or None
        Height and width of the image, and of the patches of it.

    Raises
    ------
    ValueError
        For a patch without an image, beside ``max_features``, or that does not fit; for an image
        of another number of pixels.
    """
    if patch_size is None:
        if max_features is None:
            return None
        if max_features == "sqrt":
            return RandomFeatures(max(1, math.isqrt(n_features)))
        if isinstance(max_features, float):
            return RandomFeatures(max(1, int(max_features * n_features)))
        return RandomFeatures(int(max_features))
    if max_features is not None:
        raise ValueError(
            f"patch_size={patch_size} and max_features={max_features!r} both say which features a "
            "split may use; give one of them."
        )
    if image_shape is None:
        raise ValueError(
            f"patch_size={patch_size} needs image_shape, the height and width of the image that "
            "the features are."
        )
    return RandomPatch(_pair("image_shape", image_shape), _pair("patch_size", patch_size))


def check_image(image_shape: Sequence[int], n_features: int) -> tuple[int, int]:
    """Height and width of an image of so many pixels.

    Raises
    ------
    ValueError
        For other things than two whole numbers of 1 or more, or another number of pixels.
    """
    height, width = _pair("image_shape", image_shape)
    if height * width != n_features:
        raise ValueError(
            f"image_shape {(height, width)} has {height * width} pixels, and X has {n_features} "
            "features."
        )
    return height, width


def _pair(name: str, value: Sequence[Any]) -> tuple[int, int]:
    if len(value) != 2 or not all(isinstance(v, Integral) and int(v) >= 1 for v in value):
        raise ValueError(f"{name} must be two whole numbers of 1 or more, got {value!r}.")
    return int(value[0]), int(value[1])
