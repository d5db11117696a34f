"""The deterministic tree for other programs: as a diagram in DOT, and as JSON."""

import json
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import counted
from bayestree._version import __version__
from bayestree.description import PALETTE, HalfSpace, Visit, trees_of
from bayestree.export import Visitor, notes_on_numbers
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

HUES = (*PALETTE, "#999999")
PALEST, DEEPEST = 0.08, 0.55  # share of the hue in a leaf; black text is legible on both
FONT = "Helvetica"
BACKSLASH, QUOTE = "\\", '"'


def export_dot(
    tree: object,
    *,
    max_features: int | Literal["auto"] | None = "auto",
    max_facets: int | None = 4,
    decimals: int | None = 3,
) -> str:
    """Write a tree in Graphviz's DOT language, to be drawn with ``dot -Tsvg tree.dot``.

    A node shows its half-spaces in the units of the data, as :func:`bayestree.export_text` does,
    and the rows that reach it; a leaf shows its prediction. The half-spaces of a polytope only
    bound it: :func:`bayestree.export_rules` writes the exact condition. Branches are labelled
    *yes* and *no*, or *inside* and *outside* where a split is a polytope of several facets; their
    width grows with the number of rows. A leaf has the colour of its class, which is also
    written in it; it is deeper for purer leaves; in regression it is deeper for larger means.

    Parameters
    ----------
    tree : a deterministic tree, or a fitted estimator
        The trees of a forest are drawn side by side in one graph. All numbers are those of the
        deterministic tree; if the estimator also has posterior draws, a caption notes it.
    max_features, max_facets, decimals : int, optional
        Maximum numbers of terms and of facets, and significant digits, as for
        :func:`bayestree.export_text`. "auto" shows 3 terms, 12 of a sparse facet; None all.

    Returns
    -------
    str
        A ``digraph``.

    Raises
    ------
    NotFittedError, TypeError
        If ``tree`` is not a tree or a fitted estimator of this package.
    ValueError
        If a limit is less than 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import BivariateTreeClassifier, export_dot
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BivariateTreeClassifier(max_depth=2, pair_penalty=20).fit(X, y)
    >>> export_dot(clf).splitlines()[0]
    'digraph tree {'
    """
    limits: dict[str, Any] = {
        "max_features": max_features,
        "max_facets": max_facets,
        "decimals": decimals,
    }
    trees = trees_of(tree)
    caption = notes_on_numbers(getattr(tree, "estimators_", [tree])[0], decimals)
    label = f", label={quoted(caption)}" if caption else ""
    lines = [
        "digraph tree {",
        f'  graph [fontname="{FONT}"{label}]',
        f'  node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="{FONT}"]',
        f'  edge [fontname="{FONT}"]',
    ]
    if not hasattr(tree, "estimators_"):
        lines += _Dot(trees[0], "", **limits).lines("  ")
    else:
        for number, one in enumerate(trees, start=1):
            lines += [f"  subgraph cluster_{number} {{", f'    label="tree {number}"']
            lines += [*_Dot(one, f"t{number}_", **limits).lines("    "), "  }"]
    return "\n".join([*lines, "}"]) + "\n"


class _Dot(Visitor[str]):
    terms: ClassVar[int | None] = 3

    def __init__(self, tree: RoutedTree, prefix: str, **limits: Any) -> None:
        super().__init__(tree, **limits)
        self.prefix = prefix  # of the identifiers

    def lines(self, indent: str) -> Iterator[str]:
        """Write all nodes, leaves and edges."""
        nodes, leaves = self.numbered()
        yield from (f"{indent}{line}" for line in (*nodes, *leaves, *self.edges()))

    def node(self, at: Visit) -> Iterator[str]:
        """Write the box of a node: its split and its rows."""
        described, node = self.described, at.child
        split = [described.tree.split_name]
        if described.linear is not None:
            facets, hidden = self.facets(node)
            more = [f"… {counted(hidden, 'more facet')}"] if hidden else []
            split = [*described.bounds(node), *map(str, facets), *more]
        yield f"{self.name(node)} [label={quoted([*split, counted(described.rows(node), 'row')])}]"

    def leaf(self, at: Visit) -> Iterator[str]:
        """Write the box of a leaf: its prediction and its rows."""
        described, leaf = self.described, ~at.child
        label = quoted([described.leaf(leaf), counted(described.rows(at.child), "row")])
        yield f'{self.name(at.child)} [label={label}, fillcolor="{self.fill(leaf)}"]'

    def edges(self) -> Iterator[str]:
        described = self.described
        for node, children in enumerate(described.tree.topology.children.tolist()):
            for side, child in zip(described.sides(node), children, strict=True):
                width = 1.0 + 4.0 * described.share(child)
                ends = f"{self.name(node)} -> {self.name(child)}"
                yield f'{ends} [label="{side}", penwidth={width:.2f}]'

    def name(self, child: int) -> str:
        """Return the identifier of a node, or of a leaf ``~leaf``, in the graph."""
        return f"{self.prefix}n{child}" if child >= 0 else f"{self.prefix}leaf{~child}"

    def fill(self, leaf: int) -> str:
        value = self.described.tree.value
        if not self.described.classifies:
            spread = value.max() > value.min()
            return _mixed(HUES[0], self.described.position(float(value[leaf])) if spread else 0.0)
        best, chance = int(value[leaf].argmax()), 1.0 / value.shape[1]
        purity = (float(value[leaf, best]) - chance) / (1.0 - chance) if chance < 1 else 1.0
        return _mixed(HUES[best % len(HUES)], purity)


