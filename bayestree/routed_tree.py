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

CHUNK = 131_072  # maximum number of rows routed at a time: more share the calls at each node
NUMBERS = 2**21  # maximum number of their feature values, 16 MB: about the size of a cache
BLOCK = 16_384  # rows whose sides at a node are computed at a time: their votes fit the cache


class RowSource(Protocol):
    """Rows that can be indexed by number: an array (n, d), or a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any:
        """Return the selected rows as an array."""


def chunks(n_rows: int, n_features: int) -> Iterator[slice]:
    """Yield slices of all rows, in order, of limited size."""
    size = max(1, min(CHUNK, NUMBERS // max(1, n_features)))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


class Frame(TypedDict):
    """Scaling (x - center) / scale of the features in the fit, and names, which may be empty."""

    center: FloatArray
    scale: FloatArray
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]
    quantity: str  # what numeric leaves predict: "mean", or "rate"


class RoutedTree(ABC):
    """Base of deterministic trees; subclasses are frozen dataclasses that add the splits."""

    topology: Topology
    value: FloatArray  # (L, C) class probabilities, or (L,) means (see ``quantity``) of the leaves
    leaf_rows: FloatArray  # (L,) weighted number of training rows in each leaf
    center: FloatArray  # (d,) scaling (x - center) / scale of the features in the fit
    scale: FloatArray
    feature_names: tuple[str, ...]  # may be empty, as may be class_names
    class_names: tuple[str, ...]
    quantity: str  # what numeric leaves predict, in texts

    #: Names of this kind of split and of its two sides.
    split_name: ClassVar[str]
    side_names: ClassVar[tuple[str, str]]

    @abstractmethod
    def score(self, node: int, X: FloatArray) -> FloatArray:
        """Score of rows at a node, shape (n,); above log 2 they go right."""

    @abstractmethod
    def goes_right(self, node: int, X: FloatArray) -> BoolArray:
        """Return the side of each row at a node, shape (n,)."""

    @abstractmethod
    def collapse(self, bypass: IntArray) -> Self:
        """Remove the marked nodes (see ``Topology.collapse``)."""

    def arrays(self) -> dict[str, AnyArray]:
        """Return all arrays of the tree except the topology, from which it can be restored."""
        own: Any = self
        every = {field.name: getattr(self, field.name) for field in fields(own)}
        return {name: value for name, value in every.items() if isinstance(value, np.ndarray)}

    @property
    def n_nodes(self) -> int:
        """Number of internal nodes."""
        return self.topology.n_nodes

    @property
    def is_constant(self) -> bool:
        """Whether the prediction is the same for all rows: one leaf, without slopes."""
        return self.n_nodes == 0 and getattr(self, "slope", None) is None

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
        """Yield every reached node in order, with the rows that reach it and their sides."""
        children, (place, cut) = self.topology.children, self.topology.left_to_right
        end = place[self.apply(X)]
        waiting: dict[int, IntArray] = {}
        if self.n_nodes and len(X):
            waiting[0] = np.arange(len(X))
        reached = [*waiting]  # a heap
        while reached:
            node = heapq.heappop(reached)
            rows = waiting.pop(node)
            right = end.take(rows) >= cut[node]
            for child, taken in zip(children[node].tolist(), (~right, right), strict=True):
                if child >= 0 and taken.any():
                    waiting[child] = rows.compress(taken)
                    heapq.heappush(reached, child)
            yield node, rows, right

    def apply(self, X: RowSource) -> IntArray:
        """Number of the leaf that each row reaches, shape (n,)."""
        leaf = np.zeros(len(X), dtype=np.int64)
        if self.n_nodes:
            for chunk in chunks(len(X), self.n_features):
                self._route(np.ascontiguousarray(X[chunk], dtype=np.float64), leaf[chunk])
        return leaf

    def _route(self, X: FloatArray, leaf: IntArray) -> None:
        """Write the leaf of every row to ``leaf``.

        Each branch receives a copy of its rows, depth first: copying rows in order is several
        times faster than indexing all of X at every node, and the lower nodes find theirs in the
        cache. The copies that wait take no more memory than X.
        """
        children = self.topology.children.tolist()
        waiting = [(0, np.arange(len(X)), X)]
        while waiting:
            node, rows, own = waiting.pop()
            blocks = (own[start : start + BLOCK] for start in range(0, len(own), BLOCK))
            right = np.concatenate([self.goes_right(node, block) for block in blocks])
            for child, taken in zip(children[node], (~right, right), strict=True):
                (places,) = taken.nonzero()
                if child < 0:
                    leaf[rows.take(places)] = ~child
                elif len(places) == len(rows):
                    waiting.append((child, rows, own))
                elif len(places):
                    waiting.append((child, rows.take(places), own.take(places, axis=0)))

    def predict(self, X: FloatArray) -> FloatArray:
        """Return the value of the leaf that each row reaches, shape (n, C) or (n,)."""
        return self.value[self.apply(X)]

    def decision_path(self, X: FloatArray) -> csr_matrix:
        """Mark the nodes v and leaves V + l that each row passes, shape (n, V + L)."""
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
        """Return the tree with leaf values from the rows that reach them (CPT, Algorithm 1).

        ``y`` are class numbers (n,) or probabilities (n, C) if ``n_classes`` > 0, else real values,
        (n,) or (n, q). Class probabilities are means under a Dirichlet prior of ``smoothing`` rows
        (see ``weight_unit``), distributed over the classes like all rows. A leaf without rows
        takes the value of all rows.
        """
        leaf = self.apply(X)
        rows = np.bincount(leaf, weights, self.n_leaves)
        columns = [*y.T] if y.ndim == 2 else [y == c for c in range(n_classes)] or [y]
        every = (np.bincount(leaf, weights * column, self.n_leaves) for column in columns)
        sums = np.stack([*every], axis=1)
        overall = sums.sum(axis=0) / weights.sum()
        prior_rows = smoothing * weight_unit(weights) if n_classes else 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (sums + prior_rows * overall) / (rows[:, None] + prior_rows)
        value = np.where(rows[:, None] > 0, share, overall)
        single = not n_classes and y.ndim == 1
        return self._with(value=value[:, 0] if single else value, leaf_rows=rows)

    def prune(self, X: RowSource, min_leaf: int = 1) -> Self:
        """Remove nodes that send fewer than ``min_leaf`` rows to a side, for the other child."""
        return self.pruned(X, min_leaf)[0]

    def pruned(self, X: RowSource, min_leaf: int = 1) -> tuple[Self, IntArray]:
        """Return the tree of :meth:`prune`, and the old numbers of its nodes."""
        tree, nodes = self, np.arange(self.n_nodes)
        while ((bypass := tree._one_way(X, min_leaf)) >= 0).any():
            _, kept, _ = tree.topology.collapse(bypass)
            tree, nodes = tree.collapse(bypass), nodes[kept]
        return tree, nodes

    def _one_way(self, X: RowSource, min_leaf: int) -> IntArray:
        """Return the side of most rows at a node, or -1 if both have ``min_leaf``, (V,)."""
        rows = np.bincount(self.apply(X), minlength=self.n_leaves).astype(np.float64)
        # The child ~leaf is a negative index: from the end, it is the leaf of reversed leaves.
        below = np.concatenate([self.topology.sum_below(rows), rows[::-1]])
        left, right = below[self.topology.children].T
        return np.where(np.minimum(left, right) >= min_leaf, -1, right > left)

    def with_value(self, value: FloatArray) -> Self:
        """Return the tree with other values in its leaves."""
        if len(value) != self.n_leaves:
            raise ValueError(f"value must have {self.n_leaves} rows, got {len(value)}.")
        return self._with(value=value)

    @property
    def several_outputs(self) -> bool:
        """Whether leaves have the means of several outputs, ``value`` (L, q)."""
        return self.quantity == "means"

    @property
    def classifies(self) -> bool:
        """Whether leaves have class probabilities, ``value`` (L, C)."""
        return self.value.ndim == 2 and not self.several_outputs

    def output(self, number: int) -> Self:
        """Return the tree of a single output."""
        return self._with(value=self.value[:, number], quantity="mean")

    def rescaled(self, scale: Any, shift: Any) -> Self:
        """Return the tree with predictions ``shift + scale`` times the present ones."""
        return self.with_value(self.value * scale + shift)

    def _with(self, **changes: Any) -> Self:
        own: Any = self  # every subclass is a dataclass
        return replace(own, **changes)


def weight_unit(weights: FloatArray) -> float:
    """Return the weight of one row in penalties and limits: 1, or a smaller mean weight.

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
