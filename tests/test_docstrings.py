"""The examples in docstrings print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import bayestree

FINDER = doctest.DocTestFinder(exclude_empty=True)


def modules():
    yield bayestree
    for found in pkgutil.walk_packages(bayestree.__path__, "bayestree."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


EXAMPLES = {
    found.name: found
    for module in modules()
    for found in FINDER.find(module, module.__name__, module=module)
    if found.examples
}


def test_examples_are_found():
    assert len(EXAMPLES) >= 35


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    doctest.DocTestRunner(verbose=False).run(EXAMPLES[name], out=said.append)
    assert not said, "".join(said)
