"""The rows of a data set on Dask workers, as the process that runs the fit sees them.

It finds or starts the workers, and runs tasks on them.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree import tables
from bayestree._utils.wording import InputError
from bayestree._version import __version__
from bayestree.distributed import worker
from bayestree.distributed.worker import Pass, Rows, Sampling, Scan, Source, Target
from bayestree.fitted.tree import MixtureEstimator
from bayestree.fitted.validation import ROUNDING
from bayestree.fitting.defaults import sample_size
from bayestree.fitting.plan import FitPlan
from bayestree.tables import located
from bayestree.tables.dataset import Piece

TIMEOUT = 10  # seconds to wait for the scheduler, and for a worker

#: Call a function with a shared argument and each of others; return its results in this order.
CallEach = Callable[[Callable[..., Any], Any, Sequence[tuple[Any, ...]]], list[Any]]


def client_of(scheduler: str) -> Any:
    """Return a client of a Dask scheduler that has workers of this version of the package.

    A scheduler can run arbitrary code on its workers and on this machine: use only trusted ones.

    Raises
    ------
    InputError
        If Dask is not installed, no scheduler answers, or there are no workers, or others.
    """
    dask = _dask("a scheduler")
    try:
        client = dask.Client(scheduler, set_as_default=False, timeout=TIMEOUT)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {scheduler!r}; start one with `dask scheduler`, and "
            "specify the address that it prints."
        ) from error
    try:
        client.wait_for_workers(1, timeout=TIMEOUT)
        _check_versions(client)
    except TimeoutError as error:
        client.close()
        raise InputError(
            f"the scheduler at {scheduler!r} has no workers; start one or more with `dask "
            f"worker {scheduler} --nthreads 1`."
        ) from error
    except InputError:
        client.close()
        raise
    return client


def _dask(purpose: str) -> Any:
    try:
        import distributed  # noqa: PLC0415 - it is optional
    except ImportError:
        raise InputError(
            f"{purpose} requires Dask: run pip install 'bayestree[cluster]', or omit it."
        ) from None
    return distributed


def _check_versions(client: Any) -> None:
    """Refuse workers that have another version of this package, or none."""
    for address, found in client.run(_version, on_error="return").items():
        if found != __version__:
            has = f"bayestree {found}" if isinstance(found, str) else "no bayestree"
            raise InputError(
                f"the worker {address} has {has}, but this machine has {__version__}; install the "
                "same version there."
            )


def _version() -> str:
    return __version__


@contextmanager
def stopped(scheduler: str) -> Iterator[None]:
    """Explain an error of the connection to a scheduler."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # an error of a file, not of Dask
            raise
        raise InputError(
            f"the scheduler at {scheduler!r} or all of its workers have stopped; restart them, "
            "and resume with the same command."
        ) from error


