"""Paths of a run: relative to the file that names them, and confined to a root folder."""

import os
from pathlib import Path

from bayestree.runs.toml import BACKSLASHES
from bayestree.tables import InputError


def resolve_path(name: str | Path, folder: Path, *, root: str | Path | None, what: str) -> Path:
    """Return an absolute path, relative to ``folder``, with all symbolic links resolved.

    It must not leave ``root``, neither by ``..`` nor by a link. Messages call the path ``what``.
    """
    if any(letter < " " for letter in str(name)):
        raise InputError(f"{what} {str(name)!r} has a control character: {BACKSLASHES}.")
    try:
        path = (folder / name).resolve()
    except (ValueError, OSError, RuntimeError) as error:
        raise InputError(f"{what} {str(name)!r} is not a valid path: {error}.") from error
    if root is not None and not path.is_relative_to(Path(root).resolve()):
        raise InputError(f"{what} {str(name)!r} is outside --root {str(root)!r}.")
    return path


def check_links(folder: Path, root: str | Path) -> None:
    """Raise InputError if an output folder contains a link to a place outside ``root``."""
    for name, folders, files in os.walk(folder):
        for each in (*folders, *files):
            path = Path(name, each)
            if path.is_symlink():
                resolve_path(path, folder, root=root, what="link")


def relative_path(path: Path, folder: Path) -> str:
    """Return an absolute path as it is written in a file of ``folder``.

    The result is relative, so that a project can be moved as a whole, unless the two paths have
    only the root of the file system in common.
    """
    common = Path(os.path.commonpath([path, folder]))
    return str(path) if common == Path(common.anchor) else os.path.relpath(path, folder)
