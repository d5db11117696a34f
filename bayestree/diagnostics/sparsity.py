"""How few columns a facet needs: the path of sparse trees, and near-optimal ones to choose from."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.wording import counted, plain
from bayestree.routed_tree import RoutedTree
from bayestree.tables.encoding import column_numbers
from bayestree.tree import Tree

WIDTH = 100  # characters of a line
SAME = 0.99  # share of the rows in corresponding leaves, from which two trees count as one
TABLE_WIDTH = 99  # characters of a line of several trees


@dataclass(frozen=True, eq=False)
class SparsityPath:
    """The sparse trees that were compared, the shortest first, and at the end the chosen one.

    Attributes
    ----------
    columns : array of int, shape (P,)
        Largest number of columns of a facet.
    coefficients : array of int, shape (P,)
        Number of coefficients of all facets.
    loss : array, shape (P,)
        How much less the log density of y is than in the best of the trees, as the mean over the
        training rows (at most 2,000 of them), in nats, by cross-validation: each row is predicted
        by trees as long that were projected without it. The posterior that is projected has seen
        all rows. Leaves of numbers have the same standard deviation, as only their means are shown,
        and no row counts for more than 3 nats. Models of version 0.2.0 begin with the tree of full
        facets, to which their losses are.
    se : array, shape (P,)
        Its standard error, as if one more row differed as much as the worst.
    agreement : array, shape (P,)
        Share of the training rows in corresponding leaves of the tree and that of full facets.
    rounding : array, shape (2,), optional
        With ``points``: how much less the log density of y is in the chosen tree than in the same
        tree before its facets became scores, in nats a row by the same cross-validation, and the
        standard error of this.
    """

    columns: IntArray
    coefficients: IntArray
    loss: FloatArray
    se: FloatArray
    agreement: FloatArray
    rounding: FloatArray | None = None

    def arrays(self) -> dict[str, Any]:
        """Return the fields that are not None, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each tree, named by what it is."""
        names = [*(["path"] * (len(self.columns) - 1)), "chosen"]
        table = pd.DataFrame({k: v for k, v in vars(self).items() if k != "rounding"})
        table.index = pd.Index(names, name="tree")
        return table

    @property
    def summary(self) -> str:
        """What the chosen tree has left out, and what it loses, in some sentences."""
        columns = counted(int(self.columns[-1]), "column")
        coefficients = counted(int(self.coefficients[-1]), "coefficient")
        return (
            f"The tree is sparse: {coefficients} of at most {columns} a facet. {self.cost} "
            f"{self.agreement[-1]:.0%} of the training rows are in the leaves of full facets. "
            f"{self.cost_of_points}"
        ).rstrip()

    @property
    def cost(self) -> str:
        """What the best of the longer trees would gain, in a sentence."""
        best, se = int(self.loss.argmin()), float(self.se[-1])
        lost = float(self.loss[-1] - self.loss[best])  # the losses of old models are to full facets
        if lost <= 0:
            return "Longer trees predict no better."
        coefficients = counted(int(self.coefficients[best]), "coefficient")
        hardly = " hardly" if lost <= 2 * se else ""
        return (
            f"A longer tree, of {coefficients}, predicts{hardly} better: by {plain(lost, 2)} nats "
            f"a row (standard error {plain(se, 2)})."
        )

    @property
    def cost_of_points(self) -> str:
        """What whole points cost, in a sentence; empty if facets are no scores."""
        if self.rounding is None:
            return ""
        cost, se = self.rounding.tolist()
        verb = "cost" if cost >= 0 else "gain"
        return f"Points {verb} {abs(cost):.3f} \N{PLUS-MINUS SIGN} {se:.3f} nats a row."

    def __str__(self) -> str:
        lines = [*textwrap.wrap(self.summary, WIDTH), ""]
        each = zip(
            self.columns[:-1].tolist(),
            self.loss[:-1].tolist(),
            self.se[:-1].tolist(),
            self.coefficients[:-1].tolist(),
            strict=True,
        )
        lines += ["columns  coefficients    loss      se"]
        lines += [f"{k:7d}  {n:12d}  {loss:6.3f}  {se:6.3f}" for k, loss, se, n in each]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class NearOptimalTrees:
    """Sparse trees of the modes and topologies of a posterior, the best first.

    These are those that the fit found. There may be others with as good a score: unlike the
    Rashomon set of an enumeration, the list is not complete. A tree also stands for those that
    score worse, use all of its columns, and predict the same or have 99 % of the training rows in
    corresponding leaves; the tree of the estimator, also for those that score better.

    Attributes
    ----------
    trees : tuple of M Tree
        For ``export_text``, ``plots.tree`` and the other exports.
    mode : array of int, shape (M,)
        Numbers of the modes.
    weight : array, shape (M,)
        Posterior weights: of the modes in the mixture, times the shares of their draws that have
        the topology, if it was sampled. The sum over the trees that each stands for.
    score : array, shape (M,)
        Mean log density of y, in nats a row, in trees that were projected without the row.
    loss, se : arrays, shape (M,)
        What the score of a tree loses to that of the best one, and its standard error.
    columns : tuple of M tuples of str
        Columns that each tree uses.
    names : tuple of str
        All columns of the fit.
    excluded : tuple of str
        Columns that no tree may use: those of both kinds of ``without``.
    """

    trees: tuple[Tree, ...]
    mode: IntArray
    weight: FloatArray
    score: FloatArray
    loss: FloatArray
    se: FloatArray
    columns: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.trees)

    def __getitem__(self, number: int) -> Tree:
        return self.trees[number]

    def __iter__(self) -> Iterator[Tree]:
        return iter(self.trees)

    def without(self, *columns: str | int | Iterable[str | int]) -> "NearOptimalTrees":
        """Return those trees that use none of some columns; there may be none.

        Parameters
        ----------
        *columns : str, int, or sequences of them
            Names or numbers of columns.

        Raises
        ------
        ValueError
            For columns that the fit did not have.
        """
        unwanted = {self.names[number] for number in column_numbers(columns, self.names)}
        kept = np.array([not unwanted & set(own) for own in self.columns], dtype=bool)
        numbers = np.flatnonzero(kept)
        return replace(
            self,
            trees=tuple(self.trees[i] for i in numbers),
            columns=tuple(self.columns[i] for i in numbers),
            excluded=tuple(name for name in self.names if name in unwanted.union(self.excluded)),
            **{
                name: getattr(self, name)[kept]
                for name in ("mode", "weight", "score", "loss", "se")
            },
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each tree."""
        each = {
            "mode": self.mode,
            "weight": self.weight,
            "score": self.score,
            "loss": self.loss,
            "se": self.se,
            "leaves": [tree.n_leaves for tree in self.trees],
            "coefficients": [int(np.count_nonzero(tree.hyperplane)) for tree in self.trees],
            "columns": [", ".join(own) for own in self.columns],
        }
        return pd.DataFrame(each)

    def __str__(self) -> str:
        if not len(self):
            names = " and ".join(self.excluded)
            return (
                f"No tree of the list does without {names}; "
                f"near_optimal_trees(X, y, without={list(self.excluded)}) looks for one."
            )
        table = self.to_frame()
        columns = ["columns", *table.pop("columns")]
        lines = table.to_string(index=False, float_format="{:.3f}".format).split("\n")
        room = TABLE_WIDTH - len(lines[0]) - 2
        return "\n".join(
            f"{line}  {part}" if place == 0 else " " * (TABLE_WIDTH - room) + part
            for line, own in zip(lines, columns, strict=True)
            for place, part in enumerate(textwrap.wrap(own, room, break_on_hyphens=False))
        )


def same_splits(one: RoutedTree, other: RoutedTree) -> bool:
    """Whether two trees of facets have the same nodes, whatever their leaves predict."""
    return (
        isinstance(one, Tree)
        and isinstance(other, Tree)
        and np.array_equal(one.topology.children, other.topology.children)
        and np.array_equal(one.n_facets, other.n_facets)
        and np.array_equal(one.hyperplane, other.hyperplane)
        and np.array_equal(one.facet_limit, other.facet_limit)
    )
