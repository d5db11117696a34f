"""Routing and prediction of deterministic trees with any kind of split. NumPy only."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol, Self, TypedDict

import numpy as np
from scipy.sparse import csr_matrix

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree.topology import Topology

CHUNK = 32_768  # maximum number of rows routed at a time
NUMBERS = 2**22  # maximum number of their feature values


class RowSource(Protocol):
    """Rows that can be indexed by number: an array (n, d), or a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any:
        """Selected rows as an array."""


def chunks(n_rows: int, n_features: int) -> Iterator[slice]:
    """Slices of all rows, in order, of limited size."""
    size = max(1, min(CHUNK, NUMBERS // max(1, n_features)))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


class Frame(TypedDict):
    """Scaling (x - center) / scale of the features in the fit, and names, which may be empty."""

    center: FloatArray
    scale: FloatArray
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]


class RoutedTree(ABC):
    """Base of deterministic trees; subclasses are frozen dataclasses that add the splits."""

    topology: Topology
    value: FloatArray  # (L, C) class probabilities, or (L,) means of the leaves
    leaf_rows: FloatArray  # (L,) weighted number of training rows in each leaf
    center: FloatArray  # (d,) scaling (x - center) / scale of the features in the fit
    scale: FloatArray
    feature_names: tuple[str, ...]  # may be empty, as may be class_names
    class_names: tuple[str, ...]

    #: Names of this kind of split and of its two sides.
    split_name: ClassVar[str]
    side_names: ClassVar[tuple[str, str]]

    @abstractmethod
    def score(self, node: int, X: FloatArray) -> FloatArray:
        """Score of rows at a node, shape (n,); above log 2 they go right."""

    @abstractmethod
    def goes_right(self, node: int, X: FloatArray) -> BoolArray:
        """Side of each row at a node, shape (n,)."""

    @abstractmethod
    def collapse(self, bypass: IntArray) -> Self:
        """The tree without the marked nodes (see :meth:`Topology.collapse`)."""

    def arrays(self) -> dict[str, AnyArray]:
        """All arrays of the tree except the topology, from which it can be restored."""
        own: Any = self
        every = {field.name: getattr(self, field.name) for field in fields(own)}
        return {name: value for name, value in every.items() if isinstance(value, np.ndarray)}

    @property
    def n_nodes(self) -> int:
        """Number of internal nodes."""
        return self.topology.n_nodes

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return self.topology.n_leaves

    @property
    def depth(self) -> int:
        """Depth of the deepest leaf."""
        return self.topology.depth

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.center)

    @property
    def feature_labels(self) -> tuple[str, ...]:
        """Names of the features; x0, x1, ... by default."""
        return self.feature_names or tuple(f"x{j}" for j in range(self.n_features))

    @property
    def class_labels(self) -> tuple[str, ...]:
        """Display names of the classes; numbers become ``"class 1"``."""
        names = self.class_names or tuple(str(c) for c in range(self.value.shape[1]))
        return tuple(f"class {name}" if _is_number(name) else name for name in names)

    def walk(self, X: RowSource) -> Iterator[tuple[int, IntArray, BoolArray]]:
        """Every reached node in order, with the rows that reach it and their sides."""
        children = self.topology.children
        waiting: dict[int, IntArray] = {}
        if self.n_nodes and len(X):
            waiting[0] = np.arange(len(X))
        reached = [*waiting]  # a heap
        while reached:
            node = heapq.heappop(reached)
            rows = waiting.pop(node)
            right = self._sides(node, X, rows)
            for child, taken in zip(children[node].tolist(), (~right, right), strict=True):
                if child >= 0 and taken.any():
                    waiting[child] = rows[taken]
                    heapq.heappush(reached, child)
            yield node, rows, right

    def apply(self, X: RowSource) -> IntArray:
        """Number of the leaf that each row reaches, shape (n,)."""
        leaf = np.zeros(len(X), dtype=np.int64)
        for chunk in chunks(len(X), self.n_features):
            part = leaf[chunk]
            for node, rows, right in self.walk(X[chunk]):
                child = self.topology.children[node, right.astype(np.int64)]
                ends = child < 0
                part[rows[ends]] = ~child[ends]
        return leaf

    def predict(self, X: FloatArray) -> FloatArray:
        """Value of the leaf that each row reaches, shape (n, C) or (n,)."""
        return self.value[self.apply(X)]

    def decision_path(self, X: FloatArray) -> csr_matrix:
        """Indicators of the nodes v and leaves V + l that each row passes, shape (n, V + L)."""
        leaves = np.arange(self.n_leaves)
        rows, columns, above = [leaves], [self.n_nodes + leaves], self.topology.leaf_parent
        while (above >= 0).any():
            leaves, above = leaves[above >= 0], above[above >= 0]
            rows.append(leaves)
            columns.append(above)
            above = self.topology.node_parent[above]
        at = (np.concatenate(rows), np.concatenate(columns))
        member = csr_matrix(
            (np.ones(len(at[0]), dtype=bool), at), (self.n_leaves, self.n_nodes + self.n_leaves)
        )
        member.sort_indices()
        return member[self.apply(X)]

    def fill(
        self, X: RowSource, y: AnyArray, weights: FloatArray, n_classes: int, smoothing: float = 0.0
    ) -> Self:
        """The tree with leaf values from the rows that reach them (end of CPT, Algorithm 1).

        ``y`` are class numbers if ``n_classes`` > 0, else real values. Class probabilities are
        posterior means under a Dirichlet prior equivalent to ``smoothing`` rows (see
        :func:`weight_unit`), distributed over the classes like all rows. A leaf without rows
        takes the value of all rows.
        """
        leaf = self.apply(X)
        rows = np.bincount(leaf, weights, self.n_leaves)
        every = (weights * (y == c) for c in range(n_classes)) if n_classes else [weights * y]
        sums = np.stack([np.bincount(leaf, c, self.n_leaves) for c in every], axis=1)
        overall = sums.sum(axis=0) / weights.sum()
        prior_rows = smoothing * weight_unit(weights) if n_classes else 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (sums + prior_rows * overall) / (rows[:, None] + prior_rows)
        value = np.where(rows[:, None] > 0, share, overall)
        return self._with(value=value if n_classes else value[:, 0], leaf_rows=rows)

    def prune(self, X: RowSource) -> Self:
        """The tree without nodes that send all rows of ``X`` one way."""
        return self.collapse(self.one_way(X))

    def one_way(self, X: RowSource) -> IntArray:
        """The side that all rows at a node take, or -1 if they are separated, shape (V,)."""
        taken = np.zeros((self.n_nodes, 2), dtype=bool)
        for node, _, right in self._walk_chunks(X):
            taken[node] |= (not right.all(), bool(right.any()))
        # A node that no row reaches is below one that is removed.
        return np.where(taken.all(axis=1), -1, np.where(taken[:, 1], 1, 0))

    def with_value(self, value: FloatArray) -> Self:
        """The tree with other values in its leaves."""
        if len(value) != self.n_leaves:
            raise ValueError(f"value must have {self.n_leaves} rows, got {len(value)}.")
        return self._with(value=value)

    def rescaled(self, scale: float, shift: float) -> Self:
        """The tree whose predictions are ``shift + scale`` times those of this one."""
        return self.with_value(self.value * scale + shift)

    def _sides(self, node: int, X: RowSource, rows: IntArray) -> BoolArray:
        """Sides of some rows at a node, read in chunks."""
        every = len(rows) == len(X)
        parts = (X[part] if every else X[rows[part]] for part in chunks(len(rows), X.shape[1]))
        return np.concatenate([self.goes_right(node, part) for part in parts])

    def _walk_chunks(self, X: RowSource) -> Iterator[tuple[int, IntArray, BoolArray]]:
        for chunk in chunks(len(X), self.n_features):
            for node, rows, right in self.walk(X[chunk]):
                yield node, rows + chunk.start, right

    def _with(self, **changes: Any) -> Self:
        own: Any = self  # every subclass is a dataclass
        changed: Self = replace(own, **changes)
        return changed


def weight_unit(weights: FloatArray) -> float:
    """The weight of one row in penalties and limits: 1, or the mean of the weights if smaller.

    Normalised weights, as used in boosting, are then equivalent to weights with mean 1, and
    integer weights to repeated rows.
    """
    return min(1.0, float(weights.mean()))


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
