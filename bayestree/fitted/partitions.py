"""Predictions of rows in partitions: lazily of Dask DataFrames, in batches of Arrow tables."""

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from bayestree._utils.arrays import AnyArray
from bayestree.tables.dataset import rows_per_chunk

#: Methods of estimators whose results have a row for each row of X.
BY_ROWS = (
    "predict",
    "predict_proba",
    "predict_interval",
    "predict_median",
    "predict_survival_function",
    "apply",
    "log_score",
)
ALIGNED = ("y", "exposure")  # their arguments that have a row for each row of X, too
ARROW = (pa.Table, pa.RecordBatch, pa.RecordBatchReader)


def is_dask(X: Any) -> bool:
    """Return whether X is a DataFrame or Series of Dask, which is not imported for that."""
    dask = sys.modules.get("dask.dataframe")
    return dask is not None and isinstance(X, dask.DataFrame | dask.Series)


def refuse_dask(*given: Any) -> None:
    """Refuse Dask's rows, which NumPy would load into memory without being asked."""
    if any(map(is_dask, given)):
        raise TypeError(
            "a Dask DataFrame is taken only by methods that predict its rows: "
            f"{', '.join(BY_ROWS)}. To fit its rows, write them by X.to_parquet('rows') and fit "
            "that data set by fit_files (docs/data/large-data.md); if they fit into memory, pass "
            "X.compute()."
        )


def in_partitions(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of an estimator, one of ``BY_ROWS``, take the rows of Dask and of Arrow.

    Of a Dask DataFrame, its arrays (n,) become Dask Series and its arrays (n, k) Dask DataFrames,
    lazily, with the index and the partitions of X; ``y`` and ``exposure`` must be Dask Series with
    these partitions. An Arrow table is converted and processed in batches of 2^19 values, with the
    results that the method has for the whole table.
    """
    known = signature(method)

    @wraps(method)
    def taking(estimator: Any, X: Any, *args: Any, **named: Any) -> Any:
        if not (is_dask(X) or isinstance(X, ARROW)):
            return method(estimator, X, *args, **named)
        given = known.bind(estimator, X, *args, **named).arguments
        others = {name: value for name, value in [*given.items()][2:] if value is not None}
        aligned = {name: others.pop(name) for name in ALIGNED if name in others}
        if is_dask(X):
            return _lazily(method.__name__, estimator, X, aligned, others)
        if aligned or isinstance(X, pa.RecordBatch):
            return method(estimator, X, *args, **named)
        size = rows_per_chunk(X.schema.names)
        batches = X.to_batches(size) if isinstance(X, pa.Table) else X
        each = [method(estimator, batch, **others) for batch in batches if batch.num_rows]
        if not each:
            return method(estimator, X.schema.empty_table(), **others)  # which it refuses
        if isinstance(each[0], tuple):
            return tuple(np.concatenate(parts) for parts in zip(*each, strict=True))
        return np.concatenate(each)

    return taking


def _lazily(
    name: str, estimator: Any, X: Any, aligned: dict[str, Any], others: dict[str, Any]
) -> Any:
    """Return the results of a method as Dask Series and DataFrames."""
    from dask.dataframe.dispatch import meta_nonempty  # noqa: PLC0415 - it is optional
    from dask.delayed import delayed  # noqa: PLC0415 - it is optional

    for key, value in aligned.items():
        if not is_dask(value):
            raise TypeError(
                f"{key} must be a Dask Series with the partitions of X, such as a column of the "
                f"same table, got {type(value).__name__}."
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the values of rows that Dask invents
        example = getattr(estimator, name)(
            meta_nonempty(X._meta),
            **{key: meta_nonempty(value._meta) for key, value in aligned.items()},
            **others,
        )
    meta = _frame(_arrays(example), meta_nonempty(X._meta).index).iloc[:0]
    # As a task of its own, the estimator is sent once to each worker, not with each partition.
    found = X.map_partitions(
        _partition, *aligned.values(), name, delayed(estimator), [*aligned], others, meta, meta=meta
    )
    results, start = [], 0
    for array in _arrays(example):
        stop = start + (1 if array.ndim == 1 else array.shape[1])
        part = found[start]
        if array.ndim > 1:
            part = found[[*range(start, stop)]]
            classes = getattr(estimator, "classes_", ())
            part.columns = [*(classes if len(classes) == stop - start else range(stop - start))]
        results.append(part)
        start = stop
    return tuple(results) if isinstance(example, tuple) else results[0]


def _partition(X: pd.DataFrame, *given: Any) -> pd.DataFrame:
    """Return the results of a method for a partition, as columns 0, 1, ..."""
    *rows, name, estimator, names, others, meta = given
    if not len(X):
        return meta
    named = dict(zip(names, rows, strict=True))
    return _frame(_arrays(getattr(estimator, name)(X, **named, **others)), X.index)


def _arrays(found: Any) -> Sequence[AnyArray]:
    return found if isinstance(found, tuple) else (found,)


def _frame(arrays: Sequence[AnyArray], index: pd.Index) -> pd.DataFrame:
    """Return arrays side by side as a table."""
    return pd.concat([pd.DataFrame(one, index) for one in arrays], axis=1, ignore_index=True)
