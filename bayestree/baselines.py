"""Baseline and initial trees: scikit-learn's CART, and random hyperplanes."""

from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.state import RandomState, draw_seed
from bayestree.topology import Topology
from bayestree.tree import Tree

LEAF = -1  # scikit-learn's number of a missing child
TIE_TOLERANCE = 1e-9  # relative differences of projections below this may be rounding


def cart(
    X: FloatArray,
    y: AnyArray,
    weights: FloatArray | None = None,
    *,
    max_depth: int | None = None,
    random_state: RandomState = None,
    **settings: Any,
) -> Tree:
    """Grow CART by scikit-learn and convert it to a Tree in the units of X.

    y are class numbers (integers) or real values; ``settings`` are other parameters of
    ``sklearn.tree.DecisionTreeClassifier`` or ``DecisionTreeRegressor``.
    """
    kind = DecisionTreeClassifier if np.issubdtype(y.dtype, np.integer) else DecisionTreeRegressor
    if max_depth == 0:  # rejected by scikit-learn; prevent the first split instead
        max_depth, settings = 1, {**settings, "min_samples_split": len(X) + 1}
    model = kind(max_depth=max_depth, random_state=draw_seed(random_state), **settings)
    return from_sklearn(model.fit(X, y, sample_weight=weights))


def from_sklearn(fitted: Any) -> Tree:
    """Convert a fitted scikit-learn decision tree to a Tree with exactly the same predictions.

    scikit-learn compares features in single precision; cuts are moved within its rounding such
    that comparisons in double precision agree. A TypeError refuses anything but a tree with one
    output, and a ValueError splits that separate missing values from all others.
    """
    if not isinstance(fitted, DecisionTreeClassifier | DecisionTreeRegressor):
        raise TypeError(
            f"from_sklearn needs a fitted DecisionTreeClassifier or DecisionTreeRegressor, got "
            f"{type(fitted).__name__}."
        )
    check_is_fitted(fitted)
    inner = fitted.tree_
    if inner.n_outputs != 1:
        raise TypeError(f"from_sklearn needs a tree with one output, got {inner.n_outputs}.")
    topology, nodes, leaves = _numbered(inner.children_left, inner.children_right)
    if not np.isfinite(inner.threshold[nodes]).all():
        raise ValueError(
            "the tree has splits that separate missing values from all others; fit it on rows "
            "without missing values."
        )
    splits = np.zeros((len(nodes), inner.n_features))
    splits[np.arange(len(nodes)), inner.feature[nodes]] = 1.0
    classes = isinstance(fitted, DecisionTreeClassifier)
    value = inner.value[leaves, 0]
    named = getattr(fitted, "feature_names_in_", ())
    # x <= cut in double precision iff float32(x) <= threshold: the midpoint of the last
    # single-precision number that goes left and its successor, which itself rounds to the even one
    threshold = inner.threshold[nodes]
    last = threshold.astype(np.float32)
    last = np.where(last > threshold, np.nextafter(last, np.float32(-np.inf)), last)
    last = last.astype(np.float32)
    after = np.nextafter(last, np.float32(np.inf))
    middle = (last.astype(np.float64) + after.astype(np.float64)) / 2
    tie_goes_left = middle.astype(np.float32) == last
    return Tree(
        topology=topology,
        expert_start=np.arange(len(nodes) + 1),
        weight=np.ones(len(nodes)),
        hyperplane=splits,
        intercept=-np.where(tie_goes_left, middle, np.nextafter(middle, -np.inf)),
        value=value if classes else value[:, 0],
        leaf_rows=inner.weighted_n_node_samples[leaves].astype(np.float64),
        center=np.zeros(inner.n_features),
        scale=np.ones(inner.n_features),
        feature_names=tuple(map(str, named)),
        class_names=tuple(str(label) for label in fitted.classes_) if classes else (),
    )


def random_oblique(
    X: FloatArray,
    depth: int,
    weights: FloatArray | None = None,
    *,
    max_features: int | None = None,
    random_state: RandomState = None,
) -> Tree:
    """Draw a complete tree of hyperplanes through the medians of the rows that reach them.

    Each node has ``max_features`` non-zero coefficients, drawn at random; by default all. The tree
    has no leaf values.
    """
    seeds = check_random_state(draw_seed(random_state))
    topology = Topology.complete(depth)
    n_features = X.shape[1]
    plane = seeds.standard_normal((topology.n_nodes, n_features))
    if max_features is not None and max_features < n_features:
        order = seeds.random_sample(plane.shape).argsort(axis=1)
        np.put_along_axis(plane, order[:, max_features:], 0.0, axis=1)
    plane /= np.linalg.norm(plane, axis=1, keepdims=True)
    offset = np.zeros(topology.n_nodes)
    mass = np.ones(len(X)) if weights is None else weights
    rows = [np.arange(len(X))] + [np.empty(0, dtype=np.int64)] * (topology.n_nodes - 1)
    for node, children in enumerate(topology.children.tolist()):
        score = X[rows[node]] @ plane[node]
        offset[node] = -_median(score, mass[rows[node]]) if len(score) else 0.0
        for child, taken in zip(
            children, (score + offset[node] <= 0, score + offset[node] > 0), strict=True
        ):
            if child >= 0:
                rows[child] = rows[node][taken]
    return Tree.from_standardised(
        topology,
        np.ones((topology.n_nodes, 1)),
        plane[:, None],
        offset[:, None],
        center=np.zeros(n_features),
        scale=np.ones(n_features),
    )


def _median(values: FloatArray, weights: FloatArray) -> float:
    """Return a cut at the weighted median: midway between it and the next value.

    With a cut at the median itself, rounding would determine the side of its row. Equal values
    are all below the cut.
    """
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    middle = float(values[order[np.searchsorted(below, below[-1] / 2)]])
    size = float(np.abs(values).max())
    above = values[values > middle + TIE_TOLERANCE * size]
    lower = values[values < middle - TIE_TOLERANCE * size]
    if len(above):
        return (middle + float(above.min())) / 2
    return (middle + float(lower.max())) / 2 if len(lower) else middle + max(size, 1.0)


def _numbered(left: IntArray, right: IntArray) -> tuple[Topology, IntArray, IntArray]:
    """Return the topology of scikit-learn's children, and its number of each node and leaf."""
    inside = left != LEAF
    number = np.where(inside, np.cumsum(inside) - 1, ~(np.cumsum(~inside) - 1))
    nodes = np.flatnonzero(inside)
    children = np.stack([number[left[nodes]], number[right[nodes]]], axis=1)
    return Topology(children.reshape(-1, 2)), nodes, np.flatnonzero(~inside)
