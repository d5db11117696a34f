"""Training rows, which are converted whole or in chunks; their columns in use and units."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import pandas as pd
import torch

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, weighted_quantiles
from bayestree._utils.wording import warn
from bayestree.inference import Posterior, Units, memory_mapped
from bayestree.inference.posterior import Arrays
from bayestree.models.soft_tree import declared_sites
from bayestree.routed_tree import RowSource, chunks
from bayestree.tables import UnusedColumnsWarning

PARTS = 8  # chunks that fit into the allowed memory, since each is copied a few times
MAX_NAMED = 5  # maximum number of columns that a message names
RANGE = 6.0  # range of a column in units of "standard", at most
TOO_LARGE = "holds values too large to be squared (beyond about 1e150); rescale them."
#: Units of the features: the standard deviation, but at least a sixth of the range; one unit for
#: all; the range, scaled to [-1, 1]; exactly the standard deviation; the units of the data.
UnitRule = Literal["standard", "common", "range", "variance", "none"]
# Detached values.
SAMPLE = 10_000  # rows from which quartiles are estimated
FAR = 10.0  # interquartile ranges between a quartile and a detached value, at least
GAP = 5.0  # distance of a detached value from the others, in units of their range, at least,
KEPT = 0.25  # and after it is drawn in
LARGEST = 1e150  # larger values, whose squares overflow, are left to be refused
SMALLEST = 1e-150  # smaller units, in which values overflow, become 1


@dataclass(frozen=True, eq=False)
class FileRows:
    """Selected rows of an array (N, d), as (source - center) / scale in double precision.

    They are converted in chunks, which a large array needs that is ``mapped`` from a file, and
    which saves copies of one in memory. ``limits`` (2, d) are the least and the greatest value of
    each column of the source.
    """

    source: AnyArray
    numbers: IntArray | None = None
    center: FloatArray | None = None
    scale: FloatArray | None = None
    limits: tuple[FloatArray, FloatArray] | None = None
    mapped: bool = True

    def __len__(self) -> int:
        return len(self.source if self.numbers is None else self.numbers)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self), self.source.shape[1]

    def __getitem__(self, rows: slice | IntArray) -> FloatArray:
        """Read some of the rows as an array."""
        own = self.source[rows if self.numbers is None else self.numbers[rows]]
        found = np.array(own, dtype=np.float64)
        if self.limits is not None:
            found = np.clip(found, *self.limits)
        if self.center is not None and self.scale is not None:
            found -= self.center
            found /= self.scale
        return found

    def where(self, kept: BoolArray) -> "FileRows":
        """Return the marked rows."""
        if kept.all():
            return self
        numbers = np.flatnonzero(kept)
        own = numbers if self.numbers is None else self.numbers[numbers]
        return replace(self, numbers=own)

    def standardised(self, center: FloatArray, scale: FloatArray) -> "FileRows":
        """Return the same rows in other units."""
        return replace(self, center=center, scale=scale)

    def within(self, low: FloatArray, high: FloatArray) -> "FileRows":
        """Return the same rows, with the source clipped to ``low`` and ``high``."""
        return replace(self, limits=(low, high))

    def slices(self) -> Iterator[slice]:
        """Slice all rows into parts that fit into memory."""
        size = max(1, memory_mapped.HELD // PARTS // self.shape[1])
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def tensor(
        self, dtype: torch.dtype, device: str, columns: slice | BoolArray = slice(None)
    ) -> torch.Tensor:
        """Copy columns of all rows to a tensor, mapped from a file as they are if on the CPU."""
        shape = (len(self), self[:0][:, columns].shape[1])
        if self.mapped and torch.device(device).type == "cpu":
            found = memory_mapped.mapped_tensor(shape, dtype)
        else:
            found = torch.empty(shape, dtype=dtype, device=device)
        for part in chunks(*self.shape):
            found[part] = torch.from_numpy(self[part][:, columns])
        return found


def is_large(X: Any) -> bool:
    """Return whether X is an array in memory of which copies should be avoided."""
    plain = isinstance(X, np.ndarray) and X.dtype.kind == "f" and X.ndim == 2
    return plain and X.size > memory_mapped.HELD // PARTS


def large_file(X: Any) -> AnyArray | None:
    """Return the array of a ``numpy.memmap``, or a table of one, if too large for memory."""
    if isinstance(X, np.memmap):
        return X if X.size > memory_mapped.HELD else None
    if not isinstance(X, pd.DataFrame) or X.size <= memory_mapped.HELD or len(set(X.dtypes)) > 1:
        return None
    base: Any = X.to_numpy()
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return X.to_numpy()
        base = base.base
    return None


def parts_of(X: pd.DataFrame) -> Iterator[slice]:
    """Slice all rows of a table: once, or in parts if it is mapped from a large file."""
    array = large_file(X)
    return iter([slice(0, len(X))]) if array is None else FileRows(array).slices()


class TrainingRows(NamedTuple):
    """Rows in the units of the data, with encoded y."""

    X: FloatArray | FileRows
    y: AnyArray
    weights: FloatArray
    class_names: tuple[str, ...] = ()
    extra: FloatArray | None = None  # (n,), a number that the leaves need (see ``Leaf.extra``)

    @property
    def response(self) -> AnyArray:
        """y, with the extra number of each row as a second column if there is one."""
        return self.y if self.extra is None else np.column_stack((self.y, self.extra))

    def counted(self) -> "TrainingRows":
        """Return the rows of positive weight."""
        kept = self.weights > 0
        X = self.X.where(kept) if isinstance(self.X, FileRows) else self.X[kept]
        extra = None if self.extra is None else self.extra[kept]
        return self._replace(X=X, y=self.y[kept], weights=self.weights[kept], extra=extra)


@dataclass(frozen=True, eq=False)
class Scaling:
    """The columns in use, and the units of features and y in a fit."""

    source: IntArray  # the column that represents each one, (d,); -1 for constant columns
    units: Units
    labels: AnyArray | None = None  # the classes, (C,), which y numbers

    @property
    def used(self) -> BoolArray:
        """Columns that the fit may use, shape (d,)."""
        return self.source == np.arange(len(self.source))

    @overload
    def standardise(self, X: FloatArray) -> FloatArray: ...
    @overload
    def standardise(self, X: FileRows) -> FileRows: ...
    def standardise(self, X: FloatArray | FileRows) -> FloatArray | FileRows:
        """Return rows in the units of the draws."""
        if isinstance(X, FileRows):
            return X.standardised(self.units.center, self.units.scale)
        return self.units.standardise(X)


def columns_in_use(
    X: FloatArray | FileRows,
    weights: FloatArray,
    names: Sequence[str] | None = None,
    *,
    whole_image: bool = False,
) -> IntArray:
    """Find the column that represents each one in the fit, shape (d,); -1 for constant columns.

    Of equal columns, the first represents all. Only rows of positive weight matter. If no column
    varies, the first is used. For ``whole_image``, equal pixels are all used, and constant ones,
    which are common at the border of images, are ignored without a warning.
    """
    d = X.shape[1]
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    digests = [hashlib.blake2b() for _ in range(0 if whole_image else d)]
    for part in chunks(len(X), d):
        rows = X[part][weights[part] > 0] + 0.0  # -0.0 becomes 0.0, for equal bytes
        low = np.minimum(low, rows.min(axis=0, initial=np.inf))
        high = np.maximum(high, rows.max(axis=0, initial=-np.inf))
        for digest, column in zip(digests, np.ascontiguousarray(rows.T), strict=False):
            digest.update(column)
    source = np.where(low < high, np.arange(d), -1)
    first: dict[bytes, int] = {}
    for j in np.flatnonzero(low < high)[: len(digests)]:
        source[j] = first.setdefault(digests[j].digest(), j)
    ignored = np.flatnonzero(source != np.arange(d))
    if len(ignored) and not whole_image:
        labels = [f"x{j}" for j in range(d)] if names is None else [str(name) for name in names]
        copies = [f"{labels[j]} equals {labels[source[j]]}" for j in ignored if source[j] >= 0]
        constant = [labels[j] for j in ignored if source[j] < 0]
        lists = filter(None, [_listed("constant", constant), _listed("duplicate", copies)])
        warn(f"the fit ignores {' and '.join(lists)} of X.", UnusedColumnsWarning)
    if (source < 0).all():
        source[0] = 0
    return source


def _listed(kind: str, found: list[str]) -> str:
    if not found:
        return ""
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    columns = "column" if len(found) == 1 else "columns"
    return f"{len(found)} {kind} {columns} ({', '.join(found[:MAX_NAMED])}{more})"


def with_unused_columns(posterior: Posterior, used: BoolArray, *, reduced: bool) -> Posterior:
    """Extend the posterior to all columns, with coefficients of 0 for unused ones.

    ``reduced`` states whether the given posterior has only the columns in use.
    """
    known = declared_sites(posterior.model)

    def one(name: str, values: AnyArray) -> AnyArray:
        if name not in known or known[name].dimensions[-1:] != ("feature",):
            return values
        unused = 0.0 if known[name].support == "real" else 1.0
        found = np.full((*values.shape[:-1], len(used)), unused, dtype=values.dtype)
        found[..., used] = values if reduced else values[..., used]
        return found

    def widened(sites: Arrays) -> Arrays:
        return {name: one(name, values) for name, values in sites.items()}

    model = posterior.model
    return replace(
        posterior,
        model=model.with_(leaf=model.leaf.widened(used)) if reduced else model,
        draws=widened(posterior.draws),
        point=widened(posterior.point),
        warmup_draws=widened(posterior.warmup_draws),
    )


def units(
    X: FloatArray | FileRows, weights: FloatArray, rule: UnitRule
) -> tuple[FloatArray, FloatArray]:
    """Compute center and unit of each column, shape (d,); the unit of a constant column is 1.

    ``"standard"`` is the weighted standard deviation, but at least a sixth of the range, which is
    about its size for a normal column. A feature that is rarely non-zero then does not outweigh all
    others where it is. ``"common"`` is the root mean square deviation over all columns.
    """
    with np.errstate(over="ignore"):
        center, deviation, low, span = _measured(X, weights)
    if not np.isfinite(deviation).all():
        raise ValueError(f"X {TOO_LARGE}")
    if rule == "none":
        return np.zeros_like(center), np.ones_like(center)
    if rule == "common":
        varies = span > 0
        together = np.sqrt((deviation[varies] ** 2).mean()) if varies.any() else 1.0
        return center, np.where(varies, together, 1.0)
    if rule == "range":
        center, unit = low + span / 2, span / 2
    else:
        unit = deviation if rule == "variance" else np.maximum(deviation, span / RANGE)
    # Rounding leaves a constant column of large values a spread far below its last digit.
    tiny = np.finfo(np.float64).eps * np.abs(center)
    return center, np.where(unit > np.maximum(10 * tiny, SMALLEST), unit, 1.0)


def _measured(
    X: FloatArray | FileRows, weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Compute mean, root mean square deviation, minimum and range of each column."""
    if not isinstance(X, FileRows):
        center = np.average(X, axis=0, weights=weights)
        deviation = np.sqrt(np.average((X - center) ** 2, axis=0, weights=weights))
        return center, deviation, X.min(axis=0), np.ptp(X, axis=0)
    low, high = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
    for part in chunks(*X.shape):
        rows = X[part]
        low, high = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
    center = mean_of(X, weights)
    deviation = np.sqrt(mean_of(X, weights, lambda rows: (rows - center) ** 2))
    return center, deviation, low, high - low


