"""The passes over the rows of a data set: every function here runs on a worker.

The last one, after a fit to a sample, sums up the rows of each leaf and scores them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.special import logsumexp
from torch import Tensor

from bayestree import tables
from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, hashed
from bayestree._utils.parallel import one_thread
from bayestree.diagnostics.draws import spread
from bayestree.diagnostics.sample import score_sums
from bayestree.fitted.tree import FittedTree, MixtureEstimator
from bayestree.fitted.validation import counted_rows
from bayestree.inference.data import Data, part_size
from bayestree.tables import Features
from bayestree.tables.columns import check_purposes, is_single
from bayestree.tables.dataset import Dataset, Piece

# Added to the seed for further choices of rows: more than there are rows, since the random number
# of a row and a seed is that of the next row and the seed before.
SAMPLED, SHOWN = 2**40, 2**41


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


class Sampling(NamedTuple):
    """How the rows of a data set are encoded, and which of them are in the sample."""

    source: Source
    learned: tables.Learned
    target: Target
    dtype: Any  # of the features
    share: float  # of the training rows that are in the sample, on average
    held_share: float  # of the held-out rows

    def chunks(self, pieces: Sequence[Piece], first: int) -> Iterator[tuple["Rows", "Rows"]]:
        """Yield the training rows, numbered from ``first``, and the held-out ones of each chunk."""
        for frame, held in self.source.chunks(pieces):
            own, aside = frame[~held], frame[held]
            training = self.rows(own, self.learned.encode_training(own, first))
            first += len(own)
            yield training, self.rows(aside, self.learned.encoding.features(aside).to_numpy())

    def rows(self, frame: pd.DataFrame, X: AnyArray) -> "Rows":
        """Return the features ``X`` of some rows with their y, weights and extra numbers."""
        source, y = self.source, self.target.read(frame[self.source.target])
        name = source.extra
        extra = None if name is None else tables.read_extra(frame[name], "exposure")
        weights, numbers = source.row_weights(frame), frame.index.to_numpy()
        return Rows(X.astype(self.dtype, copy=False), y, weights, extra, numbers)

    def sampled(self, numbers: IntArray) -> BoolArray:
        """Return which training rows are in the sample, from their numbers in the data set."""
        return _uniform(numbers, self.source.seed + SAMPLED) < self.share


def sample(sampling: Sampling, pieces: Sequence[Piece], first: int) -> tuple[Rows, Rows]:
    """Return the training rows of the sample, and the held-out rows or a sample of them."""
    training, aside = list[Rows](), list[Rows]()
    for own, held in sampling.chunks(pieces, first):
        training.append(own.take(sampling.sampled(own.numbers)))
        shown = _uniform(held.numbers, sampling.source.seed + SHOWN) < sampling.held_share
        aside.append(held.take(shown))
    return Rows.joined(training), Rows.joined(aside)


MOST_DRAWS = 8  # under which memberships and scores of a row are averaged


class LeafSums(NamedTuple):
    """Sums over rows for the leaves of a fitted tree.

    ``hard`` (L, c) are statistics of the rows in each leaf of the deterministic tree, of total
    weights ``rows`` (L,); ``soft`` (M, c) are weighted by P(leaf | x, y) under the posterior.
    """

    hard: Tensor
    rows: Tensor
    soft: Tensor


class Pass(NamedTuple):
    """What a pass over rows has found: sums for each tree, and ``score_sums`` (2, 6)."""

    trees: list[LeafSums]
    scores: FloatArray  # of the rows in the sample, and of the others


@torch.no_grad()
def leaf_sums(shared: tuple[Sampling, Any], pieces: Sequence[Piece], first: int) -> Pass | None:
    """Pass through the training rows of some pieces; ``shared`` is the sampling and the estimator.

    None without rows of positive weight.
    """
    sampling, estimator = shared
    found: Pass | None = None
    with one_thread():
        for own, _ in sampling.chunks(pieces, first):
            rows = own.take(own.weights > 0)
            if len(rows.y):
                found = joined(found, _of_chunk(sampling, estimator, rows))
    return found


def joined(one: Pass | None, other: Pass | None) -> Pass | None:
    """Add up what passes over different rows have found."""
    if one is None or other is None:
        return one or other
    pairs = zip(one.trees, other.trees, strict=True)
    trees = [LeafSums(*(a + b for a, b in zip(*pair, strict=True))) for pair in pairs]
    return Pass(trees, one.scores + other.scores)


def _of_chunk(sampling: Sampling, estimator: MixtureEstimator, own: Rows) -> Pass:
    mixture = estimator.fitted_
    y = own.y if own.extra is None else np.column_stack((own.y, own.extra))
    rows, _ = counted_rows(estimator, Features.of(own.X, sampling.learned.encoding), y, None)
    sums, scores = [], []
    for fitted in mixture.trees:
        data = Data.of(fitted.scaling.standardise(rows.X), rows.response, own.weights)
        of_tree, score = summed(fitted, data, fitted.tree.apply(rows.X))
        sums.append(of_tree)
        scores.append(score)
    score = logsumexp(scores, axis=0, b=mixture.weights[:, None])
    score -= np.log(mixture.scaling.units.y_scale)
    marks = sampling.sampled(own.numbers)
    each = [score_sums(score[some], own.weights[some]) for some in (marks, ~marks)]
    return Pass(sums, np.array(each))


def summed(fitted: FittedTree, data: Data, leaf: IntArray) -> tuple[LeafSums, FloatArray]:
    """Sum over rows, given their leaves (n,); also return their log-densities (n,)."""
    posterior, family = fitted.posterior, fitted.posterior.model.leaf
    data = data.for_leaf(family)
    each, place = family.statistics(data.y, data.weights), torch.as_tensor(leaf)
    hard = each.new_zeros(fitted.tree.n_leaves, each.shape[1]).index_add_(0, place, each)
    rows = each.new_zeros(fitted.tree.n_leaves).index_add_(0, place, data.weights)
    soft = each.new_zeros(posterior.model.topology.n_leaves, each.shape[1])
    draws, size = spread(fitted.n_draws, MOST_DRAWS), part_size(data.X)
    density = each.new_empty(len(draws), len(each))
    for own, draw in zip(density, draws.tolist(), strict=True):
        drawn = posterior.sites(*divmod(draw, posterior.n_draws))
        sites = {name: value.to(data.X) for name, value in drawn.items()}
        for part, terms, into in zip(data.parts(), each.split(size), own.split(size), strict=True):
            joint = posterior.model.leaf_log_probs(sites, part.X)
            joint = joint + family.log_density(sites, part.y)
            torch.logsumexp(joint, -1, out=into)
            soft += joint.softmax(-1).T @ terms / len(draws)
    return LeafSums(hard, rows, soft), (density.logsumexp(0) - np.log(len(draws))).numpy()
