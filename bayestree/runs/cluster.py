"""Rows of a run that workers read (``[cluster]``)."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

from bayestree._utils.wording import InputError
from bayestree.distributed.passes import on_workers
from bayestree.distributed.worker import Source
from bayestree.runs.rows import RunRows, read_rows, response
from bayestree.runs.schema import RunFile
from bayestree.tables import Features
from bayestree.tables.columns import codes_by_column
from bayestree.tables.dataset import Dataset


@contextmanager
def rows_of(file: RunFile, keep: Collection[str] = (), *, here: bool = False) -> Iterator[RunRows]:
    """Read the rows of a run or, if it has a cluster, a sample of them by its workers.

    The workers stay for the block. With ``here``, this process reads the rows even so.
    """
    if file.cluster is None:
        yield read_rows(file, keep)
        return
    data, where = file.data, file.cluster
    for key, given in (("test", data.test), ("levels", data.levels), ("event", data.event)):
        if given is not None:
            raise InputError(f"[data] {key} is not available with [cluster]; leave one out.")
    if len(data.targets) > 1:
        raise InputError("several targets are not available with [cluster]; list one.")
    dataset = Dataset.of(data.path)
    target, held = data.targets[0], data.test_fraction
    source = Source(dataset, target, data.weights, data.exposure, data.drop)
    source.check()
    codes = codes_by_column(data.missing_values, source.features)
    source = replace(source, codes=codes, held_out=held, seed=file.seed)
    with on_workers(
        source,
        data.stated_task,
        n_workers=1 if here else where.workers,
        scheduler=None if here else where.scheduler,
        sample_rows=where.sample_rows,
    ) as (rows, sample):
        training = sample.training
        aside = sample.held_out if held else training
        yield RunRows(
            task=sample.target.task,
            encoding=sample.encoding,
            X=Features.of(training.X, sample.encoding),
            y=response(training.y, training.extra),
            weights=training.weights,
            X_held=Features.of(aside.X, sample.encoding),
            y_held=response(aside.y, aside.extra),
            weights_held=aside.weights,
            rows_held=aside.numbers,
            held_out=held > 0,
            remarks=[*sample.ignored, *sample.doubts],
            fingerprints={"data": dataset.fingerprint()},
            distributed=rows,
            sample=sample,
        )
