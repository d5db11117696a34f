"""Sparse trees in the place of those with full facets: parameters, and their projection."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import IntArray
from bayestree._utils.parallel import one_thread
from bayestree._utils.parameters import Count, Inference, NonNegative, ParameterError, declare
from bayestree._utils.wording import warn
from bayestree.diagnostics.near_optimal import SAME, NearOptimalTrees, same_leaves, same_splits
from bayestree.diagnostics.sparsity import SparsityPath
from bayestree.estimators._combinations import asks_for_sparsity
from bayestree.fitted.diagnostics import measure_nodes
from bayestree.fitted.rows import FileRows, TrainingRows, drawn_in
from bayestree.fitted.tree import FittedTree, Mixture, one_output
from bayestree.fitted.validation import counted_rows
from bayestree.fitting.plan import MOST_SPARSE_LEAVES, FitPlan
from bayestree.inference import Data
from bayestree.inference.projection.nodes import Columns
from bayestree.inference.projection.path import Projected, Sparsity, project
from bayestree.inference.single_leaf import SingleLeafWarning
from bayestree.inference.smc.method import by_topology
from bayestree.routed_tree import RoutedTree
from bayestree.tables.encoding import column_numbers
from bayestree.tree import Tree

NO_SPARSE_TREE = (
    "no sparse split has min_leaf rows on either side, so that the tree keeps its full facets; set "
    "a smaller sparsity, or a larger max_columns."
)
LEAST_SHARE = 0.01  # of the draws, that a sampled topology must have
ROUNDING = 1e-9  # of predictions, in the units of the fit


@declare
class Sparse:
    """How sparse the facets of the tree are that is shown."""

    sparsity: Annotated[
        Literal["auto"] | NonNegative | None,
        Inference(
            "How many nats a row the deterministic tree may lose by facets of fewer columns, "
            "compared with its projection onto all columns. "
            "'auto' is one standard error of the difference, for a posterior with several draws "
            "and a tree of up to 500 features and 32 leaves, and otherwise None: full facets. The "
            "posterior itself stays whole; see sparsity_path."
        ),
    ] = "auto"
    max_columns: Annotated[
        Count | None,
        Inference(
            "Maximum number of columns of a facet of the deterministic tree, whatever is lost; "
            "fewer are taken where sparsity allows it, also where it would otherwise be off. All "
            "features of a category count as one column."
        ),
    ] = None
    points: Annotated[
        Count | None,
        Inference(
            "Maximum number of points for each unit of a column: the facets of the deterministic "
            "tree become scores of whole points, such as 2 per 10 years of age + 3 per 20 mg/dl of "
            "cholesterol <= 31. The unit of a number is 1, 2 or 5 times a power of ten near its "
            "standard deviation. With None, facets have coefficients of up to three digits; "
            "sparse facets are taken also where sparsity would otherwise be off."
        ),
    ] = None


def with_sparse_tree(estimator: Any, found: Mixture, rows: TrainingRows) -> Mixture:
    """Project the mixture onto a tree of sparse facets in the place of the tree that is shown."""
    shown = found.shown
    tree = shown.tree
    if isinstance(rows.X, FileRows) and rows.X.mapped:
        if asked := asks_for_sparsity(estimator):
            raise ParameterError(
                f"{asked} cannot be used, because sparse facets need the rows in memory, but these "
                "stay in a file: leave it at its default."
            )
        return found
    if not isinstance(tree, Tree) or tree.n_nodes == 0:
        return found
    if not (asks_for_sparsity(estimator) or _is_sparse_by_default(estimator, shown)):
        return found
    rows = rows.counted()
    data = estimator._data(rows, 1.0)
    with one_thread():  # for at most 2,000 rows
        new = _sparse(estimator, found, tree, rows, data)
    if new.tree.n_nodes == 0:
        if asks_for_sparsity(estimator):
            warn(NO_SPARSE_TREE, SingleLeafWarning)
        return found
    posterior, scaling, reach = shown.posterior, shown.scaling, shown.polytopes
    standardised = scaling.standardise(rows.X)
    measured = measure_nodes(posterior, new.tree, rows.X, standardised, reach.nodes[new.nodes])
    of_y, path = scaling.units, zip(*new.projected.path, strict=True)
    sparse = replace(
        shown,
        tree=new.tree.rescaled(of_y.y_scale, of_y.y_center),
        reach=measured,
        sparsity=replace(SparsityPath(*map(np.array, path)), rounding=new.projected.rounding),
    )
    return replace(found, trees=[sparse if one is shown else one for one in found.trees])


def _is_sparse_by_default(estimator: Any, shown: FittedTree) -> bool:
    plan: FitPlan = estimator._plan
    return plan.sparse and shown.n_draws > 1 and shown.tree.n_leaves <= MOST_SPARSE_LEAVES


class _SparseTree(NamedTuple):
    """A sparse tree in the units of the fit, and the nodes of the full one that it has kept."""

    tree: Tree
    nodes: IntArray
    projected: Projected


def _sparse(
    estimator: Any,
    mixture: Mixture,
    tree: Tree,
    rows: TrainingRows,
    data: Data,
    *,
    excluded: Collection[int] = (),
) -> _SparseTree:
    """Project the mixture onto sparse facets of a tree, without some columns."""
    shown, scaling = mixture.shown, mixture.shown.scaling
    places = (
        own for number, own in enumerate(estimator.encoding_.places) if number not in excluded
    )
    groups = [own for own in (one[scaling.used[one]] for one in places) if len(own)]
    if not groups:
        raise ValueError("without must leave at least one column that varies.")
    model = shown.posterior.model
    loss = None if estimator.sparsity in ("auto", None) else float(estimator.sparsity)
    together = [[np.isin(own, group).all() for own in groups] for group in model.groups]
    projected = project(
        tree,
        rows.X,
        data,
        steepness=model.steepness,
        reference=[(one.posterior, weight) for one, weight in mixture],
        columns=Columns(
            groups,
            np.array(model.monotone or [0] * tree.n_features, dtype=float),
            np.array(together) if together else None,
        ),
        sparsity=Sparsity(loss, estimator.max_columns, estimator.points),
    )
    kept, nodes = projected.tree.pruned(rows.X, estimator.min_leaf)
    if kept.n_nodes:
        kept = estimator._with_leaves(kept, shown.posterior, rows, data)
        last = projected.path[-1]._replace(coefficients=int(np.count_nonzero(kept.hyperplane)))
        projected = projected._replace(path=(*projected.path[:-1], last))
    return _SparseTree(kept, nodes, projected)


def near_optimal_trees(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    without: str | int | Iterable[str | int] = (),
) -> NearOptimalTrees:
    """Project the posterior onto a sparse tree from each mode, for a choice between them.

    If the topology was sampled (``inference="smc"``), each topology with at least 1 % of the draws
    gives a tree. Trees that are nearly the same are merged.

    Parameters
    ----------
    X, y, sample_weight : arrays
        The rows of the fit in their order, which the estimator does not keep.
    without : str, int, or sequence of them
        Columns that no tree may use, by name or number. The predictions that are projected are
        still those of the posterior, which may use them.

    Returns
    -------
    NearOptimalTrees
        The best tree first. Can be printed; see ``to_frame`` and ``without``.

    Raises
    ------
    ValueError
        For rows that ``fit`` would refuse, unknown columns, if no column is left, or if no mode
        has a tree with a split.
    """
    one_output(estimator, "near_optimal_trees")
    remedy = "To score a tree on new rows, use the log_score of a fit."
    rows, _ = counted_rows(estimator, X, y, sample_weight, remedy)
    if hasattr(estimator, "classes_") or not estimator.posterior_.model.leaf.regresses:
        # as in the fit
        rows = rows._replace(X=drawn_in(rows.X, rows.weights))
    data, mixture = estimator._data(rows, 1.0), estimator.fitted_
    excluded = column_numbers(without, estimator.encoding_.names)
    found: list[_Candidate] = []
    places = estimator.encoding_.places
    for number, (mode, weight) in enumerate(mixture):
        for one, share in by_topology(mode.posterior, data, LEAST_SHARE):
            tree, _ = estimator._hardened(one, rows, data)
            if tree.n_nodes:
                new = _sparse(estimator, mixture, tree, rows, data, excluded=excluded)
                used = [bool(new.tree.hyperplane[:, own].any()) for own in places]
                if new.tree.n_nodes:
                    found.append(_Candidate(new.tree, used, number, weight * share, new.projected))
    if not found:
        raise ValueError("no mode has a tree with a split, so that there is nothing to compare.")
    return _compared(estimator, _merged(found, rows, estimator.tree_), excluded)


class _Candidate(NamedTuple):
    """A sparse tree in the units of the fit, the columns it uses, its mode and its weight."""

    tree: Tree
    used: list[bool]
    mode: int
    weight: float
    projected: Projected

    @property
    def score(self) -> float:
        return float(self.projected.share @ self.projected.log_density)

    @property
    def rank(self) -> tuple[float, int]:
        """The key by which trees are sorted, the best and shortest first."""
        return -self.score, int(np.count_nonzero(self.tree.hyperplane))


def _merged(found: Sequence[_Candidate], rows: TrainingRows, shown: RoutedTree) -> list[_Candidate]:
    """Add the weights of trees to that of the best one that is nearly the same, or of the shown.

    One that does without a column of the other is kept beside it, for the choice.
    """
    kept: list[_Candidate] = []
    for one in sorted(found, key=lambda one: (not same_splits(one.tree, shown), one.rank)):
        alike = (place for place, other in enumerate(kept) if _alike(one, other, rows))
        place = next(alike, None)
        if place is None:
            kept.append(one)
        else:
            kept[place] = kept[place]._replace(weight=kept[place].weight + one.weight)
    return sorted(kept, key=lambda one: one.rank)


def _alike(one: _Candidate, better: _Candidate, rows: TrainingRows) -> bool:
    X: Any = rows.X
    if any(needs and not uses for needs, uses in zip(better.used, one.used, strict=True)):
        return False
    predicted = one.tree.predict(X), better.tree.predict(X)
    if np.allclose(predicted[0], predicted[1], rtol=ROUNDING, atol=ROUNDING):
        return True
    return same_leaves(one.tree.apply(X), better.tree.apply(X), rows.weights) >= SAME


def _compared(
    estimator: Any, found: Sequence[_Candidate], excluded: Collection[int]
) -> NearOptimalTrees:
    names, of_y = estimator.encoding_.names, estimator.fitted_.shown.scaling.units
    share = found[0].projected.share
    lost = np.stack([found[0].projected.log_density - one.projected.log_density for one in found])
    return NearOptimalTrees(
        trees=tuple(one.tree.rescaled(of_y.y_scale, of_y.y_center) for one in found),
        mode=np.array([one.mode for one in found]),
        weight=np.array([one.weight for one in found]),
        score=np.array([one.score for one in found]) - np.log(float(of_y.y_scale)),
        loss=lost @ share,
        se=np.sqrt((lost - (lost @ share)[:, None]) ** 2 @ share**2),
        columns=tuple(tuple(compress(names, one.used)) for one in found),
        names=tuple(names),
        excluded=tuple(name for number, name in enumerate(names) if number in excluded),
    )
