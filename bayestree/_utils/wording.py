"""Names that can stand within a line, and numbers with their nouns."""

import unicodedata

FIRST_STRONG, POP = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))


def one_line(name: str) -> str:
    """A name on one line: line breaks, tabs and control characters become spaces."""
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


def isolated(name: str) -> str:
    """A name on one line that leaves the order of its surroundings alone.

    Without isolation, a name in Arabic or Hebrew would turn ``name <= 5`` around.
    """
    text = one_line(name)
    if any(unicodedata.bidirectional(letter) in RIGHT_TO_LEFT for letter in text):
        return f"{FIRST_STRONG}{text}{POP}"
    return text


def counted(number: int, noun: str) -> str:
    """A number with its noun, as in ``"2 leaves"``."""
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