def quoted(lines: list[str]) -> str:
    """Return a label of several lines as DOT writes it."""
    escaped = (
        line.replace(BACKSLASH, 2 * BACKSLASH).replace(QUOTE, BACKSLASH + QUOTE).replace("\n", " ")
        for line in lines
    )
    return QUOTE + r"\n".join(escaped) + QUOTE


def _mixed(hue: str, depth: float) -> str:
    """Mix a hue with white: pale at a depth of 0, deep at 1."""
    share = PALEST + (DEEPEST - PALEST) * min(max(depth, 0.0), 1.0)
    parts = [int(hue[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in parts)


FORMAT = "bayestree-tree"
VERSION = 1


def export_json(tree: object, *, indent: int | None = 2) -> str:
    """Write a tree as JSON, with all its numbers in full precision and in the units of the data.

    The result is one object with these keys:

    - ``format`` ("bayestree-tree"), ``version`` (1), ``bayestree`` (its version);
    - ``task``: ``"classification"`` or ``"regression"``;
    - ``classes``: their names, in the order of the probabilities; null for regression;
    - ``features``: the ``name``, ``center`` and ``scale`` of each feature; the fit used
      (x - center) / scale;
    - ``trees``: one, or the trees of a forest, whose predictions are averaged.

    A tree has ``depth``, ``split`` (the kind of its splits), ``root``, ``nodes`` and ``leaves``.
    A reference to a child (``left``, ``right``, and the ``root`` of a tree) is
    ``{"node": number}`` or ``{"leaf": number}``. A node has its ``path`` from the root ("root",
    "L", "LR", ...), its training ``rows``, and ``facets``. Each facet has a ``weight``, an
    ``intercept``, the indices of its ``features`` with their ``coefficients``, and a rounded
    ``text`` for readers; if a node has several facets, each text only bounds the split. A row x
    goes right where the sum over the facets of
    weight * log1p(exp(coefficients . x + intercept)) exceeds log 2, and left otherwise. A leaf
    has ``path``, ``rows``, and ``probabilities``, ``mean`` or ``rate``. A linear leaf also has a
    ``slope`` (``features``, ``coefficients``) and predicts mean + coefficients . (x - center).

    Parameters
    ----------
    tree : a deterministic tree, or a fitted estimator
        Nodes whose splits are not half-spaces, such as networks, have no ``facets``.
    indent : int, optional
        Spaces per level; None writes one line.

    Raises
    ------
    NotFittedError, TypeError
        If ``tree`` is not a tree or a fitted estimator of this package.

    Examples
    --------
    >>> import json
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import BivariateTreeClassifier, export_json
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BivariateTreeClassifier(max_depth=2, pair_penalty=20).fit(X, y)
    >>> json.loads(export_json(clf))["trees"][0]["nodes"][0]["facets"][0]["text"]
    'x2 <= 2.45'
    """
    first, *_ = trees = trees_of(tree)
    classifies = first.value.ndim == 2
    names = first.class_names or tuple(str(c) for c in range(first.value.shape[-1]))
    units = zip(first.feature_labels, first.center.tolist(), first.scale.tolist(), strict=True)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "bayestree": __version__,
        "task": "classification" if classifies else "regression",
        "classes": list(names) if classifies else None,
        "features": [{"name": name, "center": mean, "scale": unit} for name, mean, unit in units],
        "trees": [_Json(one, decimals=3).tree() for one in trees],
    }
    return json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


class _Json(Visitor[dict[str, Any]]):
    terms: ClassVar[int | None] = 4

    def tree(self) -> dict[str, Any]:
        tree = self.described.tree
        nodes, leaves = self.numbered()
        return {
            "depth": tree.depth,
            "split": tree.split_name,
            "root": _child(0 if tree.n_nodes else ~0),
            "nodes": nodes,
            "leaves": leaves,
        }

    def node(self, at: Visit) -> Iterator[dict[str, Any]]:
        described, node = self.described, at.child
        content: dict[str, Any] = {"path": described.path(node), "rows": described.rows(node)}
        if described.linear is not None:
            facets, _ = self.facets(node)
            content["facets"] = [_facet(described.linear, facet) for facet in facets]
        left, right = described.tree.topology.children[node].tolist()
        yield content | {"left": _child(left), "right": _child(right)}

    def leaf(self, at: Visit) -> Iterator[dict[str, Any]]:
        described, tree, leaf = self.described, self.described.tree, ~at.child
        content = {
            "path": described.path(at.child),
            "rows": described.rows(at.child),
            "probabilities" if described.classifies else tree.quantity: tree.value[leaf].tolist(),
        }
        slope = getattr(tree, "slope", None)
        if slope is not None:
            own = slope[leaf]
            content["slope"] = [_terms(one) for one in own] if own.ndim == 2 else _terms(own)
        yield content


def _child(child: int) -> dict[str, int]:
    return {"node": child} if child >= 0 else {"leaf": ~child}


def _facet(tree: Tree, facet: HalfSpace) -> dict[str, Any]:
    return {
        "text": str(facet),
        "weight": float(tree.weight[facet.expert]),
        "intercept": float(tree.intercept[facet.expert]),
        **_terms(tree.hyperplane[facet.expert]),
    }


def _terms(coefficients: FloatArray) -> dict[str, list[Any]]:
    """Return the non-zero coefficients, and the indices of their features."""
    features = np.flatnonzero(coefficients)
    return {"features": features.tolist(), "coefficients": coefficients[features].tolist()}
