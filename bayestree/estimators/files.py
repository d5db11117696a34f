"""Fitted estimators in files: safetensors whose metadata describes them in JSON. No pickle.

The metadata has one entry, ``bayestree``: JSON with the ``version`` of the format, a
``checksum`` (SHA-256 of the file, with zeros instead of the checksum), the class, its
parameters, the classes of y, the names of features, the parts of the model and the versions of
the packages. The arrays are ``draws/*``, ``point/*``, ``stats/*``, ``warmup_draws/*``,
``warmup_stats/*``, ``topology/*``, ``tree/*``, ``reach/*`` and ``standard/*``; a point estimate has
no ``draws/*``, and a tree without diagnostics no ``reach/*``. A forest has these for each tree,
under ``trees/0/``, ``trees/1/``, ...
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from safetensors import numpy as safetensors
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray
from bayestree._utils.user_classes import UndefinedClassError
from bayestree._utils.wording import refuse_special
from bayestree._utils.write import write_whole
from bayestree._version import __version__
from bayestree.description import kind_of
from bayestree.diagnostics.polytopes import Reach
from bayestree.estimators._serialization import arrays_of, build, check_network, describe
from bayestree.estimators.registry import ESTIMATORS, estimator_class
from bayestree.fitted.serialization import Arrays, NetworkNeededError, tree_arrays
from bayestree.fitted.training_rows import SMALLEST
from bayestree.fitted.tree import FittedTree
from bayestree.inference import Posterior
from bayestree.models import Network
from bayestree.models.soft_tree import declared_sites
from bayestree.routed_tree import RoutedTree
from bayestree.tree import LOG2, Tree

if TYPE_CHECKING:
    from bayestree.estimators._estimator import Estimator

FORMAT = "bayestree"
VERSION = 4  # of version 0.2.0: 3, without ``reach/sample``
BLANK = "0" * 64
MAX_HEADER = 100_000_000  # bytes, as in safetensors
N_CLASSES = re.compile(r'"n_classes", (?:\{"array": \[+)?([\d.e+]+)')

PACKAGES = ("numpy", "scikit-learn", "torch", "pyro-ppl", "safetensors")


class ModelFileError(ValueError):
    """A file that is not a complete, readable model file of this package."""


def save(estimator: Estimator, path: str | Path) -> None:
    """Write a fitted estimator to a file atomically; an existing file is replaced.

    The file contains parameters, posterior and tree and, for convex polytope and end-to-end trees,
    the features of at most 200 training rows, at which ``check_convergence`` compares predictions.

    Parameters
    ----------
    estimator : a fitted estimator of this package
    path : path of the file, usually ``*.safetensors``

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the estimator is not fitted.
    TypeError
        If it is not a registered estimator, or has parameters that would need pickle.
    FileNotFoundError
        If the folder of ``path`` does not exist.
    IsADirectoryError
        If ``path`` is a folder.
    """
    name = type(estimator).__name__
    if name not in ESTIMATORS or estimator_class(name) is not type(estimator):
        raise TypeError(f"estimator must be one of {[*ESTIMATORS]}, got {kind_of(estimator)}.")
    check_is_fitted(estimator)
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"path {str(target)!r} is a folder; give the name of a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} of path does not exist.")
    described = describe(estimator) | {
        "versions": {"python": platform.python_version(), "bayestree": __version__}
        | {package: version_of(package) for package in PACKAGES}
    }
    write_whole(target, _to_bytes(described, arrays_of(estimator)))


def load(path: str | Path, *, network: Network | None = None) -> Any:
    """Read a fitted estimator that its method ``save`` wrote.

    Parameters
    ----------
    path : path of the file
    network : Network, optional
        The ``split`` of the fit, if it was a user-defined network: the file contains its name and
        parameters, but not its code. Networks of this package are found by name.

    Returns
    -------
    A fitted estimator that predicts as the saved one did.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ModelFileError
        If it is not a model file, was truncated or changed, has a newer version, or names a class
        from outside the package that is not imported.
    ValueError
        If ``network`` is missing, has other parameters than the file, or is not needed.

    Examples
    --------
    >>> import bayestree
    >>> clf = bayestree.load("model.safetensors")  # doctest: +SKIP
    """
    source = Path(path)
    refuse_special(source, ModelFileError)
    if source.is_dir():
        raise ModelFileError(f"{str(source)!r} is a folder; give the model file inside it.")
    if not source.exists():
        raise FileNotFoundError(f"no model file {str(source)!r}.")
    content = source.read_bytes()
    try:
        return _built(content, network)
    except NetworkNeededError as error:
        raise ValueError(f"{str(source)!r} {error}") from None
    except UndefinedClassError as error:
        raise ModelFileError(f"{str(source)!r}: {error}") from None
    except ModelFileError as error:
        raise ModelFileError(f"{str(source)!r} {error}") from None
    except Exception as error:  # files may be invalid in any way
        raise ModelFileError(
            f"{str(source)!r} does not have the contents of a model file of version {VERSION}: "
            f"{error}"
        ) from error


def _built(content: bytes, network: Network | None) -> Any:
    described, arrays = _from_bytes(content)
    if "columns" not in described:
        raise ModelFileError("was written by bayestree 0.1.0; load and save it with version 0.2.0.")
    check_described(described, arrays, len(content))
    check_network(described, arrays, network)
    kind = described["class"]
    # the levels at which nodes split, log 2 but with ``extend``
    levels = [arrays.pop(name) for name in [*arrays] if name.endswith("reach/level")]
    extended = not all(np.allclose(level, LOG2) for level in levels)
    if extended or kind.startswith("LocallyConstantEnsemble"):
        removed = "extend=True" if extended else kind
        raise ModelFileError(
            f"was fitted with {removed}, which this version does not have; use bayestree 0.2.0."
        )
    if described["class"] not in ESTIMATORS:
        raise UndefinedClassError(described["class"])
    found = build(estimator_class(described["class"]), described, arrays, network)
    check_built(found)
    return found


def _to_bytes(described: dict[str, Any], arrays: Arrays) -> bytes:
    text = json.dumps({"version": VERSION, "checksum": BLANK} | described)
    contiguous = {name: np.asarray(values, order="C") for name, values in arrays.items()}
    blank: bytes = safetensors.save(contiguous, {FORMAT: text})
    return blank.replace(BLANK.encode(), _digest(blank), 1)


def _from_bytes(content: bytes) -> tuple[dict[str, Any], Arrays]:
    """Read description and arrays of a file, and verify its version and checksum."""
    described = json.loads(_metadata(content))
    version, checksum = int(described["version"]), str(described["checksum"]).encode()
    if version > VERSION:
        raise ModelFileError(
            f"has version {version}, and bayestree {__version__} reads files up to version "
            f"{VERSION}; upgrade bayestree."
        )
    if _digest(content.replace(checksum, BLANK.encode(), 1) if checksum else content) != checksum:
        raise ModelFileError(
            "was truncated or changed after it was written (the checksum differs)."
        )
    return described, safetensors.load(content)


def _metadata(content: bytes) -> str:
    """Read the package's entry of a safetensors header: 8 bytes of length, then JSON."""
    length = int.from_bytes(content[:8], "little")
    if length > min(len(content) - 8, MAX_HEADER):
        raise ModelFileError("is not a safetensors file, or was truncated.")
    try:
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    except (ValueError, AttributeError, RecursionError):
        raise ModelFileError("is not a safetensors file, or its header was changed.") from None
    if FORMAT not in metadata:
        raise ModelFileError("is a safetensors file, but was not written by bayestree.")
    return str(metadata[FORMAT])


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


