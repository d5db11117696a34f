"""The nearest right name, for messages about a wrong one."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The end of a message: the nearest right name, or else all of them.

    Parameters
    ----------
    name : str
    known : iterable of str
    otherwise : str, optional
        In place of all names.
    """
    listed = sorted(known)
    plain = {one.strip().casefold(): one for one in listed}
    key = name.strip().casefold()
    close = [key] if key in plain else difflib.get_close_matches(key, plain, n=1, cutoff=0.7)
    if close:
        return f"; did you mean {plain[close[0]]!r}?"
    return f"; it may be one of {', '.join(listed)}." if otherwise is None else otherwise