def mean_of(
    X: RowSource, weights: FloatArray, value: Callable[[FloatArray], FloatArray] = np.asarray
) -> FloatArray:
    """Compute the mean over rows of values (m, d), by default X, as ``numpy.average`` would.

    In chunks, whose sums go on from those before: NumPy adds the rows of an array one by one.
    """
    total = np.zeros(X.shape[1])
    for part in chunks(*X.shape):
        rows = value(np.asarray(X[part], dtype=np.float64)) * weights[part, None]
        total = np.concatenate((total[None], rows)).sum(axis=0)
    return np.asarray(total / weights.sum())


def drawn_in(X: FloatArray | FileRows, weights: FloatArray) -> FloatArray | FileRows:
    """Move detached values of rows near the others; return X itself if there are none.

    A single code such as -999 would otherwise determine the unit of its column, in which all other
    values are the same, or the gradients of a fit. Long tails without a wide gap stay as they are,
    and so do columns with more than half of their values equal, such as rare indicators.
    """
    low, high = _limits(X, weights)
    if not np.isfinite([low, high]).any():
        return X
    return X.within(low, high) if isinstance(X, FileRows) else np.clip(X, low, high)


def _limits(X: FloatArray | FileRows, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bound the values of each column, shape (d,); infinite without detached values."""
    n_rows, d = X.shape
    counted = np.flatnonzero(weights > 0)
    some = counted[:: math.ceil(len(counted) / SAMPLE)]
    first, third = weighted_quantiles(X[some], weights[some], [0.25, 0.75])
    with np.errstate(over="ignore"):
        reach = FAR * (third - first)
    low, below = np.full(d, np.inf), np.full(d, -np.inf)
    high, above = np.full(d, -np.inf), np.full(d, np.inf)
    for part in chunks(n_rows, d):
        rows = X[part][weights[part] > 0]
        under = (rows < first - reach) & (rows > -LARGEST)
        over = (rows > third + reach) & (rows < LARGEST)
        near = ~(under | over)
        low = np.minimum(low, rows.min(axis=0, where=near, initial=np.inf))
        high = np.maximum(high, rows.max(axis=0, where=near, initial=-np.inf))
        below = np.maximum(below, rows.max(axis=0, where=under, initial=-np.inf))
        above = np.minimum(above, rows.min(axis=0, where=over, initial=np.inf))
    span = np.where(third > first, high - low, np.inf)
    with np.errstate(invalid="ignore"):
        gaps = np.where(np.isfinite([below, above]), [low - below, above - high], 0.0) > GAP * span
    kept = KEPT * span
    return np.where(gaps[0], low - kept, -np.inf), np.where(gaps[1], high + kept, np.inf)
