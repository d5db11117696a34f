"""Tables of a person's own: reading them, and turning columns into features and a target."""

from bayestree.tables.chunks import ChunkedTable, open_chunks
from bayestree.tables.columns import (
    Column,
    Encoding,
    is_text,
    numbers,
    read_target,
    read_weights,
)
from bayestree.tables.errors import InputError
from bayestree.tables.files import located, read_table
from bayestree.tables.gaps import check_complete
from bayestree.tables.survey import Survey

__all__ = [
    "ChunkedTable",
    "Column",
    "Encoding",
    "InputError",
    "Survey",
    "check_complete",
    "is_text",
    "located",
    "numbers",
    "open_chunks",
    "read_table",
    "read_target",
    "read_weights",
]
