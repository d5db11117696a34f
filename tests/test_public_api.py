"""Public names and their signatures change only on purpose.

``python -m tests.test_public_api`` records those of today in ``tests/data/public_api.txt``.
"""

import importlib
import inspect
from pathlib import Path
from typing import get_origin, is_typeddict

RECORDED = Path(__file__).parent / "data" / "public_api.txt"
MODULES = (
    "",
    ".diagnostics",
    ".inference",
    ".models",
    ".models.leaves",
    ".models.priors",
    ".plots",
    ".testing",
)


def public_names():
    """One line for each public name: functions and methods with their parameters and defaults."""
    found = []
    for module in (f"bayestree{name}" for name in MODULES):
        home = importlib.import_module(module)
        for name in sorted(home.__all__):
            found += described(f"{module}.{name}", getattr(home, name))
    return "".join(f"{line}\n" for line in found)


def described(name, value):
    yield f"{name}{signature(value)}" if callable(value) else name
    if inspect.isclass(value):
        for member in sorted(methods(value)):
            found = inspect.getattr_static(value, member)
            plain = found.__func__ if isinstance(found, classmethod | staticmethod) else found
            yield f"{name}.{member}{signature(plain, 1) if inspect.isroutine(plain) else ''}"


def methods(kind):
    """Public methods and properties of a class, and of its bases in the package."""
    ours = [one for one in kind.__mro__ if one.__module__.partition(".")[0] == "bayestree"]
    return {
        name
        for one in ours
        for name, value in vars(one).items()
        if not name.startswith(("_", "set_", "test_"))
        and (inspect.isroutine(value) or isinstance(value, property))
    }


def signature(call, first=0):
    """Parameters with their defaults, from the ``first`` on: those of methods without ``self``."""
    if is_typeddict(call) or get_origin(call):  # a signature that depends on the version of Python
        return ""
    try:
        parameters = [*inspect.signature(call).parameters.values()][first:]
    except (TypeError, ValueError):  # such as exceptions, whose signature is that of a C function
        return ""
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    return str(inspect.Signature(plain))


def test_public_names_are_those_recorded():
    recorded, found = RECORDED.read_text().splitlines(), public_names().splitlines()
    gone, new = (sorted({*a} - {*b}) for a, b in ((recorded, found), (found, recorded)))
    remedy = "record them by: python -m tests.test_public_api, and say so in the changelog"
    assert (gone, new) == ([], []), f"if this is intended, {remedy}"


if __name__ == "__main__":
    RECORDED.write_text(public_names())
