"""Settings of a run: single values with their origin, and the keys and types of their tables."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bayestree._utils.wording import nearest_match
from bayestree.runs.cards import Card, cards
from bayestree.runs.parameters import settings_types, tree_parameters, trees_by_parameter
from bayestree.runs.toml import abbreviated
from bayestree.runs.trees import TREES
from bayestree.tables import InputError

Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(strict=True, min_length=1)]
Share = Annotated[float, Field(strict=True, ge=0, le=0.9)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]


class Section(BaseModel):
    """A table of known keys; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Head(Section):
    """The keys above all tables."""

    title: Text = Field("", description="Title of the report.")
    question: Text = Field("", description="Question that the run answers, shown in the report.")
    seed: Seed = Field(0, description="Seed of the random numbers.")


class DataTable(Section):
    """``[data]``: the rows and the target."""

    path: Path = Field(description="CSV, Parquet or .npy file, relative to the run file.")
    target: Name = Field(description="Column to predict.")
    task: Literal["auto", "classification", "regression"] = Field(
        "auto", description="auto: classification for text, booleans and few integers."
    )
    weights: Name | None = Field(None, description="Column of row weights.")
    drop: tuple[Name, ...] = Field((), description="Columns to leave out.")
    test_fraction: Share = Field(0.2, description="Share of the rows held out for scoring.")
    test: Path | None = Field(None, description="File of held-out rows, in place of a share.")
    storage: Literal["memory", "disk"] = Field(
        "memory", description="disk: read the rows in chunks, never all into memory."
    )


class OutputTable(Section):
    """``[output]``: the folder of the run and the files to write."""

    folder: Path = Field(description="Folder of the run, relative to the run file.")
    draws: Flag = Field(True, description="Write the posterior draws: posterior.nc.")
    report: Flag = Field(True, description="Write report.html.")
    predictions: Flag = Field(True, description="Write predictions of the held-out rows.")


SECTIONS: dict[str, type[Section]] = {"": Head, "data": DataTable, "output": OutputTable}
TABLES = ("data", "model", "inference", "output")
#: Keys of the tables of parameters that are not parameters.
CARD_KEYS = {"model": ("card", "tree"), "inference": ("card",)}
#: Parameters that the run sets itself, and the remedy.
RUN_KEYS = {"random_state": "set 'seed' instead", "verbose": "remove it"}
Checked = TypeVar("Checked", bound=Section)


@dataclass(frozen=True)
class Setting:
    """One value, and where it was written.

    Parameters
    ----------
    origin : str
        Place that messages name: ``"run.toml [model]"``, ``"card 'svi'"``, ``"--set"``.
    table : str
        Table of the run file; empty for the keys above all tables.
    key : str
    value : object
        As TOML has it.
    task : str, optional
        The only task that the value is for.
    """

    origin: str = field(compare=False)
    table: str
    key: str
    value: Any
    task: str | None = None


def file_settings(parts: Mapping[str, Any], source: str) -> Iterator[Setting]:
    """Yield the settings of a run file.

    Raises
    ------
    InputError
        If a key above all tables is unknown, or a table is something else.
    """
    for name, value in parts.items():
        if name not in TABLES:
            if name not in keys_of(""):
                raise InputError(f"{source}: {_wrong_top(name, value)}")
            yield Setting(source, "", name, value)
        elif not isinstance(value, Mapping):
            raise InputError(
                f"{source}: {name} must be a table, [{name}], got {abbreviated(value)}."
            )
        else:
            yield from table_settings(value, f"{source} [{name}]", name).values()


def table_settings(values: Mapping[str, Any], origin: str, table: str) -> dict[str, Setting]:
    """Return the settings of a table by key; None, which TOML does not have, sets nothing."""
    return {k: Setting(origin, table, k, v) for k, v in values.items() if v is not None}


def card_settings(card: Card, table: str | None = None) -> Iterator[Setting]:
    """Yield the settings of a card, those of single tasks last.

    Parameters
    ----------
    card : Card
    table : str, optional
        Table of all values; by default the table of each parameter.

    Raises
    ------
    InputError
        If a parameter of no table is set, and ``table`` is not given.
    """
    origin = f"card {card.name!r}"
    for task, values in [(None, card.values), *card.by_task.items()]:
        for key, value in values.items():
            yield Setting(origin, table or find_key(key, origin)[0], key, value, task)


def keys_of(table: str) -> tuple[str, ...]:
    """Return the keys of a table for any tree; the empty name stands for those above all tables."""
    if table in SECTIONS:
        return tuple(SECTIONS[table].model_fields)
    return (*CARD_KEYS[table], *trees_by_parameter()[table])


def find_key(name: str, origin: str = "--set") -> tuple[str, str]:
    """Return the table and the key of ``"table.key"``, or of ``"key"`` if it is unambiguous.

    Raises
    ------
    InputError
        If no table has such a key, or two have it.
    """
    table, dot, key = name.rpartition(".")
    if dot:
        if table not in TABLES:
            raise InputError(f"{origin}: no table is named {table!r}{nearest_match(table, TABLES)}")
        if key not in keys_of(table):
            raise InputError(f"{origin}: {wrong_key(table, key)}")
        return table, key
    found = _tables_with(key)
    if len(found) > 1:
        which = " or ".join(f"{each}.{key}" for each in found)
        raise InputError(f"{origin}: {key!r} is a key of several tables; write {which}.")
    if not found:
        known = {key for table in ("", *TABLES) for key in keys_of(table)}
        reason = _set_by_run(key) or f"no key is named {key!r}{nearest_match(key, known)}"
        raise InputError(f"{origin}: {reason}")
    return found[0], key


