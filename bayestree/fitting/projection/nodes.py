"""The splits of a sparse tree: fits with soft sides, the columns they need, and improvements.

With soft sides, a split is a noisy-OR of K facets with log-odds steepness log(exp(s) - 1) of going
right, and s = sum_k r_k softplus(beta_k . x + b_k). For one facet of weight 1 this is logistic
regression. It is fitted to sides of rows that are known or have probabilities, by their
cross-entropy, with the weights r fixed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaincc, gammaln

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray, softplus
from bayestree.fitting.projection.facets import Conjunction, Facets
from bayestree.tree import Tree, facet_threshold

RIDGE = 1e-4  # of standardised coefficients, relative to the loss of the mean row
MOST_STEPS, FEW_STEPS = 15, 3  # of a fit, and of one that is only a start
GAIN = 1e-5  # of the loss in a step, below which a fit has converged
DAMPING, LEAST_DAMPING, FACTOR, TRIALS = 1e-3, 1e-6, 8.0, 16  # of Levenberg and Marquardt
TINY = 1e-300  # keeps the log-odds of an underflowed score finite
FLOOR = 1e-12  # importance of rows, so that a facet without votes can be regressed as well
SINGULAR = 1e-9  # share of the variance of a column, below which others determine it
RANK = 1e-6  # the same, of the combinations of features that count as degrees of freedom
PASSES = 2  # over the facets of a node
IMPROVEMENT = 1e-9  # of the share of rows on the wrong side, at least
ALONE = np.ones(1)  # the weight of a single facet


@dataclass(frozen=True, eq=False)
class SoftSplit:
    """Rows with the sides on which they should be."""

    rows: FloatArray  # standardised features, and a column of ones, (n, d + 1)
    right: FloatArray  # probability of the right side, (n,)
    weights: FloatArray  # with sum 1, (n,)
    #: The features of each column, which a facet uses together or not at all.
    groups: Sequence[IntArray]
    signs: FloatArray  # the sign that each coefficient must have, 0 for any, (d,)
    steepness: float = 1.0  # factor of the log-odds
    #: Sets of the C columns; a facet uses columns of one set. By default all columns, (G, C).
    together: BoolArray | None = None

    def fit(
        self,
        start: FloatArray,
        weight: FloatArray,
        support: BoolArray,
        most_steps: int = MOST_STEPS,
    ) -> FloatArray:
        """Fit coefficients (K, d + 1) within a support, by damped Gauss-Newton steps."""
        there = _State.at(self, np.where(support, start, 0.0), weight)
        return self._fitted(there, weight, support, most_steps).coefficient

    def _fitted(
        self, state: "_State", weight: FloatArray, support: BoolArray, most_steps: int
    ) -> "_State":
        """Fit from a state on."""
        expert, feature = np.nonzero(support)
        columns = self.rows[:, feature]
        penalty = np.where(feature == self.rows.shape[1] - 1, 0.0, RIDGE)
        value = state.loss + 0.5 * float(penalty @ state.coefficient[support] ** 2)
        damping = DAMPING
        for _ in range(most_steps):
            slope = columns if state.linear else state.slope[expert].T * columns
            gradient = state.residual @ slope + penalty * state.coefficient[support]
            curvature = (slope * state.curvature[:, None]).T @ slope + np.diag(penalty)
            diagonal = np.diag(np.diag(curvature) + RIDGE)
            before = value
            for _ in range(TRIALS):
                trial = state.coefficient.copy()
                trial[support] -= np.linalg.solve(curvature + damping * diagonal, gradient)
                there = _State.at(self, trial, weight)
                value = there.loss + 0.5 * float(penalty @ trial[support] ** 2)
                if value < before:
                    break
                damping *= FACTOR
            else:
                break
            state = there
            damping = max(damping / FACTOR, LEAST_DAMPING)
            if before - value < GAIN:
                break
        wrong = (self.signs * state.coefficient[:, :-1] < 0) & support[:, :-1]
        if not wrong.any():
            return state
        support = support.copy()
        support[:, :-1] &= ~wrong
        there = _State.at(self, np.where(support, state.coefficient, 0.0), weight)
        return self._fitted(there, weight, support, MOST_STEPS)

    def forward(self, start: FloatArray, weight: FloatArray) -> Iterator[FloatArray]:
        """Yield the fits with 1, 2, ... columns a facet, up to all of them.

        Each facet gets the column of the most significant score test. The first is the one that
        follows the values of the facet in ``start`` (K, d + 1) best, so that the facets keep their
        places, or the sides of the rows if no facet in ``start`` has a coefficient.
        """
        support = np.zeros(start.shape, dtype=bool)
        support[:, -1] = True
        if start[:, :-1].any():
            importance = _State.at(self, start, weight).tested[1]
            values = start @ self.rows.T
            middle = (importance * values).sum(1, keepdims=True) / importance.sum(1, keepdims=True)
            target = importance * (values - middle)
            found = np.column_stack((np.zeros_like(start[:, :-1]), middle))
            state = _State.at(self, found, weight)
        else:
            there = _State.at(self, np.where(support, start, 0.0), weight)
            state = self._fitted(there, weight, support, MOST_STEPS)
            target, importance = state.tested
        taken = np.zeros((len(start), len(self.groups)), dtype=bool)
        for _ in self.groups:
            for k, own in enumerate(support):
                best = self._best(own, taken[k], target[k], importance[k])
                if best is not None:
                    own[self.groups[best]] = taken[k, best] = True
            state = self._fitted(state, weight, support, FEW_STEPS)
            target, importance = state.tested
            yield state.coefficient

    def _best(
        self, support: BoolArray, taken: BoolArray, target: FloatArray, importance: FloatArray
    ) -> int | None:
        """Return the column of the most significant score test, given those in the support.

        The statistic is that of weighted least squares: with z the features after regression on
        the support, (z' target)^2 / z' importance z, and its matrix form for columns of several
        features. Times the number of rows, it is chi-square with as many degrees of freedom as
        features that vary, if the column says nothing. Columns are compared by this probability,
        as otherwise those of many levels would be favoured (Hothorn, Hornik and Zeileis, "Unbiased
        recursive partitioning", JCGS 15, 2006). None if no column reduces the loss.
        """
        held = self.rows[:, support]
        weighted = held * importance[:, None]
        gram = weighted.T @ held
        gram[np.diag_indices(len(gram))] += SINGULAR * np.trace(gram) / len(gram)
        free = self.rows[:, :-1] - held @ np.linalg.solve(gram, weighted.T @ self.rows[:, :-1])
        score = target @ free
        score[self.signs * score < 0] = 0.0
        least = SINGULAR * importance.sum()
        usable = ~taken
        if self.together is not None:
            usable &= self.together[(self.together >= taken).all(axis=1)].any(axis=0)
        freedom = np.ones(len(self.groups))
        first = [own[0] for own in self.groups]
        gain = score[first] ** 2 / (importance @ free[:, first] ** 2 + least)
        gain[~usable] = 0.0
        several = [len(own) > 1 for own in self.groups]
        for number in np.flatnonzero(usable & several).tolist():
            own = self.groups[number]
            size, axes = np.linalg.eigh((free[:, own] * importance[:, None]).T @ free[:, own])
            gain[number] = ((score[own] @ axes) ** 2 / (size + least)).sum()
            freedom[number] = max(1, (size > RANK * importance.sum()).sum())
        n_rows = self.weights.sum() ** 2 / (self.weights**2).sum()
        # Probabilities of 1 are equal up to rounding; the larger gain comes first, too.
        best = int(np.lexsort((-gain, _log_chi_square(n_rows * gain, freedom)))[0])
        return best if gain[best] > 0 else None


def _log_chi_square(value: FloatArray, freedom: FloatArray) -> FloatArray:
    """Return the log probability that chi-square exceeds a value; its tail if that underflows."""
    a, x = freedom / 2, value / 2
    with np.errstate(divide="ignore"):
        found = np.log(gammaincc(a, x))
        tail = (a - 1) * np.log(x) - x - gammaln(a)
    return np.where(np.isfinite(found), found, tail)


def log_odds(score: FloatArray) -> FloatArray:
    """Return the log-odds of going right, log(exp(s) - 1), of scores s."""
    found: FloatArray = score + np.log(-np.expm1(-score - TINY))
    return found


@dataclass(frozen=True, eq=False)
class _State:
    """The loss at some coefficients, and its derivatives."""

    coefficient: FloatArray  # (K, d + 1)
    loss: float
    residual: FloatArray  # (n,), derivatives in the log-odds
    curvature: FloatArray  # (n,), second derivatives
    slope: FloatArray  # (K, n), derivatives of the log-odds in the values of the facets
    linear: bool  # whether these are all 1

    @classmethod
    def at(cls, split: SoftSplit, coefficient: FloatArray, weight: FloatArray) -> "_State":
        values = coefficient @ split.rows.T
        linear = split.steepness == 1 and weight.tolist() == [1.0]
        if linear:  # logistic regression
            odds, slope = values[0], np.ones_like(values)
        else:
            score = weight @ softplus(values) + TINY
            silent = -np.expm1(-score)  # 1 - exp(-s)
            odds = split.steepness * log_odds(score)
            slope = split.steepness / silent * weight[:, None] * expit(values)
        small = np.exp(-np.abs(odds))  # the ufuncs of NumPy, which are vector instructions
        p = np.where(odds > 0.0, 1.0, small) / (1.0 + small)
        each = np.maximum(odds, 0.0) + np.log(1.0 + small) - split.right * odds
        return cls(
            coefficient=coefficient,
            loss=float(split.weights @ each),
            residual=split.weights * (p - split.right),
            curvature=split.weights * p * (1 - p),
            slope=slope,
            linear=linear,
        )

    @property
    def tested(self) -> tuple[FloatArray, FloatArray]:
        """Derivatives of the loss in the values of the facets, negative, and second."""
        return -self.residual * self.slope, self.curvature * self.slope**2 + FLOOR


class Columns(NamedTuple):
    """The columns that facets may use."""

    groups: Sequence[IntArray]  # the features of each column
    directions: FloatArray  # not 0 where predictions are monotone: signs are kept, (d,)
    #: Sets of the C columns; a facet uses columns of one set. By default all columns, (G, C).
    together: BoolArray | None = None

    @property
    def most(self) -> int:
        """The largest number of columns that a facet may have."""
        return len(self.groups) if self.together is None else int(self.together.sum(1).max())


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the tree, and what its facets are made of."""

    rows: FloatArray  # all rows, standardised, and ones, (n, d + 1)
    X: FloatArray  # in the units of the data, (n, d)
    row_weights: FloatArray  # (n,)
    own: IntArray  # the rows that reach the node in the tree of full facets
    right: FloatArray  # their probabilities of going right with the full facets
    full: FloatArray  # coefficients of the full facets, standardised, (K, d + 1)
    weight: FloatArray  # of the full facets, as is ``steepness``, (K,)
    steepness: float
    center: FloatArray  # units of the standardised features, (d,)
    scale: FloatArray
    columns: Columns
    signs: FloatArray  # the sign that each coefficient must have, 0 for any, (d,)

    def start(self, size: int) -> Facets:
        """Return facets of at most ``size`` columns that follow the sides of the full facets."""
        split = self._split(self.own, self.right, self.row_weights[self.own], self.steepness)
        if size >= self.columns.most:
            allowed = np.zeros(self.full.shape, dtype=bool)
            allowed[:, [*np.concatenate(self.columns.groups), -1]] = True
            if self.columns.together is not None:
                allowed[:, :-1] &= self.full[:, :-1] != 0
            if allowed[:, :-1].any(axis=1).all():
                fitted = split.fit(self.full, self.weight, allowed, FEW_STEPS)
                found = fitted, np.where(allowed, self.full, 0.0)
                return max((self._of_votes(one, size) for one in found), key=self._agreement)
        *_, longest = islice(split.forward(self.full, self.weight), size)
        return self._of_votes(longest, size)

    def _of_votes(self, coefficient: FloatArray, size: int) -> Facets:
        """Return the conjunction of the facets on which each vote alone is log 2."""
        alone = coefficient.copy()
        alone[:, -1] -= facet_threshold(self.weight)
        alone = alone[alone[:, :-1].any(axis=1)]
        if not len(alone):  # nothing separates the rows: any column, and no row outside
            alone = np.zeros((1, self.full.shape[1]))
            alone[0, self.columns.groups[0][0]], alone[0, -1] = 1.0, -1e3
        exact = Conjunction.of(alone, self.center, self.scale)
        gain = self.row_weights[self.own] * (2 * self.right - 1)
        exact = exact.settled(self.X[self.own], gain) if len(alone) > 1 else exact
        return Facets(size, alone, exact, exact)

    def _agreement(self, facets: Facets) -> float:
        outside = facets.exact.outside(self.X[self.own])
        return float(self.row_weights[self.own] @ np.where(outside, self.right, 1 - self.right))

    def improved(self, facets: Facets, own: IntArray, gain: FloatArray, *, select: bool) -> Facets:
        """Fit each facet again to the rows that no other excludes.

        ``gain`` are what it is worth to have each of the rows ``own`` on the right. A facet is
        fitted by logistic regression, with weights |gain|, and kept if the rows on the wrong side
        then weigh less. With ``select`` its columns are chosen anew.
        """
        X, weights = self.X[own], np.abs(gain)
        for _ in range(PASSES):
            before = facets
            for k in range(len(facets.coefficient)):
                free = ~np.delete(facets.exact.beyond(X), k, axis=1).any(axis=1)
                some = weights[free]
                positive = gain[free] > 0
                if not (some[positive].any() and some[~positive].any()):
                    continue
                split = self._split(own[free], positive.astype(np.float64), some, 1.0)
                trial = self._refitted(facets, k, split, X[free], gain[free], select=select)
                if _gained(trial, X, gain) > _gained(facets, X, gain) + IMPROVEMENT * weights.sum():
                    facets = trial
            if facets is before:
                break
        return facets

    def _refitted(
        self,
        facets: Facets,
        k: int,
        split: SoftSplit,
        X: FloatArray,
        gain: FloatArray,
        *,
        select: bool,
    ) -> Facets:
        old = facets.coefficient[[k]]
        if select and (facets.size < self.columns.most or self.columns.together is not None):
            # By the sides alone: the columns so far may be wrong.
            *_, old = islice(split.forward(np.zeros_like(old), ALONE), facets.size)
        support = old != 0
        support[:, -1] = True
        new = split.fit(old, ALONE, support)
        if not new[0, :-1].any():
            return facets
        one = Conjunction.of(new, self.center, self.scale).settled(X, gain)
        normal, limit = facets.exact.normal.copy(), facets.exact.limit.copy()
        normal[k], limit[k] = one.normal[0], one.limit[0]
        coefficient = facets.coefficient.copy()
        coefficient[k] = new[0]
        exact = Conjunction(normal, limit)
        return replace(facets, coefficient=coefficient, exact=exact, rule=exact)

    def relative(self, facets: Facets) -> Facets:
        """Count levels of categories relative to the most frequent one, which has no term."""
        exact = facets.exact.relative(self.X, self.columns.groups)
        limit = exact.normal @ self.center - exact.limit
        coefficient = np.column_stack((exact.normal * self.scale, limit))
        return replace(facets, coefficient=coefficient, exact=exact, rule=exact)

    def rounded(self, facets: Facets, own: IntArray, digits: int) -> Facets:
        """Round the coefficients of the facets, and drop facets and terms without effect."""
        X = self.X[own]
        short = facets.exact.without_idle_terms(X).in_units_of_first(self.scale)
        return replace(facets, rule=short.rounded(X, digits).without_idle(X))

    def _split(
        self, own: IntArray, right: FloatArray, weights: FloatArray, steepness: float
    ) -> SoftSplit:
        share = weights / weights.sum()
        columns, signs = self.columns, self.signs
        return SoftSplit(
            self.rows[own], right, share, columns.groups, signs, steepness, columns.together
        )


def _gained(facets: Facets, X: FloatArray, gain: FloatArray) -> float:
    return float(gain[facets.exact.outside(X)].sum())


def nodes_of(
    tree: Tree, X: FloatArray, weights: FloatArray, steepness: float, columns: Columns
) -> list[Node]:
    """Return the nodes of a tree (see :func:`~bayestree.fitting.projection.path.project`)."""
    found = []
    rows = np.column_stack(((X - tree.center) / tree.scale, np.ones(len(X))))
    reached = {node: own for node, own, _ in tree.walk(X)}
    for node in range(tree.n_nodes):
        own = reached.get(node, np.arange(len(X)))  # of a sample of rows, perhaps none
        experts = tree.experts(node)
        plane = tree.hyperplane[experts]
        intercept = tree.intercept[experts] + plane @ tree.center
        found.append(
            Node(
                rows=rows,
                X=X,
                row_weights=weights,
                own=own,
                right=expit(steepness * log_odds(tree.score(node, X[own]))),
                full=np.column_stack((plane * tree.scale, intercept)),
                weight=tree.weight[experts],
                steepness=steepness,
                center=tree.center,
                scale=tree.scale,
                columns=columns,
                signs=np.where(columns.directions != 0, np.sign(plane.sum(axis=0)), 0.0),
            )
        )
    return found
