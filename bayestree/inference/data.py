"""Training rows as tensors, minibatches of them, and their units."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PART = 512  # rows scored at a time: what they take fits in a cache


class Data(NamedTuple):
    """Rows to fit: X (n, d), y (n,) as class numbers or real values, weights (n,)."""

    X: Tensor
    y: Tensor
    weights: Tensor

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        weights: Any = None,
        *,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
    ) -> "Data":
        """Rows from arrays or tensors; integer y are class numbers."""
        rows = torch.as_tensor(X, dtype=dtype, device=device)
        target = torch.as_tensor(y, device=device)
        target = target.to(dtype if target.is_floating_point() else torch.long)
        if weights is None:
            weight = rows.new_ones(len(rows))
        else:
            weight = torch.as_tensor(weights, dtype=dtype, device=device)
        if not len(rows) == len(target) == len(weight):
            raise ValueError(
                f"X, y and weights must have as many rows, got {len(rows)}, {len(target)} and "
                f"{len(weight)}."
            )
        return cls(rows, target, weight)

    def with_ones(self) -> "Data":
        """The rows with a last column of ones, the feature of the intercepts."""
        ones = self.X.new_ones(len(self.X), 1)
        return self._replace(X=torch.cat((self.X, ones), dim=1))

    def take(self, rows: Tensor) -> "Data":
        """Some of the rows."""
        return Data(self.X[rows], self.y[rows], self.weights[rows])

    def parts(self, size: int = PART) -> Iterator["Data"]:
        """All rows in order, some at a time, so that memory does not grow with them."""
        for start in range(0, len(self.X), size):
            yield Data(*(column[start : start + size] for column in self))

    def batches(self, size: int) -> Iterator["Data"]:
        """One epoch of shuffled minibatches of nearly equal size."""
        n = len(self.X)
        if size >= n:
            yield self
            return
        order = torch.randperm(n, device=self.X.device)
        for rows in order.chunk(-(-n // size)):
            yield self.take(rows)


class Units(NamedTuple):
    """Units of the data: X = center + scale * rows, y = y_center + y_scale * values.

    Attributes
    ----------
    center, scale : arrays, shape (d,)
    y_center, y_scale : float
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    y_center: float = 0.0
    y_scale: float = 1.0
