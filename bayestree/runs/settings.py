"""Settings of a run: single values with their origin, and the keys and types of their tables."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import ErrorDetails

from bayestree._utils.parameters import Parameter, parameters_of
from bayestree._utils.wording import nearest_match
from bayestree.estimators.registry import TREES
from bayestree.runs.cards import Card, cards
from bayestree.runs.parameters import (
    all_parameters,
    settings_types,
    table_for,
    tree_parameters,
    trees_by_parameter,
)
from bayestree.runs.toml import abbreviated, resolve_path
from bayestree.tables import MAX_ONE_HOT, InputError


def _resolve(path: Path, info: ValidationInfo) -> Path:
    """Resolve a path relative to the folder of the file, inside the root folder."""
    folder, root = info.context or (Path(), None)
    return resolve_path(path, folder, root=root, what=str(info.field_name))


def _distinct(levels: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse levels that state no order, or that are too many for a feature each."""
    if not 2 <= len(set(levels)) == len(levels) <= MAX_ONE_HOT:
        raise ValueError(
            f"levels must be from 2 to {MAX_ONE_HOT} different texts in ascending order, got "
            f"{abbreviated([*levels])}."
        )
    return levels


Location = Annotated[Path, AfterValidator(_resolve)]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(strict=True, min_length=1)]
Code = Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True)] | Text
Levels = Annotated[tuple[Name, ...], AfterValidator(_distinct)]
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

    path: Location = Field(description="CSV, Parquet or .npy file, relative to the run file.")
    target: Name | Annotated[tuple[Name, ...], Field(min_length=1)] = Field(
        description="Column to predict, or a list of columns of numbers, for the tree cpt."
    )
    task: Literal["auto", "classification", "regression", "survival"] = Field(
        "auto",
        description="auto: survival with an event, regression with an exposure; classification "
        "for text, booleans and few integers.",
    )
    weights: Name | None = Field(None, description="Column of row weights.")
    exposure: Name | None = Field(
        None, description="Column of exposures, for regression with leaf = poisson."
    )
    event: Name | None = Field(
        None, description="Column of events, for survival: false or 0 where the time is censored."
    )
    drop: tuple[Name, ...] = Field((), description="Columns to leave out.")
    levels: dict[Name, Levels] | None = Field(
        None, description="Columns of ordered categories: the categories of each, as text."
    )
    missing_values: Code | tuple[Code, ...] | dict[Name, Code | tuple[Code, ...]] | None = Field(
        None, description="Values that stand for missing ones, or a table of these by column."
    )
    test_fraction: Share = Field(0.2, description="Share of the rows held out for scoring.")
    test: Location | None = Field(None, description="File of held-out rows, instead of a share.")
    storage: Literal["memory", "disk"] = Field(
        "memory", description="disk: read the rows in chunks, never all into memory."
    )

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def stated_task(self) -> str:
        """The task, if it is given or follows from an event or an exposure; else auto."""
        if self.task != "auto" or self.extra is None:
            return self.task
        return "regression" if self.event is None else "survival"

    @property
    def extra(self) -> str | None:
        """Column of the number that the target comes with: the exposure or the event."""
        return self.exposure if self.event is None else self.event


class OutputTable(Section):
    """``[output]``: the folder of the run and the files to write."""

    folder: Location = Field(description="Folder of the run, relative to the run file.")
    draws: Flag = Field(True, description="Write the posterior draws: posterior.nc.")
    report: Flag = Field(True, description="Write report.html.")
    predictions: Flag = Field(True, description="Write predictions of the held-out rows.")


SECTIONS: dict[str, type[Section]] = {"": Head, "data": DataTable, "output": OutputTable}
TABLES = ("data", "model", "inference", "output")
#: Keys of the tables of parameters that are not parameters.
CARD_KEYS = {"model": ("card", "tree"), "inference": ("card",)}
#: Parameters that the run sets itself, and the remedy.
RUN_KEYS = {
    "random_state": "set 'seed' instead",
    "verbose": "remove it",
    "warm_start": "remove it: a run grows a new tree",
}
#: Valid values in words, by the type of pydantic's error.
EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than_equal": "{ge} or more",
    "int_type": "an integer",
    "less_than": "below {lt}",
    "less_than_equal": "{le} or less",
    "list_type": "a list",
    "literal_error": "{expected}",
    "path_type": "a path in quotes",
    "string_too_short": "text that is not empty",
    "string_type": "text",
    "string_unicode": "text in UTF-8",
    "too_short": "a list that is not empty",
    "tuple_type": "a list",
}
Checked = TypeVar("Checked", bound=Section)


