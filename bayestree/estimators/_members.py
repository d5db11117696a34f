"""Trees that are fitted to the same rows and kept together: those of a forest, or the modes."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from bayestree._utils.parallel import Call, in_order, threads_for
from bayestree._utils.progress import Track, Verbose, fitting
from bayestree.estimators._base import BaseTree
from bayestree.estimators._contents import arrays_of, build, describe
from bayestree.fitted.checks import UnconvergedWarning
from bayestree.fitted.rows import TrainingRows
from bayestree.fitted.tree import FittedTree
from bayestree.inference.single_leaf import SingleLeafWarning
from bayestree.models.leaves import Leaf

Member = TypeVar("Member", bound=BaseTree)
SHARED = ("classes_", "n_features_in_", "feature_names_in_", "encoding_", "_scaling")


def member_of(whole: Any, tree: Member) -> Member:
    """A tree, not yet fitted, with the classes, features and units that ``whole`` has found."""
    for name in SHARED:
        if hasattr(whole, name):
            setattr(tree, name, getattr(whole, name))
    return tree


def fit_members(
    members: Sequence[Member],
    rows: TrainingRows,
    leaf: Leaf,
    *,
    label: str,
    n_jobs: int | None,
    verbose: Verbose,
) -> list[FittedTree]:
    """Fit each of the trees; an interrupted fit continues with the first that was not complete."""
    calls: list[Call[FittedTree]] = [(_fitted, (tree, rows, leaf), {}) for tree in members]
    grown = _Grown(members)

    def remaining() -> Iterator[FittedTree]:
        yield from in_order(calls[len(grown.trees) :], n_jobs=n_jobs)

    found = remaining()
    with fitting(verbose):
        for _ in Track(members, label, show=bool(verbose), parts={"grown": grown}):
            grown.trees.append(next(found))
    return grown.trees


class _Grown:
    """The trees fitted so far; their state is that of their model files."""

    def __init__(self, members: Sequence[BaseTree]) -> None:
        self.members = members
        self.trees: list[FittedTree] = []

    def state_dict(self) -> dict[str, Any]:
        each = [tree._view(one) for tree, one in zip(self.members, self.trees, strict=False)]
        return {"trees": [(describe(tree), arrays_of(tree)) for tree in each]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.trees = [
            build(type(tree), described, arrays, None).fitted_.shown
            for tree, (described, arrays) in zip(self.members, state["trees"], strict=False)
        ]


def _fitted(tree: BaseTree, rows: TrainingRows, leaf: Leaf) -> FittedTree:
    """Fit the tree on one thread, so that sums have the same order in every process."""
    with threads_for(0), threadpool_limits(1), warnings.catch_warnings():
        for of_all in (SingleLeafWarning, UnconvergedWarning):  # which the whole gives
            warnings.simplefilter("ignore", of_all)
        return tree._fitted_tree(rows, leaf)
