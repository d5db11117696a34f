"""What a worker does with its partitions of the rows: every function here runs on a worker.

A worker keeps its partitions by the name of the fit and their number. They are lost with it, and
another one then loads them again.
"""

import pickle
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pandas as pd
from torch import Tensor, distributed

from bayestree import tables
from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, hashed
from bayestree._utils.parallel import threads_for
from bayestree.fitted.rows import FileRows, TrainingRows
from bayestree.inference import Data, memory_mapped
from bayestree.inference.partitions import Reduce
from bayestree.tables.columns import check_purposes, is_single
from bayestree.tables.dataset import Dataset, Piece

_torch: Any = distributed  # whose stubs lack the stores and groups
SILENCE = timedelta(seconds=300)  # after which a process is given up that does not answer


@dataclass(frozen=True)
class Source:
    """A data set, and the purposes of its columns; ``seed`` draws the held-out rows."""

    dataset: Dataset
    target: str
    weights: str | None = None
    extra: str | None = None
    drop: tuple[str, ...] = ()
    codes: Mapping[str, Any] = field(default_factory=dict)
    held_out: float = 0.0  # share of the rows
    seed: int = 0

    @property
    def features(self) -> list[str]:
        """The columns to predict from."""
        others = {self.target, self.weights, self.extra, *self.drop}
        return [name for name in self.dataset.columns if name not in others]

    def check(self) -> None:
        """Refuse names that are not columns, or used twice."""
        given = {"target": self.target, "weights": self.weights, "extra": self.extra}
        purposes = [(name, one) for name, one in given.items() if one is not None]
        purposes += [("drop", one) for one in self.drop]
        check_purposes(purposes, self.dataset.columns, self.dataset.path)

    def chunks(self, pieces: Sequence[Piece]) -> Iterator[tuple[pd.DataFrame, BoolArray]]:
        """Yield the rows of the pieces, chunk by chunk, with marks of those that are held out."""
        columns = [name for name in self.dataset.columns if name not in self.drop]
        for frame in self.dataset.chunks(pieces, columns):
            yield frame, _uniform(frame.index.to_numpy(), self.seed) < self.held_out

    def row_weights(self, frame: pd.DataFrame) -> FloatArray:
        """Return the weights of some rows."""
        if self.weights is None:
            return np.ones(len(frame))
        return tables.numbers(frame[self.weights]).to_numpy()


def _uniform(numbers: AnyArray, seed: int) -> FloatArray:
    """Return a number in [0, 1) for the number of each row: its hash."""
    return (hashed(numbers + seed) >> np.uint64(11)).astype(np.float64) * 2.0**-53


MOST_VALUES = 10_000  # different values of a target that are kept


class Scan:
    """What a pass over some of the rows finds: kinds of columns, values of y, weights."""

    def __init__(self, source: Source) -> None:
        self.profile = tables.TableProfile(source.features, codes=source.codes)
        self.n_rows, self.weight, self.least_weight = 0, 0.0, np.inf
        self.single = True  # whether single precision represents all features
        self.targets = pd.Series(dtype=object)  # the different values of y, of which some are kept

    def add(self, source: Source, frame: pd.DataFrame, held: BoolArray) -> None:
        """Read a chunk."""
        self.profile.add(frame)
        weights = source.row_weights(frame)
        self.least_weight = min(self.least_weight, float(weights.min()))
        counted = (weights > 0) & ~held
        self.n_rows += int((~held).sum())
        self.weight += float(weights[counted].sum())
        self.single &= all(is_single(frame[name].dtype) for name in source.features)
        self._keep(frame[source.target][counted])

    def merge(self, other: "Scan") -> None:
        """Add what a pass over the following rows has found."""
        self.profile.merge(other.profile)
        self.n_rows, self.weight = self.n_rows + other.n_rows, self.weight + other.weight
        self.least_weight = min(self.least_weight, other.least_weight)
        self.single &= other.single
        self._keep(other.targets)

    def _keep(self, values: pd.Series) -> None:
        found = [one for one in (self.targets, values.drop_duplicates()) if len(one)]
        if found:
            self.targets = pd.concat(found).drop_duplicates().head(MOST_VALUES)


def scan(source: Source, pieces: Sequence[Piece]) -> Scan:
    """Read some of the rows for the first time."""
    found = Scan(source)
    for frame, held in source.chunks(pieces):
        found.add(source, frame, held)
    return found


class Target(NamedTuple):
    """How y is read: its task, an example of its values, and its classes."""

    task: str
    example: AnyArray  # (1,)
    classes: AnyArray  # (C,); of numbers, none

    def read(self, column: pd.Series) -> AnyArray:
        """Return the values of some rows."""
        return tables.read_matching_target(column, self.example, self.task)

    def columns(self, y: AnyArray) -> dict[str, FloatArray]:
        """Return the quantities whose means describe a category."""
        return tables.target_columns(y, classes=self.classes if len(self.classes) else None)


def learn(
    source: Source, pieces: Sequence[Piece], learner: tables.Learner, target: Target
) -> tables.Learner:
    """Read the training rows of a partition for the encoding of its columns."""
    for frame, held in source.chunks(pieces):
        own = frame[~held]
        values = target.columns(target.read(own[source.target]))
        learner.add(own, np.column_stack([*values.values()]), source.row_weights(own))
    return learner


class Rows(NamedTuple):
    """Encoded rows, with y in the units of the data."""

    X: AnyArray
    y: AnyArray
    weights: FloatArray
    extra: FloatArray | None
    numbers: IntArray  # in the data set

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """Return all rows of several parts, in their order."""
        columns: Any = zip(*parts, strict=True)
        joined: Any = (None if own[0] is None else np.concatenate(own) for own in columns)
        return cls(*joined)

    def take(self, rows: Any) -> "Rows":
        """Select rows, in memory."""
        chosen: Any = (None if own is None else np.array(own[rows]) for own in self)
        return Rows(*chosen)


