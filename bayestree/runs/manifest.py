"""What a run folder says of its run: when, with what, on which data."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from bayestree import __version__
from bayestree.runs.rows import Prepared
from bayestree.runs.schema import RunFile

FORMAT = 1
PACKAGES = ("torch", "pyro-ppl", "numpy", "scipy", "scikit-learn", "pandas", "arviz", "safetensors")


def begun(file: RunFile, rows: Prepared, command: str | None) -> dict[str, Any]:
    """The manifest of a run that begins.

    Parameters
    ----------
    file : RunFile
    rows : Prepared
    command : str, optional
        What was typed.

    Returns
    -------
    dict
        Plain JSON. ``status`` is ``"running"`` until the run is ``"done"``, ``"interrupted"`` or
        ``"failed"``: a folder that says ``"running"`` and that no process writes to was killed.
    """
    return {
        "format": FORMAT,
        "status": "running",
        "command": command,
        "seed": file.seed,
        "data": {name: dict(value) for name, value in rows.fingerprints.items()},
        "versions": versions(),
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "started": now(),
        "ended": None,
        "resumed": 0,
        "stages": [],
        "seconds": {},
    }


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of those that its numbers hang on."""
    own = {"python": platform.python_version(), "bayestree": __version__}
    return own | {name: version(name) for name in PACKAGES}


def changed(was: Mapping[str, str]) -> str:
    """Packages whose versions are others than they were, in words; empty where there are none."""
    found = versions()
    return ", ".join(
        f"{name} {is_now} was {was[name]}"
        for name, is_now in found.items()
        if was.get(name, is_now) != is_now
    )


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
