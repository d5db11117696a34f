"""Classes of a user, which files name "module:Class"."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayestree._utils.wording import InputError


class Own:
    """Objects of a class of the user's own, a dataclass below the type that this annotates.

    A file writes them as ``"module:Class"``, or as a table of this name and of the fields, such as
    ``{name = "my_priors:Ridge", scale = 2.0}``.
    """


class UndefinedClassError(ValueError):
    """A class that a file names is not defined in this process."""

    def __init__(self, name: str) -> None:
        module, _, kind = name.rpartition(":")
        remedy = f"the module {module!r} has no such class"
        if module not in sys.modules:
            remedy = f"import the module {module!r} first (on the command line: --import {module})"
        if not module:
            remedy = f"import the module of {kind!r} first"
        super().__init__(f"the class {name!r} is not defined here: {remedy}.")


def name_of(kind: type) -> str:
    """Return the name of a class in files."""
    return f"{kind.__module__}:{kind.__qualname__}"


def defined(base: type) -> dict[str, type]:
    """Return the classes below one that are defined in this process, by name."""
    found: dict[str, type] = {}
    for kind in base.__subclasses__():
        found |= {name_of(kind): kind} | defined(kind)
    return found


def names_own(value: Any) -> bool:
    """Return whether an entry of a file is "module:Class", or a table with such a name."""
    name = value.get("name") if isinstance(value, Mapping) else value
    return isinstance(name, str) and ":" in name


def own_part(base: type, value: str | Mapping[str, Any]) -> Any:
    """Return the object that an entry of a file describes; ValueError if its class refuses it."""
    fields = {"name": value} if isinstance(value, str) else dict(value)
    name, kinds = str(fields.pop("name", "")), defined(base)
    if name not in kinds:
        raise UndefinedClassError(name)
    try:
        return kinds[name](**{key: _hashable(one) for key, one in fields.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot have the fields {fields}: {error}") from error


def import_module(name: str) -> None:
    """Import a module that the user names, from the working directory if it is nowhere else."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # at the end: no file there hides an installed package
    try:
        importlib.import_module(name)
    except Exception as error:
        raise InputError(f"cannot import {name!r}: {type(error).__name__}: {error}") from error


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
