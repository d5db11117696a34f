"""Searches for the hyperplane of a node, for trees that are grown like CART.

HHCART cuts reflections of the rows, GUIDE a feature that a test chooses. CART-LC and OC1 are
coordinate descents, CO2 is gradient descent on a bound of the loss.
"""

import math
from typing import Annotated, Literal

import numpy as np
from scipy import special

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.parameters import (
    Count,
    Inference,
    Model,
    NonNegative,
    Positive,
    Size,
    declare,
)
from bayestree.inference.splitters.planes import NodeRows, PlaneSearch

DEGENERATE = 1e-12  # squares below this are rounding errors, as features have unit scale


@declare
class HHCart(PlaneSearch):
    """HHCART (Wickramarachchi, Robertson, Reale, Price and Brown, 2016).

    For each eigenvector of the covariance matrix of each class, the rows are reflected such that
    the eigenvector becomes the first axis. The split is the best axis-parallel cut of all
    reflections and of the original features, which win ties. For regression, the quartiles of y
    stand for classes (the paper treats classes only).

    {parameters}
    """

    eigenvectors: Annotated[
        Literal["dominant", "all"],
        Inference("Eigenvectors of each class: that with the largest eigenvalue, or all."),
    ] = "dominant"

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        directions, groups = [np.eye(node.n_features)], node.groups()
        for group in range(groups.max() + 1):
            rows = groups == group
            vectors = self._vectors(node.X[rows], node.weights[rows])
            directions += [reflection(vector) for vector in vectors]
        return node.best(np.concatenate(directions))

    def _vectors(self, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Find unit eigenvectors of the covariance of rows, as rows, the dominant one first."""
        centred = X - np.average(X, axis=0, weights=weights)
        value, vector = np.linalg.eigh((centred * weights[:, None]).T @ centred)
        if value[-1] <= DEGENERATE:  # the rows are alike
            return vector[:0]
        found = vector.T[::-1]
        # the sign, which LAPACK leaves open, decides about the reflection
        largest = np.take_along_axis(found, np.abs(found).argmax(axis=1)[:, None], axis=1)
        found = found * np.sign(largest)
        return found[:1] if self.eigenvectors == "dominant" else found


def reflection(vector: FloatArray) -> FloatArray:
    """Return the Householder matrix I - 2 u u' that maps a unit vector (d,) to the first axis."""
    normal = -vector
    normal[0] += 1.0
    square = float(normal @ normal)
    if square < DEGENERATE:  # the vector is the first axis
        return np.eye(len(vector))
    return np.eye(len(vector)) - 2.0 * np.outer(normal, normal) / square


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


SHIFTS = (-0.25, 0.0, 0.25)  # gamma of the book


@declare
class StartedSearch(PlaneSearch):
    """A search that improves a first hyperplane."""

    start: Annotated[
        Literal["axis", "random"],
        Inference(
            "Start from the best split by one feature, if there is one, or along a random "
            "direction."
        ),
    ] = "axis"

    def first(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        """Find the best cut of one feature, or of a random direction; None if there is none."""
        axis = node.best_axis() if self.start == "axis" else None
        return node.best(rng.normal(size=(1, node.n_features))) if axis is None else axis


@declare
class CartLC(StartedSearch):
    """CART with linear combinations (Breiman, Friedman, Olshen and Stone, 1984, section 5.2.2).

    As described by Murthy, Kasif and Salzberg (1994, figure 2): features are centred at their
    medians and divided by their interquartile ranges. In turn, each coefficient and the threshold
    take their best values given the others, until a cycle gains too little; then features that
    hardly contribute are removed. Deterministic from the best cut of one feature.

    {parameters}
    """

    tolerance: Annotated[
        NonNegative,
        Inference("Gain of a cycle, relative to the gain of the split, at which the search ends."),
    ] = 0.001
    deletion: Annotated[
        NonNegative,
        Model(
            "A feature is removed if that costs less than this share of what the most important "
            "feature contributes (beta of the book); 0 keeps all."
        ),
    ] = 0.1

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        plane = self.first(node, rng)
        if plane is None:
            return None
        least = float(node.quality(np.zeros((len(node.statistics), 1)), node.statistics.sum(1))[0])
        units = _units(node)
        best, before = float(node.qualities(plane[None])[0]), -np.inf
        while best - before > max(self.tolerance * (best - least), node.slack):
            before = best
            for moves in units:
                copies = np.repeat(plane[None], len(SHIFTS), axis=0)
                plane, best = _improved(node, plane, best, node.steps(copies, moves))
            turned = node.best(plane[None, :-1])
            if turned is not None:
                plane, best = _improved(node, plane, best, turned[None])
        return self._without_minor(node, plane, least)

    def _without_minor(self, node: NodeRows, plane: FloatArray, least: float) -> FloatArray:
        """Remove features one by one, the least important first."""
        while self.deletion > 0 and (used := np.flatnonzero(plane[:-1])).size > 1:
            directions = np.repeat(plane[None, :-1], len(used), axis=0)
            directions[np.arange(len(used)), used] = 0.0
            cuts = node.cuts(directions)
            whole = float(node.qualities(plane[None])[0])
            loss = whole - np.maximum(cuts.quality, least)  # a cut that is not possible gains 0
            minor = int(loss.argmin())
            if loss[minor] >= self.deletion * loss.max() or not np.isfinite(cuts.quality[minor]):
                break
            plane = np.append(directions[minor], -cuts.threshold[minor])
        return plane


def _units(node: NodeRows) -> FloatArray:
    """Return changes of the score by a unit of x_j + gamma, scaled features, (d, 3, d + 1)."""
    first, middle, third = node.quartiles
    spread = np.where(third > first, third - first, 1.0)
    moves = np.zeros((node.n_features, len(SHIFTS), node.n_features + 1))
    for j in range(node.n_features):
        moves[j, :, j] = 1.0 / spread[j]
        moves[j, :, -1] = np.array(SHIFTS) - middle[j] / spread[j]
    return moves


def _improved(
    node: NodeRows, plane: FloatArray, best: float, candidates: FloatArray
) -> tuple[FloatArray, float]:
    """Return the best of the candidates (P, d + 1) if it beats the plane, and its quality."""
    quality = node.qualities(candidates)
    first = int(quality.argmax())
    if quality[first] > best + node.slack:
        return candidates[first], float(quality[first])
    return plane, best


SHARE = 0.1  # of its first value, by which the probability of a sideways move falls


@declare
class OC1(StartedSearch):
    """OC1 (Murthy, Kasif and Salzberg, "Induction of oblique decision trees", 1994).

    From each start, coefficients take in turn their best value given the others. A value as good
    as the present one is accepted with a probability that falls with every such move. If no
    coefficient improves the split, ``n_jumps`` random directions are tried with their best step
    lengths; one that improves the split returns to the coefficients. All starts but the first are
    along random directions; they are searched side by side. Nodes of few rows are split by one
    feature.

    {parameters}
    """

    n_restarts: Annotated[Size, Inference("Number of additional starts.")] = 20
    n_jumps: Annotated[Size, Inference("Random directions that are tried at a local optimum.")] = 5
    sideways: Annotated[
        NonNegative,
        Inference("Probability of a first move that leaves the quality of the split as it is."),
    ] = 1.0
    rows_per_feature: Annotated[
        NonNegative, Inference("Nodes with fewer rows for each feature are split by one feature.")
    ] = 2.0
    max_sweeps: Annotated[Count, Inference("Maximum number of sweeps over the coefficients.")] = 100

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        axis = node.best_axis()
        if len(node.X) < self.rows_per_feature * node.n_features:
            return axis
        directions = rng.normal(size=(self.n_restarts + 1, node.n_features))
        starts = np.column_stack([directions, -node.cuts(directions).threshold])
        if self.start == "axis" and axis is not None:
            starts[0] = axis
        starts = starts[np.isfinite(starts).all(axis=1)]
        if not len(starts):
            return axis
        search = _CoordinateDescent(node, starts.copy(), rng, self.sideways)
        active = np.arange(len(starts))
        for _ in range(self.max_sweeps):
            improved = search.sweep(active)
            jumped = search.jump(active[~improved], self.n_jumps)
            active = np.concatenate([active[improved], jumped])
            if not len(active):
                break
        # in a tie, the first start
        planes = np.concatenate([starts[:1], search.planes])
        quality = node.qualities(planes)
        return planes[int((quality >= quality.max() - node.slack).argmax())]


class _CoordinateDescent:
    """Hyperplanes (S, d + 1) of several starts, their qualities, and the steps that improve them.

    ``sideways`` is the probability of a first move that does not change the quality.
    """

    def __init__(
        self, node: NodeRows, planes: FloatArray, rng: np.random.Generator, sideways: float
    ) -> None:
        self.node, self.rng, self.sideways = node, rng, sideways
        self.planes, self.quality = planes, node.qualities(planes)
        self.chance = np.full(len(planes), float(sideways))

    def sweep(self, active: IntArray) -> BoolArray:
        """Sweep once over the coefficients of the active planes; return which planes improved."""
        improved = np.zeros(len(active), dtype=bool)
        for axis in np.eye(self.planes.shape[1]):
            before = self.planes[active]
            found = self.node.steps(before, np.broadcast_to(axis, before.shape))
            quality = self.node.qualities(found)
            better = quality > self.quality[active] + self.node.slack
            equal = ~better & (quality >= self.quality[active] - self.node.slack)
            moved = equal & (self.rng.random(len(active)) < self.chance[active])
            self._move(active[better | moved], found[better | moved], quality[better | moved])
            self.chance[active[better]] = self.sideways
            self.chance[active[equal]] -= SHARE * self.sideways
            improved |= better
        return improved

    def jump(self, stuck: IntArray, n_jumps: int) -> IntArray:
        """Move each plane along the first of some random directions that improves it; which."""
        if not len(stuck) or n_jumps == 0:
            return stuck[:0]
        origin = np.repeat(self.planes[stuck], n_jumps, axis=0)
        found = self.node.steps(origin, self.rng.normal(size=origin.shape))
        quality = self.node.qualities(found).reshape(len(stuck), n_jumps)
        better = quality > self.quality[stuck, None] + self.node.slack
        which, first = better.any(axis=1), better.argmax(axis=1)
        at = np.arange(len(stuck)), first
        self._move(
            stuck[which], found.reshape(len(stuck), n_jumps, -1)[at][which], quality[at][which]
        )
        return stuck[which]

    def _move(self, to: IntArray, planes: FloatArray, quality: FloatArray) -> None:
        """Replace planes, in units of their largest coefficient."""
        self.planes[to] = planes / np.abs(planes).max(axis=1, keepdims=True)
        self.quality[to] = quality


NUS = (0.1, 1.0, 10.0)  # tried if nu is None
RATES = (0.1, 1.0)  # tried if learning_rate is None
MEMORY = 0.9  # of the momentum, and of the leaves
SMOOTHING = 1e-3  # share of the node's mean in each leaf: keeps the losses finite
CHECKS = 20  # a candidate is taken every so many steps


@declare
class CO2(StartedSearch):
    """CO2 (Norouzi, Collins, Fleet and Kohli, "CO2 forest", 2015), the split of a single tree.

    A row has the score s = w . x, and the leaves of a stump have the losses l(right) and l(left).
    The leaf that the row reaches has at most the loss

    max(s + l(right), -s + l(left)) - abs(s).

    It is convex minus convex in w and tight for large abs(s). It is minimised by projected
    gradient descent with momentum under abs(w)^2 <= nu, from the best split by one feature; the
    leaves follow the rows that attain the maximum. Losses are -log P(y), for numbers the squared
    error in units of the node's variance. All rows are used in each step. The splits on the way
    are compared by their impurity.

    {parameters}
    """

    nu: Annotated[
        Positive | None,
        Model(
            "Maximum square of the norm of w on the scaled features; small values smooth the "
            f"bound. By default the best of {NUS} for each node."
        ),
    ] = None
    learning_rate: Annotated[
        Positive | None,
        Inference(f"Step size over sqrt(nu); by default the best of {RATES} for each node."),
    ] = None
    steps: Annotated[Count, Inference("Number of gradient steps.")] = 200

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        start = self.first(node, rng)
        if start is None:
            return None
        grid = [
            (nu, rate)
            for nu in (NUS if self.nu is None else (self.nu,))
            for rate in (RATES if self.learning_rate is None else (self.learning_rate,))
        ]
        found = [start[None], *self._path(node, start, np.array(grid))]
        planes = np.concatenate(found)
        quality = node.qualities(planes)
        best = planes[int((quality >= quality.max() - node.slack).argmax())]
        # the threshold that is best on all rows
        return best if np.array_equal(best, start) else node.best(best[None, :-1])

    def _path(self, node: NodeRows, start: FloatArray, grid: FloatArray) -> list[FloatArray]:
        """Return hyperplanes (L, d + 1) on the way of the descent, by pair of nu and step size."""
        radius, rate = np.sqrt(grid[:, :1]), grid[:, 1:]
        plane = start / np.linalg.norm(start) * radius
        momentum, path = np.zeros_like(plane), []
        leaves = _StumpLeaves(node, plane @ node.with_ones.T > 0)
        for step in range(1, self.steps + 1):
            score = plane @ node.with_ones.T
            right = 2.0 * score + leaves.difference() > 0  # the side that attains the maximum
            sign = 2.0 * (right.astype(np.float64) - (score > 0))
            momentum = MEMORY * momentum + (1.0 - MEMORY) * ((sign * node.share) @ node.with_ones)
            plane = plane - rate * radius * momentum
            norm = np.linalg.norm(plane, axis=1, keepdims=True)
            plane *= np.minimum(1.0, radius / np.maximum(norm, np.finfo(np.float64).tiny))
            leaves.follow(right)
            if step % CHECKS == 0 or step == self.steps:
                path.append(plane.copy())
        return path


class _StumpLeaves:
    """The two leaves of each of L stumps, as weighted means of the rows' targets."""

    def __init__(self, node: NodeRows, right: BoolArray) -> None:
        self.node = node
        groups = None if node.y.dtype.kind == "f" else node.groups()
        # one column for each class, or y and its variance
        self.groups = groups
        self.target = node.y[:, None] if groups is None else np.eye(int(groups.max()) + 1)[groups]
        self.mean = node.share @ self.target
        self.variance = float(node.share @ np.square(self.target - self.mean).sum(axis=1))
        self.value = self._means(right)

    def _means(self, right: BoolArray) -> FloatArray:
        """Compute means (2, L, c) of the rows on the left and on the right."""
        sides = np.stack([~right, right]) * self.node.share
        total = sides.sum(axis=-1, keepdims=True) + SMOOTHING
        return (sides @ self.target + SMOOTHING * self.mean) / total

    def follow(self, right: BoolArray) -> None:
        self.value = MEMORY * self.value + (1.0 - MEMORY) * self._means(right)

    def difference(self) -> FloatArray:
        """Compute loss on the right minus loss on the left, shape (L, m)."""
        if self.groups is None:
            error = np.square(self.node.y - self.value) / (2.0 * max(self.variance, 1e-300))
            return error[1] - error[0]
        log = np.log(self.value)
        return (log[0] - log[1])[:, self.groups]
