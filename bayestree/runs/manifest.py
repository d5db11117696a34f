"""The manifest of a run: time, versions, machine and data."""

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


def new_manifest(file: RunFile, rows: Prepared, command: str | None) -> dict[str, Any]:
    """The manifest of a new run, as plain JSON.

    ``status`` is ``"running"`` until the run is ``"done"``, ``"interrupted"`` or ``"failed"``. If
    it is ``"running"`` and no process writes to the folder, the run was killed.
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
    """Versions of Python, of this package and of those that affect its numbers."""
    packages = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "bayestree": __version__, **packages}


def version_changes(before: Mapping[str, str]) -> str:
    """Packages whose versions have changed, in words; empty if there are none."""
    return ", ".join(
        f"{name} {version} was {before[name]}"
        for name, version in versions().items()
        if before.get(name, version) != version
    )


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
