"""What users read: names on one line, numbers with their nouns, nearest names, and warnings."""

import difflib
import sys
import unicodedata
import warnings
from collections.abc import Collection

FIRST_STRONG, POP = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))
#: Packages whose frames are skipped: this one, and packages that call ``fit`` for the user.
INTERNAL = {"bayestree", "sklearn", "joblib"}


def one_line(name: str) -> str:
    """Return a name on one line: line breaks, tabs and control characters become spaces."""
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


def isolated(name: str) -> str:
    """Return a name on one line that does not reorder the text around it.

    Without isolation, an Arabic or Hebrew name would reverse the order of ``name <= 5``.
    """
    text = one_line(name)
    if any(unicodedata.bidirectional(letter) in RIGHT_TO_LEFT for letter in text):
        return f"{FIRST_STRONG}{text}{POP}"
    return text


def quantity(number: float) -> str:
    """Return a number of rows: without decimals if it is whole, otherwise with one."""
    return f"{round(number, 1):,.10g}"


def counted(number: float, noun: str) -> str:
    """Return a number with its noun, such as ``"2 leaves"`` and ``"1,234.5 rows"``."""
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{quantity(number)} {noun if number == 1 else plural}"


def nearest_match(name: str, known: Collection[str], otherwise: str | None = None) -> str:
    """End a message about an unknown name with the nearest known one.

    If none is near, the message ends with ``otherwise``, or with the list of all known names.
    """
    plain = {one.strip().casefold(): one for one in sorted(known)}
    key = name.strip().casefold()
    close = [key] if key in plain else difflib.get_close_matches(key, plain, n=1, cutoff=0.7)
    if close:
        return f"; did you mean {plain[close[0]]!r}?"
    return f"; expected one of {', '.join(sorted(known))}." if otherwise is None else otherwise


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line outside ``INTERNAL``.

    Python shows a warning once per line; one that pointed at a fixed internal line would be shown
    only once per session.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in INTERNAL:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
