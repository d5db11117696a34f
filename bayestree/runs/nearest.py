"""The nearest right name, for messages about a wrong one."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message: the nearest right name, or all of them."""
    listed = sorted(known)
    close = difflib.get_close_matches(name, listed, n=1, cutoff=0.7)
    return f"; did you mean {close[0]!r}?" if close else f"; it may be one of {', '.join(listed)}."
