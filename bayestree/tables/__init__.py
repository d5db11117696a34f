"""Tables in files: how they are read, checked, and turned into features and a target."""

from bayestree._utils.wording import InputError
from bayestree.tables.column_types import (
    Booleans,
    Categories,
    Column,
    Dates,
    Numbers,
    Statistics,
    texts,
)
from bayestree.tables.columns import (
    Kind,
    check_complete,
    is_text,
    kind_of,
    numbers,
    read_extra,
    read_matching_target,
    read_target,
    read_weights,
)
from bayestree.tables.dataset import Dataset, Piece, is_dataset
from bayestree.tables.encoding import Encoding, Features, UnknownCategoryWarning
from bayestree.tables.files import Table, located, open_table
from bayestree.tables.learning import MAX_ONE_HOT, Learned, Learner, Observed, target_columns
from bayestree.tables.profiling import DoubtfulColumnsWarning, TableProfile, UnusedColumnsWarning

__all__ = [
    "MAX_ONE_HOT",
    "Booleans",
    "Categories",
    "Column",
    "Dataset",
    "Dates",
    "DoubtfulColumnsWarning",
    "Encoding",
    "Features",
    "InputError",
    "Kind",
    "Learned",
    "Learner",
    "Numbers",
    "Observed",
    "Piece",
    "Statistics",
    "Table",
    "TableProfile",
    "UnknownCategoryWarning",
    "UnusedColumnsWarning",
    "check_complete",
    "is_dataset",
    "is_text",
    "kind_of",
    "located",
    "numbers",
    "open_table",
    "read_extra",
    "read_matching_target",
    "read_target",
    "read_weights",
    "target_columns",
    "texts",
]
