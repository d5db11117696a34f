"""Columns that a fit leaves out, for they say nothing or repeat what another says."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bayestree._warn import warn
from bayestree.estimators._file_rows import FileRows
from bayestree.inference import Posterior
from bayestree.inference.posterior import Arrays
from bayestree.models.sites import DIMENSIONS
from bayestree.routed_tree import chunks
from bayestree.topology import BoolArray

NAMED = 5  # columns, before the rest is only counted

Floats = NDArray[np.float64]


class UnusedColumnsWarning(UserWarning):
    """Columns of X are constant or repeat another column, and the fit does not use them."""


def columns_in_use(
    X: Floats | FileRows,
    weights: Floats,
    names: Sequence[str] | None = None,
    *,
    whole_image: bool = False,
) -> BoolArray:
    """Columns that vary over the rows of positive weight, of equal ones the first, shape (d,).

    One column is in use even where none varies.

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
    used = low < high
    first: dict[bytes, int] = {}
    for j in np.flatnonzero(used)[: len(digests)]:
        used[j] = first.setdefault(digests[j].digest(), j) == j
    if not (whole_image or used.all()):
        called = [f"x{j}" for j in range(d)] if names is None else [str(name) for name in names]
        copies = [
            f"{called[j]} equals {called[first[digests[j].digest()]]}"
            for j in np.flatnonzero(~used & (low < high))
        ]
        constant = [called[j] for j in np.flatnonzero(low == high)]
        told = [_listed("constant", constant), _listed("duplicate", copies)]
        message = f"the fit ignores {' and '.join(filter(None, told))} of X."
        warn(message, UnusedColumnsWarning)
    used[0] |= not used.any()
    return used


def _listed(kind: str, found: list[str]) -> str:
    if not found:
        return ""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    columns = "column" if len(found) == 1 else "columns"
    return f"{len(found)} {kind} {columns} ({', '.join(found[:NAMED])}{more})"


def with_unused_columns(posterior: Posterior, used: BoolArray) -> Posterior:
    """The posterior on all columns, with coefficients of zero for those that are not in use.

    Parameters
    ----------
    posterior : Posterior
        Of the columns in use, or of all.
    used : array of bool, shape (d,)
    """

    def widened(sites: Arrays) -> Arrays:
        return {
            name: _widened(values, used, 0.0 if name == "hyperplane" else 1.0)
            if DIMENSIONS.get(name, ())[-1:] == ("feature",)
            else values
            for name, values in sites.items()
        }

    return replace(
        posterior,
        draws=widened(posterior.draws),
        point=widened(posterior.point),
        warmup_draws=widened(posterior.warmup_draws),
    )


def _widened(values: NDArray[np.floating], used: BoolArray, unused: float) -> NDArray[np.floating]:
    found = np.full((*values.shape[:-1], len(used)), unused, dtype=values.dtype)
    found[..., used] = values[..., used] if values.shape[-1] == len(used) else values
    return found
