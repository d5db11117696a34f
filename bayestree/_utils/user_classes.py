"""Classes of the user, which files name "module:Class"."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from bayestree._utils.wording import InputError

_IMPORTS: ContextVar[bool] = ContextVar("imports", default=True)


class Own:
    """Objects of the user's own dataclasses below the type that this annotates.

    A file writes them as ``"module:Class"``, or as a table of this name and of the fields, such as
    ``{name = "my_priors:Ridge", scale = 2.0}``.
    """


class UndefinedClassError(ValueError):
    """A class that a file names is not defined in this process."""

    def __init__(self, name: str) -> None:
        module = name.rpartition(":")[0]
        remedy = f"import {module} first (on the command line: bayestree --import {module} ...)"
        if not module or module in sys.modules:
            remedy = f"{module} has no such prior, leaf or method" if module else "import it first"
        super().__init__(f"the class {name!r} is not defined here; {remedy}.")


def name_of(kind: type) -> str:
    """Return the name of a class in files."""
    return f"{kind.__module__}:{kind.__qualname__}"


def defined(base: type) -> dict[str, type]:
    """Return the classes below one that are defined in this process, by name."""
    found: dict[str, type] = {}
    kinds: list[type] = base.__subclasses__()
    for kind in kinds:
        found |= {name_of(kind): kind} | defined(kind)
    return found


def own_part(base: type, value: str | Mapping[str, Any]) -> Any:
    """Return the object of an entry of a file, whose module is imported; ValueError if it fails."""
    fields = {"name": value} if isinstance(value, str) else dict(value)
    name = str(fields.pop("name", ""))
    if _IMPORTS.get() and ":" in name:
        import_module(name.partition(":")[0])
    kind: Any = defined(base).get(name)
    if kind is None:
        raise UndefinedClassError(name)
    try:
        return kind(**{key: _hashable(one) for key, one in fields.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot have the fields {fields}: {error}") from error


@contextmanager
def without_imports() -> Iterator[None]:
    """Have the block read files without importing what they name."""
    token = _IMPORTS.set(False)
    try:
        yield
    finally:
        _IMPORTS.reset(token)


def import_module(name: str) -> None:
    """Import a module that the user names, from the working directory if it is nowhere else."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # at the end: no file there hides an installed package
    try:
        importlib.import_module(name)
    except Exception as error:
        raise InputError(f"cannot import {name!r}: {type(error).__name__}: {error}") from error


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
