"""Fits to Parquet data sets that outgrow the memory of a process (``fit_files``)."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from sklearn.base import is_classifier

from bayestree._utils.parameters import ParameterError
from bayestree._utils.wording import warn
from bayestree.distributed.rows import Sample, on_workers
from bayestree.distributed.worker import Source
from bayestree.estimators._combinations import PARTITIONED, first_broken
from bayestree.tables import DoubtfulColumnsWarning, Features, UnusedColumnsWarning
from bayestree.tables.columns import codes_by_column
from bayestree.tables.dataset import Dataset


def fit_files(
    estimator: Any,
    data: str | Path,
    target: str,
    *,
    weights: str | None = None,
    exposure: str | None = None,
    drop: Collection[str] = (),
    n_workers: int | None = None,
    scheduler: str | None = None,
    sample_rows: int | None = None,
    n_partitions: None = None,
) -> Any:
    """Fit the tree to a Parquet data set whose rows are spread over several processes.

    Each process reads its own row groups and adds up the gradients of its rows. This process holds
    a sample of at most 2^25 numbers, from which the tree is grown and finally derived. The numbers
    of a fit depend on ``n_partitions`` but, up to rounding, not on the number of workers. If a
    worker is killed, another one loads its partitions again, and the epoch is repeated.

    Parameters
    ----------
    data : str or Path
        A folder, a pattern such as ``"data/*.parquet"``, a file, or a URL that fsspec can read.
        Every worker must be able to read it.
    target : str
        The column to predict.
    weights : str, optional
        The column of the weights of the rows.
    exposure : str, optional
        The column of the exposures, for a regressor with ``leaf="poisson"``.
    drop : collection of str
        Columns that are not used.
    n_workers : int, optional
        Number of processes on this machine; by default one for each core. A script needs the usual
        ``if __name__ == "__main__":``.
    scheduler : str, optional
        Address of a Dask scheduler, such as ``"tcp://10.0.0.1:8786"``, whose workers are used
        instead, each in a process of its own unless all are in this process. It can run arbitrary
        code there and here: use only trusted ones.
    n_partitions : int, optional
        Number of partitions of the rows, by default that of the workers.

    Returns
    -------
    self

    Raises
    ------
    ValueError
        For rows that cannot be used, workers that do not answer, or parameters that need all rows
        in one process: only ``inference="map"``, ``"svi"`` (which ``"auto"`` selects) and
        ``"grow"`` read their rows in chunks, without ``class_weight``, ``validation_fraction``,
        ``warm_start``, ``n_jobs`` and ``device``.
    """
    check_partitions(estimator)
    if n_partitions is not None:
        raise ParameterError(
            f"n_partitions={n_partitions!r} was removed after version 0.2.0, because the numbers "
            "of a fit no longer depend on the workers: omit it."
        )
    dataset = Dataset.of(data)
    source = Source(dataset, target, weights, exposure, tuple(drop))
    source.check()
    codes = codes_by_column(estimator.missing_values, source.features)
    source = replace(source, codes=codes)
    task = "classification" if is_classifier(estimator) else "regression"
    where: dict[str, Any] = {"n_workers": n_workers, "scheduler": scheduler}
    with on_workers(source, task, sample_rows=sample_rows, **where) as (_, sample):
        for remark in sample.ignored:
            warn(remark, UnusedColumnsWarning)
        for doubt in sample.doubts:
            warn(doubt, DoubtfulColumnsWarning)
        fit_sample(estimator, sample)
    return estimator


def check_partitions(estimator: Any) -> None:
    """Raise ParameterError if an estimator cannot be fitted to a sample of rows on workers."""
    if reason := first_broken(PARTITIONED, estimator):
        raise ParameterError(f"a fit to a sample of rows on workers {reason}.")


def fit_sample(estimator: Any, sample: Sample) -> None:
    """Fit an estimator to a sample of the rows of a data set."""
    X, y, weights, extra, _ = sample.training
    given = {} if extra is None else {"exposure": extra}
    estimator._to_come = sample.target.classes if is_classifier(estimator) else None
    try:
        estimator.fit(Features.of(X, sample.encoding), y, weights, **given)
    finally:
        estimator._to_come = None
