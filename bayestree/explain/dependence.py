"""Partial dependence, individual curves and interactions of the predictions of a fitted tree."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.diagnostics.draws import tails
from bayestree.explain.importance import weighted_quantiles

Predict = Callable[[FloatArray], FloatArray]  # rows to probabilities (n, C) or means (n,)
#: Rows to predictions (S, n, C) or (S, n) of groups of draws, with the weight of each draw (S,).
PredictDraws = Callable[[FloatArray], Iterator[tuple[FloatArray, FloatArray]]]
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class PartialDependence:
    """How the prediction depends on one feature, on average and for each row.

    Attributes
    ----------
    feature : str
    classes : tuple of str
        Empty for regression.
    grid : array, shape (G,)
        Values of the feature.
    mean : array, shape (G, C) or (G, 1)
        Prediction, averaged over the rows and the draws, with the feature set to each value.
    low, high : arrays, shape (G, C) or (G, 1)
        Central interval over the draws of the average over the rows, of probability ``level``.
    curves : array, shape (n, G, C) or (n, G, 1)
        Prediction for each row, averaged over the draws (individual conditional expectation).
    level : float
    """

    feature: str
    classes: tuple[str, ...]
    grid: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    curves: FloatArray
    level: float

    def to_frame(self) -> pd.DataFrame:
        """A row for each value (and class): mean and interval."""
        n_outputs = self.mean.shape[1]
        columns = {self.feature: np.repeat(self.grid, n_outputs)}
        if self.classes:
            columns["class"] = np.tile(np.array(self.classes, dtype=object), len(self.grid))
        parts = {"mean": self.mean, "low": self.low, "high": self.high}
        return pd.DataFrame(columns | {name: part.ravel() for name, part in parts.items()})

    def plot(self, ax: Any = None, *, output: int = -1, curves: bool = True) -> Any:
        """Draw the average with its interval, and the curves of the rows.

        Parameters
        ----------
        ax : Axes, optional
            By default those of a new figure that is not registered with pyplot.
        output : int
            Number of the class, by default the last.
        curves : bool
            Whether the curves of the rows are drawn.

        Returns
        -------
        Axes
        """
        from bayestree.explain.drawing import draw_dependence  # noqa: PLC0415 - Matplotlib is slow

        return draw_dependence(self, ax, output=output, curves=curves)


@dataclass(frozen=True, eq=False)
class Interactions:
    """Strength of the interactions of pairs of features: Friedman's H.

    Attributes
    ----------
    features : tuple of str, length m
    strength : array, shape (m, m)
        H of each pair, from 0 for effects that add up to 1 for a joint effect without main effects;
        0 on the diagonal. H is the square root of the share of the variance of the partial
        dependence on both features that the sum of those on each leaves unexplained.
    """

    features: tuple[str, ...]
    strength: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """Pairs of features, the strongest interaction first."""
        pairs = combinations(range(len(self.features)), 2)
        rows = [(self.features[j], self.features[k], self.strength[j, k]) for j, k in pairs]
        found = pd.DataFrame(rows, columns=["feature", "other", "strength"])
        return found.sort_values("strength", ascending=False, kind="stable", ignore_index=True)

    def plot(self, ax: Any = None) -> Any:
        """Draw the strengths as a matrix; ``ax`` are Axes, by default those of a new figure."""
        from bayestree.explain.drawing import draw_interactions  # noqa: PLC0415 - slow

        return draw_interactions(self, ax)

    def __str__(self) -> str:
        return "Interactions (Friedman's H)\n" + self.to_frame().to_string(
            float_format="{:.3f}".format, index=False
        )


def partial_dependence(
    draws: PredictDraws,
    X: FloatArray,
    feature: int,
    grid: FloatArray,
    *,
    name: str,
    classes: tuple[str, ...],
    level: float,
) -> PartialDependence:
    """Partial dependence of the draws' predictions for rows X (n, d) on one feature."""
    bounds = tails(level)
    rows = np.tile(X, (len(grid), 1))
    rows[:, feature] = np.repeat(grid, len(X))
    averages, weights = [], []
    total: Any = 0.0
    for values, weight in draws(rows):
        each = values.reshape(len(values), len(grid), len(X), -1)
        averages.append(each.mean(axis=2))
        weights.append(weight)
        total = total + np.tensordot(weight, each, axes=1)
    average, share = np.concatenate(averages), np.concatenate(weights)
    low, high = weighted_quantiles(average, share, bounds)
    curves = np.swapaxes(total / share.sum(), 0, 1)
    return PartialDependence(name, classes, grid, curves.mean(axis=0), low, high, curves, level)


def interactions(
    predict: Predict, X: FloatArray, chosen: Sequence[IntArray], names: tuple[str, ...]
) -> Interactions:
    """Friedman's H of each pair of the chosen groups of features, on rows X (n, d).

    H_jk^2 = sum_n (F_jk - F_j - F_k)^2 / sum_n F_jk^2, where F are partial dependences at the rows,
    averaged over the same rows and centred (Friedman and Popescu, 2008, eq. 44). Squares are
    summed over the classes.
    """
    alone = [_at_rows(predict, X, own) for own in chosen]
    strength = np.zeros((len(chosen), len(chosen)))
    for a, b in combinations(range(len(chosen)), 2):
        both = _at_rows(predict, X, np.concatenate([chosen[a], chosen[b]]))
        rest = ((both - alone[a] - alone[b]) ** 2).sum()
        total = (both**2).sum()
        # Rounding of predictions of size 1 must not count as an interaction.
        negligible = total <= 1e-20 * max(1.0, float(np.abs(both).max(initial=0.0)))
        strength[a, b] = strength[b, a] = 0.0 if negligible else np.sqrt(rest / total)
    return Interactions(names, strength)


def _at_rows(predict: Predict, X: FloatArray, features: IntArray) -> FloatArray:
    """Centred partial dependence on some features at each row, shape (n, C)."""
    rows = np.tile(X, (len(X), 1))
    rows[:, features] = np.repeat(X[:, features], len(X), axis=0)
    found = predict(rows).reshape(len(X), len(X), -1).mean(axis=1)
    centred: FloatArray = found - found.mean(axis=0)
    return centred


def grid_of(column: FloatArray, n_points: int) -> FloatArray:
    """Values of a feature: all if they are few, else evenly spaced from the 5 % to the 95 % one."""
    values = np.unique(column)
    if len(values) <= n_points:
        return values
    low, high = np.quantile(column, [0.05, 0.95]).tolist()
    return np.linspace(low, high, n_points)