def wrong_key(table: str, key: str, known: Collection[str] = (), owner: str = "") -> str:
    """Say why a table has no such key, and what to do.

    Parameters
    ----------
    table, key : str
    known : collection of str
        Valid names, by default the keys of the table.
    owner : str
        What has no such key, by default the table.
    """
    homes = [each for each in _tables_with(key) if each != table and table in TABLES]
    if reason := _set_by_run(key):
        return reason
    if homes:
        place = f"in [{homes[0]}]" if homes[0] else "above all tables"
        return f"{key!r} belongs {place}, not in [{table}]; move it there."
    owner = owner or f"[{table}] has no key"
    return f"{owner} {key!r}{nearest_match(key, known or keys_of(table))}"


def check_section(section: type[Checked], settings: Mapping[str, Setting], place: str) -> Checked:
    """Validate the settings of a table, given by key.

    Raises
    ------
    InputError
        If a key is unknown or missing, or a value is invalid. The message begins with the origin
        of the setting; with ``place`` if there is none.
    """
    try:
        return section.model_validate({key: one.value for key, one in settings.items()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0])
        if first["type"] == "missing":
            raise InputError(f"{place} has no {key}; add a line {key} = ...") from error
        one = settings[key]
        if first["type"] == "extra_forbidden":
            reason = wrong_key(one.table, key, section.model_fields, "unknown key")
        else:
            reason = f"{key} {_reworded(first['msg'])}, got {abbreviated(one.value)}."
        raise InputError(f"{one.origin}: {reason}") from error


def check_parameters(settings: Iterable[Setting], tree: str, task: str) -> dict[str, Any]:
    """Return the parameters of a tree, with the settings in place of its defaults.

    Parameters
    ----------
    settings : iterable of Setting
        Settings of ``[model]`` and ``[inference]``; later ones win.
    tree, task : str

    Raises
    ------
    InputError
        If a key is not a parameter of the tree, or of another table, or a value is invalid.
    """
    given = {(one.table, one.key): one for one in settings if one.task in (None, task)}
    try:
        _validate(given.values(), tree, task)
    except ValidationError as error:
        _, table, key, *_ = error.errors(include_url=False, include_input=False)[0]["loc"]
        one = given[str(table), str(key)]
        raise InputError(f"{one.origin}: {_reason(one, tree, task)}") from error
    own = tree_parameters(tree, task)
    found = {name: one.default for name, one in own.items()}
    found |= {key: own[key].from_file(one.value) for (_, key), one in given.items()}
    return {**found, **TREES[tree].fixed}


def inference_cards(tree: str, task: str) -> list[str]:
    """Return the names of the inference cards whose values are all parameters of a tree."""
    found = []
    for card in cards("inference"):
        try:
            _validate(card_settings(card, "inference"), tree, task)
        except ValidationError:
            continue
        found.append(card.name)
    return found


def _validate(settings: Iterable[Setting], tree: str, task: str) -> None:
    content: dict[str, Any] = {"tree": tree, "model": {}, "inference": {}}
    for one in settings:
        if one.task in (None, task):
            content[one.table][one.key] = one.value
    settings_types(task).validate_python(content)


def _reason(setting: Setting, tree: str, task: str) -> str:
    """Say why a tree cannot take a setting, and what to do."""
    own, table, key = tree_parameters(tree, task), setting.table, setting.key
    shown = abbreviated(setting.value)
    if key in own and own[key].group == table:
        if key in TREES[tree].fixed:
            always = f"{key} of tree {tree!r} is always {TREES[tree].fixed[key]!r}"
            return f"{key} = {shown}, but {always}; name another tree."
        return f"{key} must be {own[key].expected_in_file}, got {shown}."
    others = trees_by_parameter()[table].get(key)
    if others is None:
        return wrong_key(table, key, own, f"tree {tree!r} has no parameter")
    if tree in others:
        return f"tree {tree!r} has no parameter {key!r} for {task}; remove it."
    reason = f"tree {tree!r} has no parameter {key!r}, which {', '.join(others)} have; remove it."
    if table == "model":
        return reason
    return f"{reason} Inference cards of {tree!r}: {', '.join(inference_cards(tree, task))}."


def _reworded(message: str) -> str:
    """Turn a message of pydantic, ``"Input should be ..."``, into ``"must be ..."``."""
    if message.startswith("Input is not a valid path"):
        return "must be a path"
    return re.sub(r"^\w+ should", "must", message).partition(" after")[0].replace("tuple", "list")


def _wrong_top(name: str, value: Any) -> str:
    """Say why a key or table at the top of a file is unknown, and what to do."""
    known = [*keys_of(""), *(f"[{table}]" for table in TABLES)]
    if isinstance(value, Mapping):
        return f"no table is named [{name}]{nearest_match(f'[{name}]', known)}"
    homes = _tables_with(name)
    if homes:
        return f"{name!r} belongs in [{homes[0]}]; move it there."
    return f"no key is named {name!r}{nearest_match(name, known)}"


def _tables_with(key: str) -> list[str]:
    return [table for table in ("", *TABLES) if key in keys_of(table)]


def _set_by_run(key: str) -> str | None:
    return f"{key!r} is set by the run itself; {RUN_KEYS[key]}." if key in RUN_KEYS else None
