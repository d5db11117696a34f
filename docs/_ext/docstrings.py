"""Marks up what docstrings write as it is typed, such as ``tree_`` and ``|w|``.

Texts of parameters are also printed by ``bayestree cards show``, where markup would be in the way;
reStructuredText takes a final underscore for a link, and bars for a substitution.
"""

import re
from typing import Any

from sphinx.application import Sphinx

FITTED = re.compile(r"(?<![\w`:*.\"'])([a-z]\w*_)(?![\w`:*\"'])")
LITERAL = re.compile(r"(``.+?``)")


def mark_up(
    _app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]
) -> None:
    """Set names of fitted attributes and absolute values in a docstring, in place."""
    for at, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "..", ":")):
            parts = LITERAL.split(line)  # every second part is between double backticks
            parts[::2] = [FITTED.sub(r"``\1``", part).replace("|", r"\|") for part in parts[::2]]
            lines[at] = "".join(parts)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx, to run after numpydoc."""
    app.connect("autodoc-process-docstring", mark_up, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
