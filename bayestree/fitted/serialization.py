"""What files hold of models and fitted trees: arrays, and their description in JSON."""

from collections.abc import Callable, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from bayestree import models
from bayestree._utils.arrays import AnyArray
from bayestree._utils.user_classes import UndefinedClassError, defined, name_of
from bayestree.diagnostics.polytopes import Reach
from bayestree.diagnostics.sparsity import SparsityPath
from bayestree.fitted.training_rows import Scaling
from bayestree.fitted.tree import FittedTree
from bayestree.inference import GrowthLimits, Posterior, Units
from bayestree.inference.data import UNUSED
from bayestree.inference.stage import Settings
from bayestree.models import Network, SoftTree
from bayestree.models.leaves import Leaf
from bayestree.models.likelihoods import LIKELIHOODS
from bayestree.models.priors import Prior
from bayestree.topology import Topology
from bayestree.tree import Tree

#: Parameters of polytope trees in version 0.2.0 that were removed: former default, and remedy.
#: Predictions of a fitted tree do not depend on them.
REMOVED: dict[str, tuple[Any, str]] = {
    "extend": (False, "remove it"),
    "kl_schedule": ("linear", "remove it"),
    "learn_prior": (False, "remove it, and choose kl_weight or the prior by a validation score"),
    "mode_tree": ("medoid", "remove it; sparsity fits the tree to the predictions of all modes"),
    "n_restarts": (1, "remove it; n_modes fits and keeps several trees"),
    "refine": ("none", "remove it; sparsity fits the tree to the predictions of the posterior"),
    "reset_idle": (False, "remove it; polytope_size() counts the facets of a node"),
    "search_facets": (
        False,
        "remove it; the default and 'mcmc' sample the number of facets, up to n_experts, and "
        "polytope_size() shows it",
    ),
}

OLD_GUIDE = "partially-centred"  # of SVI in version 0.2.0, likewise


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


def _random_state(state: dict[str, Any]) -> np.random.RandomState:
    if not 0 <= state["state"]["pos"] <= 624:  # NumPy would read beyond its memory
        raise ValueError("random_state has a position outside of its words")
    restored = np.random.RandomState()
    restored.set_state(state)
    return restored


def _array(values: Any, name: str) -> AnyArray:
    """Return an array; its text has the width of its values, or stays in objects if this varies."""
    dtype = np.dtype(name)
    if dtype.kind not in "biufmMUO":
        raise ValueError(f"an array has the type {name!r:.50}, not numbers, times or text")
    if dtype.kind != "U":
        return np.array(values, dtype=dtype)
    found = np.array(values, dtype=object)
    lengths = [*map(len, found.flat)]
    wide = len(lengths) * max(lengths, default=0) > 8 * (sum(lengths) + len(lengths))
    return found if wide else found.astype(str)


def _parts() -> dict[str, type]:
    """Return the parts by their names: those of a user by module and class.

    Methods of a user are also known by their class alone, as in files up to version 0.2.0.
    """
    settings = defined(Settings)
    known = settings | defined(Prior) | defined(Leaf)
    own = {name: kind for name, kind in known.items() if not name.startswith("bayestree.")}
    plain = {kind.__name__: kind for kind in own.values() if issubclass(kind, Settings)}
    package = {kind.__name__: kind for name, kind in settings.items() if name not in own}
    return plain | own | package | PARTS


def _name(kind: type) -> str:
    """Return the name of a part in files; empty for other classes."""
    if issubclass(kind, Prior | Leaf | Settings) and not kind.__module__.startswith("bayestree."):
        return name_of(kind)  # also of a class that has been defined again since
    parts = _parts()
    return kind.__name__ if parts.get(kind.__name__) is kind else ""


def _part_from_list(named: list[Any]) -> Any:
    name, values = named
    parts = _parts()
    if name not in parts:
        raise UndefinedClassError(name)
    return parts[name](**known_parameters(parts[name], values))


def known_parameters(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the parameters of a class that were removed from it."""
    kept = {k: v for k, v in values.items() if k not in REMOVED or hasattr(kind, k)}
    return kept | ({"guide": "polytope"} if kept.get("guide") == OLD_GUIDE else {})


#: Types that JSON lacks: their tag, a function that writes them, and one that reads them.
TAGS: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: ("tuple", list, tuple),
    Set: ("set", lambda value: sorted(value, key=repr), set),
    Mapping: ("mapping", lambda value: [[*pair] for pair in value.items()], dict),
    np.ndarray: (
        "array",
        lambda value: [value.tolist(), str(value.dtype)],
        lambda pair: _array(*pair),
    ),
    np.random.RandomState: (
        "random_state",
        lambda value: value.get_state(legacy=False),
        _random_state,
    ),
}
READERS = {tag: read for tag, _, read in TAGS.values()} | {"part": _part_from_list}


def plain(value: Any) -> Any:
    """Write a parameter or part as JSON: lists and scalars, and other types with a tag.

    TypeError for unknown types and for parts that are defined outside the package.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, models.Network) and not _name(type(value.build)):
        return {USER: getattr(value.build, "__qualname__", type(value.build).__name__)}
    if name := _name(type(value)):
        return {
            "part": [name, plain({one.name: getattr(value, one.name) for one in fields(value)})]
        }
    for kind, (tag, write, _) in TAGS.items():
        if isinstance(value, kind):
            return {tag: plain(write(value))}
    raise TypeError(
        f"{value!r} of the type {type(value).__name__!r} cannot be written to a model file; use "
        "plain values, parts of models, or a Tree (the tree_ of a fitted estimator) instead."
    )


