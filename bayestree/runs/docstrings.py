"""What the docstrings of the estimators say of their parameters."""

import inspect
import re

PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+$|\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^(\w+(?:, \w+)*)(?: : [^\n]*)?\n((?:[ ]{4}[^\n]*\n|\n)*)", re.MULTILINE)
ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


def described(kind: type) -> dict[str, str]:
    """One line of text for each parameter that the class's docstring describes.

    Parameters
    ----------
    kind : type
        With a docstring in NumPy's style; names that share an entry share its text.
    """
    section = PARAMETERS.search(inspect.getdoc(kind) or "")
    if section is None:
        return {}
    found: dict[str, str] = {}
    for entry in ENTRY.finditer(section[1] + "\n"):
        text = ROLE.sub(r"\1", " ".join(entry[2].split())).replace("``", "")
        found |= dict.fromkeys(entry[1].split(", "), text)
    return found
