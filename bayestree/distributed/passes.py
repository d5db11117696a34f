"""The rows of a data set on workers, as the process that runs the fit sees them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayestree import tables
from bayestree._utils.wording import InputError
from bayestree.distributed import worker
from bayestree.distributed.cluster import CallEach, workers
from bayestree.distributed.worker import Pass, Rows, Sampling, Scan, Source, Target
from bayestree.fitted.tree import MixtureEstimator
from bayestree.fitted.validation import ROUNDING
from bayestree.fitting.defaults import sample_size
from bayestree.fitting.plan import FitPlan
from bayestree.tables import located
from bayestree.tables.dataset import Piece

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
