"""Parameters and parts of models as plain JSON, and back."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from bayestree import models
from bayestree.inference import GrowthLimits, Stage
from bayestree.models import SoftTree
from bayestree.topology import Topology
from bayestree.tree import Tree

#: What models and settings may be made of. A file can name these and nothing else.
PARTS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        models.Categorical,
        models.FeatureCount,
        models.Flat,
        models.FlatWeights,
        models.GammaProcess,
        models.Gaussian,
        GrowthLimits,
        models.InverseGammaScale,
        models.Laplace,
        models.LiteralGammaProcess,
        models.Network,
        models.Oblique,
        models.Polytope,
        models.Priors,
        models.SmallConvNet,
        models.Spatial,
        Topology,
        Tree,
    )
}


USER = "network"  # the tag of a network that is not the package's own


class NetworkNeededError(ValueError):
    """A file whose network is the user's own, which it names and does not hold."""


def _random_state(state: dict[str, Any]) -> np.random.RandomState:
    made = np.random.RandomState()
    made.set_state(state)
    return made


def _parts() -> dict[str, type]:
    """What a file can name: the parts above, and the settings of every inference method."""
    return {kind.__name__: kind for kind in Stage.__subclasses__()} | PARTS


def _is_part(value: Any) -> bool:
    return _parts().get(type(value).__name__) is type(value)


def _name_part(part: Any) -> list[Any]:
    kind = type(part)
    name = kind.__name__
    if not _is_part(part):
        raise TypeError(f"{name!r} cannot be written to a model file; parts: {[*PARTS]}.")
    return [name, {field.name: getattr(part, field.name) for field in fields(kind)}]


def _make_part(named: list[Any]) -> Any:
    name, values = named
    return _parts()[name](**values)


#: What JSON has no word for: the tag it is written under, how, and how it is read.
TAGS: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: ("tuple", list, tuple),
    Mapping: ("mapping", lambda value: [[*pair] for pair in value.items()], dict),
    np.ndarray: (
        "array",
        lambda value: [value.tolist(), str(value.dtype)],
        lambda pair: np.array(pair[0], dtype=pair[1]),
    ),
    np.random.RandomState: (
        "random_state",
        lambda value: value.get_state(legacy=False),
        _random_state,
    ),
}
READERS = {tag: read for tag, _, read in TAGS.values()} | {"part": _make_part}


def plain(value: Any) -> Any:
    """A parameter or part as JSON; what is neither a list nor a scalar is tagged by its kind.

    Raises
    ------
    TypeError
        For a value of another kind, or a part that is none of the package's own.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, models.Network) and not _is_part(value.build):
        return {USER: getattr(value.build, "__qualname__", type(value.build).__name__)}
    if is_dataclass(value):
        return {"part": plain(_name_part(value))}
    for kind, (tag, write, _) in TAGS.items():
        if isinstance(value, kind):
            return {tag: plain(write(value))}
    raise TypeError(
        f"{value!r} of type {type(value).__name__} cannot be written to a model file; in its place "
        "give the fit plain values, parts of models, or a Tree (the tree_ of a fitted estimator)."
    )


def unplain(value: Any, network: models.Network | None = None) -> Any:
    """The inverse of :func:`plain`; ``network`` stands where a network of the user's stood.

    Raises
    ------
    NetworkNeededError
        If there is such a place, and no network.
    """
    if isinstance(value, list):
        return [unplain(item, network) for item in value]
    if isinstance(value, dict):
        ((tag, inner),) = value.items()
        if tag != USER:
            return READERS[tag](unplain(inner, network))
        if network is None:
            raise NetworkNeededError(
                f"was fitted with a network of the user's, {inner!r}, and holds its parameters "
                f"only: load(path, network=Network({inner}))."
            )
        return network
    return value


def plain_model(model: SoftTree) -> dict[str, Any]:
    """A model without its topology as JSON.

    Raises
    ------
    TypeError
        If a part of it is none of the package's own.
    """
    return {
        "split": plain(model.split),
        "priors": plain(model.priors),
        "leaf": plain(model.leaf),
        "likelihood": model.likelihood,
        "steepness": model.steepness,
    }


def unplain_model(
    spec: dict[str, Any], topology: Topology, network: models.Network | None = None
) -> SoftTree:
    """The inverse of :func:`plain_model`."""
    parts = {name: unplain(spec[name], network) for name in ("split", "priors", "leaf")}
    return SoftTree(
        topology, likelihood=spec["likelihood"], steepness=float(spec["steepness"]), **parts
    )