# Whether the parts of a file fit together. A valid checksum does not imply valid contents, since
# anyone can write one. These checks make errors appear when the file is read.


def check_described(described: dict[str, Any], arrays: Arrays, n_bytes: int) -> None:
    """Refuse numbers that a file of this size cannot have, and invalid names of features."""
    n_features, names = described["n_features"], described["feature_names"]
    if not (type(n_features) is int and n_features >= 1):
        raise ValueError(f"n_features is {n_features!r}, not a positive integer")
    for column in described["columns"]:  # a ValueError, but codes may be infinite
        json.dumps({key: v for key, v in column.items() if key != "codes"}, allow_nan=False)
    n_classes = sum(map(float, N_CLASSES.findall(json.dumps(described))))  # of all parts
    if 16 * n_features + 4 * n_classes > n_bytes:  # two arrays of features, and names of classes
        raise ValueError(
            f"{n_bytes} bytes cannot hold {n_features} features, {n_classes:.0f} classes"
        )
    for name, values in arrays.items():  # empty ones may have any shape
        if max(*values.shape, 0, math.prod(values.shape[:2])) > n_bytes:
            raise ValueError(f"{name} has the shape {values.shape} in a file of {n_bytes} bytes")
    text = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is not None and not (text and len(set(names)) == len(names) == n_features):
        raise ValueError("feature_names are not one distinct text for each feature")


