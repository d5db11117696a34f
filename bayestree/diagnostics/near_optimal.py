"""Trees of about the same score, for a choice between them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.tree import Tree


@dataclass(frozen=True, eq=False)
class NearOptimalTrees:
    """Sparse trees of the modes of a posterior, the best first.

    The modes are those that the fit found. There may be others with as good a score: unlike the
    Rashomon set of an enumeration, the list is not complete.

    Attributes
    ----------
    trees : tuple of M Tree
        For ``export_text``, ``plots.tree`` and the other exports.
    mode : array of int, shape (M,)
        Numbers of the modes.
    weight : array, shape (M,)
        Weights of the modes in the mixture.
    loss, se : arrays, shape (M,)
        Mean log density of y that a tree loses to the best one that was found, in nats a row, in
        leaves that are estimated without the row, and its standard error.
    columns : tuple of M tuples of str
        Columns that each tree uses.
    """

    trees: tuple[Tree, ...]
    mode: IntArray
    weight: FloatArray
    loss: FloatArray
    se: FloatArray
    columns: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.trees)

    def __getitem__(self, number: int) -> Tree:
        return self.trees[number]

    def __iter__(self) -> Iterator[Tree]:
        return iter(self.trees)

    def without(self, *names: str) -> "NearOptimalTrees":
        """Return those trees that use none of some columns; there may be none."""
        kept = np.array([not set(names) & set(own) for own in self.columns], dtype=bool)
        numbers = np.flatnonzero(kept)
        return replace(
            self,
            trees=tuple(self.trees[i] for i in numbers),
            columns=tuple(self.columns[i] for i in numbers),
            **{name: getattr(self, name)[kept] for name in ("mode", "weight", "loss", "se")},
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each tree."""
        each = {
            "mode": self.mode,
            "weight": self.weight,
            "loss": self.loss,
            "se": self.se,
            "leaves": [tree.n_leaves for tree in self.trees],
            "coefficients": [int(np.count_nonzero(tree.hyperplane)) for tree in self.trees],
            "columns": [", ".join(own) for own in self.columns],
        }
        return pd.DataFrame(each)

    def __str__(self) -> str:
        return self.to_frame().round({"weight": 3, "loss": 3, "se": 3}).to_string(index=False)
