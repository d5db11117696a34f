"""Scores of probabilities of ordered classes."""

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.calibration import check_probability, encoded


def ranked_probability(
    y: ArrayLike, probability: ArrayLike, classes: ArrayLike | None = None
) -> FloatArray:
    """Ranked probability score of each row (Epstein, 1969), shape (n,); 0 is perfect.

    The squared differences between the cumulative probabilities and those of the observed class,
    summed over the C - 1 cuts between the classes. It counts how far wrong classes are.

    Parameters
    ----------
    y : array, shape (n,)
        Observed classes.
    probability : array, shape (n, C)
        Of the classes in their order.
    classes : array, shape (C,), optional
        Labels of the columns, such as ``classes_`` of a classifier; by default 0, 1, ...

    Raises
    ------
    ValueError
        If the probabilities do not sum to 1, the shapes differ, or y has other classes.

    Examples
    --------
    >>> from bayestree.diagnostics import ranked_probability
    >>> ranked_probability([0, 2], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]).tolist()
    [0.25, 1.25]
    """
    p = check_probability(probability)
    number = encoded(y, p, classes)
    below = number[:, None] <= np.arange(p.shape[1] - 1)
    return ((p.cumsum(axis=1)[:, :-1] - below) ** 2).sum(axis=1)
