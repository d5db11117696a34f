"""Searches for hyperplanes with their settings, for ``ObliqueTreeClassifier(splitter=...)``.

They belong to trees from the literature, which build on this package, and are imported when they
are first used.
"""

import importlib
from typing import Any

_SEARCHES = ("CO2", "OC1", "SEARCHES", "CartLC", "Guide", "HHCart")


def __getattr__(name: str) -> Any:
    if name in _SEARCHES:
        return importlib.import_module("bayestree.estimators.registry").method(name)
    raise AttributeError(f"module 'bayestree.inference.splitters.searches' has no {name!r}")
