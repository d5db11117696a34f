"""Names that fit on a line, and numbers with their nouns."""

import unicodedata

FIRST_STRONG, POP = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))


def one_line(name: str) -> str:
    """A name on one line: line breaks, tabs and control characters become spaces."""
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


def isolated(name: str) -> str:
    """A name on one line that does not reorder the text around it.

    Without isolation, an Arabic or Hebrew name would reverse the order of ``name <= 5``.
    """
    text = one_line(name)
    if any(unicodedata.bidirectional(letter) in RIGHT_TO_LEFT for letter in text):
        return f"{FIRST_STRONG}{text}{POP}"
    return text


def quantity(number: float) -> str:
    """A number of rows: without decimals if it is whole, else with one."""
    return f"{round(number, 1):,.10g}"


def counted(number: float, noun: str) -> str:
    """A number with its noun, as in ``"2 leaves"`` and ``"1,234.5 rows"``."""
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{quantity(number)} {noun if number == 1 else plural}"
