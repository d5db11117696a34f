"""URLs of files that do not lie on this machine."""

import re
from pathlib import Path

URL = re.compile(r"([a-z][\w+.:-]+):/+(.*)", re.DOTALL)  # two letters or more: c:/ is a drive


def url_of(path: str | Path) -> str | None:
    """Return the URL that a path states, also as pathlib writes it (``s3:/bucket/rows``)."""
    found = URL.fullmatch(str(path))
    if found is None:
        return None
    protocol, place = found.groups()
    return f"{protocol}://{'/' if protocol == 'file' else ''}{place}"
