"""Paths of a run: relative to the file that names them, inside a folder if one is given."""

import os
from pathlib import Path

from bayestree.tables import InputError


def place(name: str | Path, folder: Path, *, root: Path | None, what: str) -> Path:
    """An absolute path, without links.

    Parameters
    ----------
    name : path
        Relative ones are relative to ``folder``.
    folder : Path
    root : Path, optional
        Folder that the path must not leave, by ``..`` or by a symbolic link either.
    what : str
        What the path is, for messages: ``"run.toml: [data] path"``.

    Raises
    ------
    InputError
        If it is no path, goes round in links, or leaves ``root``.
    """
    try:
        found = (folder / name).resolve()
    except (ValueError, OSError, RuntimeError) as error:
        raise InputError(f"{what} {str(name)!r} is no path: {error}.") from error
    if root is not None and not found.is_relative_to(root.resolve()):
        raise InputError(f"{what} {str(name)!r} is outside of --root {str(root)!r}.")
    return found


def check_links(folder: Path, root: Path) -> None:
    """Refuse a folder to be written to that holds a link to outside of ``root``.

    Raises
    ------
    InputError
    """
    for name, folders, files in os.walk(folder):
        for each in (*folders, *files):
            path = Path(name, each)
            if path.is_symlink():
                place(path, folder, root=root, what="link")


def check_output(path: Path, *, force: bool) -> None:
    """Refuse a file that cannot be written, or that is there and not to be replaced.

    Raises
    ------
    InputError
    """
    if path.exists() and (not force or path.is_dir()):
        raise InputError(f"{str(path)!r} exists; name another file, or add --force.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{str(path)!r} is in a folder that does not exist; make it first.")


def seen_from(path: Path, folder: Path) -> str:
    """An absolute path as written in a file of ``folder``.

    Relative, so that a project can be moved as a whole; absolute, where the two have nothing in
    common but the top of the file system.
    """
    common = Path(os.path.commonpath([path, folder]))
    return str(path) if common == Path(common.anchor) else os.path.relpath(path, folder)
