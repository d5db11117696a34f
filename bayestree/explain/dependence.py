"""Partial dependence, individual curves and interactions of the predictions of a fitted tree."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.monte_carlo import central_interval
from bayestree.diagnostics.draws import tails
from bayestree.diagnostics.uncertainty import Dependence
from bayestree.routed_tree import RoutedTree
from bayestree.tables import Column, Dates, Encoding
from bayestree.tree import Tree

Predict = Callable[[FloatArray], FloatArray]  # rows to probabilities (n, C) or means (n,)
#: Rows to predictions (S, n, C) or (S, n) of groups of draws, with the weight of each draw (S,).
PredictDraws = Callable[[FloatArray], Iterator[tuple[FloatArray, FloatArray]]]
MOST = 12  # columns with a coefficient: 4,096 coalitions
ROWS = 2**17  # rows predicted at a time
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class PartialDependence:
    """How the prediction depends on one column, on average and for each row.

    Attributes
    ----------
    feature : str
    classes : tuple of str
        Empty for regression.
    grid : array, shape (G,)
        Values of the column: numbers, categories as text, or times; NaN, None or NaT is missing.
    mean : array, shape (G, C) or (G, 1)
        Prediction, averaged over the rows and the draws, with the column set to each value.
    low, high : arrays, shape (G, C) or (G, 1)
        Central interval over the draws of the average over the rows, of probability ``level``.
    curves : array, shape (n, G, C) or (n, G, 1)
        Prediction for each row, averaged over the draws (individual conditional expectation).
    level : float
    """

    feature: str
    classes: tuple[str, ...]
    grid: AnyArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    curves: FloatArray
    level: float

    def to_frame(self) -> pd.DataFrame:
        """Tabulate mean and interval for each value (and class)."""
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
            By default of a new figure that is not registered with pyplot.
        output : int
            Number of the class, by default the last.
        curves : bool
            Whether the curves of the rows are drawn.

        Returns
        -------
        Axes
        """
        from bayestree.plots._predictions import draw_dependence  # noqa: PLC0415 - slow

        return draw_dependence(self.of(output), ax, curves=curves)

    def of(self, output: int) -> Dependence:
        """Return what a plot shows of one output."""
        label = f"P({self.classes[output]})" if self.classes else "prediction"
        mean, low, high, curves = (
            one[..., output] for one in (self.mean, self.low, self.high, self.curves)
        )
        return Dependence(self.feature, self.grid, mean, low, high, curves, label)


@dataclass(frozen=True, eq=False)
class Interactions:
    """Strength of the interactions of pairs of columns: Friedman's H.

    Attributes
    ----------
    features : tuple of str, length m
    strength : array, shape (m, m)
        H of each pair, from 0 for effects that add up to 1 for a joint effect without main effects;
        0 on the diagonal. H is the square root of the share of the variance of the partial
        dependence on both features that the sum of the separate dependences leaves unexplained.
    """

    features: tuple[str, ...]
    strength: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the pairs of columns, the strongest interaction first."""
        pairs = combinations(range(len(self.features)), 2)
        rows = [(self.features[j], self.features[k], self.strength[j, k]) for j, k in pairs]
        found = pd.DataFrame(rows, columns=["feature", "other", "strength"])
        return found.sort_values("strength", ascending=False, kind="stable", ignore_index=True)

    def plot(self, ax: Any = None) -> Any:
        """Draw the strengths as a matrix; ``ax`` are Axes, by default of a new figure."""
        from bayestree.plots._predictions import draw_interactions  # noqa: PLC0415 - slow

        return draw_interactions(self.strength, self.features, ax)

    def __str__(self) -> str:
        return "Interactions (Friedman's H)\n" + self.to_frame().to_string(
            float_format="{:.3f}".format, index=False
        )


class ColumnGrid(NamedTuple):
    """Values (G,) of a column, its features (k,), and what these are for each value, (G, k)."""

    name: str
    grid: AnyArray
    features: IntArray
    blocks: FloatArray


def partial_dependence(
    draws: PredictDraws,
    X: FloatArray,
    setting: ColumnGrid,
    *,
    chains: IntArray,
    classes: tuple[str, ...],
    level: float,
) -> PartialDependence:
    """Compute how predictions of draws, of ``chains``, for rows X (n, d) depend on one column."""
    grid = setting.grid
    tails(level)
    rows = np.tile(X, (len(grid), 1))
    rows[:, setting.features] = np.repeat(setting.blocks, len(X), axis=0)
    averages, weights = [], []
    total: Any = 0.0
    for values, weight in draws(rows):
        each = values.reshape(len(values), len(grid), len(X), -1)
        averages.append(each.mean(axis=2))
        weights.append(weight)
        total = total + np.tensordot(weight, each, axes=1)
    average, share = np.concatenate(averages), np.concatenate(weights)
    low, high = central_interval(average, share, chains, level)
    curves = np.swapaxes(total / share.sum(), 0, 1)
    mean = curves.mean(axis=0)
    return PartialDependence(setting.name, classes, grid, mean, low, high, curves, level)


def interactions(
    predict: Predict, X: FloatArray, chosen: Sequence[IntArray], names: tuple[str, ...]
) -> Interactions:
    """Compute Friedman's H of each pair of columns, with features ``chosen``, on rows X (n, d).

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
    """Compute the centred partial dependence on some features at each row, shape (n, C)."""
    rows = np.tile(X, (len(X), 1))
    rows[:, features] = np.repeat(X[:, features], len(X), axis=0)
    found = predict(rows).reshape(len(X), len(X), -1).mean(axis=1)
    return found - found.mean(axis=0)