@contextmanager
def workers(n_workers: int | None, scheduler: str | None) -> Iterator[CallEach]:
    """Use the workers of a scheduler, or as many processes on this machine for the block."""
    if n_workers is not None and (scheduler is not None or n_workers < 1):
        fault = f"n_workers must be 1 or more, got {n_workers}"
        if scheduler is not None:
            fault = f"set either n_workers or a scheduler, got {n_workers} and {scheduler!r}"
        raise InputError(f"{fault}.")
    if scheduler is not None:
        with client_of(scheduler) as client, stopped(scheduler):
            yield partial(_on_workers, client)
        return
    if n_workers == 1:
        yield lambda function, shared, arguments: [function(shared, *one) for one in arguments]
        return
    dask = _dask("n_workers")
    settings: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": 1}
    # The page of Dask, which cannot be turned off, gets a free port. All failures are raised here.
    settings |= {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    settings["silence_logs"] = logging.CRITICAL
    with (
        dask.LocalCluster(**settings) as cluster,
        dask.Client(cluster, set_as_default=False) as own,
    ):
        yield partial(_on_workers, own)


def _on_workers(
    client: Any, function: Callable[..., Any], shared: Any, arguments: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Call a function on the workers; the scheduler repeats the calls of a worker that is lost."""
    from distributed import KilledWorker  # noqa: PLC0415 - it is optional

    # a task of its own, so that the scheduler sends it once, and again after a loss
    there = client.submit(_same, shared, pure=False)
    futures = [client.submit(function, there, *given, pure=False) for given in arguments]
    try:
        return list(client.gather(futures))
    except KilledWorker as error:
        raise InputError(
            "one worker after another was lost in the same pass over the rows, perhaps for lack of "
            "memory; use larger workers, and resume with the same command."
        ) from error
    finally:
        client.cancel([there, *futures])


def _same(value: Any) -> Any:
    return value


TASK = 2**22  # numbers that a task reads; with fixed tasks, sums do not depend on the workers
MOST_TASKS = 1_000


class Sample(NamedTuple):
    """What the process that runs the fit holds of the rows: training rows and held-out ones."""

    training: Rows
    held_out: Rows
    encoding: tables.Encoding
    target: Target
    ignored: list[str]  # messages about ignored columns
    doubts: list[str]  # and about doubtful ones
    most: int  # rows that the sample may have
    n_training: int  # rows of the data set, of which the sample has some
    n_held_out: int

    @property
    def complete(self) -> bool:
        """Whether the sample has all training rows."""
        return len(self.training.y) == self.n_training

    def planned(self, plan: FitPlan) -> FitPlan:
        """Return the plan of the fit, with what its rows are."""
        of_all = f"a sample of {self.n_training:,}, for about {self.most:,}; see sample_rows"
        return plan if self.complete else replace(plan, reasons={**plan.reasons, "rows": of_all})


class DistributedRows:
    """The rows of a data set, through which workers pass.

    ``sample_rows`` is the number of training rows in the sample, on average (see ``sample_size``).
    """

    def __init__(self, call: CallEach, source: Source, sample_rows: int | None) -> None:
        self.call, self.source, self.sample_rows = call, source, sample_rows
        if sample_rows is not None and sample_rows < 1:
            raise InputError(f"sample_rows must be 1 or more, got {sample_rows}.")
        dataset = source.dataset
        n_numbers = dataset.n_rows * len(dataset.columns)
        self.pieces = dataset.split(min(MOST_TASKS, max(1, -(-n_numbers // TASK))))
        if not self.pieces:
            raise InputError(f"{dataset.path!r} has no rows; specify files that have some.")

    def read(self, task: str) -> Sample:
        """Check all rows, learn their encoding, and return a sample.

        Raises
        ------
        InputError
            If the rows cannot be used.
        """
        scans = self.call(worker.scan, self.source, [(pieces,) for pieces in self.pieces])
        counts = [scan.n_rows for scan in scans]
        merged = scans[0]
        for scan in scans[1:]:
            merged.merge(scan)
        self._check(merged)
        target = _target(merged, self.source, task)
        self.firsts = np.concatenate([[0], np.cumsum(counts)])
        learned = self._learned(merged, target)
        # in single precision, if it represents all features exactly
        dtype = np.float32 if merged.single and learned.encoding.keeps_values else np.float64
        width = len(learned.encoding.feature_names)
        most, n_training = sample_size(self.sample_rows, width), sum(counts)
        n_aside = self.source.dataset.n_rows - n_training
        shares = most / n_training, sample_size(None, width) / max(n_aside, 1)
        self.sampling = Sampling(self.source, learned, target, dtype, *shares)
        found = self.call(worker.sample, self.sampling, self._parts())
        training, held = (Rows.joined([pair[i] for pair in found]) for i in range(2))
        ignored, doubts = [*merged.profile.ignored.values()], merged.profile.doubts
        return Sample(
            training, held, learned.encoding, target, ignored, doubts, most, n_training, n_aside
        )

    def _parts(self) -> list[tuple[tuple[Piece, ...], int]]:
        """Return the pieces of each task, and the number of its first training row."""
        return [*zip(self.pieces, self.firsts.tolist(), strict=False)]

    def leaf_sums(self, estimator: MixtureEstimator) -> Pass:
        """Pass through all training rows with an estimator that was fitted to the sample."""
        found = self.call(worker.leaf_sums, (self.sampling, estimator), self._parts())
        whole = reduce(worker.joined, found)
        assert whole is not None  # since the fit had rows of positive weight
        return whole

    def _check(self, scan: Scan) -> None:
        """Refuse rows that cannot be used."""
        scan.profile.check(typed=True)
        if self.source.weights is None and scan.weight == 0:
            raise InputError("all rows are held out; lower the share of held-out rows.")
        if scan.least_weight < 0 or scan.weight == 0:
            raise InputError(
                f"weights {self.source.weights!r} must be zero or more and not all zero, got a "
                f"minimum of {scan.least_weight:g}."
            )
        if self.source.weights is not None and abs(scan.weight - 1) < ROUNDING and scan.n_rows > 1:
            raise InputError(
                f"weights {self.source.weights!r} sum to {scan.weight:g}, but a weight is a number "
                f"of equal rows: multiply them by {scan.n_rows / scan.weight:.4g}."
            )

    def _learned(self, scan: Scan, target: Target) -> tables.Learned:
        names, profile = [*target.columns(target.example)], scan.profile
        learners = (
            tables.Learner(profile.kinds, names, profile.formats, profile.codes, first=int(first))
            for first in self.firsts
        )
        learner, *others = self.call(
            worker.learn,
            self.source,
            [
                (pieces, learner, target)
                for pieces, learner in zip(self.pieces, learners, strict=False)
            ],
        )
        for other in others:
            learner.merge(other)
        return learner.learned()


@contextmanager
def on_workers(
    source: Source,
    task: str,
    *,
    n_workers: int | None = None,
    scheduler: str | None = None,
    sample_rows: int | None = None,
) -> Iterator[tuple[DistributedRows, Sample]]:
    """Read the rows of a data set by workers, which stay for the block; also return a sample.

    The workers are ``n_workers`` processes on this machine, by default one for each core, or those
    of a Dask ``scheduler``. An InputError says that the rows or the workers cannot be used.
    """
    with workers(n_workers, scheduler) as call:
        rows = DistributedRows(call, source, sample_rows)
        with located(Path(source.dataset.path)):
            sample = rows.read(task)
        yield rows, sample


def _target(scan: Scan, source: Source, task: str) -> Target:
    """Decide how y is read, from its different values."""
    # twice, as if each value occurred in several rows
    values = pd.concat([scan.targets] * 2, ignore_index=True).rename(source.target)
    found, y = tables.read_target(values, task)
    classes = np.unique(y) if found == "classification" else y[:0]
    if len(classes) == worker.MOST_VALUES:
        raise InputError(
            f"target {source.target!r} has {worker.MOST_VALUES} classes or more; choose another "
            "column, or regression."
        )
    return Target(found, y[:1], classes)
