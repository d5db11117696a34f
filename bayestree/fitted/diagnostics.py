"""Diagnostics of fitted trees: sizes, facets, shrinkage and uncertainty of their splits.

The functions that take an estimator are its methods.
"""

from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.progress import fitting, steps_of
from bayestree._utils.state import RandomState
from bayestree._utils.wording import written
from bayestree.diagnostics import size, uncertainty
from bayestree.diagnostics.draws import SHARE, spread, tails
from bayestree.diagnostics.facets import Facets, node_facets
from bayestree.diagnostics.polytopes import Reach, leaves_in_use, node_reach
from bayestree.diagnostics.shrinkage import Shrinkage, node_shrinkage
from bayestree.diagnostics.size import PolytopeSize, TreeSize, number_probabilities, size_of
from bayestree.diagnostics.sparsity import SparsityPath
from bayestree.diagnostics.uncertainty import (
    Other,
    RuleProbability,
    Splits,
    SplitUncertainty,
    mixed_uncertainty,
    region_shares,
)
from bayestree.fitted.tree import (
    FittedTree,
    Mixture,
    MixtureEstimator,
    StagedEstimator,
    node_matches,
    one_output,
)
from bayestree.fitted.validation import fitted_rows
from bayestree.inference import Posterior
from bayestree.models import SoftTree
from bayestree.models.soft_tree import improper_priors, sample_prior
from bayestree.routed_tree import RowSource
from bayestree.topology import Topology
from bayestree.tree import Tree

SAMPLE, SAMPLE_VALUES, FEWEST = 200, 40_000, 20  # rows to keep: at most, or these values, or these
SIZE_ROWS = 1000  # rows of each node on which the votes of its experts are measured
PRIOR_DRAWS = 200  # prior draws of a node; their votes are measured on these rows
SPLITS = ("hyperplane", "intercept", "log_weight", "shrinkage")
PRIOR_SEED = 0  # the same draws at every call


def polytope_size(estimator: MixtureEstimator, max_draws: int = 100) -> PolytopeSize:
    """Measure the number of facets of each node of ``tree_`` in four ways.

    Counts from a variational fit are overconfident and can be wrong; use inference="mcmc" to
    sample them. ``over_modes`` compares several such fits. If ``tree_`` has a single leaf, there
    are no nodes to measure, and the result has only the number of leaves in use by the draws.

    Parameters
    ----------
    max_draws : int
        Maximum number of draws measured, over all chains, evenly spaced within each. A
        draw takes one to ten milliseconds for each node; the standard error of a probability
        p from S draws is sqrt(p (1 - p) / S). Sizes under the prior are computed on first
        use, from ten times as many draws, but at most 200.

    Returns
    -------
    PolytopeSize
        Can be printed; see ``mode``, ``interval``, ``probabilities`` (under the prior
        ``prior_probabilities``), ``leaf_probabilities`` of the number of leaves in use, and
        ``to_frame``. With several modes the nodes belong to ``tree_``, and ``over_modes``
        has the facets of the root and of all splits, the leaves and the depth over all modes.
    """
    check_is_fitted(estimator)
    mixture = estimator.fitted_
    with fitting(estimator.verbose):
        trees = steps_of(mixture.trees, "modes") if mixture.several else mixture.trees
        each = [_size_of_tree(one, max_draws) for one in trees]
    own = each[mixture.medoid]
    return replace(own, over_modes=_sizes(mixture, each)) if mixture.several else own


def _size_of_tree(fitted: FittedTree, max_draws: int) -> PolytopeSize:
    """Measure the polytopes of one tree."""
    posterior, tree, reach = fitted.posterior, fitted.tree, fitted.polytopes
    n_prior = PRIOR_DRAWS if reach.prior_largest is None else len(reach.prior_largest)
    return size_of(
        fitted.node_draws,
        reach._replace(nodes=np.arange(tree.n_nodes)),
        tree.topology.node_labels,
        prior=prior_of_node(posterior.model, tree.n_features, n_prior),
        max_draws=max_draws,
        max_prior_draws=10 * max_draws,
        variational=posterior.variational,
    )


def _sizes(mixture: Mixture, each: list[PolytopeSize]) -> TreeSize:
    """Summarize the sizes of the trees of a mixture."""
    weights = mixture.weights
    leaves = [one.n_leaves for one in each if one.n_leaves is not None]
    depths = [np.array([one.tree.depth]) for one in mixture.trees]
    return TreeSize(
        facets=number_probabilities([one.sizes()[:, :1].sum(axis=1) for one in each], weights),
        splits=number_probabilities([one.sizes().sum(axis=1) for one in each], weights),
        leaves=number_probabilities(leaves, weights) if len(leaves) == len(each) else None,
        depth=number_probabilities(depths, weights),
    )


