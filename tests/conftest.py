"""Garbage collection of all tests."""

import gc

import pytest


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
