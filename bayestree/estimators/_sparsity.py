"""Sparse facets of the tree that is shown: parameters, and the projection after a fit."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from bayestree._utils.parallel import threads_for
from bayestree._utils.parameters import Count, Inference, NonNegative, declare
from bayestree.diagnostics.sparsity import SparsityPath
from bayestree.estimators._combinations import asks_for_sparsity, other_facets
from bayestree.fitted.diagnostics import measure_nodes
from bayestree.fitted.rows import FileRows, TrainingRows
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.inference.projection.nodes import Columns
from bayestree.inference.projection.path import Sparsity, project
from bayestree.tree import Tree

MOST_FEATURES, MOST_LEAVES = 500, 32  # of a tree that is made sparse by default


@declare
class Sparse:
    """How sparse the facets of the tree are that is shown."""

    sparsity: Annotated[
        Literal["auto"] | NonNegative | None,
        Inference(
            "How many nats a row the deterministic tree may lose by facets of fewer columns. "
            "'auto' is half a standard error of the difference, for a posterior with several draws "
            "and a tree of up to 500 features and 32 leaves, and otherwise None: full facets. The "
            "posterior itself stays whole; see sparsity_path."
        ),
    ] = "auto"
    max_columns: Annotated[
        Count | None,
        Inference(
            "Maximum number of columns of a facet of the deterministic tree, whatever is lost. All "
            "features of a category count as one column."
        ),
    ] = None


def with_sparse_tree(estimator: Any, found: Mixture, rows: TrainingRows) -> Mixture:
    """Project the mixture onto a tree of sparse facets in the place of the tree that is shown."""
    shown = found.shown
    tree = shown.tree
    if not isinstance(tree, Tree) or tree.n_nodes == 0 or isinstance(rows.X, FileRows):
        return found
    if not (asks_for_sparsity(estimator) or _is_sparse_by_default(estimator, shown)):
        return found
    with threads_for(estimator._work(*rows.X.shape)):
        sparse = _projected(estimator, found, rows.counted())
    if sparse.tree.n_nodes == 0:
        return found
    trees = [sparse if one is shown else one for one in found.trees]
    return replace(found, trees=trees)


def _is_sparse_by_default(estimator: Any, shown: FittedTree) -> bool:
    small = shown.tree.n_features <= MOST_FEATURES and shown.tree.n_leaves <= MOST_LEAVES
    return bool(
        estimator.sparsity == "auto" and shown.n_draws > 1 and small and not other_facets(estimator)
    )


def _projected(estimator: Any, found: Mixture, rows: TrainingRows) -> FittedTree:
    """Return the shown tree with sparse facets, whose leaves are filled again."""
    shown, X = found.shown, rows.X
    posterior, scaling, reach = shown.posterior, shown.scaling, shown.polytopes
    data = estimator._data(rows, 1.0)
    places = (own[scaling.used[own]] for own in estimator.encoding_.places)
    monotone = posterior.model.monotone
    loss = None if estimator.sparsity in ("auto", None) else float(estimator.sparsity)
    if estimator.sparsity is None:  # and max_columns is given
        loss = 0.0
    projected = project(
        shown.tree,
        np.asarray(X),
        data,
        reference=[(one.posterior, weight) for one, weight in found],
        columns=Columns(
            [own for own in places if len(own)],
            np.array(monotone or np.zeros(shown.tree.n_features), dtype=np.float64),
        ),
        sparsity=Sparsity(loss, estimator.max_columns),
    )
    tree, kept = projected.tree.pruned(X, estimator.min_leaf)
    if tree.n_nodes == 0:
        return replace(shown, tree=tree)
    filled = estimator._with_leaves(tree, posterior, rows, data)
    level = None if reach.level is None else reach.level[kept]
    measured = measure_nodes(posterior, filled, X, scaling.standardise(X), reach.nodes[kept], level)
    of_y = scaling.units
    columns = (np.array(column) for column in zip(*projected.path, strict=True))
    return replace(
        shown,
        tree=filled.rescaled(of_y.y_scale, of_y.y_center),
        reach=measured,
        sparsity=SparsityPath(*columns),
    )