def facets(
    estimator: MixtureEstimator,
    node: str | int = "root",
    *,
    level: float = 0.9,
    max_draws: int = 100,
    min_share: float = SHARE,
) -> Facets:
    """Match the half-spaces of a node's facets across draws.

    Probabilities from a variational fit are too close to 0 and 1; use inference="mcmc" to
    sample the facets.

    Parameters
    ----------
    node : str or int
        Path from the root in ``tree_`` (``"root"``, ``"L"``, ``"LR"``, ...), or number.
    level : float
        Probability of the intervals.
    max_draws : int
        Maximum number of draws measured, over all chains, evenly spaced within each.
    min_share : float
        Facets that alone cut off a smaller share of the node's rows are left out; 0 lists all
        facets in the box of these rows. Models saved by earlier versions have not recorded
        the shares, and list all.

    Returns
    -------
    Facets
        In the units of the data. Can be printed; see also ``to_frame``.

    Raises
    ------
    ValueError
        If there is no such node, or ``level`` or ``min_share`` is not between 0 and 1.
    """
    check_is_fitted(estimator)
    shown = estimator.fitted_.shown
    tree, reach = shown.tree, shown.polytopes
    place = _node_number(node, tree.topology)
    return node_facets(
        shown.node_draws,
        place,
        reach.low[place],
        reach.high[place],
        center=tree.center,
        scale=tree.scale,
        label=tree.topology.node_labels[place],
        feature_names=tree.feature_names,
        level=level,
        max_draws=max_draws,
        cut=None if reach.cut is None else reach.cut[:, :, place],
        exchanged=shown.matches.exchanged[:, :, place],
        min_share=min_share,
        variational=shown.posterior.variational,
    )


def shrinkage(estimator: MixtureEstimator) -> Shrinkage:
    """Measure the shrinkage of the experts' weights and of their hyperplanes' coefficients.

    Returns
    -------
    Shrinkage
        Can be printed; see also ``to_frame("node")``, ``to_frame("expert")`` and
        ``to_frame("coefficient")``.
    """
    check_is_fitted(estimator)
    shown = estimator.fitted_.shown
    posterior, tree, reach = shown.posterior, shown.tree, shown.polytopes
    every = np.arange(tree.n_nodes)
    return node_shrinkage(
        shown.node_draws,
        {name: value[reach.nodes] for name, value in posterior.point.items() if name in SPLITS},
        reach._replace(nodes=every),
        **posterior.model.priors.hyperplane.shrinkage_settings,
        prior=prior_of_node(posterior.model, tree.n_features, PRIOR_DRAWS),
        prior_power=float(posterior.settings.get("kl_weight", 1.0)),
        labels=tree.topology.node_labels,
        feature_names=tree.feature_names,
    )


def sparsity_path(estimator: MixtureEstimator) -> SparsityPath:
    """Return the trees from which the sparse facets of ``tree_`` were chosen, and what they lose.

    Returns
    -------
    SparsityPath
        Can be printed; see also ``to_frame`` and ``bayestree.plots.sparsity_path``.

    Raises
    ------
    AttributeError
        If the facets of ``tree_`` are full: with ``sparsity=None`` or after a point estimate, in
        trees beyond the size that ``sparsity="auto"`` names, and with ``image_shape``.
    """
    check_is_fitted(estimator)
    found = estimator.fitted_.shown.sparsity
    if found is None:
        raise AttributeError(
            "tree_ has full facets, so there is no path of sparse ones: fit with sparsity=0.01, "
            "nats a row that may be lost, or with max_columns=3, and without image_shape."
        )
    return found


def split_uncertainty(
    estimator: MixtureEstimator, X: ArrayLike, *, level: float = 0.9
) -> SplitUncertainty:
    """Compute the posterior uncertainty of the splits of ``tree_`` at given rows.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
        Rows, or the points of a grid.
    level : float
        Probability of the intervals.

    Returns
    -------
    SplitUncertainty
        Can be printed; see also ``to_frame("node")`` and ``to_frame("row")``. For a grid,
        ``outside`` is the posterior probability that each point lies outside the polytope of each
        node; its contours are credible borders. With several modes, sides are those of all draws
        that have the node, what refers to leaves belongs to the mode of ``tree_`` (for another one,
        see ``modes_[m].split_uncertainty``), and that of y is decomposed for their mixture.

    Raises
    ------
    ValueError
        If ``level`` is not between 0 and 1, or for rows that ``predict`` refuses.
    """
    one_output(estimator, "split_uncertainty")
    rows, mixture = fitted_rows(estimator, X), estimator.fitted_
    own = _uncertainty(mixture, mixture.medoid, rows, level)
    if not mixture.several:
        return own
    each = [_uncertainty(mixture, m, rows, level) for m in range(len(mixture.trees))]
    return mixed_uncertainty(own, each, mixture.weights)