def column_grid(
    column: Column, places: IntArray, shown: Sequence[Any], grid: ArrayLike | int
) -> ColumnGrid:
    """Return the values to which a column is set, from its values ``shown`` in the rows.

    ``grid`` are these values, or their number (see ``partial_dependence`` of the estimators).
    """
    if isinstance(grid, int | np.integer):
        values = [*_typical(column, shown, int(grid)), *([None] if column.gaps else [])]
    else:
        values = np.ravel(np.asarray(grid, dtype=object)).tolist()
    given = pd.Series(values, dtype=object, name=column.name)
    if given.isna().any() and not column.gaps:
        raise ValueError(
            f"grid has a missing value, but {column.name!r} never lacks one in the fit."
        )
    if column.levels:
        found = np.array(column.shown(given), dtype=object)
        if column.unknown(given).any():
            raise ValueError(
                f"grid must hold levels of {column.name!r}, which are "
                f"{', '.join(map(repr, column.levels))}; got "
                f"{found[column.unknown(given)][0]!r}."
            )
    elif isinstance(column, Dates):
        found = pd.to_datetime(given).to_numpy()
    else:
        found = given.to_numpy(dtype=np.float64)
        if np.isinf(found).any():
            raise ValueError(f"grid must hold finite numbers, got {found.tolist()}.")
    return ColumnGrid(column.name, found, places, column.encode(pd.Series(found, name=column.name)))


def _typical(column: Column, shown: Sequence[Any], n_points: int) -> list[Any]:
    """Choose the most frequent levels, or values from the 5 % to the 95 % quantile.

    These are evenly spaced, or all values if they are few.
    """
    known = pd.Series(shown).dropna()
    if options := column.options:
        often = {*_most(known[known.isin(options)], n_points)}  # rows may have unknown levels only
        few = len(options) <= n_points or not often
        return [*options][:n_points] if few else [level for level in options if level in often]
    values = known.sort_values().unique()
    if len(values) <= n_points:
        return list(values)
    low: Any = known.quantile(0.05)
    high: Any = known.quantile(0.95)
    if not isinstance(column, Dates):
        return np.linspace(low, high, n_points).tolist()
    days = pd.date_range(low, high, periods=n_points)
    return list(days if "hour" in column.parts else days.round("D"))


def _most(known: pd.Series, count: int) -> list[Any]:
    return known.value_counts().index[:count].tolist()


