"""Types of the arrays that functions take and return."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]


def class_numbers(y: AnyArray, classes: AnyArray) -> IntArray:
    """Position of each label (n,) among the classes, which hold all labels, in any order."""
    order = np.argsort(classes, kind="stable")
    return order[np.searchsorted(classes, y, sorter=order)]
