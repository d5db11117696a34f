"""Columns that the fit ignores: constant ones and duplicates."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.warn import warn
from bayestree.estimators._file_rows import FileRows
from bayestree.inference import Posterior
from bayestree.inference.draws import Arrays
from bayestree.models.sites import DIMENSIONS
from bayestree.routed_tree import chunks

NAMED = 5  # columns, before the rest is only counted


class UnusedColumnsWarning(UserWarning):
    """Columns of X are constant or repeat another column, and the fit does not use them."""


def columns_in_use(
    X: FloatArray | FileRows,
    weights: FloatArray,
    names: Sequence[str] | None = None,
    *,
    whole_image: bool = False,
) -> IntArray:
    """The column that stands for each one in the fit, shape (d,).

    Columns that vary over the rows of positive weight stand for themselves; of identical columns,
    the first stands for all. Constant columns have -1. One column is in use even where none
    varies.

    Parameters
    ----------
    X : array or FileRows, shape (n, d)
    weights : array, shape (n,)
    names : sequence of str, optional
        Names of the columns, for the warning.
    whole_image : bool
        The columns are the pixels of an image: equal ones are all in use, and constant ones, of
        which the border of an image often consists, are left out without a warning.

    Warns
    -----
    UnusedColumnsWarning
        Naming the columns that are left out.
    """
    d = X.shape[1]
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    digests = [hashlib.blake2b() for _ in range(0 if whole_image else d)]
    for part in chunks(len(X), d):
        rows = X[part][weights[part] > 0] + 0.0  # -0.0 equals 0.0, and now has its bytes as well
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
        called = [f"x{j}" for j in range(d)] if names is None else [str(name) for name in names]
        copies = [f"{called[j]} equals {called[source[j]]}" for j in ignored if source[j] >= 0]
        constant = [called[j] for j in ignored if source[j] < 0]
        told = [_listed("constant", constant), _listed("duplicate", copies)]
        message = f"the fit ignores {' and '.join(filter(None, told))} of X."
        warn(message, UnusedColumnsWarning)
    if (source < 0).all():
        source[0] = 0
    return source


def _listed(kind: str, found: list[str]) -> str:
    if not found:
        return ""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    columns = "column" if len(found) == 1 else "columns"
    return f"{len(found)} {kind} {columns} ({', '.join(found[:NAMED])}{more})"


def with_unused_columns(posterior: Posterior, used: BoolArray, *, reduced: bool) -> Posterior:
    """The posterior on all columns, with coefficients of zero for those that are not in use.

    Parameters
    ----------
    posterior : Posterior
    used : array of bool, shape (d,)
    reduced : bool
        Whether the posterior is of the columns in use alone, or of all.
    """

    def one(name: str, values: NDArray[np.floating]) -> NDArray[np.floating]:
        if DIMENSIONS.get(name, ())[-1:] != ("feature",):
            return values
        unused = 0.0 if name == "hyperplane" else 1.0
        found = np.full((*values.shape[:-1], len(used)), unused, dtype=values.dtype)
        found[..., used] = values if reduced else values[..., used]
        return found

    def widened(sites: Arrays) -> Arrays:
        return {name: one(name, values) for name, values in sites.items()}

    return replace(
        posterior,
        draws=widened(posterior.draws),
        point=widened(posterior.point),
        warmup_draws=widened(posterior.warmup_draws),
    )


class ColumnChoice:
    """An estimator whose fit ignores columns."""

    _source: IntArray  # the column that stands for each one (see ``columns_in_use``)

    @property
    def _used(self) -> BoolArray:
        """Columns that the fit may use."""
        used: BoolArray = self._source == np.arange(len(self._source))
        return used

    def _in_place(self) -> bool:
        """Whether every column must keep its place in the fit, as the pixels of an image do."""
        return False

    def _choose_columns(self, X: FloatArray | FileRows, weights: FloatArray) -> None:
        names = getattr(self, "feature_names_in_", None)
        self._source = columns_in_use(X, weights, names, whole_image=self._in_place())