def check_built(estimator: Any) -> None:
    """Refuse an estimator whose shapes do not agree, or that cannot predict, by any exception."""
    fitted = estimator.fitted_
    for tree in fitted.trees:
        _check_tree(tree, len(estimator.encoding_.feature_names))
        _check_values(tree)
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
        classes, n_outputs = fitted.response.labels, fitted.response.n_outputs
        predict, shape = estimator.predict, (1, n_outputs)[: 1 + (n_outputs > 1)]
        if classes is not None:
            predict, shape = estimator.predict_proba, (1, len(classes))
            if not pd.Index(classes).is_unique or pd.isna(classes).any():
                raise ValueError(f"classes are not distinct: {classes.tolist()}")
        found = np.asarray(predict(given))
        if found.shape != shape or not np.isfinite(found).all():
            raise ValueError(f"the prediction of a row is not {shape[-1]} finite numbers: {found}")


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
    if fitted.sparsity is not None:
        n_trees = fitted.sparsity.columns.shape
        sizes = dict.fromkeys(vars(fitted.sparsity), n_trees) | {"rounding": (2,)}
        _check_shapes("sparsity", fitted.sparsity, sizes)


#: What values must be: a text, and a function that marks those that are.
CONDITIONS: dict[str, tuple[str, Callable[[AnyArray], Any]]] = {
    "any": ("", lambda _: True),
    "finite": ("finite", np.isfinite),
    "real": ("finite and at most 1e150", lambda a: np.abs(a, dtype=float) <= 1e150),  # as in rows
    "positive": ("finite and 0 or more", lambda a: np.isfinite(a) & (a >= 0)),  # or underflowed
    "unit": ("at least 1e-150", lambda a: np.isfinite(a) & (a >= SMALLEST)),
    "above": ("finite and positive", lambda a: np.isfinite(a) & (a > 0)),
    "units": ("finite, with a positive scale", lambda a: (np.abs(a) <= 1e150) & (a[-1] > 0)),
    "simplex": ("probabilities", lambda a: (a >= 0).all() & (abs(a.sum(-1) - 1) < 1e-3)),
}
#: The condition of arrays by name, except of sites of the model, which state their support.
SUPPORTS = {
    **dict.fromkeys(("tree/scale", "tree/unit", "reach/level"), "above"),
    "standard/scale": "unit",
    **dict.fromkeys(("tree/weight", "tree/leaf_rows", "reach/rows"), "positive"),
    **dict.fromkeys(("reach/low", "reach/high", "reach/sample"), "finite"),
    "standard/y": "units",
    "draws": "real",
    "point": "real",
    "tree": "finite",
    "tree/slope": "real",
    "standard": "real",  # all others
}


def _check_values(fitted: FittedTree) -> None:
    """Refuse values that no fit gives, such as NaN; statistics may have any."""
    known = SUPPORTS | {"tree/value": "simplex" if fitted.tree.class_names else "real"}
    for name, site in declared_sites(fitted.posterior.model).items():
        known |= dict.fromkeys((f"draws/{name}", f"point/{name}"), site.support)
    for name, values in tree_arrays(fitted, numbers=True).items():
        said, holds = CONDITIONS[known.get(name) or known.get(name.partition("/")[0], "any")]
        if not np.all(holds(values)):
            raise ValueError(f"{name} has values that are not {said}")


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
            "unit": (d,),
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
        "leaves": many,
        "sample": (0 if reach.sample is None else len(reach.sample), d),
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
