"""Whether what was read from a file is a fitted estimator: a checksum only says who signed it.

Anyone can write a file whose checksum is right. What it holds is data and never code; these checks
see to it that the parts fit together, so that what is wrong is told when the file is read.
"""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from bayestree.diagnostics.reach import Reach
from bayestree.estimators._base import BaseTree
from bayestree.estimators.forest import EndToEndForestClassifier
from bayestree.inference import Posterior


def check_described(described: dict[str, Any]) -> None:
    """Refuse a description whose features are none.

    Raises
    ------
    ValueError
        If their number is no number, or their names are not as many, or not text.
    """
    n_features, names = described["n_features"], described["feature_names"]
    if not (type(n_features) is int and n_features >= 1):
        raise ValueError(f"n_features is {n_features!r}, not a number of features")
    if names is None:
        return
    text = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not (text and len(set(names)) == len(names) == n_features):
        raise ValueError("feature_names are not one text for each feature")


def check_built(estimator: BaseTree | EndToEndForestClassifier) -> None:
    """Refuse an estimator whose parts do not fit together, by their shapes and by a prediction.

    Raises
    ------
    Exception
        Of any kind: that of the part which does not work.
    """
    forest = isinstance(estimator, EndToEndForestClassifier)
    for tree in estimator.estimators_ if forest else [estimator]:
        _check_tree(tree, estimator.n_features_in_)
    names = getattr(estimator, "feature_names_in_", None)
    row = pd.DataFrame(np.zeros((1, estimator.n_features_in_)), columns=names)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        given = row if names is not None else row.to_numpy()
        classes = getattr(estimator, "classes_", None)
        if classes is not None and estimator.predict_proba(given).shape != (1, len(classes)):
            raise ValueError("classes are not those of the leaves")
        if np.shape(estimator.predict(given)) != (1,):
            raise ValueError("the prediction of a row is no single value")


def _check_tree(tree: BaseTree, n_features: int) -> None:
    d = tree.n_features_in_
    if not (d == n_features and tree._center.shape == tree._scale.shape == (d,)):
        raise ValueError(f"the units are not those of {n_features} features")
    _check_draws(tree.posterior_)
    reach = getattr(tree, "_reach", None)
    if reach is not None:
        _check_reach(reach, tree, d)


def _check_draws(posterior: Posterior) -> None:
    many = (posterior.n_chains, posterior.n_draws)
    if min(many) < 1 or posterior.draws.keys() != posterior.point.keys():
        raise ValueError("the draws are not those of the point estimate")
    for name, values in posterior.draws.items():
        if values.shape != (*many, *posterior.point[name].shape):
            raise ValueError(f"the draws of {name!r} have the shape {values.shape}")


def _check_reach(reach: Reach, tree: BaseTree, d: int) -> None:
    posterior, n_nodes = tree.posterior_, tree.tree_.topology.n_nodes
    many = (posterior.n_chains, posterior.n_draws)
    shapes = {
        "nodes": (n_nodes,),
        "rows": (n_nodes,),
        "low": (n_nodes, d),
        "high": (n_nodes, d),
        "level": (n_nodes,),
        "leaves": many,
    }
    for name, shape in shapes.items():
        values = getattr(reach, name)
        if values is not None and values.shape != shape:
            raise ValueError(f"reach/{name} has the shape {values.shape}, not {shape}")
    if reach.largest.shape[:3] != (*many, n_nodes):
        raise ValueError(f"reach/largest has the shape {reach.largest.shape}")
    known = posterior.model.topology.n_nodes
    if not ((reach.nodes >= 0) & (reach.nodes < known)).all():
        raise ValueError(f"reach/nodes are not among {known} nodes")