@dataclass(frozen=True)
class Setting:
    """One value with its origin, such as ``"run.toml [model]"``, ``"card 'svi'"``, ``"--set"``.

    The table is empty for keys above all tables; a value with a task is for this task only.
    """

    origin: str = field(compare=False)
    table: str
    key: str
    value: Any
    task: str | None = None


def file_settings(parts: Mapping[str, Any], source: str) -> Iterator[Setting]:
    """Yield the settings of a run file, or raise InputError if a table or top key is unknown."""
    for name, value in parts.items():
        if name in keys_of(""):
            yield Setting(source, "", name, value)
        elif name in TABLES and isinstance(value, Mapping):
            yield from table_settings(value, f"{source} [{name}]", name).values()
        elif name in TABLES:
            shown = abbreviated(value)
            raise InputError(f"{source}: {name} must be a table, [{name}], got {shown}.")
        else:
            known = [*keys_of(""), *(f"[{table}]" for table in TABLES)]
            if isinstance(value, Mapping):
                end = nearest_match(f"[{name}]", known)
                raise InputError(f"{source}: no table is named [{name}]{end}")
            raise InputError(f"{source}: {wrong_key('', name, known, 'no key is named')}")


def table_settings(values: Mapping[str, Any], origin: str, table: str) -> dict[str, Setting]:
    """Return the settings of a table by key; None, which TOML does not have, sets nothing."""
    return {k: Setting(origin, table, k, v) for k, v in values.items() if v is not None}


def card_settings(card: Card, table: str | None = None) -> Iterator[Setting]:
    """Yield the settings of a card, of one table or of the table of each parameter."""
    of_inference = trees_by_parameter()["inference"]
    for task, values in [(None, card.values), *card.by_task.items()]:
        for key, value in values.items():
            home = table or ("inference" if key in of_inference else "model")
            yield Setting(f"card {card.name!r}", home, key, value, task)


def keys_of(table: str) -> tuple[str, ...]:
    """Return the keys of a table for any tree; the empty name stands for those above all tables."""
    if table in SECTIONS:
        return tuple(SECTIONS[table].model_fields)
    return (*CARD_KEYS[table], *trees_by_parameter()[table])


def find_key(name: str, origin: str = "--set") -> tuple[str, str]:
    """Return the table and the key of ``"table.key"``, or of a ``"key"`` that one table has."""
    table, dot, key = name.rpartition(".")
    if dot and table not in TABLES:
        raise InputError(f"{origin}: no table is named {table!r}{nearest_match(table, TABLES)}")
    tables = _tables_with(key)
    if dot and table not in tables:
        reason = wrong_key(table, key, keys_of(table), f"[{table}] has no key")
        raise InputError(f"{origin}: {reason}")
    if not tables:
        known = {key for table in ("", *TABLES) for key in keys_of(table)}
        raise InputError(f"{origin}: {wrong_key('', key, known, 'no key is named')}")
    if not dot and len(tables) > 1:
        which = " or ".join(f"{each}.{key}" for each in tables)
        raise InputError(f"{origin}: {key!r} is a key of several tables; write {which}.")
    return table if dot else tables[0], key


def wrong_key(table: str, key: str, known: Collection[str], start: str) -> str:
    """Explain an unknown key of a table: it belongs to another one, or is near a ``known`` name."""
    tables = [each for each in _tables_with(key) if table in ("", *TABLES)]
    if key in RUN_KEYS:
        return f"{key!r} is set by the run itself; {RUN_KEYS[key]}."
    if tables:
        place = f"in [{tables[0]}]" if tables[0] else "above all tables"
        return f"{key!r} belongs {place}; move it there."
    if written := table_for(key, all_parameters()):
        return f"{key!r} belongs in a table: write {written}."
    return f"{start} {key!r}{nearest_match(key, known)}"


