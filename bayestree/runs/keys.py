"""The keys of a run file: which there are in which table, and what is wrong with others."""

from collections.abc import Mapping
from typing import Any

from bayestree.runs.nearest import nearest
from bayestree.runs.parameters import OWN, all_parameters, table_of
from bayestree.runs.sections import DataTable, Head, OutputTable, Section
from bayestree.runs.settings import own_message
from bayestree.tables import InputError

SECTIONS: dict[str, type[Section]] = {"data": DataTable, "output": OutputTable}
TABLES = ("data", "model", "inference", "output")
#: Keys beside the parameters of the trees.
OWN_KEYS = {"model": ("card", "tree"), "inference": ("card",)}


def keys_of(table: str) -> tuple[str, ...]:
    """Keys of a table, for any tree; those above all tables are of the table with no name."""
    if table in SECTIONS:
        return tuple(SECTIONS[table].model_fields)
    if table == "":
        return tuple(Head.model_fields)
    return (*OWN_KEYS[table], *(name for name in all_parameters() if table_of(name) == table))


def find_key(name: str, source: str = "--set") -> tuple[str, str]:
    """The table and key that a setting names; the table is empty for keys above all tables.

    Parameters
    ----------
    name : str
        ``"table.key"``, or ``"key"`` where one table only has it.
    source : str
        What begins the message of an error.

    Raises
    ------
    InputError
        If no table has such a key, or two.
    """
    table, dot, key = name.rpartition(".")
    if key in OWN:
        raise InputError(f"{source}: {own_message(key)}")
    homes = {each: keys_of(each) for each in ("", *TABLES)}
    if dot:
        if table not in TABLES:
            raise InputError(f"{source}: no table is named {table!r}{nearest(table, TABLES)}")
        if key not in homes[table]:
            raise InputError(f"{source}: {wrong_key(table, key)}")
        return table, key
    found = [each for each, keys in homes.items() if key in keys]
    if not found:
        every = {key for keys in homes.values() for key in keys}
        raise InputError(f"{source}: no key is named {key!r}{nearest(key, every)}")
    if len(found) > 1:
        which = " or ".join(f"{each}.{key}" for each in found)
        raise InputError(f"{source}: {key!r} is of several tables; write {which}.")
    return found[0], key


def misplaced(name: str, value: Any) -> str:
    """Why a key or table at the top of a file is none, and what to do."""
    known = [*keys_of(""), *(f"[{table}]" for table in TABLES)]
    if isinstance(value, Mapping):
        return f"no table is named [{name}]{nearest(f'[{name}]', known)}"
    homes = [table for table in TABLES if name in keys_of(table)]
    if homes:
        return f"{name!r} is of [{homes[0]}]; move it there."
    return f"no key is named {name!r}{nearest(name, known)}"


def wrong_key(table: str, key: str) -> str:
    """Why a key is none of a table, and what to do."""
    homes = [each for each in TABLES if key in keys_of(each)]
    if homes:
        return f"{key!r} is of [{homes[0]}], not of [{table}]; move it there."
    if key in keys_of(""):
        return f"{key!r} is of no table, not of [{table}]; move it above all tables."
    return f"[{table}] has no key {key!r}{nearest(key, keys_of(table))}"
