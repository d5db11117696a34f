"""How far a row may move before a tree, and the draws of its posterior, predict otherwise."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.diagnostics.draws import tails
from bayestree.explain.branch_and_bound import Moves, nearest_of, nearest_row
from bayestree.explain.counterfactual import Wanted
from bayestree.tree import Tree


@dataclass(frozen=True, eq=False)
class Robustness:
    """Distances from a row to the nearest facet that decides; can be printed.

    Attributes
    ----------
    outcome : str
        The outcome beyond the facet, in words.
    radius : float
        The distance to the nearest row found for which the deterministic tree has the outcome, in
        the units of a counterfactual's ``distance``; infinite if none was found.
    bound : float
        No change below it gives the deterministic tree the outcome. Equal to ``radius`` if nodes
        have one facet each, unless the search was cut off; where votes of several add up, the
        nearest row is a local minimum.
    drawn : array, shape (S,)
        The radius for the deterministic form of each draw, which splits at P(right) = 1/2; 0 for a
        draw that has the outcome for the row as it is. Empty without several draws.
    weights : array, shape (S,)
        Of the draws, with sum 1.
    level : float
        Probability of ``interval``.
    """

    outcome: str
    radius: float
    bound: float
    drawn: FloatArray
    weights: FloatArray
    level: float

    @property
    def disagreement(self) -> float:
        """Share of the draws that have the outcome for the row as it is."""
        return float(self.weights @ (self.drawn == 0))

    @property
    def mean(self) -> float:
        """Mean over the draws in which some change has the outcome; NaN if there is none."""
        found = np.isfinite(self.drawn)
        total = float(self.weights[found].sum())
        return float(self.weights[found] @ self.drawn[found]) / total if total else np.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Quantiles over all draws; NaN if there are none."""
        low, high = self.quantiles(tails(self.level))
        return float(low), float(high)

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Return the least radii that shares ``levels`` of the draws do not exceed."""
        if not len(self.drawn):
            return np.full(len(levels), np.nan)
        order = np.argsort(self.drawn, kind="stable")
        # a sum of weights may round to less than 1
        place = np.searchsorted(self.weights[order].cumsum(), np.array(levels) - 1e-12)
        return self.drawn[order][np.minimum(place, len(order) - 1)]

    def __str__(self) -> str:
        text = (
            f"Distance to the nearest row found for which the deterministic tree predicts "
            f"{self.outcome}: {self.radius:.3g}, certainly none below {self.bound:.3g}"
        )
        if not len(self.drawn):
            return text
        low, high = self.interval
        return (
            f"{text}\nOf {len(self.drawn)} draws: mean {self.mean:.3g}, {100 * self.level:.3g} % "
            f"interval {low:.3g} to {high:.3g}; {100 * self.disagreement:.3g} % of them predict "
            "it already."
        )

    __repr__ = __str__


def robustness(
    tree: Tree,
    drawn: Iterable[tuple[Tree, float]],
    row: FloatArray,
    moves: Moves,
    *,
    labels: AnyArray | None,
    target: object,
    level: float,
    max_programs: int,
) -> Robustness:
    """Measure how far a row (d,) is from another outcome, in a tree and in weighted others."""
    wanted = Wanted.of(np.atleast_1d(tree.predict(row[None])[0]), labels, target)
    each = [(tree, 0.0), *drawn]
    found = [
        nearest_of(
            [
                nearest_row(one, row, outcome, moves, max_programs=max_programs)
                for outcome in wanted.outcomes(one)
            ]
        )
        for one, _ in each
    ]
    weights = np.array([weight for _, weight in each[1:]])
    return Robustness(
        wanted.name,
        found[0].distance,
        found[0].bound,
        np.array([one.distance for one in found[1:]]),
        weights / (weights.sum() or 1.0),
        level,
    )
