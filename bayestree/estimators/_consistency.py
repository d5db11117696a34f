"""Whether the parts of a model file fit together.

A valid checksum does not imply valid contents, since anyone can write one. These checks make
errors appear when the file is read.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bayestree.diagnostics.polytopes import Reach
from bayestree.fitted.tree import FittedTree
from bayestree.inference import Posterior
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree


def check_described(described: dict[str, Any]) -> None:
    """Refuse a description with an invalid number or invalid names of features."""
    n_features, names = described["n_features"], described["feature_names"]
    if not (type(n_features) is int and n_features >= 1):
        raise ValueError(f"n_features is {n_features!r}, not a positive integer")
    text = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is not None and not (text and len(set(names)) == len(names) == n_features):
        raise ValueError("feature_names are not one distinct text for each feature")


def check_built(estimator: Any) -> None:
    """Refuse an estimator whose shapes do not agree, or that cannot predict, by any exception."""
    for tree in estimator.fitted_.trees:
        _check_tree(tree, len(estimator.encoding_.feature_names))
    names = getattr(estimator, "feature_names_in_", None)
    columns = estimator.encoding_.columns
    if len(columns) != estimator.n_features_in_:
        raise ValueError(f"{len(columns)} columns are encoded, not {estimator.n_features_in_}")
    complete = estimator._in_place()
    values = [0.0 if complete or one.fill is None else np.nan for one in columns]
    row = pd.DataFrame([values], columns=names)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        given = row if names is not None else row.to_numpy()
        classes = getattr(estimator, "classes_", None)
        if classes is not None and estimator.predict_proba(given).shape != (1, len(classes)):
            raise ValueError("classes are not those of the leaves")
        n_outputs = estimator.n_outputs_
        if np.shape(estimator.predict(given)) != (1, n_outputs)[: 1 + (n_outputs > 1)]:
            raise ValueError(f"the prediction of a row does not have {n_outputs} outputs")


def _check_tree(fitted: FittedTree, d: int) -> None:
    units, routed = fitted.scaling.units, fitted.tree
    if not units.center.shape == units.scale.shape == (d,):
        raise ValueError(f"the units are not those of {d} features")
    _check_routes(routed, d)
    n_classes = len(routed.class_names)
    if fitted.posterior.model.leaf.n_classes != n_classes:
        raise ValueError(f"the leaves of the posterior do not have {n_classes} classes")
    _check_draws(fitted.posterior, d)
    if fitted.reach is not None:
        _check_reach(fitted.reach, fitted, d)


def _check_routes(tree: RoutedTree, d: int) -> None:
    """Check the arrays of the deterministic tree."""
    n_leaves, n_classes = tree.topology.n_leaves, len(tree.class_names)
    n_columns = tree.value.shape[-1] if tree.several_outputs else n_classes
    values = (n_leaves, n_columns) if n_columns else (n_leaves,)
    shapes: dict[str, tuple[int, ...]] = {
        "value": values,
        "leaf_rows": (n_leaves,),
        "center": (d,),
        "scale": (d,),
    }
    if isinstance(tree, Tree):
        n_experts = len(tree.weight)
        starts = tree.expert_start
        ends = len(starts) > 0 and (starts[0], starts[-1]) == (0, n_experts)
        if not (ends and starts.dtype.kind == "i" and (np.diff(starts) >= 0).all()):
            raise ValueError("tree/expert_start does not ascend from 0 to the number of experts")
        shapes |= {
            "expert_start": (tree.topology.n_nodes + 1,),
            "weight": (n_experts,),
            "intercept": (n_experts,),
            "hyperplane": (n_experts, d),
            "slope": (*values, d),
        }
    _check_shapes("tree", tree, shapes)


def _check_draws(posterior: Posterior, d: int) -> None:
    many = (posterior.n_chains, posterior.n_draws)
    if min(many) < 1 or posterior.draws.keys() != posterior.point.keys():
        raise ValueError("the draws are not those of the point estimate")
    model = posterior.model
    own = model.split.shapes(model.size(d))
    known = model.shapes(d) | own
    for name, values in posterior.point.items():
        shape = known.get(name)
        if shape is not None and values.shape != shape:
            raise ValueError(f"point/{name} has the shape {values.shape}, not {shape}")
        if posterior.draws[name].shape != (*many, *values.shape):
            raise ValueError(f"draws/{name} has the shape {posterior.draws[name].shape}")
    if not own.keys() <= posterior.point.keys():
        raise ValueError(f"point does not have all of {', '.join(own)}")


def _check_reach(reach: Reach, fitted: FittedTree, d: int) -> None:
    posterior, n_nodes = fitted.posterior, fitted.tree.topology.n_nodes
    many = (posterior.n_chains, posterior.n_draws)
    shapes = {
        "nodes": (n_nodes,),
        "rows": (n_nodes,),
        "low": (n_nodes, d),
        "high": (n_nodes, d),
        "level": (n_nodes,),
        "leaves": many,
    }
    _check_shapes("reach", reach, shapes)
    if reach.largest.shape[:3] != (*many, n_nodes):
        raise ValueError(f"reach/largest has the shape {reach.largest.shape}")
    n_prior = 0 if reach.prior_largest is None else len(reach.prior_largest)
    n_experts = reach.largest.shape[3:]
    _check_shapes(
        "reach",
        reach,
        {
            "cut": reach.largest.shape,
            "prior_cut": (n_prior, n_nodes, *n_experts),
            "prior_intercept": (n_prior, *n_experts),
        },
    )
    known = posterior.model.topology.n_nodes
    if not ((reach.nodes >= 0) & (reach.nodes < known)).all():
        raise ValueError(f"reach/nodes are not among {known} nodes")


def _check_shapes(group: str, parts: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse arrays of other shapes, or not of numbers; optional ones may be None."""
    for name, shape in shapes.items():
        values = getattr(parts, name)
        if values is not None and values.shape != shape:
            raise ValueError(f"{group}/{name} has the shape {values.shape}, not {shape}")
        if values is not None and values.dtype.kind not in "fi":
            raise ValueError(f"{group}/{name} has the type {values.dtype}, not numbers")
