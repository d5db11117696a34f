"""The terms of a linear or logistic leaf for one row."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.inequality import in_words, plain, signed
from bayestree.explain.turns import DIGITS, TERMS
from bayestree.routed_tree import RoutedTree
from bayestree.tables import Encoding
from bayestree.tree import Tree


@dataclass(frozen=True, eq=False)
class Regression:
    """What the regression of a leaf of the deterministic tree predicts for one row.

    Attributes
    ----------
    quantity : str
        ``"mean"``, or the log odds of the class that is predicted to the most probable other one.
    total : float
        The quantity in the row: ``constant`` plus the sum of the effects.
    constant : float
        The quantity at ``tree_.center``, the mean of the data.
    effects : array, shape (c,)
        The term slope . (x - center) of each column, in units of y or of log odds.
    """

    quantity: str
    total: float
    constant: float
    effects: FloatArray

    @property
    def order(self) -> IntArray:
        """Columns with an effect, the largest first."""
        by_size = np.argsort(-np.abs(self.effects), kind="stable")
        return by_size[: np.count_nonzero(self.effects)]

    def lines(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Iterator[str]:
        """The sum in words, for a row with these names and values of the columns."""
        total, constant = (plain(one, DIGITS + 1) for one in (self.total, self.constant))
        yield f"  {self.quantity} {total} = {constant} at the mean of the data"
        for j in self.order[:TERMS]:
            effect, value = signed(self.effects[j], DIGITS), in_words(values[j], DIGITS)
            yield f"    {effect}: {names[j]} = {value}"
        if hidden := self.order[TERMS:].tolist():
            rest = signed(float(self.effects[hidden].sum()), DIGITS)
            yield f"    {rest}: {len(hidden)} more"


def regression_of(
    tree: RoutedTree, row: FloatArray, encoding: Encoding, classes: tuple[str, ...]
) -> Regression | None:
    """The regression of the leaf of a row (d,); None if leaves are constant."""
    if not isinstance(tree, Tree) or tree.slope is None:
        return None
    leaf = int(tree.apply(row[None])[0])
    value, slope, quantity = tree.value[leaf], tree.slope[leaf], tree.quantity
    if classes:
        other, own = np.argsort(tree.predict(row[None])[0], kind="stable")[-2:]
        logs = np.log(np.maximum(value, np.finfo(np.float64).tiny))
        value, slope = logs[own] - logs[other], slope[own] - slope[other]
        quantity = f"log odds of {classes[own]} to {classes[other]}"
    terms = slope * (row - tree.center)
    constant = float(value)
    return Regression(quantity, constant + float(terms.sum()), constant, encoding.by_column(terms))
