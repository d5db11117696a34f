"""Columns that the fit ignores: constant and duplicate ones."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.wording import warn
from bayestree.estimators._file_rows import FileRows
from bayestree.estimators._warm import Continuation
from bayestree.inference import Posterior
from bayestree.inference.draws import Arrays
from bayestree.models.sites import SITES
from bayestree.routed_tree import chunks
from bayestree.tables import UnusedColumnsWarning

MAX_NAMED = 5  # maximum number of columns that a message names


def columns_in_use(
    X: FloatArray | FileRows,
    weights: FloatArray,
    names: Sequence[str] | None = None,
    *,
    whole_image: bool = False,
) -> IntArray:
    """The column that represents each one in the fit, shape (d,); -1 for constant columns.

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
    """The posterior on all columns, with coefficients of 0 for unused ones.

    ``reduced`` states whether the given posterior has only the columns in use.
    """
    known = {**SITES, **posterior.model.leaf.sites}

    def one(name: str, values: AnyArray) -> AnyArray:
        if name not in known or known[name].dimensions[-1:] != ("feature",):
            return values
        unused = 0.0 if known[name].support == "real" else 1.0
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


class ColumnChoice(Continuation):
    """An estimator whose fit ignores columns.

    Attributes
    ----------
    n_features_in_, feature_names_in_
    encoding_ : bayestree.tables.Encoding
        How the columns of X become features.
    """

    _source: IntArray  # see ``columns_in_use``

    @property
    def _used(self) -> BoolArray:
        """Columns that the fit may use."""
        return self._source == np.arange(len(self._source))

    @property
    def _feature_names(self) -> tuple[str, ...]:
        """Names of the features, into which the columns of X are encoded; empty without names."""
        if self.encoding_.is_plain and not hasattr(self, "feature_names_in_"):
            return ()
        return tuple(self.encoding_.feature_names)

    def _choose_columns(self, X: FloatArray | FileRows, weights: FloatArray) -> None:
        if self._continues():
            return
        names = self._feature_names or None
        self._source = columns_in_use(X, weights, names, whole_image=self._in_place())