def check_section(
    section: type[Checked],
    settings: Mapping[str, Setting],
    where: Path,
    root: str | Path | None,
    table: str = "",
) -> Checked:
    """Validate the settings of a table by key, or raise InputError with the origin of a setting.

    Paths are relative to the file ``where`` and inside ``root``; the message about a missing key
    names the ``table``.
    """
    content = {key: one.value for key, one in settings.items()}
    try:
        return section.model_validate(content, context=(where.parent, root))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        first = min(errors, key=lambda one: one["type"] == "missing")
        key, kind = str(first["loc"][0]), first["type"]
        if kind == "missing":
            place = f"{where.name} [{table}]" if table else where.name
            raise InputError(f"{place} has no {key}; add {key} = ...") from error
        one = settings[key]
        if kind == "extra_forbidden":
            reason = wrong_key(one.table, key, section.model_fields, "unknown key")
        elif kind == "value_error":
            reason = str(first["ctx"]["error"])
        else:
            reason = _wrong_value(key, one.value, [e for e in errors if e["loc"][0] == key])
        raise InputError(f"{one.origin}: {reason}") from error


def _wrong_value(key: str, value: Any, errors: Sequence[ErrorDetails]) -> str:
    """Explain why a value is invalid, given an error for each kind of value that it could have."""
    depth = max(len(one["loc"]) for one in errors)  # the kinds that fit best fail last
    last = [one for one in errors if len(one["loc"]) == depth]
    each = (EXPECTED[one["type"]].format_map(one.get("ctx", {})) for one in last)
    expected = " or ".join(dict.fromkeys(each))
    what = f"each value of {key}" if isinstance(last[0]["loc"][-1], int) else key
    return _must_be(what, expected, value)


def _must_be(what: str, expected: str, value: Any, remedy: str = "") -> str:
    end = nearest_match(str(value), re.findall("""['"](.*?)['"]""", expected), ".")
    return f"{what} must be {expected}, got {abbreviated(value)}{remedy}{end}"


def check_parameters(settings: Iterable[Setting], tree: str, task: str) -> dict[str, Any]:
    """Return the parameters of a tree, settings replacing its defaults; later settings win.

    If a tree cannot take a setting, the InputError names the origin of the setting.
    """
    given = {(one.table, one.key): one for one in settings if one.task in (None, task)}
    try:
        _validate(given.values(), tree, task)
    except ValidationError as error:
        _, table, key, *_ = error.errors(include_url=False, include_input=False)[0]["loc"]
        one = given[str(table), str(key)]
        raise InputError(f"{one.origin}: {_reason(one, tree, task)}") from error
    known = tree_parameters(tree, task)
    found = {name: one.default for name, one in known.items()}
    found |= {key: known[key].from_file(one.value) for (_, key), one in given.items()}
    return found


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
    """Explain why a tree cannot take a setting, and say what to do."""
    known, table, key = tree_parameters(tree, task), setting.table, setting.key
    if key in known and known[key].group == table:
        fixed = key in TREES[tree].fixed
        of_tree, remedy = (f" of tree {tree!r}", "; choose another tree") if fixed else ("", "")
        if reason := _wrong_part(known[key], setting.value):
            return reason
        return _must_be(f"{key}{of_tree}", known[key].expected_in_file, setting.value, remedy)
    if key not in known and (written := table_for(key, known.values())):
        return f"{key!r} belongs in a table: write {written}."
    others = trees_by_parameter()[table].get(key)
    if others is None:
        return wrong_key(table, key, known, f"tree {tree!r} has no parameter")
    if tree in others:
        return f"tree {tree!r} has no parameter {key!r} for {task}; remove it."
    reason = f"tree {tree!r} has no parameter {key!r}, which {', '.join(others)} have; remove it."
    if table == "inference" and (fitting := inference_cards(tree, task)):
        reason += f" Inference cards of {tree!r}: {', '.join(fitting)}."
    return reason


def _wrong_part(parameter: Parameter, value: Any) -> str:
    """What is wrong with a table of settings, if its name is right; else empty."""
    kind = parameter.named.get(str(value.get("name"))) if isinstance(value, Mapping) else None
    if kind is None:
        return ""
    known, where = parameters_of(kind), f"{parameter.name} {value['name']!r}"
    for name, part in value.items():
        if name not in ("name", *known):
            return f"{where} has no setting {name!r}{nearest_match(name, known)}"
        if name in known:
            try:
                TypeAdapter(known[name].file_type).validate_python(part)
            except ValidationError:
                return _must_be(f"{name} of {where}", known[name].expected_in_file, part)
    return ""


def _tables_with(key: str) -> list[str]:
    return [table for table in ("", *TABLES) if key in keys_of(table)]
