"""Sparse trees of the modes of a posterior, for a choice between them."""

from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bayestree.diagnostics.near_optimal import SAME, NearOptimalTrees, same_leaves, same_splits
from bayestree.fitted.training_rows import TrainingRows, drawn_in
from bayestree.fitted.tree import one_output
from bayestree.fitted.validation import counted_rows
from bayestree.fitting.projection.path import Projected
from bayestree.inference.samplers.smc.method import by_topology
from bayestree.routed_tree import RoutedTree
from bayestree.tables.encoding import column_numbers
from bayestree.tree import Tree

LEAST_SHARE = 0.01  # of the draws, that a sampled topology must have
ROUNDING = 1e-9  # of predictions, in the units of the fit


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
    mixture, projection = estimator.fitted_, estimator._projection()
    data = projection.data(rows, mixture)
    excluded = column_numbers(without, estimator.encoding_.names)
    found: list[_Candidate] = []
    places = estimator.encoding_.places
    for number, (mode, weight) in enumerate(mixture):
        for one, share in by_topology(mode.posterior, data, LEAST_SHARE):
            tree, _ = projection.form.of(one, rows, data, mixture.shown.scaling)
            if tree.n_nodes:
                new = projection.of(mixture, tree, rows, data, excluded=excluded)
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
