"""Parameters and parts of models as plain JSON, and back."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from bayestree import models
from bayestree.inference import GrowthLimits
from bayestree.inference.stage import Settings
from bayestree.models import SoftTree
from bayestree.models.likelihoods import LIKELIHOODS
from bayestree.topology import Topology
from bayestree.tree import Tree

#: The public parts of models, and of settings other than ``Settings``; a file can name no others.
KINDS: tuple[type, ...] = (
    *(
        kind
        for kind in map(vars(models).get, models.__all__)
        if isinstance(kind, type) and is_dataclass(kind) and kind is not SoftTree
    ),
    GrowthLimits,
    Topology,
    Tree,
)
PARTS = {kind.__name__: kind for kind in KINDS}
USER = "network"  # tag of a user-defined network


class NetworkNeededError(ValueError):
    """A file names a user-defined network, which it cannot contain."""


class UndefinedNameError(ValueError):
    """A file names a class that is defined outside the package, and not in this process."""

    def __init__(self, role: str, name: str) -> None:
        super().__init__(
            f"the file names the {role} {name!r}, which is not defined here; import it before "
            "loading."
        )


def _random_state(state: dict[str, Any]) -> np.random.RandomState:
    restored = np.random.RandomState()
    restored.set_state(state)
    return restored


def _settings(base: type[Settings] = Settings) -> Iterator[type[Settings]]:
    """All inference methods and searches of splits that are defined in this process."""
    for kind in base.__subclasses__():
        yield kind
        yield from _settings(kind)


def _parts() -> dict[str, type]:
    """Parts by their names; those of the package take precedence."""
    known = sorted(_settings(), key=lambda kind: kind.__module__.startswith("bayestree."))
    return {kind.__name__: kind for kind in known} | PARTS


def _is_part(value: Any) -> bool:
    return _parts().get(type(value).__name__) is type(value)


def _part_to_list(part: Any) -> list[Any]:
    return [type(part).__name__, {one.name: getattr(part, one.name) for one in fields(part)}]


def _part_from_list(named: list[Any]) -> Any:
    name, values = named
    parts = _parts()
    if name not in parts:  # only settings can be from outside
        raise UndefinedNameError("inference method or search", name)
    return parts[name](**values)


#: Types that JSON lacks: their tag, a function that writes them, and one that reads them.
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
READERS = {tag: read for tag, _, read in TAGS.values()} | {"part": _part_from_list}


def plain(value: Any) -> Any:
    """A parameter or part as JSON: lists and scalars, and other types with a tag.

    TypeError for unknown types and for parts that are defined outside the package.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, models.Network) and not _is_part(value.build):
        return {USER: getattr(value.build, "__qualname__", type(value.build).__name__)}
    if _is_part(value):
        return {"part": plain(_part_to_list(value))}
    for kind, (tag, write, _) in TAGS.items():
        if isinstance(value, kind):
            return {tag: plain(write(value))}
    raise TypeError(
        f"{value!r} of the type {type(value).__name__!r} cannot be written to a model file; use "
        "plain values, parts of models, or a Tree (the tree_ of a fitted estimator) instead."
    )


def from_plain(value: Any, network: models.Network | None = None) -> Any:
    """The inverse of :func:`plain`; ``network`` replaces a user-defined network.

    NetworkNeededError if such a network is missing.
    """
    if isinstance(value, list):
        return [from_plain(item, network) for item in value]
    if isinstance(value, dict):
        ((tag, inner),) = value.items()
        if tag != USER:
            return READERS[tag](from_plain(inner, network))
        if network is None:
            raise NetworkNeededError(
                f"was fitted with the user-defined network {inner!r} and contains only its "
                f"parameters: load(path, network=Network({inner}))."
            )
        return network
    return value


def plain_model(model: SoftTree) -> dict[str, Any]:
    """A model without its topology as JSON; TypeError for parts from outside the package."""
    likelihood = model.likelihood
    if LIKELIHOODS.get(likelihood) != likelihood:
        raise TypeError(
            f"the likelihood {likelihood!r} of the type {type(likelihood).__name__!r} cannot be "
            f"written to a model file; use one of {[*LIKELIHOODS]} instead."
        )
    return {
        "split": plain(model.split),
        "priors": plain(model.priors),
        "leaf": plain(model.leaf),
        "likelihood": likelihood,
        "steepness": model.steepness,
        **({"monotone": list(model.monotone)} if any(model.monotone) else {}),
    }


def model_from_plain(
    spec: dict[str, Any], topology: Topology, network: models.Network | None = None
) -> SoftTree:
    """The inverse of :func:`plain_model`."""
    parts = {name: from_plain(spec[name], network) for name in ("split", "priors", "leaf")}
    return SoftTree(
        topology,
        likelihood=spec["likelihood"],
        steepness=float(spec["steepness"]),
        monotone=tuple(spec.get("monotone", ())),
        **parts,
    )
