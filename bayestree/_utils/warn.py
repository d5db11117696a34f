"""Warnings that point at the caller's line."""

import sys
import warnings

#: Packages whose frames are skipped: this one, and those that call ``fit`` for the user.
INTERNAL = {"bayestree", "sklearn", "joblib"}


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line outside ``INTERNAL``.

    Python shows a warning once per line; one that pointed at a fixed internal line would be shown
    only once per session.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in INTERNAL:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
