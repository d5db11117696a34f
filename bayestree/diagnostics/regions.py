"""Regions of rows that the draws send to a node or leaf, and agreement with the printed tree."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree.diagnostics.draws import Draws, node_index, scores, tails
from bayestree.diagnostics.uncertainty import Splits
from bayestree.topology import Topology
from bayestree.tree import LOG2


@dataclass(frozen=True, eq=False)
class RuleProbability:
    """How many draws agree with the deterministic tree about each of n rows; can be printed.

    A draw sends a row to the more probable side of each split. What refers to the V nodes and L
    leaves compares the draws of the mode of the deterministic tree, which share its nodes.

    Attributes
    ----------
    node : array, shape (n, V)
        Share of the draws that send the row to the same side, whether or not it reaches the node.
    region : array, shape (n, V + L)
        Share of the draws that send the row to each node and leaf.
    reached : array of bool, shape (n, V + L)
        Whether the deterministic tree sends the row there.
    prediction : array, shape (n,), or None
        Share of the draws of all modes, by their weights, whose class of largest P(y | x) is the
        class that the deterministic tree predicts. None for numbers.
    rows : array, shape (n, d)
        Features of the rows, named by ``feature_names``.
    labels : tuple of str, length V + L
        Paths of the nodes, then of the leaves, from the root.
    level : float
        A row is in the inner region of a node or leaf if at least (1 + level) / 2 of the draws send
        it there, and in the outer one if at least (1 - level) / 2 do.
    """

    node: FloatArray
    region: FloatArray
    reached: BoolArray
    prediction: FloatArray | None
    rows: FloatArray
    feature_names: tuple[str, ...]
    labels: tuple[str, ...]
    level: float

    @property
    def path(self) -> FloatArray:
        """Share of the draws that send each row to its leaf of the deterministic tree, (n,)."""
        n_nodes = self.node.shape[1]
        found: FloatArray = (self.region * self.reached)[:, n_nodes:].sum(axis=1)
        return found

    @property
    def inner(self) -> BoolArray:
        """Rows in the inner region of each node and leaf, (n, V + L)."""
        return self.region >= tails(self.level)[1]

    @property
    def outer(self) -> BoolArray:
        """Rows in the outer region of each node and leaf, (n, V + L)."""
        return self.region >= tails(self.level)[0]

    def to_frame(self, by: Literal["region", "column", "row"] = "region") -> pd.DataFrame:
        """Tabulate the nodes and leaves, the extent of their regions, or the rows.

        Parameters
        ----------
        by : {"region", "column", "row"}
            For each node and leaf: the share of the rows in its inner region, that the
            deterministic tree sends there, and in its outer region; of the latter the mean share of
            the draws that agree about the side, which leaves have no (``agreement``). For each of
            them and each feature: the least and the largest value in its inner region, in the
            region of the deterministic tree, and in the outer region. For each row: its leaf, and
            the share of the draws that agree about this path and about the prediction.

        Raises
        ------
        ValueError
            For any other value of ``by``.
        """
        regions = {"inner": self.inner, "tree": self.reached, "outer": self.outer}
        if by == "region":
            shares: dict[str, Any] = {name: one.mean(axis=0) for name, one in regions.items()}
            shares["agreement"] = np.full(len(self.labels), np.nan)
            reached = self.reached[:, : self.node.shape[1]]
            count = np.where(reached.any(axis=0), reached.sum(axis=0), np.nan)
            shares["agreement"][: self.node.shape[1]] = (self.node * reached).sum(axis=0) / count
            return pd.DataFrame(shares, index=node_index(self.labels))
        if by == "column":
            columns = pd.MultiIndex.from_product([regions, ("low", "high")])
            index = pd.MultiIndex.from_product(
                [self.labels, self.feature_names], names=["node", "feature"]
            )
            values = np.full((len(self.labels), self.rows.shape[1], 3, 2), np.nan)
            for k, inside in enumerate(regions.values()):
                for v in np.flatnonzero(inside.any(axis=0)):
                    some = self.rows[inside[:, v]]
                    values[v, :, k] = np.stack([some.min(axis=0), some.max(axis=0)], axis=1)
            return pd.DataFrame(values.reshape(len(index), 6), index, columns)
        if by != "row":
            raise ValueError(f"by must be 'region', 'column' or 'row', got {by!r}.")
        n_nodes = self.node.shape[1]
        leaf = self.reached[:, n_nodes:].argmax(axis=1)
        found: dict[str, Any] = {"leaf": [self.labels[n_nodes + one] for one in leaf]}
        found["path"] = self.path
        if self.prediction is not None:
            found["prediction"] = self.prediction
        return pd.DataFrame(found, index=pd.RangeIndex(len(leaf), name="row"))

    def __str__(self) -> str:
        text = f"Of the draws, {100 * self.path.mean():.1f} % send a row to its leaf"
        if len(self.labels) == 1:
            text += ", which has no other"
        if self.prediction is not None:
            text += f", and {100 * self.prediction.mean():.1f} % predict its class"
        low, high = tails(self.level)
        return (
            f"{text} (mean over {len(self.rows)} rows).\nShares of the rows that at least "
            f"{100 * high:.3g} % (inner) and {100 * low:.3g} % (outer) of the draws send to a node "
            f"or leaf:\n{self.to_frame().to_string(float_format='{:.3f}'.format, na_rep='')}"
        )

    __repr__ = __str__


def region_shares(
    draws: Draws, X: FloatArray, right: BoolArray, splits: Splits
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Compute ``node``, ``region`` and ``reached`` of :class:`RuleProbability` for rows (n, d).

    ``right`` (n, V) are the sides in the deterministic tree; for the others see
    ``split_uncertainty``.
    """
    agreed = np.zeros(right.shape)
    leaves = np.zeros((len(X), splits.topology.n_leaves))
    every = [*np.ndindex(*draws["intercept"].shape[:2])]
    for one in every:
        side = scores(draws, one, X)[:, splits.nodes] > LOG2
        agreed += side == right
        leaves += _leaf_of(side, splits.topology)
    own = _leaf_of(right, splits.topology)
    below = np.hstack([splits.topology.turns.any(axis=0).T, np.eye(own.shape[1], dtype=bool)])
    return agreed / len(every), leaves @ below / len(every), own @ below


def _leaf_of(right: BoolArray, topology: Topology) -> BoolArray:
    """Mark the leaf of rows with these sides (n, V), (n, L): all turns on its path are taken."""
    to_left, to_right = topology.turns.astype(np.int64)
    taken = ~right @ to_left + right @ to_right
    found: BoolArray = taken == (to_left + to_right).sum(axis=0)
    return found