class Recipe(NamedTuple):
    """How the rows of a partition are loaded; the same for all partitions of a fit."""

    source: Source
    learned: tables.Learned
    target: Target
    dtype: Any  # of the features


class Partition(NamedTuple):
    """A partition of the rows: its pieces, the number of its first training row, and of all."""

    number: int
    pieces: tuple[Piece, ...]
    first: int
    n_rows: int


@dataclass
class _Held:
    """A partition that this worker has loaded."""

    table: Rows
    data: Data | None = None


_held: dict[tuple[str, int], _Held] = {}
_groups: dict[str, tuple[int, Any]] = {}


def load(
    fit: str, recipe: Recipe, part: Partition, sample: slice, held_share: float
) -> tuple[Rows, Rows]:
    """Load a partition; return a sample of its training rows, and a share of those held out."""
    source, encoding = recipe.source, recipe.learned.encoding
    shape = (part.n_rows, len(encoding.feature_names))
    X = memory_mapped.mapped_array(shape, recipe.dtype)
    done, kept, aside = 0, list[Rows](), list[Rows]()
    for frame, held in source.chunks(part.pieces):
        own = frame[~held]
        X[done : done + len(own)] = recipe.learned.encode_training(own, part.first + done)
        done += len(own)
        kept.append(_rows(recipe, own, X[:0]))
        chosen = _uniform(frame.index.to_numpy(), source.seed + 1) < held_share
        some = frame[held & chosen]
        aside.append(_rows(recipe, some, encoding.features(some).to_numpy()))
    table = Rows.joined(kept)._replace(X=X)
    _held[fit, part.number] = _Held(table)
    return table.take(sample), Rows.joined(aside)


def _rows(recipe: Recipe, frame: pd.DataFrame, X: AnyArray) -> Rows:
    """Return the features ``X`` of some rows with their y, weights and extra numbers."""
    source, y = recipe.source, recipe.target.read(frame[recipe.source.target])
    extra = None if source.extra is None else tables.numbers(frame[source.extra]).to_numpy()
    return Rows(X, y, source.row_weights(frame), extra, frame.index.to_numpy())


def prepare(
    fit: str, number: int, load: Callable[[TrainingRows], Data], low: FloatArray, high: FloatArray
) -> tuple[int, float]:
    """Derive the rows of the fit from a loaded partition; return their number and weight."""
    held = _held[fit, number]
    X, y, weights, extra, _ = held.table
    held.data = load(TrainingRows(FileRows(X, limits=(low, high)), y, weights, extra=extra))
    counted = weights > 0
    return int(counted.sum()), float(weights[counted].sum())


def forget(fit: str, numbers: Collection[int] | None = None) -> None:
    """Drop partitions of a fit; by default, all that belongs to it."""
    for own, number in [*_held]:
        if own == fit and (numbers is None or number in numbers):
            del _held[own, number]
    if numbers is None:
        _groups.pop(fit, None)
        _stores.pop(fit, None)


def holds(fit: str) -> list[int]:
    """Return the partitions of a fit that are here."""
    return [number for own, number in _held if own == fit]


_stores: dict[str, Any] = {}  # of the latest group of each fit


def host(fit: str, address: str) -> int:
    """Open the store by which the processes of a group find each other; return its port."""
    _stores[fit] = _torch.TCPStore(address, 0, None, is_master=True, wait_for_workers=False)
    return int(_stores[fit].port)


def join(fit: str, group: str, rank: int, hosts: Sequence[str], port: int) -> None:
    """Join the processes of a group, on these hosts, which wait for each other.

    This process listens at the address by which the scheduler knows it: that of the name of the
    machine, which gloo would take, is often 127.0.1.1, or belongs to another network.
    """
    _groups.pop(fit, None)
    if len(hosts) == 1:
        _groups[fit] = (rank, None)
        return
    store = _stores.get(fit)
    if store is None or rank:
        store = _torch.TCPStore(hosts[0], port, None, is_master=False, timeout=SILENCE)
    gloo = _torch.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = SILENCE
    options._devices = [gloo.create_device(hostname=hosts[rank])]
    _groups[fit] = (rank, gloo(_torch.PrefixStore(group, store), rank, len(hosts), options))


class LostRowsError(RuntimeError):
    """A worker that has replaced another one does not hold the rows that are asked for."""


def epoch(
    fit: str, message: bytes, numbers: Sequence[int], sizes: Sequence[int], seed: int
) -> bytes | None:
    """Take the steps of an epoch with these partitions; the first process returns the result."""
    held = {one: _held[fit, one].data for one in numbers if (fit, one) in _held}
    if fit not in _groups or len(held) < len(numbers) or None in held.values():
        raise LostRowsError("some partitions were loaded by a worker that was lost.")
    rank = _groups[fit][0]
    method, what = pickle.loads(message)
    try:
        with threads_for(0):
            value = method.shared_epoch(what, held, sizes, seed, _sum_over(fit))
    except BaseException:
        # Close the connections, which the last reference does (abort does not): only neighbours of
        # a lost process notice its loss, and the others would wait for them.
        del _groups[fit]
        raise
    return cloudpickle.dumps((method, value)) if rank == 0 else None


def _sum_over(fit: str) -> Reduce:
    def reduce(tensor: Tensor) -> None:
        if _groups[fit][1] is not None:  # no variable, which a traceback would keep
            _groups[fit][1].allreduce([tensor]).wait()

    return reduce
