"""Fitted estimators in files: safetensors whose metadata describes them in JSON. No pickle.

The metadata has one entry, ``bayestree``: JSON with the ``version`` of the format, a
``checksum`` (SHA-256 of the file with the checksum's own digits as zeros), the class, its
parameters, the classes of y, the names of features, the parts of the model and the versions of
the packages. The arrays are ``draws/*``, ``point/*``, ``stats/*``, ``warmup_draws/*``,
``warmup_stats/*``, ``topology/*``, ``tree/*``, ``reach/*`` and ``standard/*``; a point estimate has
no ``draws/*``, a tree without diagnostics no ``reach/*``. Files of older versions stay readable.
"""

import hashlib
import json
import platform
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import numpy as safetensors
from sklearn.utils.validation import check_is_fitted

import bayestree
from bayestree._write import write_whole
from bayestree.diagnostics.reach import Reach
from bayestree.estimators._base import BaseTree
from bayestree.estimators._codec import (
    USER,
    NetworkNeededError,
    plain,
    plain_model,
    unplain,
    unplain_model,
)
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators.alternating import AlternatingTreeClassifier, AlternatingTreeRegressor
from bayestree.estimators.bivariate import BivariateTreeClassifier
from bayestree.estimators.cpt import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.estimators.end_to_end import EndToEndTreeClassifier
from bayestree.estimators.weighted import WeightedObliqueTreeClassifier
from bayestree.inference import Posterior
from bayestree.models import Network
from bayestree.models.sites import Size
from bayestree.topology import Topology

FORMAT = "bayestree"
VERSION = 3  # 2: levels, prior votes and leaves in use; 3: no draws where they are the point
BLANK = "0" * 64

#: What a file may hold.
ESTIMATORS: dict[str, type[BaseTree]] = {
    "AlternatingTreeClassifier": AlternatingTreeClassifier,
    "AlternatingTreeRegressor": AlternatingTreeRegressor,
    "BivariateTreeClassifier": BivariateTreeClassifier,
    "ConvexPolytopeTreeClassifier": ConvexPolytopeTreeClassifier,
    "ConvexPolytopeTreeRegressor": ConvexPolytopeTreeRegressor,
    "EndToEndTreeClassifier": EndToEndTreeClassifier,
    "WeightedObliqueTreeClassifier": WeightedObliqueTreeClassifier,
}
PACKAGES = ("numpy", "scikit-learn", "torch", "pyro-ppl", "safetensors")

Arrays = dict[str, NDArray[Any]]


class ModelFileError(ValueError):
    """A file that is not a whole, readable model file of this package."""


def save(estimator: BaseTree, path: str | Path) -> None:
    """Write a fitted estimator to one file, whole or not at all; an existing file is replaced.

    The file holds parameters, posterior and tree, and no training rows.

    Parameters
    ----------
    estimator : a fitted estimator of this package
    path : path of the file, by custom ``*.safetensors``

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the estimator is not fitted.
    TypeError
        If it is none of the package's own, or holds what cannot be written without pickle.
    FileNotFoundError
        If the folder of ``path`` does not exist.
    IsADirectoryError
        If ``path`` is a folder.
    """
    name = type(estimator).__name__
    if ESTIMATORS.get(name) is not type(estimator):
        raise TypeError(f"estimator must be one of {[*ESTIMATORS]}, got {name}.")
    check_is_fitted(estimator)
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"path {str(target)!r} is a folder; give the name of a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} of path does not exist.")
    write_whole(target, _to_bytes(_describe(estimator), _arrays(estimator)))


