"""Oblique splits by weighted logistic regression, the surrogate of the reduced problem's 0/1 loss.

Minimises sum_i c_i log(1 + exp(-t_i (w . x_i + b))) + l1 |w|_1 + l2/2 |w|^2 over w and an
unpenalised intercept b, with t_i = +-1. The l1 problem is solved by proximal Newton steps on a
working set of features (non-zero coefficients, and those whose gradient exceeds l1). Inner steps
use only their Gram matrix, so rows are visited once per outer step. Rows may be float32;
sums that determine a step are accumulated in double precision.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray

STEPS = 50  # maximum number of Newton steps
INNER = 100  # maximum number of steps on a Gram matrix
INNER_TOLERANCE = 1e-3  # these stop at a subgradient of this share of l1
HALVINGS = 30  # maximum number of halvings of a Newton step in the line search
INNER_HALVINGS = 8  # the same for a step on a Gram matrix, before it is damped
MIN_DAMPING = 1e-9  # minimum damping relative to the trace of the Gram matrix
DESCENT = 1e-4  # constant of Armijo's condition
MIN_CURVATURE = 1e-5  # relative ridge: indicators that sum to 1 give a singular Gram matrix
NEW_FEATURES = 64  # a step may add as many features as are used, or this many if more


class Fit(NamedTuple):
    """Coefficients (d,), intercept and the value of the objective."""

    coefficients: FloatArray
    intercept: float
    value: float


class _LogisticProblem(NamedTuple):
    X: AnyArray
    sign: FloatArray
    weight: FloatArray
    l1: float
    l2: float

    def value(self, margin: FloatArray, w: FloatArray) -> float:
        """Compute the objective, given X w + b."""
        loss = self.weight @ np.logaddexp(0.0, -self.sign * margin)
        return float(loss + self.l1 * np.abs(w).sum() + self.l2 / 2 * (w @ w))

    def slopes(self, margin: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute the first and second derivatives of the loss by each row's margin."""
        probability = expit(margin)
        first = self.weight * (probability - (self.sign > 0))
        return first, self.weight * probability * (1 - probability)

    def scores(self, w: FloatArray, columns: IntArray) -> FloatArray:
        """Compute X w for a w that is zero outside ``columns``."""
        X = self.X if len(columns) == self.X.shape[1] else self.X[:, columns]
        return (X @ w[columns].astype(X.dtype)).astype(np.float64)


def fit_logistic(
    X: AnyArray,
    right: BoolArray,
    weight: FloatArray,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    start: tuple[FloatArray, float] | None = None,
    tolerance: float = 1e-4,
) -> Fit:
    """Fit a weighted logistic regression to rows (m, d); ``right`` (m,) marks the positive ones.

    One of the penalties must be positive if the classes may be separable. ``start`` is
    (coefficients, intercept).
    """
    sign = np.where(right, 1.0, -1.0)
    m, d = X.shape
    if l1 == 0 and m < d:
        # The optimum is a linear combination of the rows (representer theorem): with X' = Q R,
        # w = Q v and X w = R' v, so the problem has m coordinates v.
        basis, rows = np.linalg.qr(X.T)
        first = None if start is None else (basis.T @ start[0], start[1])
        fit = _solve(_LogisticProblem(rows.T, sign, weight, 0.0, l2), first, tolerance)
        return fit._replace(coefficients=basis @ fit.coefficients)
    return _solve(_LogisticProblem(X, sign, weight, l1, l2), start, tolerance)


def _solve(
    problem: _LogisticProblem, start: tuple[FloatArray, float] | None, tolerance: float
) -> Fit:
    w, b, margin, value = _best_start(problem, start)
    for _ in range(STEPS):
        first, second = problem.slopes(margin)
        gradient = (problem.X.T @ first.astype(problem.X.dtype)).astype(np.float64)
        gradient += problem.l2 * w
        columns = _working_set(problem, w, gradient)
        step, slope = _direction(problem, w, gradient, first.sum(), second, columns)
        change = np.zeros_like(w)
        change[columns] = step[:-1]
        along = problem.scores(change, columns) + step[-1]
        size = 1.0
        for _ in range(HALVINGS):
            new = problem.value(margin + size * along, w + size * change)
            if new <= value + DESCENT * size * slope:
                break
            size /= 2
        else:
            break  # no step lowers the objective, because of rounding
        w, b, margin = w + size * change, b + size * step[-1], margin + size * along
        gained, value = value - new, new
        if gained <= tolerance * value:
            break
    return Fit(w, float(b), value)


def _best_start(
    problem: _LogisticProblem, start: tuple[FloatArray, float] | None
) -> tuple[FloatArray, float, FloatArray, float]:
    """Find the warm start, or w = 0 with the log-odds of the classes if that is better."""
    m, d = problem.X.shape
    # Summed separately: the weights of one side may vanish next to the other side's.
    negative, positive = (problem.weight[problem.sign == side].sum() for side in (-1, 1))
    b = float(np.log(positive) - np.log(negative))
    w, margin = np.zeros(d), np.full(m, b)
    value = problem.value(margin, w)
    if start is not None:
        warm = start[0].astype(np.float64)
        warm_margin = problem.scores(warm, np.flatnonzero(warm)) + start[1]
        warm_value = problem.value(warm_margin, warm)
        if warm_value < value:
            return warm, float(start[1]), warm_margin, warm_value
    return w, b, margin, value


