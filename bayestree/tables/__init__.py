"""Tables in files: how they are read, checked, and turned into features and a target."""

from bayestree.tables.chunks import Table, open_table
from bayestree.tables.columns import (
    Column,
    Encoding,
    describe_unknown,
    is_text,
    numbers,
    read_matching_target,
    read_target,
    read_weights,
)
from bayestree.tables.errors import InputError
from bayestree.tables.files import located
from bayestree.tables.invalid import check_complete
from bayestree.tables.survey import Survey

__all__ = [
    "Column",
    "Encoding",
    "InputError",
    "Survey",
    "Table",
    "check_complete",
    "describe_unknown",
    "is_text",
    "located",
    "numbers",
    "open_table",
    "read_matching_target",
    "read_target",
    "read_weights",
]
