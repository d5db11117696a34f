"""Trees that are fitted to the same rows and kept together: those of a forest, or the modes."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from bayestree._utils.parallel import Call, in_order
from bayestree._utils.progress import Track, Verbose, fitting
from bayestree._utils.threads import threads_for
from bayestree.estimators._base import BaseTree, TrainingRows
from bayestree.estimators._checks import UnconvergedWarning
from bayestree.estimators._contents import Arrays, build, describe, group
from bayestree.inference.single_leaf import SingleLeafWarning
from bayestree.models.leaves import Leaf

Member = TypeVar("Member", bound=BaseTree)
SHARED = ("classes_", "n_features_in_", "feature_names_in_", "encoding_", "_source", "_units")


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
) -> list[Member]:
    """Fit each of the trees; an interrupted fit continues with the first that was not complete."""
    calls: list[Call[Member]] = [(_fitted, (tree, rows, leaf), {}) for tree in members]
    grown = _Grown(type(members[0]))

    def remaining() -> Iterator[Member]:
        yield from in_order(calls[len(grown.trees) :], n_jobs=n_jobs)

    found = remaining()
    with fitting(verbose):
        for _ in Track(members, label, show=bool(verbose), parts={"grown": grown}):
            grown.trees.append(next(found))
    return grown.trees


def member_arrays(name: str, members: Sequence[BaseTree]) -> Arrays:
    """The arrays of all trees by their names in a file, ``name/0/...``, ``name/1/...``, ..."""
    numbered = enumerate(members)
    return {f"{name}/{t}/{n}": a for t, tree in numbered for n, a in tree._arrays().items()}


def built_members(
    kind: type[Member], described: Sequence[dict[str, Any]], name: str, arrays: Arrays
) -> list[Member]:
    """The fitted trees from their descriptions and the arrays of the file."""
    return [build(kind, one, group(arrays, f"{name}/{t}"), None) for t, one in enumerate(described)]


class _Grown:
    """The trees fitted so far; their state is that of their model files."""

    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind
        self.trees: list[Any] = []

    def state_dict(self) -> dict[str, Any]:
        return {"trees": [(describe(tree), tree._arrays()) for tree in self.trees]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.trees = [
            build(self.kind, described, arrays, None) for described, arrays in state["trees"]
        ]


def _fitted(tree: Member, rows: TrainingRows, leaf: Leaf) -> Member:
    """Fit the tree on one thread, so that sums have the same order in every process."""
    with threads_for(0), threadpool_limits(1), warnings.catch_warnings():
        for of_all in (SingleLeafWarning, UnconvergedWarning):  # which the whole gives
            warnings.simplefilter("ignore", of_all)
        return tree._fit(rows, leaf)
