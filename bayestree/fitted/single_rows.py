"""Explanations of the prediction for a single row, and what would change it.

The functions that take an estimator are its methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.draws import tails
from bayestree.explain.actions import Features, movable_columns, moves_of
from bayestree.explain.counterfactual import Robustness, counterfactual
from bayestree.explain.counterfactual import robustness as robustness_of
from bayestree.explain.explanation import Explanation, explanation
from bayestree.fitted.tree import MixtureEstimator, one_output
from bayestree.fitted.validation import fitted_rows
from bayestree.tree import Tree


def explain(
    estimator: MixtureEstimator,
    x: ArrayLike,
    *,
    features: Features = None,
    target: Any = None,
    assurance: float | None = None,
    level: float = 0.9,
    max_programs: int = 500,
) -> Explanation:
    """Explain the prediction for one row.

    The decision path and its facets belong to ``tree_``. The probabilities of the sides, the
    prediction and its uncertainty belong to the posterior, if there is one. With several modes
    the sides are those of all draws that have the node, and the leaf is that of its own mode.

    The counterfactual is a nearby row for which ``predict`` returns another class, or a mean beyond
    ``target``. Its distance sums absolute changes of numbers, in units of ``tree_.scale``, and 1
    for each category or boolean (an ordered category for each step). Numbers stay within the range
    of the training rows, and whole if those are. The search begins at the nearest changes of the
    deterministic trees; if ``predict`` takes no average, ``change.bound`` is a lower limit. If
    ``change.row`` is None, no change was found, which is no proof that there is none.

    Parameters
    ----------
    x : array, Series, mapping or DataFrame, shape (d,) or (1, d)
        A mapping has the value of each column by name.
    features : sequence of str or int, or mapping, optional
        Columns that the nearest change may alter, by default all; dates, and missing values in
        columns that are not named, stay as they are. A mapping has for each column of numbers the
        least and the largest value, which may lie beyond the range of the training rows, or
        ``"rise"`` or ``"fall"`` for one direction; for each column of categories or booleans the
        levels that it may change to; or None.
    target : label or float, optional
        Class to predict after the change, by default any other; or, for regression, mean that
        the prediction should reach from the other side.
    assurance : float, optional
        Share of the draws, of all modes by their weights, that must have the outcome after the
        change as well as ``predict``: the class with the largest P(y | x) given the draw, or its
        mean. ``change.assurance`` is the share that is reached. It is verified on every draw.
    level : float
        Probability of the intervals.
    max_programs : int
        Maximum number of linear programs in the search for the nearest change, about two
        milliseconds each, or ten where categories may change.

    Returns
    -------
    Explanation
        Can be printed; see also ``to_frame`` and ``plot``.

    Raises
    ------
    ValueError
        If x is not one row, ``features`` or ``target`` is unknown, ``assurance`` is not between 0
        and 1, or there is only one draw of which to ask it.
    """
    X, row, cells = _one(estimator, x, "explain")
    mixture, prediction = estimator.fitted_, estimator.prediction
    predict = partial(mixture.expectation, prediction=prediction)
    several = mixture.trees[0].n_draws > 1
    if assurance is not None:
        _check_assurance(assurance, several=several)
    tree, labels = mixture.shown.tree, mixture.response.labels
    posterior = change = None
    if mixture.shown.n_draws > 1 and hasattr(estimator, "split_uncertainty"):
        posterior = estimator.split_uncertainty(X, level=level)
    if isinstance(tree, Tree) and (labels is not None or target is not None):
        others = [one.tree for one, _ in mixture.by_weight() if one.tree is not tree]
        change = counterfactual(
            [tree, *others],
            row,
            predict,
            averages=mixture.averages(prediction),
            encoding=estimator.encoding_,
            cells=cells,
            labels=labels,
            features=features,
            target=target,
            max_programs=max_programs,
            drawn=mixture.drawn if several else None,
            assurance=assurance,
        )
    return explanation(
        tree,
        row,
        predict,
        encoding=estimator.encoding_,
        cells=cells,
        labels=labels,
        posterior=posterior,
        change=change,
    )


def robustness(
    estimator: MixtureEstimator,
    x: ArrayLike,
    *,
    features: Features = None,
    target: Any = None,
    level: float = 0.9,
    max_draws: int = 50,
    max_programs: int = 500,
) -> Robustness:
    """Measure how far a row may move before the deterministic tree predicts otherwise.

    The robustness radius is the distance to the nearest facet that decides, in the units of the
    ``distance`` of a counterfactual: in ``tree_``, and in the deterministic form of draws, which
    tells how well the posterior knows it. Numbers move by any amount, also where they are whole in
    the training rows.

    Parameters
    ----------
    x, features
        As for ``explain``.
    target : label or float, optional
        The class beyond the facet, by default any other than ``tree_`` predicts; or, for
        regression, the mean that is reached from the other side.
    level : float
        Probability of the interval over the draws.
    max_draws : int
        Maximum number of draws over all modes, evenly spaced.
    max_programs : int
        Maximum number of linear programs for the tree, and for each draw.

    Returns
    -------
    Robustness
        Can be printed; ``radius`` and its lower limit ``bound`` for ``tree_``, ``drawn`` for the
        draws with their ``mean`` and ``interval``.

    Raises
    ------
    ValueError
        If x is not one row, ``features`` or ``target`` is unknown, or, for regression, ``target``
        is missing.
    TypeError
        If the splits of the tree have no facets.
    """
    _, row, cells = _one(estimator, x, "robustness")
    mixture = estimator.fitted_
    tree, labels = mixture.shown.tree, mixture.response.labels
    if not isinstance(tree, Tree):
        raise TypeError(f"splits of the kind {tree.split_name!r} have no facets to measure.")
    if labels is None and target is None:
        raise ValueError("target is missing; give the mean that the prediction should reach.")
    if max_draws < 1:
        raise ValueError(f"max_draws must be 1 or more, got {max_draws}.")
    tails(level)
    each = max(1, max_draws // len(mixture.trees))
    drawn = (
        (drawn, weight / min(each, one.n_draws))
        for one, weight in mixture
        if one.n_draws > 1
        for drawn in one.drawn_trees(each)
    )
    columns = movable_columns(estimator.encoding_, cells, row, tree, features)
    return robustness_of(
        tree,
        drawn,
        row,
        moves_of(row, columns),
        labels=labels,
        target=target,
        level=level,
        max_programs=max_programs,
    )


def _check_assurance(assurance: float, *, several: bool) -> None:
    if not 0 < assurance <= 1:
        raise ValueError(f"assurance must be above 0 and at most 1, got {assurance}.")
    if not several:
        raise ValueError(
            f"assurance={assurance} needs several draws, but this fit is a point estimate; leave "
            "it out, or fit a posterior (such as inference='vi')."
        )


def _one(estimator: MixtureEstimator, x: Any, method: str) -> tuple[Any, FloatArray, Any]:
    """Return a single row as a table, its features (d,), and the values of its columns."""
    one_output(estimator, method)
    X = _one_row(x, estimator.encoding_.names)
    rows = fitted_rows(estimator, X)
    if len(rows) != 1:
        raise ValueError(f"x must be one row, got {len(rows)}; give them one by one.")
    return X, rows[0], tuple(own[0] for own in estimator.encoding_.shown(X))


def _one_row(x: Any, names: tuple[str, ...]) -> Any:
    """Return a row as a table with one row."""
    if isinstance(x, Mapping):
        own = names if x.keys() == {*names} else x
        return pd.DataFrame([[x[name] for name in own]], columns=[*own])
    if isinstance(x, pd.Series):
        return x.to_frame().T.infer_objects()
    return np.asarray(x, dtype=object)[None] if np.ndim(x) == 1 else x
