"""Predictions by the parts of large files, and intervals of y.

The functions that take an estimator are its methods.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.state import RandomState, draw_seed
from bayestree.diagnostics.draws import tails
from bayestree.fitted.training_rows import FileRows
from bayestree.fitted.tree import FittedTree, Mixture, MixtureEstimator
from bayestree.fitted.validation import checked, fitted_rows
from bayestree.inference import pointwise
from bayestree.inference.posterior import mixture_below, mixture_quantiles


def by_parts(
    estimator: MixtureEstimator, X: Any, function: Callable[..., Any], *columns: FloatArray | None
) -> Any:
    """Apply a function to all rows of X, in chunks if X is a large file.

    ``function`` also takes the rows of ``columns``, any of which may be None.
    """
    check_is_fitted(estimator)
    rows = checked(estimator, X, in_parts=True, reset=False).X
    if not isinstance(rows, FileRows):
        return function(rows, *columns)
    parts = [
        function(rows[part], *(None if one is None else one[part] for one in columns))
        for part in rows.slices()
    ]
    if not isinstance(parts[0], tuple):
        return np.concatenate(parts)
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def predict_interval(
    estimator: MixtureEstimator, X: ArrayLike, level: float = 0.9
) -> tuple[FloatArray, FloatArray]:
    """Predict a central interval of y, or of the time of the event.

    Its ends are quantiles of the mixture of all modes, draws and leaves, or for a forest, of the
    leaves of all soft trees.

    Returns
    -------
    low, high : arrays, shape (n,)

    Raises
    ------
    ValueError
        If ``level`` is not between 0 and 1.
    """
    return interval(estimator, X, level)


def interval(
    estimator: MixtureEstimator, X: ArrayLike, level: float, known: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Predict an interval for rows with the auxiliary column ``known``."""
    ends = np.array(tails(level))

    def of_rows(rows: FloatArray, some: FloatArray | None) -> tuple[FloatArray, ...]:
        return (*quantiles(estimator.fitted_, rows, some, ends),)

    return by_parts(estimator, X, of_rows, known)


def in_interval(
    estimator: MixtureEstimator, X: ArrayLike, y: ArrayLike, level: ArrayLike = 0.9
) -> FloatArray:
    """Tell whether each row of y is inside its ``predict_interval``, as 0 or 1.

    The result has the shape of ``level``, which may be several, followed by that of y. For a
    censored time it is the probability to be inside, given that the row survived until then.

    Raises
    ------
    ValueError
        If ``level`` is not between 0 and 1, or y has another number of rows than X.
    """
    before, until = below(estimator, X, *estimator.fitted_.response.separate(y))
    low, high = ends_of(level, before.ndim)
    return ((low <= until) & (before < high)).astype(np.float64)


def ends_of(level: ArrayLike, ndim: int = 0) -> FloatArray:
    """Return the probabilities of both ends of intervals, (2, ...), before ``ndim`` dimensions."""
    each = np.asarray(level, dtype=np.float64)
    ends = np.array([tails(float(one)) for one in each.ravel()]).T
    return ends.reshape(2, *each.shape, *(1,) * (ndim if each.ndim else 0))


def below(
    estimator: MixtureEstimator, X: ArrayLike, y: ArrayLike, extra: FloatArray | None
) -> FloatArray:
    """Compute P(Y < y | x) and P(Y <= y | x) of each row, (2, n) or (2, n, q)."""
    own = np.asarray(y, dtype=np.float64)
    mixture, n_outputs = estimator.fitted_, estimator.fitted_.response.n_outputs
    shape = (len(cast(Any, X)), *(n_outputs,) * (n_outputs > 1))
    if own.shape != shape or own.size == 0:
        raise ValueError(f"y must have shape {shape} with one row or more, got {own.shape}.")
    posteriors, scaling = [tree.posterior for tree in mixture.trees], mixture.scaling

    def of_rows(
        rows: FloatArray, y: FloatArray, known: FloatArray | None
    ) -> tuple[FloatArray, ...]:
        given, y = (mixture.weights, scaling.standardise(rows)), scaling.units.encode(y)
        if n_outputs == 1:
            return (*mixture_below(posteriors, *given, y, known),)
        each = [
            mixture_below([one.output(number) for one in posteriors], *given, y[:, number])
            for number in range(n_outputs)
        ]
        return (*np.stack(each, axis=-1),)

    return np.stack(by_parts(estimator, X, of_rows, own, extra))