def _working_set(problem: _LogisticProblem, w: FloatArray, gradient: FloatArray) -> IntArray:
    """Return features that a step may change: all of them without l1."""
    if problem.l1 == 0:
        return np.arange(len(w))
    used = w != 0
    excess = np.where(used, 0.0, np.abs(gradient) - problem.l1)
    fresh = np.flatnonzero(excess > 0)
    limit = max(NEW_FEATURES, int(used.sum()))
    if len(fresh) > limit:
        fresh = fresh[np.argsort(-excess[fresh], kind="stable")[:limit]]
    return np.sort(np.concatenate([np.flatnonzero(used), fresh]))


def _direction(
    problem: _LogisticProblem,
    w: FloatArray,
    gradient: FloatArray,
    total: float,
    second: FloatArray,
    columns: IntArray,
) -> tuple[FloatArray, float]:
    """Return the Newton step of the columns and, last, the intercept, and its predicted descent.

    The Hessian is X' diag(second) X + l2 I, here the Gram matrix of rows scaled by sqrt(second).
    """
    X = problem.X if len(columns) == problem.X.shape[1] else problem.X[:, columns]
    root = np.sqrt(second).astype(X.dtype)[:, None]
    scaled = np.concatenate([X * root, root], axis=1)
    gram = (scaled.T @ scaled).astype(np.float64)
    diagonal = np.einsum("ii->i", gram)
    diagonal[:-1] += problem.l2
    diagonal += MIN_CURVATURE * max(diagonal.max(), 1e-12)
    slopes = np.append(gradient[columns], total)
    if problem.l1 == 0:
        step = _newton_step(gram, slopes)
        return step, float(slopes @ step)
    current = w[columns]
    step = _proximal(gram, slopes, current, problem.l1)
    penalty = np.abs(current + step[:-1]).sum() - np.abs(current).sum()
    return step, float(slopes @ step + problem.l1 * penalty)


def _proximal(gram: FloatArray, slopes: FloatArray, w: FloatArray, l1: float) -> FloatArray:
    """Minimise slopes . s + s' gram s / 2 + l1 |w + s|_1 over s; the last is not penalised.

    Newton steps within an orthant, where |w|_1 is linear: the signs of coefficients are fixed
    (of zeros by the direction of descent), and coefficients that would cross 0 stop there.
    With fewer rows than features some directions lack curvature and full steps are far too long:
    unsuccessful steps are damped (Levenberg-Marquardt).
    """
    rate = np.append(np.full(len(w), l1), 0.0)  # the intercept is not penalised
    point = origin = np.append(w, 0.0)
    slope = slopes.copy()
    value = float(rate @ np.abs(point))
    identity, damping = np.eye(len(gram)), 0.0
    for _ in range(INNER):
        signs = np.where(point != 0, np.sign(point), -np.sign(slope))
        pull = slope + rate * signs
        free = (point != 0) | (np.abs(slope) > rate)
        free[-1] = True
        if np.abs(pull[free]).max() <= INNER_TOLERANCE * l1:
            break
        damped = gram + damping * identity if damping else gram
        step = _orthant_step(damped, pull, free, (point == 0) & (rate > 0), signs)
        for size in 0.5 ** np.arange(INNER_HALVINGS):
            new = point + size * step
            new[(new * signs < 0) & (rate > 0)] = 0.0
            change = new - origin
            curved = gram @ change
            after = float(slopes @ change + change @ curved / 2 + rate @ np.abs(new))
            if after < value:
                point, slope, value = new, slopes + curved, after
                damping /= 10
                break
        else:
            if damping > gram.trace():
                break  # no step improves, because of rounding
            damping = max(10 * damping, MIN_DAMPING * gram.trace())
    return point - origin


def _orthant_step(
    gram: FloatArray, pull: FloatArray, free: BoolArray, at_zero: BoolArray, signs: FloatArray
) -> FloatArray:
    """Return the Newton step of free coefficients; zeros that would leave the orthant are fixed."""
    step = np.zeros_like(pull)
    while True:
        places = np.flatnonzero(free)
        part = _newton_step(gram[np.ix_(places, places)], pull[places])
        wrong = at_zero[places] & (part * signs[places] <= 0)
        if not wrong.any():
            step[places] = part
            return step
        free = free.copy()
        free[places[wrong]] = False


def _newton_step(gram: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return -gram^-1 slopes, with the smallest ridge that makes ``gram`` positive definite.

    Usually none is needed, but rounding in single precision can make a tiny eigenvalue negative
    (Nocedal and Wright, Numerical Optimization, algorithm 3.3).
    """
    ridge = 0.0
    while True:
        try:
            step: FloatArray = -cho_solve(cho_factor(gram + ridge * np.eye(len(gram))), slopes)
        except np.linalg.LinAlgError:
            ridge = max(10 * ridge, MIN_DAMPING * float(gram.trace()))
        else:
            return step
