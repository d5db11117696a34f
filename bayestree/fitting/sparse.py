"""The sparse deterministic tree: the projection of a fit onto facets of few columns."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bayestree._utils.arrays import IntArray
from bayestree._utils.parallel import one_thread
from bayestree._utils.parameters import ParameterError
from bayestree._utils.wording import warn
from bayestree.diagnostics.sparsity import SparsityPath
from bayestree.fitted.diagnostics import measure_nodes
from bayestree.fitted.training_rows import FileRows, TrainingRows
from bayestree.fitted.tree import Mixture
from bayestree.fitting.engine import as_data
from bayestree.fitting.hard import HardForm
from bayestree.fitting.plan import MOST_SPARSE_LEAVES
from bayestree.fitting.projection.nodes import Columns
from bayestree.fitting.projection.path import Projected, Sparsity, project
from bayestree.inference import Data
from bayestree.inference.growth.single_leaf import SingleLeafWarning
from bayestree.tree import Tree

NO_SPARSE_TREE = (
    "no sparse split has min_leaf rows on either side, so that the tree keeps its full facets; set "
    "a smaller sparsity, or a larger max_columns."
)


def asks_for_sparsity(given: Mapping[str, Any]) -> str:
    """Return the parameters that ask for sparse facets; empty if none does."""
    asked = ((name, given[name]) for name in ("sparsity", "max_columns", "points"))
    return " and ".join(f"{name}={one!r}" for name, one in asked if one not in ("auto", None))


class SparseTree(NamedTuple):
    """A sparse tree in the units of the fit, and the nodes of the full one that it has kept."""

    tree: Tree
    nodes: IntArray
    projected: Projected


@dataclass(frozen=True, eq=False)
class Projection:
    """How the deterministic tree becomes one of sparse facets.

    Attributes
    ----------
    form : HardForm
    given : mapping
        The parameters ``sparsity``, ``max_columns`` and ``points``.
    places : sequence of arrays
        The features of each column.
    device : str
        Where the fit ran.
    by_default : bool
        Whether small trees become sparse without being asked.
    """

    form: HardForm
    given: Mapping[str, Any]
    places: Sequence[IntArray]
    device: str = "cpu"
    by_default: bool = False

    def shown(self, found: Mixture, rows: TrainingRows) -> Mixture:
        """Project the mixture onto a sparse tree in the place of the tree that is shown."""
        shown, asked = found.shown, asks_for_sparsity(self.given)
        tree = shown.tree
        if isinstance(rows.X, FileRows) and rows.X.mapped:
            if asked:
                raise ParameterError(
                    f"{asked} cannot be used, because sparse facets need the rows in memory, but "
                    "these stay in a file: leave it at its default."
                )
            return found
        if not isinstance(tree, Tree) or tree.n_nodes == 0:
            return found
        small = shown.n_draws > 1 and tree.n_leaves <= MOST_SPARSE_LEAVES
        if not (asked or (self.by_default and small)):
            return found
        with one_thread():  # for at most 2,000 rows
            new = self.of(found, tree, rows, self.data(rows, found))
        if new.tree.n_nodes == 0:
            if asked:
                warn(NO_SPARSE_TREE, SingleLeafWarning)
            return found
        posterior, scaling, nodes = shown.posterior, shown.scaling, shown.polytopes.nodes[new.nodes]
        standardised = scaling.standardise(rows.X)
        measured = measure_nodes(posterior, new.tree, rows.X, standardised, nodes)
        of_y, path = scaling.units, zip(*new.projected.path, strict=True)
        sparse = replace(
            shown,
            tree=new.tree.rescaled(of_y.y_scale, of_y.y_center),
            reach=measured,
            sparsity=replace(SparsityPath(*map(np.array, path)), rounding=new.projected.rounding),
        )
        return replace(found, trees=[sparse if one is shown else one for one in found.trees])

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
        shown, scaling = mixture.shown, mixture.shown.scaling
        places = (own for number, own in enumerate(self.places) if number not in excluded)
        groups = [own for own in (one[scaling.used[one]] for one in places) if len(own)]
        if not groups:
            raise ValueError("without must leave at least one column that varies.")
        model, loss = shown.posterior.model, self.given["sparsity"]
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
            sparsity=Sparsity(
                None if loss in ("auto", None) else float(loss),
                self.given["max_columns"],
                self.given["points"],
            ),
        )
        kept, nodes = projected.tree.pruned(rows.X, self.form.limits.min_leaf)
        if kept.n_nodes:
            kept = self.form.filled(kept, shown.posterior, rows, data, scaling)
            last = projected.path[-1]._replace(coefficients=int(np.count_nonzero(kept.hyperplane)))
            projected = projected._replace(path=(*projected.path[:-1], last))
        return SparseTree(kept, nodes, projected)