@dataclass(frozen=True, eq=False)
class ShapleyValues:
    """Shapley values of n predictions of the deterministic tree, or of the mean of a forest's.

    Attributes
    ----------
    features : tuple of str
    classes : tuple of str
        Empty for regression.
    base : array, shape (C,) or (1,)
        Mean prediction over the background rows.
    contributions : array, shape (n, c, C) or (n, c, 1)
        Contribution of each column; ``base`` plus their sum over the columns is the prediction.
    """

    features: tuple[str, ...]
    classes: tuple[str, ...]
    base: FloatArray
    contributions: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the contributions of the columns for each row (and class)."""
        n_rows, _, n_outputs = self.contributions.shape
        flat = self.contributions.swapaxes(1, 2).reshape(n_rows * n_outputs, -1)
        index: Any = pd.RangeIndex(n_rows, name="row")
        if self.classes:
            index = pd.MultiIndex.from_product([index, self.classes], names=["row", "class"])
        return pd.DataFrame(flat, index=index, columns=list(self.features))

    def plot(self, ax: Any = None, *, row: int = 0) -> Any:
        """Draw the contributions to the prediction of one row, by column and class.

        ``ax`` are Axes; by default of a new figure that is not registered with pyplot.
        """
        from bayestree.plots._predictions import draw_shapley  # noqa: PLC0415 - slow

        return draw_shapley(self.contributions[row], self.features, self.classes, ax)


def shapley_values(
    trees: Sequence[tuple[float, RoutedTree]],
    X: FloatArray,
    background: FloatArray,
    classes: tuple[str, ...],
    encoding: Encoding,
) -> ShapleyValues:
    """Compute Shapley values of v(S) = E f(x_S, b_rest) over background rows b.

    This is the interventional expectation: columns outside S are taken from the background rows
    together. f is the weighted sum of the trees, whose games add up. Columns without a coefficient
    in a tree contribute 0 to it.
    """
    base: Any = 0.0
    values: Any = 0.0
    for weight, tree in trees:
        own, contributions = _of_tree(tree, X, background, encoding.places)
        base, values = base + weight * own, values + weight * contributions
    return ShapleyValues(encoding.names, classes, base, values)


def _of_tree(
    tree: RoutedTree, X: FloatArray, background: FloatArray, places: Sequence[IntArray]
) -> tuple[FloatArray, FloatArray]:
    """Compute the mean prediction (C,) of one tree, and the columns' contributions (n, c, C)."""
    used = _used(tree, places)
    if len(used) > MOST:
        raise ValueError(
            f"exact Shapley values need trees of at most {MOST} columns, got {len(used)}; use "
            "importance(X, y), or smaller or sparser trees."
        )
    groups = [places[j] for j in used]
    v = np.stack([_coalitions(tree, x, background, groups) for x in X])
    values = np.zeros((len(X), len(places), v.shape[2]))
    m, members = len(used), np.arange(v.shape[1])
    size = np.array([bin(s).count("1") for s in members])
    weight = np.array([factorial(k) * factorial(m - k - 1) / factorial(m) for k in range(m)])
    for place, j in enumerate(used):
        without = members[(members >> place) % 2 == 0]
        gain = v[:, without | (1 << place)] - v[:, without]
        values[:, j] = np.einsum("s,nsc->nc", weight[size[without]], gain)
    return v[0, 0], values


def _used(tree: RoutedTree, places: Sequence[IntArray]) -> list[int]:
    """Return the columns on which the tree depends."""
    if not isinstance(tree, Tree):
        return [*range(len(places))]
    used: BoolArray = np.any(tree.hyperplane != 0, axis=0)
    if tree.slope is not None:
        used = used | np.any(tree.slope.reshape(-1, tree.n_features) != 0, axis=0)
    return [j for j, own in enumerate(places) if used[own].any()]


def _coalitions(
    tree: RoutedTree, x: FloatArray, background: FloatArray, groups: Sequence[IntArray]
) -> FloatArray:
    """Value each coalition of the m groups of features, whose bits are its number, (2^m, C)."""
    n_sets, n_rows = 2 ** len(groups), len(background)
    size = max(1, ROWS // n_rows)
    found = []
    for start in range(0, n_sets, size):
        members = np.arange(start, min(start + size, n_sets))
        known = np.zeros((len(members), len(x)), dtype=bool)
        for place, own in enumerate(groups):
            known[:, own] = ((members >> place) % 2 == 1)[:, None]
        rows = np.where(known[:, None], x, background).reshape(-1, len(x))
        found.append(tree.predict(rows).reshape(len(members), n_rows, -1).mean(axis=1))
    return np.concatenate(found)