def load(path: str | Path, *, network: Network | None = None) -> BaseTree:
    """Read a fitted estimator that :func:`save` wrote.

    Parameters
    ----------
    path : path of the file
    network : Network, optional
        The ``split`` of the fit where it was a network of your own: the file names it and holds
        its parameters, but not its code. Those of this package are found by name.

    Returns
    -------
    A fitted estimator that predicts as the saved one did.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If it is not a model file, was cut short or changed, or is of a newer version.
    ValueError
        If ``network`` is missing, has other parameters than the file holds, or is not wanted.

    Examples
    --------
    >>> import bayestree
    >>> clf = bayestree.load("model.safetensors")  # doctest: +SKIP
    """
    source = Path(path)
    if source.is_dir():
        raise ModelFileError(f"{str(source)!r} is a folder; give the model file inside it.")
    if not source.exists():
        raise FileNotFoundError(f"no model file {str(source)!r}.")
    content = source.read_bytes()
    try:
        described, arrays = _from_bytes(content)
        _check_network(described, arrays, network)
        return _build(described, arrays, network)
    except NetworkNeededError as error:
        raise ValueError(f"{str(source)!r} {error}") from None
    except ModelFileError as error:
        raise ModelFileError(f"{str(source)!r} {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, SafetensorError) as error:
        raise ModelFileError(
            f"{str(source)!r} does not hold what a model file of version {VERSION} should: {error}"
        ) from error


# Bytes.


def _to_bytes(described: dict[str, Any], arrays: Arrays) -> bytes:
    text = json.dumps({"version": VERSION, "checksum": BLANK} | described)
    whole = {name: np.asarray(values, order="C") for name, values in arrays.items()}
    blank: bytes = safetensors.save(whole, {FORMAT: text})
    return blank.replace(BLANK.encode(), _digest(blank), 1)


def _from_bytes(content: bytes) -> tuple[dict[str, Any], Arrays]:
    """What a file describes, and its arrays, once it is known to be whole."""
    described = json.loads(_metadata(content))
    version, checksum = int(described["version"]), str(described["checksum"]).encode()
    if version > VERSION:
        raise ModelFileError(
            f"is of version {version}, and bayestree {bayestree.__version__} reads up to version "
            f"{VERSION}; upgrade bayestree."
        )
    blank = content.replace(checksum, BLANK.encode(), 1) if checksum else content
    if _digest(blank) != checksum:
        raise ModelFileError("was cut short or changed after it was written (checksum differs).")
    return described, safetensors.load(content)


def _metadata(content: bytes) -> str:
    """The package's entry of a safetensors header, which is 8 bytes of length, then JSON."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 + length:
        raise ModelFileError("is not a safetensors file, or was cut short.")
    try:
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    except (ValueError, AttributeError, RecursionError):
        raise ModelFileError("is not a safetensors file, or its header was changed.") from None
    if FORMAT not in metadata:
        raise ModelFileError("is a safetensors file, but bayestree did not write it.")
    return str(metadata[FORMAT])


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


# What is written.


def _describe(estimator: BaseTree) -> dict[str, Any]:
    posterior = estimator.posterior_
    names = getattr(estimator, "feature_names_in_", None)
    classes = getattr(estimator, "classes_", None)
    return {
        "class": type(estimator).__name__,
        "params": plain(estimator.get_params(deep=False)),
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else plain(classes),
        "class_names": list(estimator.tree_.class_names),
        "model": plain_model(posterior.model),
        "inference": posterior.inference,
        "settings": plain(posterior.settings),
        "versions": {"python": platform.python_version(), "bayestree": bayestree.__version__}
        | {package: version_of(package) for package in PACKAGES},
    }


def _arrays(estimator: BaseTree) -> Arrays:
    posterior, tree = estimator.posterior_, estimator.tree_
    standard = {"center": estimator._center, "scale": estimator._scale}
    if isinstance(estimator, TreeRegressor):
        standard["y"] = np.array([estimator._y_mean, estimator._y_scale])
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
    }
    return {f"{group}/{name}": a for group, named in groups.items() for name, a in named.items()}


def _is_point(posterior: Posterior) -> bool:
    """Whether the only draw is the point estimate."""
    draws, point = posterior.draws, posterior.point
    alone = posterior.n_chains * posterior.n_draws == 1 and draws.keys() == point.keys()
    return alone and all(np.array_equal(draws[name][0, 0], point[name]) for name in draws)


# What is read.


def _check_network(described: dict[str, Any], arrays: Arrays, network: Network | None) -> None:
    """Refuse a network that the file does not ask for, or whose parameters are others."""
    if network is None:
        return
    if not isinstance(network, Network):
        raise NetworkNeededError(f"takes a Network as network, got {network!r}.")
    if USER not in described["model"]["split"]:
        raise NetworkNeededError("does not hold a network of the user's; leave out network.")
    n_nodes = len(arrays["topology/children"])
    size = Size(n_nodes, 1, described["n_features"], n_nodes + 1)
    point = _group(arrays, "point")
    held = {name: point[name].shape for name in network.parameters(point)}
    if held != network.shapes(size):
        raise NetworkNeededError(
            f"holds the parameters {held} by node, and those of network are "
            f"{network.shapes(size)}; give the network of the fit."
        )


def _build(described: dict[str, Any], arrays: Arrays, network: Network | None = None) -> BaseTree:
    estimator = ESTIMATORS[described["class"]](**unplain(described["params"], network))
    estimator.n_features_in_ = described["n_features"]
    names = described["feature_names"]
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    if described["classes"] is not None:
        estimator.classes_ = unplain(described["classes"])
    standard = _group(arrays, "standard")
    estimator._center, estimator._scale = standard["center"], standard["scale"]
    if "y" in standard:
        estimator._y_mean, estimator._y_scale = (float(value) for value in standard["y"])
    topology = Topology(arrays["topology/children"])
    model = unplain_model(described["model"], topology, network)
    tree = _group(arrays, "tree")
    estimator.tree_ = model.split.restored(
        Topology(tree.pop("children")),
        tree,
        {"feature_names": tuple(names or ()), "class_names": tuple(described["class_names"])},
    )
    point = _group(arrays, "point")
    estimator.posterior_ = Posterior(
        model=model,
        draws=_group(arrays, "draws") or {name: a[None, None] for name, a in point.items()},
        point=point,
        inference=described["inference"],
        stats=_group(arrays, "stats"),
        warmup_draws=_group(arrays, "warmup_draws"),
        warmup_stats=_group(arrays, "warmup_stats"),
        settings=unplain(described["settings"]),
    )
    reach = _group(arrays, "reach")
    if reach:
        estimator._reach = Reach(**reach)
    return estimator


def _group(arrays: Arrays, group: str) -> Arrays:
    """Arrays whose names begin with ``group/``, without it; writable, as after a fit."""
    start = f"{group}/"
    return {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}
