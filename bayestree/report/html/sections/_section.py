"""What a section is."""

from collections.abc import Mapping
from typing import Any, NamedTuple

CLASS_KEY = 20  # classes in a key of colours


class Section(NamedTuple):
    """A part of the report: its place in the page, heading, and what its template is given."""

    name: str
    title: str
    shown: Mapping[str, Any]
