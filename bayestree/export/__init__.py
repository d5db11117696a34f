"""The deterministic tree for other programs: as text, rules, DOT, JSON and ONNX.

An export in words is a subclass of :class:`Visitor`: a method for a node, and one for a leaf.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, Literal, TypeVar

from bayestree.description import (
    SPARSE_TERMS,
    HalfSpace,
    TreeDescription,
    Visit,
    check_limits,
    visits,
)
from bayestree.routed_tree import RoutedTree

Part = TypeVar("Part")


class Visitor(ABC, Generic[Part]):
    """Writes the parts of a tree, within the limits of ``export_text``.

    ``terms`` are those of a full facet if ``max_features`` is "auto".
    """

    terms: ClassVar[int | None] = None

    def __init__(
        self,
        tree: RoutedTree,
        *,
        max_features: int | Literal["auto"] | None = "auto",
        max_facets: int | None = None,
        decimals: int | None = None,
    ) -> None:
        most = self.terms if max_features == "auto" else max_features
        check_limits(max_features=most, max_facets=max_facets, decimals=decimals)
        self.max_features, self.max_facets, self.decimals = most, max_facets, decimals
        at_least = SPARSE_TERMS if max_features == "auto" else 0
        self.described = TreeDescription(tree, most, decimals, sparse_terms=at_least)

    def node(self, at: Visit) -> Iterator[Part]:
        """Write a node: by default nothing."""
        yield from ()

    @abstractmethod
    def leaf(self, at: Visit) -> Iterator[Part]:
        """Write a leaf."""

    def written(self) -> Iterator[Part]:
        """Write all nodes and leaves, depth first and left branches first."""
        for at in visits(self.described.tree.topology):
            yield from self.node(at) if at.child >= 0 else self.leaf(at)

    def numbered(self) -> tuple[list[Part], list[Part]]:
        """Write all nodes, and all leaves, in the order of their numbers."""
        found = sorted(
            visits(self.described.tree.topology), key=lambda at: max(at.child, ~at.child)
        )
        return (
            [part for at in found if at.child >= 0 for part in self.node(at)],
            [part for at in found if at.child < 0 for part in self.leaf(at)],
        )

    def facets(self, node: int) -> tuple[list[HalfSpace], int]:
        """Return the facets of a node to show, the nearest first, and the number of the others."""
        shown = self.described.half_spaces(node, self.max_facets)
        return shown, self.described.n_facets(node) - len(shown)
