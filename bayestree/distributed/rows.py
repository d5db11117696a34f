"""The rows of a data set on the workers, as the process that runs the fit sees them."""

import copy
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import cloudpickle
import numpy as np
import pandas as pd
import torch

from bayestree import tables
from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import InputError
from bayestree.distributed import worker
from bayestree.distributed.cluster import ThisProcess, WorkerLostError, Workers
from bayestree.distributed.worker import Partition, Recipe, Rows, Scan, Source, Target
from bayestree.fitted.validation import ROUNDING
from bayestree.inference import Data, memory_mapped
from bayestree.tables.dataset import Piece

ATTEMPTS = 5  # of one step of the work, each after the loss of a worker

Result = TypeVar("Result")


class Sample(NamedTuple):
    """What the process that runs the fit holds of the rows: training rows and held-out ones."""

    training: Rows
    held_out: Rows
    encoding: tables.Encoding
    target: Target
    ignored: list[str]  # messages about ignored columns
    doubts: list[str]  # and about doubtful ones
    n_training: int  # rows of the data set, of which the sample has some
    n_held_out: int


class DistributedRows:
    """The rows of a data set in partitions on the workers (see ``inference.partitions``).

    Attributes
    ----------
    n_rows, weight
        Number and total weight of the training rows that count, once they are prepared.
    n_lost : int
        How often a worker had to be replaced.
    """

    def __init__(
        self, workers: Workers | ThisProcess, source: Source, n_partitions: int | None
    ) -> None:
        self.workers, self.source = workers, source
        if n_partitions is not None and n_partitions < 1:
            raise InputError(f"n_partitions must be 1 or more, got {n_partitions}.")
        self.addresses = workers.addresses
        self.pieces = source.dataset.split(n_partitions or len(self.addresses))
        if not self.pieces:
            raise InputError(f"{source.dataset.path!r} has no rows; specify files that have some.")
        self.fit = uuid4().hex
        self.n_rows, self.weight, self.n_lost = 0, 0.0, 0
        self._parts: list[Partition] = []
        self._sizes: list[int] = []
        self._held: dict[int, str] = {}  # the worker of each partition
        self._sample: list[slice] = []
        self._held_share = 1.0  # of the held-out rows, that the sample has
        self._prepare = b""
        self._joined: tuple[str, ...] = ()

    # The passes over the data set.

    def read(self, task: str) -> Sample:
        """Check all rows, learn their encoding, load them on the workers, and return a sample.

        Raises
        ------
        InputError
            If the rows cannot be used.
        """
        scans = self._each(worker.scan, lambda pieces, _: (self.source, pieces))
        counts = [scan.n_rows for scan in scans]
        merged = scans[0]
        for scan in scans[1:]:
            merged.merge(scan)
        self._check(merged)
        target = _target(merged, self.source, task)
        learned = self._learned(merged, target, counts)
        # in single precision, if it represents all features exactly
        dtype = np.float32 if merged.single and learned.encoding.keeps_values else np.float64
        self._recipe = Recipe(self.source, learned, target, dtype)
        firsts = np.concatenate([[0], np.cumsum(counts)])
        self._parts = [
            Partition(number, pieces, int(firsts[number]), counts[number])
            for number, pieces in enumerate(self.pieces)
        ]
        width = len(learned.encoding.feature_names)
        most = max(1, memory_mapped.HELD // width)
        step = max(1, -(-sum(counts) // most))
        self._sample = [slice(-first % step, None, step) for first in firsts[:-1]]
        n_aside = self.source.dataset.n_rows - sum(counts)
        self._held_share = min(1.0, most / max(n_aside, 1))
        found = self._insisting(partial(self._load, range(len(self._parts))))
        training, held = (Rows.joined([pair[i] for pair in found]) for i in range(2))
        ignored = [*merged.profile.ignored.values()]
        doubts = merged.profile.doubts
        return Sample(
            training, held, learned.encoding, target, ignored, doubts, sum(counts), n_aside
        )

    def _each(self, function: Callable[..., Any], arguments: Callable[..., Any]) -> list[Any]:
        """Call a function for each partition, on any worker."""
        each = [arguments(pieces, number) for number, pieces in enumerate(self.pieces)]
        return self._insisting(partial(self.workers.anywhere, function, each))

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

    def _learned(self, scan: Scan, target: Target, counts: Sequence[int]) -> tables.Learned:
        names = [*target.columns(target.example)]
        profile, first = scan.profile, np.concatenate([[0], np.cumsum(counts)])

        def arguments(pieces: Sequence[Piece], number: int) -> tuple[Any, ...]:
            learner = tables.Learner(
                profile.kinds, names, profile.formats, profile.codes, first=int(first[number])
            )
            return self.source, pieces, learner, target

        learner, *others = self._each(worker.learn, arguments)
        for other in others:
            learner.merge(other)
        return learner.learned()

    # What the fit asks for.

    def prepare(self, load: Callable[..., Data], low: FloatArray, high: FloatArray) -> None:
        """See ``PartitionedRows``; what is prepared already stays as it is."""
        given = cloudpickle.dumps((load, low, high))
        if given == self._prepare:  # by the mode before
            return

        def everywhere() -> None:
            self._restore()
            self._prepared(given, range(len(self._parts)))

        self._insisting(everywhere)
        self._prepare = given

    def epoch(self, fit: Any, what: Any) -> tuple[Any, float]:
        """See ``PartitionedRows``; an epoch in which a worker goes is repeated."""
        seed = int(torch.randint(2**31 - 1, ()))
        bare = copy.copy(fit)
        bare.data = None
        message = cloudpickle.dumps((bare, what))

        def together() -> tuple[Any, float]:
            with self.workers.exclusive():
                self._restore()
                return self._epoch(message, seed)

        return self._insisting(together)

    def _epoch(self, message: bytes, seed: int) -> tuple[Any, float]:
        used = sorted(set(self._held.values()))
        self._join(used)
        numbers = {
            address: [part for part, own in self._held.items() if own == address]
            for address in used
        }
        found = self.workers.run(
            {
                address: (
                    address,
                    worker.epoch,
                    (self.fit, message, numbers[address], self._sizes, seed),
                )
                for address in used
            }
        )
        after, value = pickle.loads(found[used[0]])
        return after, value

    def _join(self, used: Sequence[str]) -> None:
        """Let the workers form a group, unless they are one."""
        if self._joined == tuple(used):
            return
        group, hosts = uuid4().hex, [str(urlsplit(own).hostname) for own in used]
        port = self.workers.run({0: (used[0], worker.host, (self.fit, hosts[0]))})[0]
        self.workers.run(
            {
                own: (own, worker.join, (self.fit, group, rank, hosts, port))
                for rank, own in enumerate(used)
            }
        )
        self._joined = tuple(used)

    # Where the partitions are.

    def _load(self, numbers: Sequence[int]) -> list[tuple[Rows, Rows]]:
        """Load partitions on the workers that hold the fewest rows; return samples of them."""
        loads = dict.fromkeys(self.addresses, 0)
        for number, address in self._held.items():
            loads[address] += self._parts[number].n_rows
        calls, places = {}, {}
        for number in numbers:
            address = min(loads, key=lambda one: (loads[one], one))
            places[number] = address
            loads[address] += self._parts[number].n_rows
            given = (self._sample[number], self._held_share)
            part = self._parts[number]
            calls[number] = (address, worker.load, (self.fit, self._recipe, part, *given))
        found = self.workers.run(calls)
        self._held |= places
        return [found[number] for number in numbers]

    def _prepared(self, given: bytes, numbers: Sequence[int]) -> None:
        """Let the workers derive the rows of the fit of these partitions."""
        how = cloudpickle.loads(given)
        found = self.workers.run(
            {
                number: (self._held[number], worker.prepare, (self.fit, number, *how))
                for number in numbers
            }
        )
        if len(found) == len(self._parts):
            self._sizes = [found[number][0] for number in range(len(self._parts))]
            self.n_rows = sum(self._sizes)
            self.weight = sum(found[number][1] for number in range(len(self._parts)))

    def _insisting(self, work: Callable[[], Result]) -> Result:
        """Repeat some work without the workers that are lost, if any is lost meanwhile."""
        gone = False
        for _ in range(ATTEMPTS):
            try:
                if gone:
                    self._replace()
                return work()
            except WorkerLostError:
                gone = True
        raise InputError(
            f"workers were lost {ATTEMPTS} times in the same step of the fit, perhaps for lack of "
            "memory; use more workers or larger ones, and resume with the same command."
        )

    def _replace(self) -> None:
        """Wait for replacements of the workers that are lost."""
        self.n_lost += 1
        self._joined = ()
        self.addresses = self.workers.await_replacement(len(self.addresses))
        there = {own: (own, worker.holds, (self.fit,)) for own in self.addresses}
        found = self.workers.run(there)  # a worker may come back at the address of another
        self._held = {part: own for part, own in self._held.items() if part in found.get(own, ())}
        self.workers.everywhere(worker.forget, self.fit, self._lost())  # parts of a failed load

    def _restore(self) -> None:
        """Load the partitions of lost workers on the remaining ones."""
        if lost := self._lost():
            self._load(lost)
            if self._prepare:
                self._prepared(self._prepare, lost)

    def _lost(self) -> list[int]:
        """Return the partitions that no worker holds."""
        return [part.number for part in self._parts if part.number not in self._held]

    def close(self) -> None:
        """Let the workers drop the rows."""
        self.workers.everywhere(worker.forget, self.fit)


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
