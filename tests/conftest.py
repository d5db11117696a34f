"""Compiled code, garbage collection, the global seed and the CPU time of all tests."""

import gc
import importlib
import os
import sys
import time
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


def pytest_configure(config):
    """Forget compiled code that is older than a module of the core, which it may contain.

    numba compiles a function again only if its own file changes.
    """
    if hasattr(config, "workerinput"):  # the process that started it has done so
        return
    root = Path(__file__).parents[1]
    changed = [one.stat().st_mtime for one in root.glob("bayestree/inference/core/*.py")]
    for folder in ("bayestree/inference/core", "tests/inference/core", "tests/statistical"):
        for kept in (root / folder).glob("__pycache__/*.nbi"):
            if kept.stat().st_mtime < max(changed, default=0.0):
                kept.unlink()


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


#: CPU seconds before the current test, those of processes that had ended, and those of the shared
#: fixtures set up for it; the number of tests so far, and that of threads.
clock = {"before": 0.0, "ended": 0.0, "shared": 0.0, "tests": 0, "threads": None}


def ended():
    """CPU seconds of the processes that this one has started and waited for."""
    return sum(os.times()[2:4])


def threads():
    """Threads of torch, if it is in use."""
    return sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None


def pace():
    """CPU seconds of a fixed piece of work in Python and NumPy."""
    start, X = time.process_time(), np.ones((20, 20))
    for _ in range(3000):
        sorted(X @ X[0])
    return time.process_time() - start


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Seed what estimators without a ``random_state`` draw from, those of scikit-learn included.

    Every hundredth test also notes how fast the machine is; see tests/budgets.py.
    """
    np.random.seed(0)  # noqa: NPY002 - the generator that scikit-learn falls back on
    if clock["tests"] % 100 == 0:
        item.user_properties.append(("pace", pace()))
    clock.update(before=time.process_time(), ended=ended(), threads=threads())
    clock.update(shared=0.0, tests=clock["tests"] + 1)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    start = time.process_time()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            clock["shared"] += time.process_time() - start


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    try:
        return (yield)
    finally:
        spent = time.process_time() - clock["before"] - clock["shared"]
        item.user_properties += [("cpu", spent), ("shared", clock["shared"])]
        item.user_properties.append(("processes", ended() - clock["ended"]))
        assert clock["threads"] in (None, threads()), "it leaves other threads to later tests"


@pytest.fixture
def any_k(monkeypatch):
    """Leave-one-out scores of short runs are returned whatever their Pareto k."""
    monkeypatch.setattr(importlib.import_module("bayestree.diagnostics.loo"), "MAX_BAD_SHARE", 1.0)
