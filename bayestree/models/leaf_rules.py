"""Optimal leaves of a deterministic tree under a loss, for alternating optimisation."""

from typing import Protocol

import numpy as np
import torch

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree.models.leaves import Logistic


class LeafRule(Protocol):
    """Optimal leaves for given rows; ``values`` holds the parameters of each leaf."""

    def start(self, n_leaves: int) -> AnyArray:
        """Initial values: those of the best single leaf."""

    def fit(self, values: AnyArray, leaf: IntArray) -> AnyArray:
        """Best values given the leaf (n,) of each row; a leaf without rows keeps its values."""

    def loss(self, values: AnyArray, leaf: IntArray, rows: IntArray) -> FloatArray:
        """Unweighted loss of each of ``rows`` in the corresponding entry of ``leaf``."""

    def penalty(self, values: AnyArray) -> float:
        """Penalty of the leaves in the objective."""
        return 0.0


class MajorityLeaves(LeafRule):
    """The class of largest weight, under 0/1 loss; on ties a leaf keeps its class."""

    def __init__(self, y: IntArray, weights: FloatArray, n_classes: int) -> None:
        self.y, self.weights, self.n_classes = y, weights, n_classes

    def start(self, n_leaves: int) -> IntArray:
        majority = np.bincount(self.y, self.weights, self.n_classes).argmax()
        return np.full(n_leaves, majority, dtype=np.int64)

    def fit(self, values: AnyArray, leaf: IntArray) -> IntArray:
        cell = leaf * self.n_classes + self.y
        counts = np.bincount(cell, self.weights, len(values) * self.n_classes)
        counts = counts.reshape(len(values), self.n_classes)
        current = counts[np.arange(len(values)), values]
        return np.where(counts.max(axis=1) > current, counts.argmax(axis=1), values)

    def loss(self, values: AnyArray, leaf: IntArray, rows: IntArray) -> FloatArray:
        return (values[leaf] != self.y[rows]).astype(np.float64)


class LogisticLeaves(LeafRule):
    """A logistic regression in every leaf, under the 0/1 loss of its most probable class.

    ``values`` (L, C, 1 + d) are posterior means of the coefficients, the intercept of a class
    first. ``y`` (n, 1 + d) is a response of ``leaf``.
    """

    def __init__(self, leaf: Logistic, y: FloatArray, weights: FloatArray) -> None:
        self.leaf, self.y = leaf, y[:, 0]
        self.row = np.column_stack((np.ones(len(y)), y[:, 1:]))
        self.statistics = leaf.statistics(torch.as_tensor(y), torch.as_tensor(weights))

    def start(self, n_leaves: int) -> FloatArray:
        one = self.leaf.posterior(self.statistics.sum(0, keepdim=True)).loc.numpy()
        return np.repeat(one, n_leaves, axis=0)

    def fit(self, values: AnyArray, leaf: IntArray) -> FloatArray:
        sums = self.statistics.new_zeros(len(values), self.statistics.shape[1])
        sums.index_add_(0, torch.as_tensor(leaf), self.statistics)
        empty = np.bincount(leaf, minlength=len(values)) == 0
        return np.where(empty[:, None, None], values, self.leaf.posterior(sums).loc.numpy())

    def loss(self, values: AnyArray, leaf: IntArray, rows: IntArray) -> FloatArray:
        scores = np.einsum("nd,ncd->nc", self.row[rows], values[leaf])
        return (scores.argmax(axis=1) != self.y[rows]).astype(np.float64)


class MeanLeaves(LeafRule):
    """The mean of y, under squared loss."""

    def __init__(self, y: FloatArray, weights: FloatArray) -> None:
        self.y, self.weights = y, weights

    def start(self, n_leaves: int) -> FloatArray:
        return np.full(n_leaves, np.average(self.y, weights=self.weights))

    def fit(self, values: AnyArray, leaf: IntArray) -> FloatArray:
        mass = np.bincount(leaf, self.weights, len(values))
        total = np.bincount(leaf, self.weights * self.y, len(values))
        return np.where(mass > 0, total / np.where(mass > 0, mass, 1.0), values)

    def loss(self, values: AnyArray, leaf: IntArray, rows: IntArray) -> FloatArray:
        return (self.y[rows] - values[leaf]) ** 2


class LinearLeaves(LeafRule):
    """Ridge regression in every leaf, under squared loss plus ``ridge`` |slope|^2.

    ``values`` has d + 1 columns: the slopes, and the prediction where all features are 0.

    ``ridge`` is positive and in units of the loss, for features on the scale of ``X``.
    """

    def __init__(self, X: AnyArray, y: FloatArray, weights: FloatArray, ridge: float) -> None:
        self.X, self.y, self.weights, self.ridge = X, y, weights, ridge

    def start(self, n_leaves: int) -> FloatArray:
        values = np.zeros((n_leaves, self.X.shape[1] + 1))
        values[:, -1] = np.average(self.y, weights=self.weights)
        return values

    def fit(self, values: AnyArray, leaf: IntArray) -> FloatArray:
        found = values.copy()
        order = np.argsort(leaf, kind="stable")
        ends = np.cumsum(np.bincount(leaf, minlength=len(values)))
        for number, (stop, size) in enumerate(zip(ends, np.diff(ends, prepend=0), strict=True)):
            if size:
                rows = order[stop - size : stop]
                found[number] = ridge_fit(
                    self.X[rows], self.y[rows], self.weights[rows], self.ridge
                )
        return found

    def loss(self, values: AnyArray, leaf: IntArray, rows: IntArray) -> FloatArray:
        slopes = values[leaf, :-1]
        guess = np.einsum("ij,ij->i", self.X[rows], slopes) + values[leaf, -1]
        return (self.y[rows] - guess) ** 2

    def penalty(self, values: AnyArray) -> float:
        return float(self.ridge * (values[:, :-1] ** 2).sum())


def ridge_fit(X: AnyArray, y: FloatArray, weights: FloatArray, ridge: float) -> FloatArray:
    """Slopes (d) and, last, intercept that minimise sum w (y - a - s.x)^2 + ridge |s|^2."""
    center = weights @ X / weights.sum()
    mean = weights @ y / weights.sum()
    rows = (X - center) * np.sqrt(weights)[:, None]
    target = (y - mean) * np.sqrt(weights)
    n_rows, n_features = rows.shape
    if n_rows < n_features:
        # the dual system has the same solution and is smaller
        slope = rows.T @ np.linalg.solve(rows @ rows.T + ridge * np.eye(n_rows), target)
    else:
        slope = np.linalg.solve(rows.T @ rows + ridge * np.eye(n_features), rows.T @ target)
    return np.append(slope, mean - center @ slope)
