"""The rows of a fit on workers: from the names of its files to rows that a fit can use."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bayestree.distributed.cluster import workers
from bayestree.distributed.rows import DistributedRows, Sample
from bayestree.distributed.worker import Source
from bayestree.tables import located


@contextmanager
def on_workers(
    source: Source,
    task: str,
    *,
    n_workers: int | None = None,
    scheduler: str | None = None,
    n_partitions: int | None = None,
) -> Iterator[tuple[DistributedRows, Sample]]:
    """Load the rows of a data set on workers for the block, and return them with a sample.

    Parameters
    ----------
    source : Source
    task : {"classification", "regression", "auto"}
    n_workers : int, optional
        Number of processes on this machine; by default one for each core.
    scheduler : str, optional
        Address of a Dask scheduler whose workers are used instead.
    n_partitions : int, optional
        Number of partitions, which determines the numbers of a fit; by default that of the workers.

    Raises
    ------
    InputError
        If the rows or the workers cannot be used.
    """
    with workers(n_workers, scheduler) as found:
        rows = DistributedRows(found, source, n_partitions)
        try:
            with located(Path(source.dataset.path)):
                sample = rows.read(task)
            yield rows, sample
        finally:
            with suppress(OSError):  # of lost workers
                rows.close()
