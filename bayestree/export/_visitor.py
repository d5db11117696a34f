"""The visitor that all exports in words share: one method for a node, and one for a leaf."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from bayestree.description import HalfSpace, TreeDescription, Visit, visits

Part = TypeVar("Part")


class Visitor(ABC, Generic[Part]):
    """Writes the parts of a described tree, with at most ``max_facets`` facets of a node."""

    def __init__(self, described: TreeDescription, max_facets: int | None = None) -> None:
        self.described = described
        self.max_facets = max_facets

    @abstractmethod
    def node(self, at: Visit) -> Iterator[Part]:
        """Write a node."""

    @abstractmethod
    def leaf(self, at: Visit) -> Iterator[Part]:
        """Write a leaf."""

    def written(self) -> Iterator[Part]:
        """Write all nodes and leaves, depth first and left branches first."""
        for at in visits(self.described.tree.topology):
            yield from self.node(at) if at.child >= 0 else self.leaf(at)

    def numbered(self) -> tuple[list[Part], list[Part]]:
        """Write all nodes, and all leaves, in the order of their numbers."""
        found = list(visits(self.described.tree.topology))
        nodes = sorted((at for at in found if at.child >= 0), key=lambda at: at.child)
        leaves = sorted((at for at in found if at.child < 0), key=lambda at: ~at.child)
        return (
            [part for at in nodes for part in self.node(at)],
            [part for at in leaves for part in self.leaf(at)],
        )

    def facets(self, node: int) -> tuple[list[HalfSpace], int]:
        """The facets of a node that are shown, the nearest first, and how many are not."""
        shown = self.described.half_spaces(node, self.max_facets)
        return shown, self.described.n_facets(node) - len(shown)
