"""GUIDE: a chi-squared test chooses the feature, then the best cut is searched."""

import math

import numpy as np
from scipy import special

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parameters import declare
from bayestree.inference.splitters.planes import NodeRows, PlaneSearch

ENOUGH = 20  # rows for each class, for tables of four intervals
TERMS = 50  # of the continued fraction of p-values less than TINY
TINY = 1e-280


@declare
class Guide(PlaneSearch):
    """The univariate core of GUIDE (Loh, 2002, for regression; 2009, for classification).

    For regression, each feature is divided at its quartiles, and the table of these groups and the
    signs of the residuals from the mean is tested for independence. For classification, the table
    has the classes and four intervals about the mean of the feature, or three if there are fewer
    than 20 rows for each class. If leaves regress on the features, the node's regression gives the
    residuals, and its probabilities are compared with the table of the classes. The feature with
    the most significant table is split at its best cut. Unlike the choice of the best cut of all
    features, this does not favour features with many values. GUIDE's tests of interactions, linear
    splits, missing values and, if leaves regress, calibration of the p-values by bootstrap are left
    out.
    """

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        mean = np.array([node.share @ node.y]) if node.y.dtype.kind == "f" else None
        order = np.argsort(-significance(node, node.groups(mean)), kind="stable")
        axes = np.eye(node.n_features)
        for feature in order:
            plane = node.best(axes[[feature]])
            if plane is not None:
                return plane
        return None


def significance(node: NodeRows, groups: IntArray) -> FloatArray:
    """Compute -log p of each feature's chi-squared test, shape (d,); -inf if there is none.

    GUIDE compares statistics that an approximation (Loh, 2009, eq. 1) converts to one degree of
    freedom, and which is too large for small p-values and many degrees; p itself is as cheap.
    """
    n_groups, d = int(groups.max()) + 1, node.n_features
    bounds = node.quartiles if node.y.dtype.kind == "f" else _about_means(node, n_groups)
    interval = (bounds[:, None] < node.X).sum(axis=0)
    cell = (np.arange(d) * 4 + interval) * n_groups + groups[:, None]
    counts = np.bincount(
        cell.ravel(), np.repeat(node.weights, d), minlength=4 * d * n_groups
    ).reshape(d, 4, n_groups)
    rows, columns = counts.sum(axis=2, keepdims=True), counts.sum(axis=1, keepdims=True)
    expected = rows * columns / node.weights.sum()
    if node.fitted is not None:
        own = interval[:, :, None] == np.arange(4)
        present = node.weights[:, None] * node.fitted[:, np.unique(node.y)]
        expected = np.einsum("mjq,mc->jqc", own, present)
    with np.errstate(invalid="ignore", divide="ignore"):
        square = np.where(expected > 0, (counts - expected) ** 2 / expected, 0.0).sum(axis=(1, 2))
    k = ((rows > 0).sum(axis=1)[:, 0] - 1.0) * (n_groups - 1.0)
    return np.where(k > 0, -log_p(square, np.maximum(k, 1.0)), -math.inf)


def log_p(square: FloatArray, k: FloatArray) -> FloatArray:
    """Compute log p of chi-squared statistics, k degrees of freedom, also where p underflows."""
    a, x = k / 2.0, square / 2.0
    p = special.gammaincc(a, x)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Legendre: p gamma(a) = x^a exp(-x) / (x + (1 - a) / (1 + 1 / (x + (2 - a) / (1 + ...))))
        fraction = x
        for n in range(TERMS, 0, -1):
            fraction = x + (n - a) / (1.0 + n / fraction)
        tail = a * np.log(x) - x - special.gammaln(a) - np.log(fraction)
        return np.where(p > TINY, np.log(p), tail)


def _about_means(node: NodeRows, n_classes: int) -> FloatArray:
    """Compute bounds (3, d) of four or three intervals, equally probable for uniform features."""
    total = node.weights.sum()
    mean = node.weights @ node.X / total
    deviation = np.sqrt(node.weights @ (node.X - mean) ** 2 / total)
    at = (-1 / 2, 0, 1 / 2) if total >= ENOUGH * n_classes else (-1 / 3, 1 / 3, 1 / 3)
    return mean + math.sqrt(3) * np.outer(at, deviation)
