"""Garbage collection and the global seed of all tests."""

import gc
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

#: Words of test files that fork, kill processes, limit them, or make links, as Windows does not.
POSIX = ("tests.forked", "SIGKILL", "RLIMIT", "symlink_to", "chmod")

if sys.platform == "win32":
    collect_ignore = [
        str(path)
        for path in Path(__file__).parent.rglob("test_*.py")
        if any(word in path.read_text(encoding="utf-8") for word in POSIX)
    ]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector from the modules and the tests, which live until the end.

    To search them again and again takes a tenth of the time of the tests.
    """
    gc.disable()
    try:
        collected = yield
    finally:
        gc.enable()
    gc.freeze()
    return collected


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Seed what estimators without a ``random_state`` draw from, those of scikit-learn included."""
    np.random.seed(0)  # noqa: NPY002 - the generator that scikit-learn falls back on


@pytest.fixture
def any_k(monkeypatch):
    """Leave-one-out scores of short runs are returned whatever their Pareto k."""
    monkeypatch.setattr(importlib.import_module("bayestree.diagnostics.loo"), "MAX_BAD_SHARE", 1.0)
