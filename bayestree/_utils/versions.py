"""Versions of installed packages."""

from functools import cache
from importlib import metadata


@cache
def version(package: str) -> str:
    """The version of a package, whose files are read once."""
    return metadata.version(package)
