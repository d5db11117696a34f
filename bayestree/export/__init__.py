"""The deterministic tree for other programs: as text, rules, DOT, JSON and ONNX.

An export in words is a subclass of :class:`Visitor`: a method for a node, and one for a leaf. Notes
at its top say what the numbers of the tree are.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, Literal, TypeVar

from bayestree._utils.wording import Days, alone, counted, one_line, plain
from bayestree.description import (
    SPARSE_TERMS,
    HalfSpace,
    TreeDescription,
    Visit,
    check_limits,
    has_draws,
    sparsity_of,
    trees_of,
    visits,
    words_of_mode,
)
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

Part = TypeVar("Part")


class Visitor(ABC, Generic[Part]):
    """Writes the parts of a tree, within the limits of ``export_text``.

    ``terms`` are those of a full facet if ``max_features`` is "auto".
    """

    terms: ClassVar[int | None] = None
    leaf_terms: ClassVar[int] = 0  # at least, of an equation in that case

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
        sparse, leaf = (SPARSE_TERMS, self.leaf_terms) if max_features == "auto" else (0, 0)
        self.described = TreeDescription(tree, most, decimals, sparse_terms=sparse, leaf_terms=leaf)

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


SCORES = "Facets are scores: 2 per 10 x, for example, are 2 points for each 10 of x."


def notes_on_numbers(tree: object, digits: int | None) -> list[str]:
    """Say in lines what numbers are: the point estimate, if there is a posterior, and points.

    What missing values count as has so many significant ``digits``; None shows all.
    """
    path, found = sparsity_of(tree), trees_of(tree, several_outputs=True)
    scores = SCORES if getattr(found[0], "unit", None) is not None else ""
    cost = "" if path is None else path.cost_of_points
    lines = [f"{scores} {cost}".strip(), filled_values(tree, digits)]
    return [*_point_estimate_note(tree), *filter(None, lines)]


def filled_values(
    estimator: object, digits: int | None = 3, *, tree: RoutedTree | None = None
) -> str:
    """Say what missing values count as in sparse facets and leaves; empty if all are 0.

    ``tree`` is another tree of the estimator's features than its own.
    These are the columns that lack values of training rows; the indicators of levels are then 0.
    """
    encoding = getattr(estimator, "encoding_", None)
    tree = tree or getattr(estimator, "tree_", None)
    if encoding is None or not (isinstance(tree, Tree) and tree.is_conjunction.all()):
        return ""
    used = tree.used.tolist()
    found = [
        f"{alone(one_line(name))} = {_value(name, fill, digits)}"
        for column, own in zip(encoding.columns, encoding.places, strict=True)
        for name, fill, j in zip(column.labels, column.fill or (), own.tolist(), strict=False)
        if column.gaps and used[j] and fill
    ]
    return f"Where missing, {', '.join(found)}." if found else ""


def _value(name: str, fill: float, digits: int | None) -> str:
    return name.date(fill, up=False) if isinstance(name, Days) else plain(fill, digits)


def _point_estimate_note(tree: object) -> list[str]:
    words, path = words_of_mode(tree), sparsity_of(tree)
    lines = [f"This is {words}."] if words else []
    if not has_draws(tree):
        return lines
    shown, posterior = trees_of(tree, several_outputs=True)[0], ""
    if isinstance(shown, Tree):
        own = "polytope_size() and facets(node) give" if shown.n_nodes else "polytope_size() gives"
        posterior = f" {own} the posterior."
    if path is None:
        return [*lines, f"Its numbers are point estimates.{posterior}"]
    left = counted(int(path.coefficients[-1]), "coefficient")
    splits = f"It is a short summary of the posterior: {left} in its splits, exact as printed, and "
    return [*lines, f"{splits}the average prediction in each leaf. {path.cost}{posterior}"]
