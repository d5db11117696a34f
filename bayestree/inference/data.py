"""Training rows as tensors, their minibatches and their units."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bayestree._utils.state import in_usual_state
from bayestree.inference import memory_mapped
from bayestree.models.leaves import Leaf

PART = 512  # rows scored at a time, so that temporaries fit in the cache of a CPU
LARGE_PART = 8_192  # on a GPU, which small tensors leave idle
UNUSED = 1e300  # unit of columns that a fit ignores: scaled by it, their values are nearly 0
BLOCK = 2**16  # bytes of mapped rows that are read together


def part_size(like: Tensor) -> int:
    """Return how many rows are scored at a time on the device of a tensor."""
    return PART if like.device.type == "cpu" else LARGE_PART


class Data(NamedTuple):
    """Rows to fit: X (n, d), y (n,) as class numbers or real values, weights (n,).

    During a fit y is the response of the leaves (see ``for_leaf``), which may have more columns.

    X may be mapped to a file; minibatches and parts are then read from it, and X is never in
    memory as a whole.
    """

    X: Tensor
    y: Tensor
    weights: Tensor

    @classmethod
    @in_usual_state
    def of(
        cls,
        X: Any,
        y: Any,
        weights: Any = None,
        *,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
    ) -> "Data":
        """Create rows from arrays or tensors; integers in y are class numbers, weights are 1."""
        rows = torch.as_tensor(X, dtype=dtype, device=device)
        target = torch.as_tensor(y, device=device)
        target = target.to(dtype if target.is_floating_point() else torch.long)
        weight = torch.as_tensor(
            np.ones(len(rows)) if weights is None else weights, dtype=dtype, device=device
        )
        if not len(rows) == len(target) == len(weight):
            raise ValueError(
                f"X, y and weights must have the same number of rows, got {len(rows)}, "
                f"{len(target)} and {len(weight)}."
            )
        # a fit cannot use tensors that were made in inference mode
        columns = (rows, target, weight)
        return cls(*(one.clone() if one.is_inference() else one for one in columns))

    def __reduce__(self) -> Any:
        """Pickle tensors in memory as arrays, which joblib lets worker processes map."""
        if self.X.device.type != "cpu" or any(one.requires_grad for one in self):
            return Data, tuple(self)
        return _of_arrays, tuple(one.numpy() for one in self)

    def with_ones(self) -> "Data":
        """Append a column of ones, the feature of the intercepts."""
        ones = self.X.new_ones(len(self.X), 1)
        return self._replace(X=torch.cat((self.X, ones), dim=1))

    def for_leaf(self, leaf: Leaf) -> "Data":
        """Return the rows with y as a family of leaves takes it (see ``Leaf.response``)."""
        return self._replace(y=leaf.response(self.X, self.y))

    def to(self, like: Tensor) -> "Data":
        """Convert to the dtype and device of a tensor; class numbers stay integers."""
        y = self.y.to(like if self.y.is_floating_point() else like.device)
        return Data(self.X.to(like), y, self.weights.to(like))

    def take(self, rows: Tensor) -> "Data":
        """Select rows, in memory."""
        return Data(self.X[rows], self.y[rows], self.weights[rows])

    @property
    def mapped(self) -> bool:
        """Whether X is mapped to a file because it is too large for memory."""
        return memory_mapped.is_mapped(self.X)

    def subset(self, rows: Tensor) -> "Data":
        """Select rows; the result is mapped if ``self`` is."""
        if not self.mapped:
            return self.take(rows)
        X = memory_mapped.mapped_tensor((len(rows), self.X.shape[1]), self.X.dtype)
        size = max(1, memory_mapped.HELD // self.X.shape[1])
        for into, part in zip(X.split(size), rows.split(size), strict=True):
            into.copy_(self.X[part])
        return Data(X, self.y[rows], self.weights[rows])

    def held(self) -> "Data":
        """Return the rows or, if they are mapped, a sample of them that fits in memory.

        The sample has one row from each of many stretches of equal length; weights are unchanged.
        """
        n, most = len(self.X), max(1, memory_mapped.HELD // self.X.shape[1])
        if not self.mapped or n <= most:
            return self
        place = torch.arange(most, dtype=torch.float64) + torch.rand(most, dtype=torch.float64)
        return self.take((place * (n / most)).long().clamp_max(n - 1))

    def parts(
        self, size: int | None = None, *, ones: bool = False, whole: bool = False
    ) -> Iterator["Data"]:
        """Yield rows in order, ``size`` at a time or as a ``whole``, with a column of ``ones``."""
        size = len(self.X) if whole else size or part_size(self.X)
        for start in range(0, len(self.X), size):
            part = Data(*(column[start : start + size] for column in self))
            yield part.with_ones() if ones else part

    def batches(self, size: int, *, ones: bool = False) -> Iterator["Data"]:
        """Yield an epoch of shuffled minibatches of nearly equal size; ``ones``: see ``with_ones``.

        Mapped rows are read in random blocks, and several blocks are shuffled together.
        """
        n = len(self.X)
        if size >= n:
            yield self.with_ones() if ones else self
            return
        most = -(-n // -(-n // size))
        sizes = [most] * (n // most) + [n % most] * (n % most > 0)
        if self.mapped:
            batches = self._shuffled(sizes)
        else:
            order = torch.randperm(n, device=self.X.device)
            batches = (self.take(rows) for rows in order.split(sizes))
        for batch in batches:
            yield batch.with_ones() if ones else batch

    def _shuffled(self, sizes: Iterable[int]) -> Iterator["Data"]:
        n, width = self.X.shape
        left = iter(sizes)
        size = next(left, None)
        block = max(1, BLOCK // (width * self.X.element_size()))
        load = max(1, memory_mapped.HELD // 8 // (width * block))  # blocks at a time
        waiting = self.take(torch.arange(0))
        for starts in (torch.randperm(-(-n // block)) * block).split(load):
            # read in the order of the file, shuffle afterwards
            rows = (starts.sort().values.unsqueeze(1) + torch.arange(block)).flatten()
            here = self.take(rows[rows < n])
            joined = Data(*(torch.cat(pair) for pair in zip(waiting, here, strict=True)))
            order = torch.randperm(len(joined.X))
            while size is not None and size <= len(order):
                yield joined.take(order[:size])
                order, size = order[size:], next(left, None)
            waiting = joined.take(order)


def _of_arrays(*columns: NDArray[Any]) -> Data:
    return Data(*(torch.from_numpy(one) for one in columns))


class Units(NamedTuple):
    """Units of the data: X = center + scale * rows, y = y_center + y_scale * values.

    Attributes
    ----------
    center, scale : arrays, shape (d,)
        A scale of ``UNUSED`` marks a column that the fit ignored.
    y_center, y_scale : float, or arrays (q,) of several outputs
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    y_center: Any = 0.0
    y_scale: Any = 1.0

    def with_y(self, center: NDArray[np.float64], scale: NDArray[np.float64]) -> "Units":
        """Replace the units of y, () or (q,)."""
        one = center.ndim == 0
        own = (float(center), float(scale)) if one else (center, scale)
        return self._replace(y_center=own[0], y_scale=own[1])

    def output(self, number: int) -> "Units":
        """Select the units of an output."""
        return self.with_y(self.y_center[number], self.y_scale[number])

    def standardise(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert rows to the units of the fit."""
        return (X - self.center) / self.scale

    def encode(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert values of y to the units of the fit."""
        return (y - self.y_center) / self.y_scale

    def decode(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert values of y to the units of the data."""
        return y * self.y_scale + self.y_center


def padded(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Pad row numbers of V nodes to (V, m) with row 0; also return which are present."""
    index = pad_sequence(rows, batch_first=True)
    length = torch.tensor([len(part) for part in rows], device=index.device).unsqueeze(1)
    return index, torch.arange(index.shape[1], device=index.device) < length
