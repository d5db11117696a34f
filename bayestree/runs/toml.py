"""TOML as people write it: read with one clear line of error, and single settings."""

import re
import tomllib
from pathlib import Path
from typing import Any

from bayestree.tables import InputError

LARGEST = 2**20  # bytes; what is larger was not written by hand
BARE_WORD = re.compile(r"[A-Za-z_./~][\w./~:+-]*")  # words and paths


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of a TOML file.

    Parameters
    ----------
    path : Path
    what : str
        What it is, for messages: ``"run file"``.

    Raises
    ------
    InputError
        If there is no such file, it is larger than 1 MiB, or is not TOML in UTF-8.
    """
    if not path.is_file():
        reason = "is not a file" if path.exists() else "does not exist"
        raise InputError(f"{what} {str(path)!r} {reason}.")
    if path.stat().st_size > LARGEST:
        raise InputError(f"{what} {str(path)!r} is larger than 1 MiB, which no such file is.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} {str(path)!r} is not TOML: {_reason(error)}.") from error


def read_pair(pair: str) -> tuple[str, Any]:
    """``NAME=VALUE`` with the value as TOML writes it; a bare word is text.

    Raises
    ------
    InputError
        If it is not of this form.
    """
    name, equals, text = (part.strip() for part in pair.partition("="))
    if not (name and equals and text):
        raise InputError(f"--set {pair!r} is not of the form NAME=VALUE.")
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


def shown(value: Any) -> str:
    """A value for a message, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits; deep nesting
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _reason(error: Exception) -> str:
    text = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return text.rstrip(".")
