"""How few columns a facet needs: the path of sparse trees, and the one that was chosen."""

import textwrap
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.wording import counted

WIDTH = 100  # characters of a line


@dataclass(frozen=True, eq=False)
class SparsityPath:
    """The sparse trees that were compared, from full facets to the chosen tree.

    Attributes
    ----------
    columns : array of int, shape (P,)
        Maximum number of columns of a facet. The first tree is the projection onto all of them,
        then come those of 1, 2, 3 ... columns until one loses little enough, and at the end the
        chosen tree, after facets that it does not need were left out.
    coefficients : array of int, shape (P,)
        Number of coefficients of all facets.
    loss : array, shape (P,)
        How much less the log density of y is than in the first tree, as the mean over the training
        rows (at most 2,000 of them), in nats, by cross-validation: each row is predicted by trees
        that were projected without it. The posterior that is projected has seen all rows. Trees
        that lose much more than allowed are judged by the rows of the first folds, and no row
        counts for more than 3 nats.
    se : array, shape (P,)
        Its standard error, as if one more row differed as much as the worst.
    agreement : array, shape (P,)
        Share of the training rows that are in the same leaf as in the tree of the posterior mean,
        before any projection.
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
        names = ["full", *(["path"] * (len(self.columns) - 2)), "chosen"]
        table = pd.DataFrame({k: v for k, v in vars(self).items() if k != "rounding"})
        table.index = pd.Index(names, name="tree")
        return table

    @property
    def summary(self) -> str:
        """What the chosen tree has left out, and what it loses, in some sentences."""
        columns = counted(int(self.columns[-1]), "column")
        coefficients = counted(int(self.coefficients[-1]), "coefficient")
        lost, full = float(self.loss[-1]), int(self.coefficients[0])
        if self.columns[-2] == self.columns[0] and self.coefficients[-1] == full:
            kept = f"The tree needs all columns: it keeps {coefficients}, rounded."
            return f"{kept} {self.cost_of_points}".rstrip()
        return (
            f"The tree is sparse: {coefficients} of at most {columns} a facet, instead of the "
            f"{full} that all columns have after rounding. It {'loses' if lost >= 0 else 'gains'} "
            f"{abs(lost):.3f} nats a row by this (standard error {self.se[-1]:.3f}), and "
            f"{self.agreement[-1]:.0%} of the training rows stay in their leaves. "
            f"{self.cost_of_points}"
        ).rstrip()

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
            self.columns[1:-1].tolist(),
            self.loss[1:-1].tolist(),
            self.se[1:-1].tolist(),
            self.coefficients[1:-1].tolist(),
            strict=True,
        )
        lines += ["columns  coefficients    loss      se"]
        lines += [f"{k:7d}  {n:12d}  {loss:6.3f}  {se:6.3f}" for k, loss, se, n in each]
        return "\n".join(lines)