def quantiles(
    mixture: Mixture, rows: FloatArray, known: FloatArray | None, levels: FloatArray
) -> FloatArray:
    """Compute quantiles of the mixture, (levels, n) or (levels, n, q)."""
    n_outputs = mixture.response.n_outputs
    posteriors, weights = [tree.posterior for tree in mixture.trees], mixture.weights
    scaling = mixture.scaling
    X = scaling.standardise(rows)
    if n_outputs == 1:
        return scaling.units.decode(mixture_quantiles(posteriors, weights, X, levels, known))
    each = [
        mixture_quantiles([one.output(number) for one in posteriors], weights, X, levels)
        for number in range(n_outputs)
    ]
    return scaling.units.decode(np.stack(each, axis=-1))


def sample_posterior_predictive(
    estimator: MixtureEstimator,
    X: ArrayLike,
    draws: int | None = None,
    *,
    random_state: RandomState = None,
) -> AnyArray:
    """Draw y from the posterior predictive distribution, for any ``prediction``.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
    draws : int, optional
        Number of draws; by default one for each draw of the posterior, chain after chain.
        Fewer are spread evenly over these; more repeat them in order. Several modes follow one
        another, each with draws in proportion to its weight.
    random_state : int, RandomState or Generator, optional

    Returns
    -------
    array, shape (draws, n)
        Classes, or values in the units of y. Rows are processed in chunks, so that this
        array determines the memory needed.

    Raises
    ------
    ValueError
        If ``draws`` is below 1.
    """
    return sampled(estimator, X, draws, random_state)


def sampled(
    estimator: MixtureEstimator,
    X: ArrayLike,
    draws: int | None,
    random_state: RandomState,
    known: FloatArray | None = None,
) -> AnyArray:
    """Draw y, given the auxiliary column ``known`` (n,) (see ``Leaf.known``)."""
    rows, mixture = fitted_rows(estimator, X), estimator.fitted_
    decode = mixture.response.decode
    total = sum(tree.n_draws for tree in mixture.trees) if draws is None else draws
    if total < 1:
        raise ValueError(f"draws must be 1 or more, got {draws}.")
    if not mixture.several:
        return decode(_sampled(mixture.shown, rows, total, random_state, known))
    seeds = check_random_state(draw_seed(random_state))
    counts = mode_counts(mixture.weights, total, seeds)
    each = [
        _sampled(tree, rows, int(count), seeds, known)
        for tree, count in zip(mixture.trees, counts, strict=True)
        if count
    ]
    return np.concatenate([decode(values) for values in each])


def _sampled(
    fitted: FittedTree,
    rows: FloatArray,
    count: int,
    random_state: RandomState,
    known: FloatArray | None,
) -> AnyArray:
    """Draw encoded y from the posterior predictive distribution of one tree."""
    posterior = fitted.posterior
    picked = spread_draws(count, fitted.n_draws).tolist()
    each = (posterior.sites(*divmod(pick, posterior.n_draws)) for pick in picked)
    also = None if known is None else torch.as_tensor(known)
    standard = fitted.scaling.standardise(rows)
    return pointwise.sample_y(posterior.model, each, standard, random_state, also)


def mode_counts(weights: FloatArray, total: int, seeds: np.random.RandomState) -> IntArray:
    """Count draws of each mode: of weight w, w * ``total`` on average, less than one off."""
    ends = np.floor(np.cumsum(weights) * total + seeds.uniform()).astype(int)
    ends[-1] = total
    return np.diff(ends, prepend=0)


def spread_draws(count: int, length: int) -> IntArray:
    """Choose ``count`` of the draws 0 to length - 1: spread evenly, or repeated in order."""
    numbers = np.arange(count)
    return numbers * length // count if count < length else numbers % length
