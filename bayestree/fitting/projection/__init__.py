"""Sparse trees: the projection of a fit onto facets of few columns, and a choice of such trees.

The posterior shrinks coefficients, but none of its draws makes one zero. What is selected is
therefore a decision: the tree that is shown has as few columns in each facet as predict nearly as
well as all of them (Hahn and Carvalho, "Decoupling shrinkage and selection in Bayesian linear
models", JASA 110, 2015; Piironen, Paasiniemi and Vehtari, "Projective inference in high-dimensional
problems", Electronic Journal of Statistics 14, 2020).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parallel import one_thread
from bayestree._utils.wording import warn
from bayestree.diagnostics.sparsity import SAME, NearOptimalTrees, SparsityPath, same_splits
from bayestree.fitted.diagnostics import measure_nodes
from bayestree.fitted.training_rows import FileRows, TrainingRows, drawn_in
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitting.defaults import MOST_SPARSE_LEAVES, asks_for_sparsity, facet_columns
from bayestree.fitting.engine import HardForm, as_data, with_ordered_leaves
from bayestree.fitting.projection.nodes import Columns
from bayestree.fitting.projection.path import Projected, Sparsity, project, same_leaves
from bayestree.fitting.projection.reference import Reference, some_rows
from bayestree.inference import Data, Posterior, Units
from bayestree.inference.growth.single_leaf import SingleLeafWarning
from bayestree.inference.samplers.smc.method import by_topology
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

NO_SPARSE_TREE = (
    "no sparse split has min_leaf rows on either side, so that the tree keeps its full facets; set "
    "a smaller sparsity, or a larger max_columns."
)


class SparseTree(NamedTuple):
    """A sparse tree in the units of the fit, and the nodes of the full one that it has kept."""

    tree: Tree
    nodes: IntArray
    projected: Projected


@dataclass(frozen=True, eq=False)
class Projection:
    """How the deterministic tree becomes one of sparse facets."""

    form: HardForm
    given: Mapping[str, Any]  # the parameters ``sparsity``, ``max_columns`` and ``points``
    places: Sequence[IntArray]  # the features of each column
    device: str = "cpu"  # where the fit ran
    by_default: bool = False  # whether small trees become sparse without being asked

    def shown(self, found: Mixture, rows: TrainingRows) -> Mixture:
        """Project the mixture onto a sparse tree in the place of the tree that is shown."""
        shown, asked = found.shown, asks_for_sparsity(self.given)
        tree = shown.tree
        if isinstance(rows.X, FileRows) and rows.X.mapped:
            return found
        if not isinstance(tree, Tree):
            return found
        small = shown.n_draws > 1 and tree.n_leaves <= MOST_SPARSE_LEAVES
        if not (asked or (self.by_default and small)):
            return found
        data = self.data(rows, found)
        if tree.n_nodes == 0:
            return self._with_few_slopes(found, rows, data)
        with one_thread():  # for at most 2,000 rows
            new = self.of(found, tree, rows, data)
        if new.tree.n_nodes == 0:
            if asked:
                warn(NO_SPARSE_TREE, SingleLeafWarning)
            return self._with_few_slopes(found, rows, data)
        posterior, scaling, nodes = shown.posterior, shown.scaling, shown.polytopes.nodes[new.nodes]
        standardised = scaling.standardise(rows.X)
        measured = measure_nodes(posterior, new.tree, rows.X, standardised, nodes, rows.weights)
        of_y, path = scaling.units, zip(*new.projected.path, strict=True)
        sparse = replace(
            shown,
            tree=new.tree.rescaled(of_y.y_scale, of_y.y_center),
            reach=measured,
            sparsity=replace(SparsityPath(*map(np.array, path)), rounding=new.projected.rounding),
        )
        return found.with_shown(sparse)

    def _with_few_slopes(self, found: Mixture, rows: TrainingRows, data: Data) -> Mixture:
        """Return the mixture with few slopes in the leaves that are shown, if they have any."""
        shown, of_y = found.shown, found.scaling.units
        if shown.tree.slope is None:
            return found
        few, X = some_rows(rows.X, data)
        of_rows = Reference.of(_parts(found), shown.posterior.model.leaf, few)
        tree = self._filled(shown.tree, shown, rows, X, of_rows)
        return found.with_shown(replace(shown, tree=tree.rescaled(of_y.y_scale, of_y.y_center)))

    @property
    def _sparsity(self) -> Sparsity:
        loss = self.given["sparsity"]
        loss = None if loss in ("auto", None) else float(loss)
        return Sparsity(loss, facet_columns(self.given), self.given["points"])

    def _filled(
        self, tree: Tree, shown: FittedTree, rows: TrainingRows, X: FloatArray, reference: Reference
    ) -> Tree:
        """Fill leaves with the predictions of the posterior at rows X, and count all rows."""
        place, leaf, values = tree.apply(X), reference.leaf, {}
        near, weights = reference.following(place, tree.n_leaves), reference.data.weights
        found = tree.fill(
            X, near.mean, weights.double().numpy(), leaf.n_classes, self.form.smoothing
        )
        if not leaf.averages:
            most = self._sparsity.slopes(int(np.count_nonzero(tree.hyperplane)), tree.n_leaves)
            values = leaf.sparse_values(near.of_leaves(place, tree.n_leaves), most)
        if "slope" in values:
            values["slope"] = values["slope"] / shown.scaling.units.scale
        number = np.bincount(tree.apply(rows.X), rows.weights, tree.n_leaves)
        return with_ordered_leaves(
            found._with(**values, leaf_rows=number), shown.posterior.model.monotone
        )

    def data(self, rows: TrainingRows, mixture: Mixture) -> Data:
        """Return rows of positive weight in the units of the fit."""
        shown = mixture.shown
        precision = shown.posterior.point["intercept"].dtype.name
        return as_data(rows, shown.scaling, dtype=precision, device=self.device)

    def of(
        self,
        mixture: Mixture,
        tree: Tree,
        rows: TrainingRows,
        data: Data,
        *,
        excluded: Collection[int] = (),
    ) -> SparseTree:
        """Project the mixture onto sparse facets of a tree, without some columns."""
        shown, scaling = mixture.shown, mixture.scaling
        places = (own for number, own in enumerate(self.places) if number not in excluded)
        groups = [own for own in (one[scaling.used[one]] for one in places) if len(own)]
        if not groups:
            raise ValueError("without must leave at least one column that varies.")
        model = shown.posterior.model
        together = [[np.isin(own, group).all() for own in groups] for group in model.groups]
        projected = project(
            tree,
            rows.X,
            data,
            posterior=shown.posterior,
            reference=_parts(mixture),
            columns=Columns(
                groups,
                np.array(model.monotone or [0] * tree.n_features, dtype=float),
                np.array(together) if together else None,
            ),
            sparsity=self._sparsity,
            min_leaf=self.form.limits.min_leaf,
        )
        kept, nodes = projected.tree.pruned(rows.X, self.form.limits.min_leaf)
        if kept.n_nodes:
            kept = self._filled(kept, shown, rows, projected.X, projected.reference)
            last = projected.path[-1]._replace(coefficients=int(np.count_nonzero(kept.hyperplane)))
            projected = projected._replace(path=(*projected.path[:-1], last))
        return SparseTree(kept, projected.nodes[nodes], projected)


def _parts(mixture: Mixture) -> list[tuple[Posterior, float]]:
    return [(one.posterior, weight) for one, weight in mixture]


LEAST_SHARE = 0.01  # of the draws, that a sampled topology must have
ROUNDING = 1e-9  # of predictions, in the units of the fit


def near_optimal(
    projection: Projection,
    mixture: Mixture,
    rows: TrainingRows,
    names: Sequence[str],
    excluded: Collection[int],
) -> NearOptimalTrees:
    """Project the mixture onto a sparse tree from each topology, without some of the columns.

    ``rows`` are those of the fit, and ``names`` those of the columns.
    """
    leaves = [one.posterior.model.leaf for one in mixture.trees]
    if mixture.response.classifies or not all(leaf.regresses for leaf in leaves):
        # as in the fit
        rows = rows._replace(X=drawn_in(rows.X, rows.weights))
    data = projection.data(rows, mixture)
    found: list[_Candidate] = []
    for number, (mode, weight) in enumerate(mixture):
        for one, share in by_topology(mode.posterior, data, LEAST_SHARE):
            tree, _ = projection.form.of_polytopes(one, rows, data, mixture.scaling)
            if tree.n_nodes:
                new = projection.of(mixture, tree, rows, data, excluded=excluded)
                used = [bool(new.tree.hyperplane[:, own].any()) for own in projection.places]
                if new.tree.n_nodes:
                    found.append(_Candidate(new.tree, used, number, weight * share, new.projected))
    if not found:
        raise ValueError("no mode has a tree with a split, so that there is nothing to compare.")
    merged = _merged(found, rows, mixture.shown.tree)
    return _compared(merged, names, mixture.scaling.units, excluded)


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
    found: Sequence[_Candidate], names: Sequence[str], of_y: Units, excluded: Collection[int]
) -> NearOptimalTrees:
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
