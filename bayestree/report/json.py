"""The deterministic tree as JSON: every number that it is made of, for other programs."""

import json
from typing import Any

import numpy as np

from bayestree._trees import trees_of
from bayestree._version import __version__
from bayestree.report.words import FacetWords, words_of
from bayestree.routed_tree import RoutedTree

FORMAT = "bayestree-tree"
VERSION = 1


def export_json(tree: object, *, indent: int | None = 2) -> str:
    """A tree as JSON, with all its numbers in full and in the units of the data.

    One object:

    - ``format`` ("bayestree-tree"), ``version`` (1), ``bayestree`` (its version);
    - ``task``: ``"classification"`` or ``"regression"``;
    - ``classes``: their names, in the order of the probabilities; null for regression;
    - ``features``: ``name``, and ``center`` and ``scale``, the units in which the fit measured
      the feature;
    - ``trees``: one, or as many as the forest has, whose predictions are averaged.

    A tree has ``depth``, ``split`` (the kind of its splits), ``root``, ``nodes`` and ``leaves``.
    What is below a node (``left``, ``right``, and the ``root`` of a tree) is ``{"node": number}``
    or ``{"leaf": number}``. A node has its ``path`` from the root ("root", "L", "LR", ...), its
    training ``rows``, and ``facets``: each a ``weight``, an ``intercept``, the numbers of the
    ``features`` with their ``coefficients``, and a ``text`` for readers, which is rounded and
    which only bounds the split of a node that has several facets. A row x goes right where the
    sum over the facets of weight * log1p(exp(coefficients . x + intercept)) is above log 2, else
    left. A leaf has ``path``, ``rows``, and ``probabilities`` or ``mean``; a linear leaf also a
    ``slope`` (``features``, ``coefficients``), by which it predicts mean + coefficients .
    (x - center).

    Parameters
    ----------
    tree : a deterministic tree, or a fitted estimator
        The nodes of splits other than half-spaces, such as networks, have no ``facets``.
    indent : int, optional
        Spaces of a level; None writes one line.

    Returns
    -------
    str

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If ``tree`` is an estimator that was not fitted.
    TypeError
        If ``tree`` is neither a Tree nor an estimator of one.

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
    found = trees_of(tree)
    first = found[0]
    classes = first.value.ndim == 2
    names = first.class_names or tuple(str(c) for c in range(first.value.shape[-1]))
    content = {
        "format": FORMAT,
        "version": VERSION,
        "bayestree": __version__,
        "task": "classification" if classes else "regression",
        "classes": list(names) if classes else None,
        "features": _features(first),
        "trees": [_tree(one) for one in found],
    }
    return json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def _features(tree: RoutedTree) -> list[dict[str, Any]]:
    units = zip(tree.feature_labels, tree.center.tolist(), tree.scale.tolist(), strict=True)
    return [{"name": name, "center": center, "scale": scale} for name, center, scale in units]


def _tree(tree: RoutedTree) -> dict[str, Any]:
    topology = tree.topology
    rows = topology.sum_below(tree.leaf_rows).tolist()
    words = words_of(tree, max_features=4, decimals=3)
    nodes = []
    for node, (left, right) in enumerate(topology.children.tolist()):
        one = {"path": topology.node_labels[node], "rows": rows[node]}
        if isinstance(words, FacetWords):
            one["facets"] = [_facet(words, int(expert)) for expert in words.nearest(node)]
        nodes.append(one | {"left": _place(left), "right": _place(right)})
    return {
        "depth": tree.depth,
        "split": tree.split_name,
        "root": _place(0 if tree.n_nodes else ~0),
        "nodes": nodes,
        "leaves": [_leaf(tree, leaf) for leaf in range(tree.n_leaves)],
    }


def _place(child: int) -> dict[str, int]:
    return {"node": child} if child >= 0 else {"leaf": ~child}


def _facet(words: FacetWords, expert: int) -> dict[str, Any]:
    tree = words.tree
    return {
        "text": words.facet(expert),
        "weight": float(tree.weight[expert]),
        "intercept": float(tree.intercept[expert]),
        **_terms(tree.hyperplane[expert]),
    }


def _leaf(tree: RoutedTree, leaf: int) -> dict[str, Any]:
    name = "probabilities" if tree.value.ndim == 2 else "mean"
    one = {
        "path": tree.topology.leaf_labels[leaf],
        "rows": float(tree.leaf_rows[leaf]),
        name: tree.value[leaf].tolist(),
    }
    slope = getattr(tree, "slope", None)
    return one if slope is None else one | {"slope": _terms(slope[leaf])}


def _terms(coefficients: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, list[Any]]:
    """The coefficients that are not 0, and the numbers of their features."""
    features = np.flatnonzero(coefficients)
    return {"features": features.tolist(), "coefficients": coefficients[features].tolist()}
