"""TOML files and single settings, with every error reported in one line."""

import re
import tomllib
from pathlib import Path
from typing import Any

from bayestree.tables import InputError

MAX_BYTES = 2**20  # bytes
BARE_WORD = re.compile(r"[A-Za-z_./~][\w./~:+-]*")  # words and paths


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file of at most 1 MiB; messages name the kind of file (``what``)."""
    name = f"{what} {str(path)!r}"
    if not path.is_file():
        raise InputError(f"{name} {'is not a file' if path.exists() else 'does not exist'}.")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{name} is larger than 1 MiB; expected a short TOML file.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        raise InputError(f"{name} is not valid TOML: it is nested too deeply.") from error
    except ValueError as error:
        raise InputError(f"{name} is not valid TOML: {str(error).rstrip('.')}.") from error


def read_pair(pair: str) -> tuple[str, Any]:
    """Split ``NAME=VALUE`` and parse the value as TOML; a bare word is a string."""
    name, equals, text = (part.strip() for part in pair.partition("="))
    if not (name and equals and text):
        raise InputError(f"--set {pair!r} does not have the form NAME=VALUE.")
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
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
