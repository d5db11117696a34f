"""How predictions depend on the columns of X: importance, Shapley values, interactions.

The functions that take an estimator are its methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import FloatArray, shuffled
from bayestree._utils.state import RandomState, draw_seed
from bayestree.diagnostics.draws import spread, tails
from bayestree.diagnostics.inclusion import (
    ColumnInclusion,
    Routed,
    inclusion_probability,
    node_effects,
    tree_effects,
)
from bayestree.explain import dependence
from bayestree.explain.dependence import Interactions, PartialDependence, ShapleyValues
from bayestree.explain.importance import (
    Importance,
    Part,
    draw_importance,
    point_importance,
    prior_votes,
    split_importance,
)
from bayestree.fitted.tree import FittedTree, Mixture, MixtureEstimator, Prediction, one_output
from bayestree.fitted.validation import counted_rows, fitted_rows
from bayestree.inference import Data

PAIRED = 8  # features whose interactions are measured by default


def feature_importances(estimator: MixtureEstimator) -> FloatArray:
    """Return the importance of each column for splits and slopes of leaves, (d,), with sum 1.

    The decrease of Gini's impurity, or of the sum of squares, at each node, divided among the
    facets and then the features by their coefficients; for splits along the axes this is the
    importance of CART. The slopes of linear and logistic leaves count by the same measure for
    one unit of ``tree_.scale``. With several modes or trees it is their weighted mean.
    ``importance`` measures predictions, with intervals.
    """
    check_is_fitted(estimator)
    trees = [(weight, one.tree) for one, weight in estimator.fitted_.by_weight()]
    return estimator.encoding_.by_column(split_importance(trees))


def importance(
    estimator: MixtureEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    n_repeats: int = 3,
    max_draws: int = 50,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> Importance:
    """Measure the importance of each column of X, with its posterior.

    There are two measures: the share of its features in the votes at the nodes that rows reach, for
    each posterior draw and, to compare with, for the prior; and how much shuffling it among the
    rows lowers the mean log score of the predictions, which average over all draws and modes.
    Without several draws, or for ``prediction="tree"``, both describe the deterministic tree, whose
    means count as means of normal distributions with the residuals' variance.

    Parameters
    ----------
    X, y, sample_weight : arrays, shapes (n, d), (n,), (n,)
        Rows, preferably new ones: on the rows of the fit, a tree that fits noise seems to
        need it. Exposures or events are the second column of y, as for ``fit``.
    n_repeats : int
        Number of times that each column is shuffled, in the same way for all draws.
    max_draws : int
        Maximum number of draws over all chains and modes, evenly spaced. This takes the time of
        d * n_repeats * max_draws predictions of all rows.
    level : float
        Probability of the intervals. Intervals of votes state how sure the posterior is, those for
        losses how much they depend on the rows.
    random_state : int, RandomState or Generator
        Seed of the shuffles.

    Returns
    -------
    Importance
        Can be printed; see also ``to_frame`` and ``plot``.

    Raises
    ------
    ValueError
        If ``n_repeats``, ``max_draws`` or ``level`` is out of range, or for rows that ``fit``
        would refuse.
    """
    check_is_fitted(estimator)
    one_output(estimator, "importance")
    for name, value in (("n_repeats", n_repeats), ("max_draws", max_draws)):
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}.")
    tails(level)
    given, _ = counted_rows(estimator, X, y, sample_weight)
    rows, response, weights = given.X[:], given.response, given.weights
    random = check_random_state(draw_seed(random_state))
    orders = [shuffled(random, weights) for _ in range(n_repeats)]
    mixture, encoding = estimator.fitted_, estimator.encoding_
    scaling = mixture.scaling
    if mixture.averages(estimator.prediction):
        data = Data.of(scaling.standardise(rows), response, weights)
        parts = [Part(weight, one.posterior) for one, weight in mixture.by_weight() if weight]
        found = draw_importance(parts, data, orders, max_draws, encoding)
    else:
        if given.extra is None and not mixture.response.classifies:
            response = mixture.response.decode(response)
        found = point_importance(
            mixture.hard_trees,
            partial(mixture.expectation, prediction=estimator.prediction),
            rows,
            response,
            orders,
            weights,
            encoding=encoding,
            misfit=None if given.extra is None else mixture.response.leaf.misfit,
        )
    return Importance(encoding.names, *found, prior_votes(scaling.source, encoding), level)


def shapley_values(
    estimator: MixtureEstimator, X: ArrayLike, background: ArrayLike | None = None
) -> ShapleyValues:
    """Compute exact Shapley values of the predictions of ``tree_``, which must use few columns.

    A Shapley value is the contribution of a column to a prediction, averaged over all orders in
    which columns become known. Unknown columns take the values of the background rows, all from the
    same row (interventional Shapley values).

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
        Each row takes 2^m predictions of the background, for the m columns with a coefficient
        in ``tree_``, at most 12.
    background : array or DataFrame, shape (b, d), optional
        By default at most 100 evenly spaced rows of X.

    Returns
    -------
    ShapleyValues
        Of the probabilities of the classes, or the mean, of the deterministic tree; see also
        ``to_frame`` and ``plot``.

    Raises
    ------
    ValueError
        If ``tree_`` has more than 12 columns.
    """
    one_output(estimator, "shapley_values")
    rows = fitted_rows(estimator, X)
    around = (
        rows[spread(len(rows), 100)] if background is None else fitted_rows(estimator, background)
    )
    mixture = estimator.fitted_
    classes = mixture.response.class_names
    return dependence.shapley_values(mixture.hard_trees, rows, around, classes, estimator.encoding_)


def partial_dependence(
    estimator: MixtureEstimator,
    X: ArrayLike,
    feature: str | int,
    *,
    grid: ArrayLike | int = 20,
    level: float = 0.9,
    max_rows: int = 200,
) -> PartialDependence:
    """Compute how the prediction depends on one column, with credible bands.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
        Rows over which the other columns are averaged.
    feature : str or int
        A column, or a part of a date, such as ``"since (month)"``.
    grid : array or int
        Values of the column, or how many: evenly spaced from its 5 % to its 95 % quantile, or all
        if these are fewer; for categories, the most frequent ones in X. If training rows lack
        values, the last value is a missing one.
    level : float
        Probability of the interval over the draws. A point estimate has no spread.
    max_rows : int
        Maximum number of rows, evenly spaced.

    Returns
    -------
    PartialDependence
        With the curve of each row (ICE); see also ``to_frame`` and ``plot``.

    Raises
    ------
    ValueError
        If the column, or a level in ``grid``, is unknown, or ``level`` is not between 0 and 1.
    """
    for name, count in (("grid", grid), ("max_rows", max_rows)):
        if isinstance(count, int | np.integer) and count < 1:
            raise ValueError(f"{name} must be 1 or more, got {count}.")
    one_output(estimator, "partial_dependence")
    rows, mixture = fitted_rows(estimator, X), estimator.fitted_
    column, own = estimator.encoding_.part(feature)
    shown = rows[:, own[0]].tolist()
    if column in estimator.encoding_.columns:
        shown = estimator.encoding_.shown(X)[estimator.encoding_.columns.index(column)]
    return dependence.partial_dependence(
        partial(_predicted_draws, mixture, estimator.prediction),
        rows[spread(len(rows), max_rows)],
        dependence.column_grid(column, own, shown, grid),
        chains=mixture.chains if mixture.averages(estimator.prediction) else np.zeros(1, int),
        classes=mixture.response.class_names,
        level=level,
    )


def interactions(
    estimator: MixtureEstimator,
    X: ArrayLike,
    features: Sequence[str | int] | None = None,
    *,
    max_rows: int = 50,
) -> Interactions:
    """Measure the interactions of pairs of columns by Friedman's H.

    H is the share of the joint effect of two columns on the prediction (averaged over the draws)
    that is not the sum of their separate effects.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
        Rows at which, and over which, effects are averaged.
    features : sequence of str or int, optional
        Columns of X, or parts of dates; by default the 8 columns with the largest
        ``feature_importances_``, or all if they are fewer.
    max_rows : int
        Maximum number of rows m, evenly spaced; each pair takes m^2 predictions.

    Returns
    -------
    Interactions
        Can be printed; see also ``to_frame`` and ``plot``.

    Raises
    ------
    ValueError
        If a column is unknown.
    """
    if max_rows < 1:
        raise ValueError(f"max_rows must be 1 or more, got {max_rows}.")
    one_output(estimator, "interactions")
    rows = fitted_rows(estimator, X)
    if features is None:
        used = [j for j, own in enumerate(estimator.encoding_.places) if len(own)]
        most = np.argsort(-feature_importances(estimator)[used], kind="stable")[:PAIRED]
        features = np.sort(np.array(used)[most]).tolist()
    columns, chosen = zip(*map(estimator.encoding_.part, features), strict=True)
    some = rows[spread(len(rows), max_rows)]
    expect = lambda x: estimator.fitted_.expectation(x, estimator.prediction)[0]  # noqa: E731
    names = tuple(column.name for column in columns)
    return dependence.interactions(expect, some, chosen, names)


def _predicted_draws(
    mixture: Mixture, prediction: Prediction, rows: FloatArray
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield predictions of groups of draws, (S, n, C) or (S, n), and their weights."""
    if not mixture.averages(prediction):
        yield mixture.expectation(rows, prediction)[0][None], np.ones(1)
        return
    yield from mixture.drawn(rows)


