"""Fits of a split with soft sides, and the search for the columns that it needs.

A split is a noisy-OR of K facets with log-odds steepness log(exp(s) - 1) of going right, and
s = sum_k r_k softplus(beta_k . x + b_k). For one facet of weight 1 this is logistic regression. It
is fitted to sides of rows that are known or have probabilities, by their cross-entropy, with the
weights r fixed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaincc, gammaln

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray, softplus

RIDGE = 1e-4  # of standardised coefficients, relative to the loss of the mean row
MOST_STEPS, FEW_STEPS = 15, 3  # of a fit, and of one that is only a start
GAIN = 1e-5  # of the loss in a step, below which a fit has converged
DAMPING, LEAST_DAMPING, FACTOR, TRIALS = 1e-3, 1e-6, 8.0, 16  # of Levenberg and Marquardt
TINY = 1e-300  # keeps the log-odds of an underflowed score finite
FLOOR = 1e-12  # importance of rows, so that a facet without votes can be regressed as well
SINGULAR = 1e-9  # share of the variance of a column, below which others determine it
RANK = 1e-6  # the same, of the combinations of features that count as degrees of freedom


@dataclass(frozen=True, eq=False)
class SoftSplit:
    """Rows with the sides on which they should be.

    Parameters
    ----------
    rows : array, shape (n, d + 1)
        Standardised features, and a column of ones.
    right : array, shape (n,)
        Probability of the right side.
    weights : array, shape (n,)
        With sum 1.
    groups : sequence of arrays of int
        The features of each column, which a facet uses together or not at all.
    signs : array, shape (d,)
        The sign that each coefficient must have, 0 for any.
    steepness : float
        Factor of the log-odds.
    together : array of bool, shape (G, C), optional
        Sets of the C columns; a facet uses columns of one set. By default all columns.
    """

    rows: FloatArray
    right: FloatArray
    weights: FloatArray
    groups: Sequence[IntArray]
    signs: FloatArray
    steepness: float = 1.0
    together: BoolArray | None = None

    def fit(
        self,
        start: FloatArray,
        weight: FloatArray,
        support: BoolArray,
        most_steps: int = MOST_STEPS,
    ) -> FloatArray:
        """Fit coefficients (K, d + 1) within a support, by damped Gauss-Newton steps."""
        expert, feature = np.nonzero(support)
        penalty = np.where(feature == self.rows.shape[1] - 1, 0.0, RIDGE)
        found = np.where(support, start, 0.0)
        state = _State.at(self, found, weight)
        value = state.loss + 0.5 * float(penalty @ found[support] ** 2)
        damping = DAMPING
        for _ in range(most_steps):
            slope = state.slope[expert].T * self.rows[:, feature]
            gradient = state.residual @ slope + penalty * found[support]
            curvature = (slope * state.curvature[:, None]).T @ slope + np.diag(penalty)
            diagonal = np.diag(np.diag(curvature) + RIDGE)
            before = value
            for _ in range(TRIALS):
                trial = found.copy()
                trial[support] -= np.linalg.solve(curvature + damping * diagonal, gradient)
                there = _State.at(self, trial, weight)
                value = there.loss + 0.5 * float(penalty @ trial[support] ** 2)
                if value < before:
                    break
                damping *= FACTOR
            else:
                break
            found, state = trial, there
            damping = max(damping / FACTOR, LEAST_DAMPING)
            if before - value < GAIN:
                break
        wrong = (self.signs * found[:, :-1] < 0) & support[:, :-1]
        if not wrong.any():
            return found
        support = support.copy()
        support[:, :-1] &= ~wrong
        return self.fit(found, weight, support)

    def forward(self, start: FloatArray, weight: FloatArray) -> Iterator[FloatArray]:
        """Yield the fits with 1, 2, ... columns a facet, up to all of them.

        Each facet gets the column of the most significant score test. The first is the one that
        follows the values of the facet in ``start`` (K, d + 1) best, so that the facets keep their
        places, or the sides of the rows if no facet in ``start`` has a coefficient.
        """
        support = np.zeros(start.shape, dtype=bool)
        support[:, -1] = True
        if start[:, :-1].any():
            _, importance = self._tested(start, weight)
            values = start @ self.rows.T
            middle = (importance * values).sum(1, keepdims=True) / importance.sum(1, keepdims=True)
            target = importance * (values - middle)
            found = np.column_stack((np.zeros_like(start[:, :-1]), middle))
        else:
            found = self.fit(start, weight, support)
            target, importance = self._tested(found, weight)
        taken = np.zeros((len(start), len(self.groups)), dtype=bool)
        for _ in self.groups:
            for k, own in enumerate(support):
                best = self._best(own, taken[k], target[k], importance[k])
                if best is not None:
                    own[self.groups[best]] = taken[k, best] = True
            found = self.fit(found, weight, support, FEW_STEPS)
            target, importance = self._tested(found, weight)
            yield found

    def _tested(self, found: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the derivatives of the loss in the values of the facets, negative, and second."""
        state = _State.at(self, found, weight)
        return -state.residual * state.slope, state.curvature * state.slope**2 + FLOOR

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

    loss: float
    residual: FloatArray  # (n,), derivatives in the log-odds
    curvature: FloatArray  # (n,), second derivatives
    slope: FloatArray  # (K, n), derivatives of the log-odds in the values of the facets

    @classmethod
    def at(cls, split: SoftSplit, coefficient: FloatArray, weight: FloatArray) -> "_State":
        values = coefficient @ split.rows.T
        score = weight @ softplus(values) + TINY
        silent = -np.expm1(-score)  # 1 - exp(-s)
        odds = split.steepness * log_odds(score)
        p = expit(odds)
        return cls(
            loss=float(split.weights @ (np.logaddexp(0.0, odds) - split.right * odds)),
            residual=split.weights * (p - split.right),
            curvature=split.weights * p * (1 - p),
            slope=split.steepness / silent * weight[:, None] * expit(values),
        )
