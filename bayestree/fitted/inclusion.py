"""Inclusion of columns in the facets of fitted trees; ``column_inclusion`` is a method."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bayestree.diagnostics.draws import spread
from bayestree.diagnostics.inclusion import (
    ColumnInclusion,
    Routed,
    inclusion_probability,
    node_effects,
    tree_effects,
)
from bayestree.fitted.tree import FittedTree, one_output
from bayestree.fitted.validation import fitted_rows


def column_inclusion(
    estimator: Any, X: ArrayLike, *, max_draws: int = 100, max_rows: int = 1000
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
        Can be printed; see also ``get_support``, ``selected`` and ``to_frame``. Nodes are those
        of ``tree_``, and probabilities of the whole tree are those of all modes. Of equal
        columns the fit uses the first, and the others have the probability 0.

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
    >>> "proline" in clf.column_inclusion(X).selected(fdr=0.2)
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
    own = _routed(shown, 1.0)
    for place, members, _ in shown.tree.walk(rows):
        some = standard[members[spread(len(members), max_rows)]]
        if len(some) > 1:
            effects = node_effects(own, int(reach.nodes[place]), some, encoding.places, max_draws)
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