def rule_probability(
    estimator: MixtureEstimator, X: ArrayLike, *, level: float = 0.9
) -> RuleProbability:
    """Compute how many draws agree with ``tree_`` at given rows, and the regions of its nodes.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
        Rows, or the points of a grid.
    level : float
        At least (1 + level) / 2 of the draws send the rows of an inner region to a node or leaf,
        and at least (1 - level) / 2 those of an outer one.

    Returns
    -------
    RuleProbability
        Can be printed; see also ``to_frame("region")``, ``to_frame("column")`` and
        ``to_frame("row")``. Sides and paths are compared with the draws of the mode of ``tree_``
        (for another one, see ``modes_[m].rule_probability``), classes with those of all modes.

    Raises
    ------
    ValueError
        If ``level`` is not between 0 and 1, or for rows that ``predict`` refuses.
    """
    one_output(estimator, "rule_probability")
    tails(level)
    rows, mixture = fitted_rows(estimator, X), estimator.fitted_
    tree, posterior = mixture.shown.tree, mixture.shown.posterior
    prediction = np.zeros(len(rows)) if tree.classifies else None
    if prediction is not None:
        own = tree.predict(rows).argmax(axis=1)
        for each, weight in mixture.drawn(rows):
            prediction += weight @ (each.argmax(axis=-1) == own)
    return RuleProbability(
        *region_shares(
            posterior.draws,
            mixture.scaling.standardise(rows),
            _sides(tree, rows),
            Splits(tree.topology, mixture.shown.matches),
        ),
        prediction,
        rows,
        tree.feature_labels,
        (*tree.topology.node_labels, *tree.topology.leaf_labels),
        level,
    )


def _sides(tree: Tree, rows: FloatArray) -> BoolArray:
    """Tell whether rows (n, d) go right at each node, whether or not they reach it, (n, V)."""
    right = [tree.goes_right(node, rows) for node in range(tree.n_nodes)]
    return np.array(right, dtype=bool).reshape(tree.n_nodes, len(rows)).T


def _uncertainty(mixture: Mixture, number: int, rows: FloatArray, level: float) -> SplitUncertainty:
    """Compute the uncertainty of the splits of one of the trees at rows (n, d)."""
    fitted = mixture.trees[number]
    tree, model, reach = fitted.tree, fitted.posterior.model, fitted.polytopes
    units = fitted.scaling.units
    others = []
    if number == mixture.medoid:  # the other trees are asked about y alone
        others = [
            Other(
                one.posterior.described_draws,
                one.posterior.model.steepness,
                matches,
                weight,
                one.posterior.chains,
            )
            for (one, weight), matches in zip(mixture, mixture.matches, strict=True)
            if weight and one is not fitted
        ]
    found = uncertainty.split_uncertainty(
        fitted.posterior.described_draws,
        units.standardise(rows),
        _sides(tree, rows),
        topology=model.topology,
        steepness=model.steepness,
        splits=Splits(tree.topology, fitted.matches),
        others=others,
        weight=float(mixture.weights[number]),
        chains=fitted.posterior.chains,
        y_scale=units.y_scale,
        y_center=units.y_center,
        level=level,
    )
    return replace(found, n_leaves=reach.leaves)


def co_membership(
    estimator: MixtureEstimator, X: ArrayLike, other: ArrayLike | None = None
) -> FloatArray:
    """Compute the posterior probability, over all modes and draws, that two rows share a leaf.

    Given the parameters, each row is routed at random, as in the model; a row on the border
    of a split may thus be parted from its own copy, and the diagonal be below 1.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
    other : array or DataFrame, shape (m, d), optional
        By default X.

    Returns
    -------
    array, shape (n, m)
        In memory as a whole: give a part of the rows as X if there are many.
    """
    mixture = estimator.fitted_
    standardise = mixture.scaling.standardise
    rows = standardise(fitted_rows(estimator, X))
    columns = rows if other is None else standardise(fitted_rows(estimator, other))
    total = np.zeros((len(rows), len(columns)))
    for tree, weight in mixture:
        posterior, share = tree.posterior, weight / tree.n_draws
        for sites in posterior.each():
            leaf = posterior.leaf_probs(rows, sites)
            same = leaf if other is None else posterior.leaf_probs(columns, sites)
            total += share * (leaf @ same.T)
    return total