def column_inclusion(
    estimator: MixtureEstimator, X: ArrayLike, *, max_draws: int = 100, max_rows: int = 1000
) -> ColumnInclusion:
    """Compute the probability that each column takes part in the facets that cut.

    It is computed from the effects of the columns on the predictions, next to one another and
    to their posterior standard deviations, by a model of two groups of columns: see
    :class:`bayestree.diagnostics.ColumnInclusion`. ``get_support`` of the result chooses columns
    at a Bayesian false discovery rate, that of columns without an effect given the others. With
    fewer than some ten columns the prior of the two groups counts for much; with more columns than
    rows, SVI is too certain of those that it uses, and the rate is not held.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
        The rows of the fit, or others of their population.
    max_draws : int
        Maximum number of draws of each mode, over all chains, evenly spaced within each.
    max_rows : int
        Maximum number of rows, evenly spaced; for each node, of those that reach it.

    Returns
    -------
    ColumnInclusion
        Can be printed; see also ``get_support``, ``selected`` and ``to_frame``. Nodes are those of
        ``tree_``, and probabilities of the whole tree are those of all modes. If columns are equal,
        the fit uses the first of them, and the others have the probability 0.

    Raises
    ------
    ValueError
        For a fit of a single draw, if ``max_draws`` is below 1 or ``max_rows`` below 2, for fewer
        than two rows, or for rows that ``predict`` refuses.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bayestree import ConvexPolytopeTreeClassifier
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> clf = ConvexPolytopeTreeClassifier(random_state=0).fit(X, y)
    >>> found = clf.column_inclusion(X)
    >>> "proline" in found.to_frame().index[:3]
    True
    """
    one_output(estimator, "column_inclusion")
    if max_rows < 2:
        raise ValueError(f"max_rows must be 2 or more, got {max_rows}.")
    rows, mixture = fitted_rows(estimator, X), estimator.fitted_
    if len(rows) < 2:
        raise ValueError(f"X must have two rows or more, to compare them, got {len(rows)}.")
    shown, encoding = mixture.shown, estimator.encoding_
    reach = shown.polytopes
    if shown.n_draws == 1:
        raise ValueError(
            "column_inclusion needs a posterior, but this fit has a single draw: fit with "
            "inference='vi', 'svi' or a sampler."
        )
    standard = shown.scaling.standardise(rows)
    parts = [_routed(one, weight) for one, weight in mixture]
    whole = tree_effects(parts, standard[spread(len(rows), max_rows)], encoding.places, max_draws)
    nodes = np.zeros((len(reach.nodes), len(encoding.names)))
    own = _routed(shown, 1.0)._replace(draws=shown.node_draws)
    exchanged = np.moveaxis(shown.matches.exchanged, -1, 0)
    for place, members, _ in shown.tree.walk(rows):
        some = standard[members[spread(len(members), max_rows)]]
        if len(some) > 1:
            given = (encoding.places, max_draws, exchanged[place])
            effects = node_effects(own, place, some, *given)
            nodes[place] = inclusion_probability(effects)
    return ColumnInclusion(
        columns=encoding.names,
        probability=inclusion_probability(whole),
        effect=whole.size * float(shown.scaling.units.y_scale),
        sd=whole.sd * float(shown.scaling.units.y_scale),
        node_probability=nodes,
        labels=shown.tree.topology.node_labels,
    )


def _routed(fitted: FittedTree, weight: float) -> Routed:
    posterior = fitted.posterior
    model = posterior.model
    return Routed(weight, posterior.described_draws, model.topology, model.steepness)
