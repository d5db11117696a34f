"""Warnings that point at the caller's line, however deep in the package they arise."""

import sys
import warnings

#: Packages whose frames are not the caller's: ours, and those that call ``fit`` for the caller.
INTERNAL = {"bayestree", "sklearn", "joblib"}


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line outside this package and those that wrap its calls.

    Python shows a warning once for each line that it points at: one that always points at the
    same internal line is seen once per session.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in INTERNAL:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