def prior_size(
    estimator: StagedEstimator, X: ArrayLike, *, n_draws: int = 1000, random_state: RandomState = 0
) -> PolytopeSize:
    """Sample the number of facets of one node under the prior, before seeing y.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
        The rows that reach the node. Before a fit they reach the root, and determine
        the units of the features; after it, rows of any node.
    n_draws : int
        Number of draws from the prior; each takes a few milliseconds.
    random_state : int, RandomState or None

    Returns
    -------
    PolytopeSize
        As for a posterior of one node, ``"root"``, with one chain: see ``probabilities``,
        ``interval`` and ``to_frame``.

    Raises
    ------
    ValueError
        If the prior is improper, or for rows that ``fit`` or, after it, ``predict`` refuses.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import ConvexPolytopeTreeClassifier
    >>> X, _ = load_iris(return_X_y=True)
    >>> found = ConvexPolytopeTreeClassifier().prior_size(X, n_draws=50)
    >>> found.probabilities().shape[0]
    1
    """
    if hasattr(estimator, "fitted_"):
        shown = estimator.fitted_.shown
        used = shown.scaling.used
        model = shown.posterior.model.among(used)
        rows = shown.scaling.standardise(fitted_rows(estimator, X))[:, used]
    else:
        model, rows = clone(estimator)._before_fit(X)
    drawn = splits_of_prior(model, rows.shape[1], n_draws, random_state)
    draws = {site: values[None, :, None] for site, values in drawn.items()}
    everywhere = [np.arange(len(rows))]
    return size.polytope_size(draws, rows, everywhere, labels=["root"], max_draws=n_draws)


def _node_number(node: str | int, topology: Topology) -> int:
    """Number of a node that is given by its path or by its number."""
    labels = topology.node_labels
    if not labels:
        raise ValueError(
            "the tree is a single leaf; it has no node with a split. polytope_size() has the "
            "number of leaves in use by its draws."
        )
    if isinstance(node, str) and node in labels:
        return labels.index(node)
    if isinstance(node, int | np.integer) and 0 <= node < len(labels):
        return int(node)
    if len(labels) == 1:
        raise ValueError(
            f"node must be 'root' or 0, the only split of the tree, got {written(node)}."
        )
    shown = ", ".join(map(repr, labels[:8])) + (", ..." if len(labels) > 8 else "")
    raise ValueError(
        f"node must be one of {shown}, or its number from 0 to {len(labels) - 1}, got "
        f"{written(node)}."
    )


def prior_of_node(model: SoftTree, n_features: int, n_draws: int) -> dict[str, Any] | None:
    """Draw the sites of one split from the prior, (n_draws, K, ...); None if it is improper."""
    if improper_priors(model):
        return None
    return splits_of_prior(model, n_features, n_draws, PRIOR_SEED)


def splits_of_prior(
    model: SoftTree, n_features: int, n_draws: int, random_state: RandomState
) -> dict[str, Any]:
    """Draw the sites of one split from a proper prior, (n_draws, K, ...)."""
    drawn = sample_prior(
        model.with_(topology=Topology.stump()), n_features, n_draws, random_state=random_state
    )
    splits = ("hyperplane", "intercept", "log_weight")
    return {site: drawn[site][:, 0].numpy() for site in splits if site in drawn}


def measure_nodes(
    posterior: Posterior,
    tree: Tree,
    X: RowSource,
    standardised: RowSource,
    nodes: IntArray,
    weights: FloatArray | None = None,
) -> Reach:
    """Measure what the diagnostics need of the training rows.

    ``nodes`` (V,) are the posterior's numbers of the nodes of ``tree``; ``standardised`` are the
    rows on the scale of the draws, and ``weights`` (n,) those of the rows.
    """
    kept = min(SAMPLE, max(FEWEST, SAMPLE_VALUES // X.shape[1]))
    some = spread(len(X), kept)
    sample = np.asarray(X[some], dtype=np.float64)
    matches = node_matches(posterior, tree, sample, np.asarray(standardised[some]), nodes)
    reach = node_reach(
        matches.of_nodes(posterior.draws),
        standardised,
        map(itemgetter(1), tree.walk(X)),
        np.arange(len(nodes)),
        prior=prior_of_node(posterior.model, tree.n_features, PRIOR_DRAWS),
        max_rows=SIZE_ROWS,
        weights=weights,
    )
    return reach._replace(
        nodes=nodes,
        sample=sample,
        rows=tree.topology.sum_below(tree.leaf_rows),
        leaves=leaves_in_use(posterior.draws, posterior.model.topology, standardised),
    )
