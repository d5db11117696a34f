"""TOML files, single settings and paths of a run, with every error reported in one line."""

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

from bayestree._utils.errors import InputError
from bayestree.tables.files import table_format

MAX_BYTES = 2**20  # bytes
BARE_WORD = re.compile(r"[A-Za-z_./~\\][\w./~:+\\-]*")  # words and paths
#: Kind of file by a key that only it has, and the command that runs it.
KINDS = {"data": ("run file", "run"), "vary": ("sweep file", "sweep")}
BACKSLASHES = (
    "in double quotes a backslash starts an escape, such as \\t for a tab; write paths with "
    "forward slashes, or in single quotes"
)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file of at most 1 MiB; messages name the kind of file (``what``)."""
    name = f"{what} {str(path)!r}"
    if not path.is_file():
        raise InputError(f"{name} {'is not a file' if path.exists() else 'does not exist'}.")
    if table_format(path):
        command = f"bayestree fit {shlex.quote(str(path))} --target COLUMN --out FOLDER"
        raise InputError(
            f"{str(path)!r} is a table, not a {what}; fit a tree to it by `{command}`."
        )
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{name} is larger than 1 MiB; expected a short TOML file.")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        raise InputError(f"{name} is not valid TOML: it is nested too deeply.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not valid TOML: it is not text in UTF-8.") from error
    except ValueError as error:
        reason = str(error).rstrip(".")
        remedy = f"; {BACKSLASHES}" if re.search("Unescaped|hex value", reason) else ""
        raise InputError(f"{name} is not valid TOML: {reason}{remedy}.") from error
    for key, (kind, verb) in KINDS.items():
        if key in found and kind != what:
            command = f"bayestree {verb} {shlex.quote(str(path))}"
            raise InputError(f"{str(path)!r} is a {kind}, not a {what}; run it by `{command}`.")
    return found


def read_pair(pair: str) -> tuple[str, Any]:
    """Split ``NAME=VALUE`` and parse the value as TOML; a bare word is a string."""
    name, equals, text = (part.strip() for part in pair.partition("="))
    if not (name and equals and text):
        raise InputError(f"--set {pair!r} does not have the form NAME=VALUE.")
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        text = text.strip('"') if "\\" in text else text  # the path of a file under Windows
        found = {"value": text} if BARE_WORD.fullmatch(text) else {}
    if found.keys() != {"value"}:
        raise InputError(
            f"--set {pair!r}: {text!r} is not a TOML value; write a number, true, false, "
            '"text" or [a list].'
        )
    return name, found["value"]


def abbreviated(value: Any) -> str:
    """Return the ``repr`` of a value for a message, cut after 80 characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or deep nesting
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


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
