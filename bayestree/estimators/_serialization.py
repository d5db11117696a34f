"""Contents of the file of a fitted estimator: its arrays, and their description in JSON.

The description of a mixture has descriptions of its trees as estimators, under ``modes`` or, for a
forest, under ``trees``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayestree._utils.wording import warn
from bayestree.fitted.serialization import (
    USER,
    Arrays,
    NetworkNeededError,
    describe_tree,
    from_plain,
    group,
    known_parameters,
    plain,
    tree_arrays,
    tree_from,
)
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.models import Network
from bayestree.models.priors.base import Lengths
from bayestree.tables import Encoding

if TYPE_CHECKING:
    from bayestree.estimators._estimator import Estimator

DISTILLED = (
    "the fit had mode_tree='distilled', which this version does not have: tree_ is the tree of the "
    "medoid instead. Predictions of the posterior are as before; those with prediction='tree' are "
    "not. Use bayestree 0.2.0 for the distilled tree."
)


def describe(estimator: Estimator) -> dict[str, Any]:
    """Describe everything except the arrays of a fitted estimator, as JSON."""
    names, mixture = getattr(estimator, "feature_names_in_", None), estimator.fitted_
    described: dict[str, Any] = {
        name: [describe(one) for one in each] for name, each in _members_of(estimator).items()
    }
    if "modes" in described:
        described["medoid"] = mixture.medoid
    return {
        "class": type(estimator).__name__,
        "params": plain(estimator.get_params(deep=False)),
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "columns": mixture.encoding.to_json(),
        "classes": plain(mixture.response.labels),
        **(described or describe_tree(mixture.shown)),
    }


def _members_of(estimator: Estimator) -> dict[str, list[Any]]:
    """Return the estimators of the trees of a mixture by role; none for a single tree."""
    mixture = estimator.fitted_
    role = "trees" if mixture.forest else "modes"
    each = [estimator._view(one) for one in mixture.trees]
    return {role: each} if mixture.forest or mixture.several else {}


def arrays_of(estimator: Estimator) -> Arrays:
    """Return the arrays of a fitted estimator by their names in the file."""
    members, mixture = _members_of(estimator), estimator.fitted_
    if not members:
        return tree_arrays(mixture.shown, numbers=not mixture.response.classifies)
    found = {"mode_weights": mixture.weights} if "modes" in members else {}
    for name, each in members.items():
        for number, one in enumerate(each):
            found |= {f"{name}/{number}/{key}": a for key, a in arrays_of(one).items()}
    return found


def check_network(described: dict[str, Any], arrays: Arrays, network: Network | None) -> None:
    """Refuse a network that the file does not need, or whose parameters do not match."""
    if network is None:
        return
    if not isinstance(network, Network):
        raise NetworkNeededError(f"takes a Network as network, got {network!r}.")
    if USER not in described.get("model", {}).get("split", {}):
        raise NetworkNeededError("has no user-defined network; omit network.")
    n_nodes = len(arrays["topology/children"])
    size = Lengths(n_nodes, 1, described["n_features"], n_nodes + 1)
    point = group(arrays, "point")
    held = {name: point[name].shape for name in network.parameters(point)}
    if held != network.shapes(size):
        raise NetworkNeededError(
            f"contains the parameters {held} for each node, but network has "
            f"{network.shapes(size)}; pass the network of the fit."
        )


def build(kind: Any, described: dict[str, Any], arrays: Arrays, network: Network | None) -> Any:
    """Build the fitted estimator of a class from its description and arrays."""
    given = known_parameters(kind, from_plain(described["params"], network))
    one = next(iter(described.get("modes", [described])))
    estimator = kind(**kind.with_objects(given, one.get("inference", "")))
    estimator.n_features_in_ = described["n_features"]
    names = described["feature_names"]
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    encoding = Encoding.from_json(described["columns"])
    if "trees" in described:
        trees = _members(kind._tree, described["trees"], "trees", arrays)
        fitted = Mixture.of(*trees, forest=True)
    elif "modes" in described:
        fitted = _mixture(kind, described, arrays)
    else:
        names = estimator._feature_names(encoding)
        one = tree_from(described, arrays, names, network)
        fitted = Mixture.of(replace(one, parameters=estimator.get_params(deep=False)))
    estimator.fitted_ = replace(fitted, encoding=encoding)
    return estimator


def _members(
    kind: Any, described: Sequence[dict[str, Any]], name: str, arrays: Arrays
) -> list[FittedTree]:
    """Build the trees of a mixture from their descriptions and the arrays of the file."""
    each = [build(kind, one, group(arrays, f"{name}/{t}"), None) for t, one in enumerate(described)]
    return [one.fitted_.shown for one in each]


def _mixture(kind: Any, described: Mapping[str, Any], arrays: Arrays) -> Mixture:
    """Build the modes of a posterior."""
    modes = _members(kind, described["modes"], "modes", arrays)
    weights = arrays["mode_weights"]
    if not (len(modes) > 1 and weights.shape == (len(modes),) and (weights >= 0).all()):
        raise ValueError(f"mode_weights are not those of {len(modes)} modes: {weights}")
    if not np.isclose(weights.sum(), 1):
        raise ValueError(f"mode_weights have the sum {weights.sum()}, not 1")
    if described["medoid"] not in range(len(modes)):
        raise ValueError(f"medoid is {described['medoid']!r}, not one of {len(modes)} modes")
    if "distilled" in described:
        warn(DISTILLED, UserWarning)
    return Mixture(modes, weights, described["medoid"])
