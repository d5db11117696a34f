"""The deterministic tree as text."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bayestree.tree import Tree, facet_threshold

INDENT = "|   "


def export_text(
    tree: object, *, max_features: int = 4, max_facets: int = 6, decimals: int = 3
) -> str:
    """A tree as text: each facet by its largest weights, in the units of the data.

    A row goes left where it is inside the polytope of a node. Each facet is written as the
    half-space outside which its expert alone sends a row right; where several experts vote, the
    left side is somewhat smaller than the intersection of these half-spaces.

    Parameters
    ----------
    tree : Tree, or a fitted estimator
    max_features : int
        Terms shown of each facet: those of the largest weight per standard deviation.
    max_facets : int
        Facets shown of each node: those nearest to the mean of the rows, which cut off most.
    decimals : int
        Significant digits.

    Returns
    -------
    str
    """
    found = getattr(tree, "tree_", tree)
    if not isinstance(found, Tree):
        raise TypeError(f"tree must be a Tree or a fitted estimator, got {type(tree).__name__}.")
    root = 0 if found.n_nodes else ~0
    style = _Style(max_features, max_facets, decimals)
    return "\n".join(_lines(found, root, 0, style)) + "\n"


class _Style(NamedTuple):
    features: int
    facets: int
    decimals: int


def _lines(tree: Tree, child: int, level: int, style: _Style) -> Iterator[str]:
    """The subtree below a child: a node's number, or ``~leaf``."""
    margin = INDENT * level
    if child < 0:
        yield margin + _leaf(tree, ~child, style.decimals)
        return
    rows = tree.leaf_rows[tree.topology.subtree_leaves(child)].sum()
    count = int(tree.n_facets[child])
    yield f"{margin}node {child} ({rows:g} rows): {count} facet{'s' * (count != 1)}"
    for expert, bound in _nearest(tree, child)[: style.facets]:
        yield f"{margin}  {_half_space(tree, expert, bound, style)}"
    if count > style.facets:
        yield f"{margin}  and {count - style.facets} farther out"
    for word, below in zip(("inside", "outside"), tree.topology.children[child], strict=True):
        yield f"{margin}{word}:"
        yield from _lines(tree, int(below), level + 1, style)


def _nearest(tree: Tree, node: int) -> list[tuple[int, float]]:
    """Experts of a node and the bounds of their half-spaces, from the mean of the rows outwards."""
    own = tree.experts(node)
    bound = facet_threshold(tree.weight[own]) - tree.intercept[own]
    slope = np.linalg.norm(tree.standardised_hyperplane[own], axis=1)
    tiny = np.finfo(np.float64).tiny
    distance = (bound - tree.hyperplane[own] @ tree.center) / np.maximum(slope, tiny)
    order = np.argsort(distance, kind="stable")
    return [(own.start + int(k), float(bound[k])) for k in order]


def _half_space(tree: Tree, expert: int, bound: float, style: _Style) -> str:
    coefficient = tree.hyperplane[expert]
    influence = np.abs(tree.standardised_hyperplane[expert])
    order = np.argsort(-influence, kind="stable")
    shown = [int(j) for j in order[: style.features] if influence[j] > 0]
    digits = style.decimals
    parts = [f"{coefficient[j]:+.{digits}g} {_feature(tree, j)}" for j in shown]
    hidden = int(np.count_nonzero(influence)) - len(shown)
    more = f" (+ {hidden} more)" if hidden else ""
    return f"{' '.join(parts) or '0'}{more} <= {bound:.{digits}g}"


def _feature(tree: Tree, number: int) -> str:
    return tree.feature_names[number] if tree.feature_names else f"x{number}"


def _leaf(tree: Tree, leaf: int, decimals: int) -> str:
    value = tree.value[leaf]
    head = f"leaf {leaf} ({tree.leaf_rows[leaf]:g} rows): "
    if value.ndim == 0:
        return head + f"{value:.{decimals}g}"
    names = tree.class_names or tuple(f"class {c}" for c in range(len(value)))
    order = [c for c in np.argsort(-value, kind="stable") if value[c] > 0]
    return head + ", ".join(f"{names[c]} {value[c]:.{decimals}g}" for c in order)
