"""TOML files and single settings, with every error reported in one line."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

from bayestree._utils.errors import InputError
from bayestree.runs.configuration import BACKSLASHES
from bayestree.tables.files import table_format

MAX_BYTES = 2**20  # bytes
BARE_WORD = re.compile(r"[A-Za-z_./~\\][\w./~:+\\-]*")  # words and paths
#: Kind of file by a key that only it has, and the command that runs it.
KINDS = {"data": ("run file", "run"), "vary": ("sweep file", "sweep")}


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