def from_plain(value: Any, network: models.Network | None = None) -> Any:
    """Invert :func:`plain`; ``network`` replaces a user-defined network.

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
    """Write a model without its topology as JSON; TypeError for parts from outside the package."""
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
        **({"groups": [list(own) for own in model.groups]} if model.groups else {}),
    }


def model_from_plain(
    spec: dict[str, Any], topology: Topology, network: models.Network | None = None
) -> SoftTree:
    """Invert :func:`plain_model`."""
    parts = {name: from_plain(spec[name], network) for name in ("split", "priors", "leaf")}
    return SoftTree(
        topology,
        likelihood=spec["likelihood"],
        steepness=float(spec["steepness"]),
        monotone=tuple(spec.get("monotone", ())),
        groups=tuple(map(tuple, spec.get("groups", ()))),
        **parts,
    )


Arrays = dict[str, AnyArray]


def describe_tree(fitted: FittedTree) -> dict[str, Any]:
    """Describe what is specific to a tree."""
    return {
        "class_names": list(fitted.tree.class_names),
        "model": plain_model(fitted.posterior.model),
        "inference": fitted.posterior.inference,
        "settings": plain(fitted.posterior.settings),
        "with_extra": fitted.with_extra,
    }


def tree_arrays(fitted: FittedTree, *, numbers: bool) -> Arrays:
    """Return the arrays of a fitted tree, with the units of y if it predicts numbers."""
    posterior, tree, units = fitted.posterior, fitted.tree, fitted.scaling.units
    standard = {"center": units.center, "scale": units.scale}
    if numbers:
        standard["y"] = np.array([units.y_center, units.y_scale])
    reach = fitted.reach
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
        "stream": fitted.stream,
        "sparsity": {} if fitted.sparsity is None else fitted.sparsity.arrays(),
    }
    return {f"{group}/{name}": a for group, named in groups.items() for name, a in named.items()}


def _is_point(posterior: Posterior) -> bool:
    """Return whether the only draw is the point estimate."""
    draws, point = posterior.draws, posterior.point
    alone = posterior.n_chains * posterior.n_draws == 1 and draws.keys() == point.keys()
    return alone and all(np.array_equal(draws[name][0, 0], point[name]) for name in draws)


def tree_from(
    described: dict[str, Any],
    arrays: Arrays,
    feature_names: tuple[str, ...],
    network: Network | None,
) -> FittedTree:
    """Build a fitted tree."""
    standard = group(arrays, "standard")
    of_y = np.asarray(standard.get("y", (0.0, 1.0)))
    units = Units(standard["center"], standard["scale"]).with_y(*map(np.asarray, of_y))
    labels, columns = from_plain(described.get("classes")), np.arange(len(standard["scale"]))
    topology = Topology(arrays["topology/children"])
    model = model_from_plain(described["model"], topology, network)
    tree = group(arrays, "tree")
    names = {
        "feature_names": feature_names,
        "class_names": tuple(described["class_names"]),
        "quantity": model.leaf.quantity,
    }
    point, reach = group(arrays, "point"), group(arrays, "reach")
    sparsity = group(arrays, "sparsity")
    return FittedTree(
        tree=model.split.restored(Topology(tree.pop("children")), tree, names),
        posterior=Posterior(
            model=model,
            draws=group(arrays, "draws") or {name: a[None, None] for name, a in point.items()},
            point=point,
            inference=described["inference"],
            stats=group(arrays, "stats"),
            warmup_draws=group(arrays, "warmup_draws"),
            warmup_stats=group(arrays, "warmup_stats"),
            settings=from_plain(described["settings"]),
        ),
        scaling=Scaling(np.where(standard["scale"] == UNUSED, -1, columns), units, labels),
        reach=Reach(**reach) if reach else None,
        stream=group(arrays, "stream"),
        sparsity=SparsityPath(**sparsity) if sparsity else None,
        with_extra=bool(described.get("with_extra", False)),
    )


def group(arrays: Arrays, name: str) -> Arrays:
    """Return arrays whose names start with ``name/``, without this prefix."""
    start = f"{name}/"
    return {key.removeprefix(start): a for key, a in arrays.items() if key.startswith(start)}
