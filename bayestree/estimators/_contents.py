"""Contents of the file of a fitted estimator: its arrays, and their description."""

from typing import Any

import numpy as np

from bayestree._utils.arrays import AnyArray
from bayestree.diagnostics.polytopes import Reach
from bayestree.estimators._codec import (
    USER,
    NetworkNeededError,
    from_plain,
    model_from_plain,
    plain,
    plain_model,
)
from bayestree.inference import Posterior, Units
from bayestree.inference.data import UNUSED
from bayestree.models import Network
from bayestree.models.sites import Size
from bayestree.tables import Encoding, Numbers
from bayestree.topology import Topology

Arrays = dict[str, AnyArray]


def describe(estimator: Any) -> dict[str, Any]:
    """Everything except the arrays of a fitted estimator, as JSON."""
    names = getattr(estimator, "feature_names_in_", None)
    classes = getattr(estimator, "classes_", None)
    return {
        "class": type(estimator).__name__,
        "params": plain(estimator.get_params(deep=False)),
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "columns": estimator.encoding_.to_json(),
        "classes": None if classes is None else plain(classes),
        **estimator._describe(),
    }


def describe_tree(estimator: Any) -> dict[str, Any]:
    """The part of the description that is specific to a tree."""
    posterior = estimator.posterior_
    return {
        "class_names": list(estimator.tree_.class_names),
        "model": plain_model(posterior.model),
        "inference": posterior.inference,
        "settings": plain(posterior.settings),
    }


def tree_arrays(estimator: Any) -> Arrays:
    """The arrays of a fitted tree by their names in the file."""
    posterior, tree = estimator.posterior_, estimator.tree_
    units = estimator._units
    standard = {"center": units.center, "scale": units.scale}
    if not hasattr(estimator, "classes_"):
        standard["y"] = np.array([units.y_center, units.y_scale])
    reach: Reach | None = getattr(estimator, "_reach", None)
    groups: dict[str, Any] = {
        "draws": {} if _is_point(posterior) else posterior.draws,
        "point": posterior.point,
        "stats": posterior.stats,
        "warmup_draws": posterior.warmup_draws,
        "warmup_stats": posterior.warmup_stats,
        "topology": {"children": posterior.model.topology.children},
        "tree": {"children": tree.topology.children} | tree.arrays(),
        "reach": {}
        if reach is None
        else {k: a for k, a in reach._asdict().items() if a is not None},
        "standard": standard,
        "stream": getattr(estimator, "_stream", {}),
    }
    return {f"{group}/{name}": a for group, named in groups.items() for name, a in named.items()}


def _is_point(posterior: Posterior) -> bool:
    """Whether the only draw is the point estimate."""
    draws, point = posterior.draws, posterior.point
    alone = posterior.n_chains * posterior.n_draws == 1 and draws.keys() == point.keys()
    return alone and all(np.array_equal(draws[name][0, 0], point[name]) for name in draws)


def check_network(described: dict[str, Any], arrays: Arrays, network: Network | None) -> None:
    """Refuse a network that the file does not need, or whose parameters do not match."""
    if network is None:
        return
    if not isinstance(network, Network):
        raise NetworkNeededError(f"takes a Network as network, got {network!r}.")
    if USER not in described.get("model", {}).get("split", {}):
        raise NetworkNeededError("has no user-defined network; omit network.")
    n_nodes = len(arrays["topology/children"])
    size = Size(n_nodes, 1, described["n_features"], n_nodes + 1)
    point = group(arrays, "point")
    held = {name: point[name].shape for name in network.parameters(point)}
    if held != network.shapes(size):
        raise NetworkNeededError(
            f"contains the parameters {held} for each node, but network has "
            f"{network.shapes(size)}; pass the network of the fit."
        )


def build(kind: Any, described: dict[str, Any], arrays: Arrays, network: Network | None) -> Any:
    """The fitted estimator of a class from its description and arrays."""
    estimator = kind(**from_plain(described["params"], network))
    estimator.n_features_in_ = described["n_features"]
    names = described["feature_names"]
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator.encoding_ = _encoding(described)
    if described["classes"] is not None:
        estimator.classes_ = from_plain(described["classes"])
    estimator._restore(described, arrays, network)
    return estimator


def _encoding(described: dict[str, Any]) -> Encoding:
    """The encoding of the columns; files of earlier versions have numbers without gaps."""
    if "columns" in described:
        return Encoding.from_json(described["columns"])
    names = described["feature_names"] or [f"x{j}" for j in range(described["n_features"])]
    return Encoding(tuple(map(Numbers, names)))


def restore_tree(
    estimator: Any, described: dict[str, Any], arrays: Arrays, network: Network | None
) -> None:
    """Restore the fitted state of a tree."""
    standard = group(arrays, "standard")
    of_y = np.asarray(standard.get("y", (0.0, 1.0)))
    estimator._units = Units(standard["center"], standard["scale"]).with_y(*map(np.asarray, of_y))
    columns = np.arange(len(standard["scale"]))
    estimator._source = np.where(standard["scale"] == UNUSED, -1, columns)
    topology = Topology(arrays["topology/children"])
    model = model_from_plain(described["model"], topology, network)
    tree = group(arrays, "tree")
    estimator.tree_ = model.split.restored(
        Topology(tree.pop("children")),
        tree,
        {
            "feature_names": estimator._feature_names,
            "class_names": tuple(described["class_names"]),
            "quantity": model.leaf.quantity,
        },
    )
    point = group(arrays, "point")
    estimator.posterior_ = Posterior(
        model=model,
        draws=group(arrays, "draws") or {name: a[None, None] for name, a in point.items()},
        point=point,
        inference=described["inference"],
        stats=group(arrays, "stats"),
        warmup_draws=group(arrays, "warmup_draws"),
        warmup_stats=group(arrays, "warmup_stats"),
        settings=from_plain(described["settings"]),
    )
    if stream := group(arrays, "stream"):
        estimator._stream = stream
    reach = group(arrays, "reach")
    if reach:
        estimator._reach = Reach(**reach)


def group(arrays: Arrays, name: str) -> Arrays:
    """Arrays whose names start with ``name/``, without this prefix."""
    start = f"{name}/"
    return {key.removeprefix(start): a for key, a in arrays.items() if key.startswith(start)}
