"""The deterministic tree as JSON, with every number, for other programs."""

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree._version import __version__
from bayestree.description import HalfSpace, Visit, trees_of
from bayestree.export import Visitor
from bayestree.tree import Tree

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
