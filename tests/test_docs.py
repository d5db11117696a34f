"""The site lists everything public; ``make docs`` checks its links and runs its pages."""

import importlib
import re
from pathlib import Path

import pytest

from tests.test_public_api import MODULES

DOCS = Path(__file__).parents[1] / "docs"
TYPES = {"HyperPriors", "Kind", "plots"}  # modules and names of types, without a page


def listed():
    """Full names that the reference lists."""
    for page in sorted((DOCS / "api").glob("*.md")):
        for block in re.findall(r"```\{eval-rst\}\n(.*?)```", page.read_text(), re.DOTALL):
            (module,) = re.findall(r"currentmodule:: (\S+)", block)
            for name in re.findall(r"^   (\w+)$", block, re.MULTILINE):
                yield getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("module", [*MODULES, ".tables"])
def test_the_reference_lists_everything_public(module):
    home = importlib.import_module(f"bayestree{module}")
    pages = list(listed())
    missing = [
        name
        for name in set(home.__all__) - TYPES
        if not any(getattr(home, name) is one for one in pages)
    ]
    assert not missing


def test_no_picture_is_kept_by_hand_but_that_of_the_readme():
    kept = [one for one in (DOCS / "images").iterdir() if one.suffix == ".png"]
    assert [one.name for one in kept] == ["rings.png"]


def test_no_page_has_more_than_900_words():
    copies = {"release-notes", "measured", "contributing", "security"}  # made by the build
    pages = [one for one in [*DOCS.glob("*.md"), *DOCS.glob("*/*.md")] if one.stem not in copies]
    assert len(pages) > 70
    assert not [one.name for one in pages if len(one.read_text(encoding="utf-8").split()) > 900]
