"""Folds of rows for cross-validation."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import IntArray

Fold = tuple[IntArray, IntArray]


def split_rows(n_rows: int, labels: ArrayLike | None, n_folds: int, seed: int) -> list[Fold]:
    """Training and scored rows of each fold, stratified if all classes have enough rows.

    ``labels`` (n,) are the classes of the rows, None if y is not a class.
    """
    from sklearn.model_selection import KFold, StratifiedKFold  # noqa: PLC0415 - slow to import

    enough = labels is not None and smallest_class(labels)[1] >= n_folds
    kind = StratifiedKFold if enough else KFold
    split = kind(n_folds, shuffle=True, random_state=seed).split(np.empty((n_rows, 0)), labels)
    return [(np.asarray(train), np.asarray(held)) for train, held in split]


def smallest_class(labels: ArrayLike) -> tuple[Any, int]:
    """The class with the fewest rows, and their number."""
    values, counts = np.unique(np.asarray(labels), return_counts=True)
    return values.tolist()[counts.argmin()], int(counts.min())
