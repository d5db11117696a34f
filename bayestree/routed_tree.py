"""Base class of deterministic trees: routing, predictions and pruning. NumPy only."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol, Self, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.topology import Topology

CHUNK = 32_768  # maximum number of rows routed at a time
NUMBERS = 2**22  # maximum number of their values


class RowSource(Protocol):
    """Rows accessed by index: an array (n, d) or a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any:
        """Selected rows as an array."""


def chunks(n_rows: int, n_features: int) -> Iterator[slice]:
    """Consecutive slices of all rows, each small enough to be copied."""
    size = max(1, min(CHUNK, NUMBERS // max(1, n_features)))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


class Frame(TypedDict):
    """Units and names of the data of a tree.

    ``center`` and ``scale`` (d,) define the standardised features (x - center) / scale of the
    fit; names may be empty.
    """

    center: FloatArray
    scale: FloatArray
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]


class RoutedTree(ABC):
    """A deterministic tree; subclasses, frozen dataclasses with these fields, add the splits.

    Attributes
    ----------
    topology : Topology
    value : array, shape (L, C) or (L,)
        Class probabilities or means of the leaves.
    leaf_rows : array, shape (L,)
        Weighted training rows in each leaf.
    center, scale : arrays, shape (d,)
        Units of the fit, which standardised the features to (x - center) / scale.
    feature_names, class_names : tuples of str
        Empty if there are none.
    """

    topology: Topology
    value: FloatArray
    leaf_rows: FloatArray
    center: FloatArray
    scale: FloatArray
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]

    #: Terms for a node of this kind and its two sides.
    split_name: ClassVar[str]
    side_names: ClassVar[tuple[str, str]]

    @abstractmethod
    def score(self, node: int, X: FloatArray) -> FloatArray:
        """Score of rows at a node, shape (n,); the split is at log 2."""

    @abstractmethod
    def goes_right(self, node: int, X: FloatArray) -> BoolArray:
        """Side of each row at a node, shape (n,)."""

    @abstractmethod
    def collapse(self, bypass: IntArray) -> Self:
        """The tree without the nodes marked (see :meth:`Topology.collapse`)."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays of the tree, from which (with topology and names) a split restores it."""
        tree: Any = self
        every = {field.name: getattr(self, field.name) for field in fields(tree)}
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
        """Names of the features, by default x0, x1, ..."""
        return self.feature_names or tuple(f"x{j}" for j in range(self.n_features))

    @property
    def class_labels(self) -> tuple[str, ...]:
        """Display names of the classes; numbers become ``"class 1"``."""
        names = self.class_names or tuple(str(c) for c in range(self.value.shape[1]))
        return tuple(f"class {name}" if _is_number(name) else name for name in names)

    def walk(self, X: RowSource) -> Iterator[tuple[int, IntArray, BoolArray]]:
        """Yield every node that rows reach, with these rows and the side of each."""
        children = self.topology.children
        waiting: dict[int, IntArray] = {}
        if self.n_nodes and len(X):
            waiting[0] = np.arange(len(X))
        reached = [*waiting]  # a heap, so that nodes come in order
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
        """Nodes on the path of each row, shape (n, V + L); leaf l has column V + l."""
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
        self,
        X: RowSource,
        y: NDArray[Any],
        weights: FloatArray,
        n_classes: int,
        smoothing: float = 0.0,
    ) -> Self:
        """Set leaf values from the rows that reach them (CPT, Algorithm 1, last lines).

        ``y`` holds class numbers if ``n_classes`` > 0, else numbers, of which leaves hold means.
        A leaf without rows takes the value of all rows. Class probabilities are posterior means
        under a Dirichlet prior equivalent to ``smoothing`` rows, distributed over the classes as
        all rows are; with 0 they are the shares of the leaf's rows. A prior row weighs 1 or the
        mean weight of the rows, whichever is less.
        """
        leaf = self.apply(X)
        rows = np.bincount(leaf, weights, self.n_leaves)
        every = (weights * (y == c) for c in range(n_classes)) if n_classes else [weights * y]
        sums = np.stack([np.bincount(leaf, c, self.n_leaves) for c in every], axis=1)
        overall = sums.sum(axis=0) / weights.sum()
        prior_weight = smoothing * weight_unit(weights) if n_classes else 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (sums + prior_weight * overall) / (rows[:, None] + prior_weight)
        value = np.where(rows[:, None] > 0, share, overall)
        return self._with(value=value if n_classes else value[:, 0], leaf_rows=rows)

    def prune(self, X: RowSource) -> Self:
        """The tree without the nodes at which all rows of ``X`` go to one side."""
        return self.collapse(self.one_way(X))

    def one_way(self, X: RowSource) -> IntArray:
        """The side to which all rows of a node go, or -1 if they go to both, shape (V,)."""
        taken = np.zeros((self.n_nodes, 2), dtype=bool)
        for node, _, right in self._walk_chunks(X):
            taken[node] |= (not right.all(), bool(right.any()))
        # A node that no row reaches has an ancestor that is removed, and is removed with it.
        return np.where(taken.all(axis=1), -1, np.where(taken[:, 1], 1, 0))

    def with_value(self, value: FloatArray) -> Self:
        """A copy of the tree with the given leaf values."""
        if len(value) != self.n_leaves:
            raise ValueError(f"value must have {self.n_leaves} rows, got {len(value)}.")
        return self._with(value=value)

    def rescaled(self, scale: float, shift: float) -> Self:
        """The tree with predictions ``shift + scale * prediction``."""
        return self.with_value(self.value * scale + shift)

    def _sides(self, node: int, X: RowSource, rows: IntArray) -> BoolArray:
        """Side of selected rows at a node, read in chunks."""
        every = len(rows) == len(X)
        parts = (X[part] if every else X[rows[part]] for part in chunks(len(rows), X.shape[1]))
        return np.concatenate([self.goes_right(node, part) for part in parts])

    def _walk_chunks(self, X: RowSource) -> Iterator[tuple[int, IntArray, BoolArray]]:
        for chunk in chunks(len(X), self.n_features):
            for node, rows, right in self.walk(X[chunk]):
                yield node, rows + chunk.start, right

    def _with(self, **changes: Any) -> Self:
        tree: Any = self  # every subclass is a dataclass
        changed: Self = replace(tree, **changes)
        return changed


def weight_unit(weights: FloatArray) -> float:
    """Weight of one row for penalties and limits: 1 or the mean weight, whichever is less.

    Weights that sum to 1, as in boosting, then give the same fit as equal weights of 1, and
    integer weights the same fit as repeated rows.
    """
    return min(1.0, float(weights.mean()))


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
