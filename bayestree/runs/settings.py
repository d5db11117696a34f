"""Settings of a run: values with their origin, checked against the configuration and the tree.

The keys of ``[model]`` and ``[inference]`` are the declared parameters of the estimators, from
which :func:`settings_table` makes a pydantic model for each tree and task.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import ErrorDetails

from bayestree import estimators
from bayestree._utils.parameters import RUN, ByName, Parameter, parameters_of
from bayestree._utils.wording import InputError, nearest_match, warn
from bayestree.estimators._estimator import Estimator
from bayestree.estimators.registry import TREES, tasks_of
from bayestree.fitted.serialization import REMOVED
from bayestree.fitting.settings import foreign_settings
from bayestree.runs.cards import Card, cards
from bayestree.runs.configuration import SECTIONS, KnownKeys, abbreviated

#: Tables of parameters, with their keys that are not parameters.
CARD_KEYS: dict[str, tuple[str, ...]] = {"model": ("card", "tree"), "inference": ("card",)}
TABLES = ("data", *CARD_KEYS, "output", "cluster")
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
    "greater_than": "above {gt}",
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
Checked = TypeVar("Checked", bound=KnownKeys)


def estimator_of(tree: str, task: str) -> type[Estimator]:
    """Return the estimator class of a tree for a task that it supports."""
    return getattr(estimators, str(TREES[tree].of(task)))


@cache
def tree_parameters(tree: str, task: str) -> dict[str, Parameter]:
    """Return the parameters of a tree that a run file can set, with the defaults of the tree."""
    named, kind = TREES[tree], estimator_of(tree, task)
    found = {
        name: replace(one, default=named.start.get(name, one.default))
        for name, one in {**parameters_of(kind), **kind.file_settings()}.items()
        if one.group != RUN
    }
    return found | {
        name: replace(found[name], default=value, annotation=_only(found[name], value))
        for name, value in named.fixed.items()
    }


def _only(parameter: Parameter, value: Any) -> Any:
    """Return the type of a parameter whose value a tree fixes, or the name of a table."""
    kind = parameter.named.get(value)
    if kind is None:
        return Literal[value]
    table: Any = InstanceOf[kind]  # type: ignore[misc,valid-type]
    return Literal[value] | Annotated[table, ByName({value: kind})]


@cache
def settings_table(tree: str, task: str, table: str) -> type[BaseModel]:
    """Return the type of a table of a run file with the parameters of a tree."""
    fields: dict[str, Any] = {
        name: (one.file_type, Field(one.to_file(one.default), description=one.description))
        for name, one in tree_parameters(tree, task).items()
        if one.group == table
    }
    forbid = ConfigDict(extra="forbid")
    return create_model(f"{tree} {task} {table}", __config__=forbid, **fields)


@cache
def trees_by_parameter() -> dict[str, dict[str, list[str]]]:
    """Return the parameters of each table, and for each the trees that have it."""
    found: dict[str, dict[str, list[str]]] = {table: {} for table in CARD_KEYS}
    for tree in TREES:
        for task in tasks_of(tree):
            for name, one in tree_parameters(tree, task).items():
                trees = found[one.group].setdefault(name, [])
                trees += [tree] if tree not in trees else []
    return found


def _table_for(key: str, parameters: Iterable[Parameter]) -> str:
    """Show how to write a setting that only tables of a parameter hold; empty if there is none."""
    for one in parameters:
        for name, kind in one.named.items():
            if key in parameters_of(kind):
                return f'{one.name} = {{name = "{name}", {key} = ...}}'
    return ""


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
        elif name == "cluster" and value == {}:
            raise InputError(f"{source}: [cluster] is empty; set workers or scheduler.")
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
            raise InputError(f"{source}: {_wrong_key('', name, known, 'no key is named')}")


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


def without_former_method(settings: Sequence[Setting]) -> list[Setting]:
    """Leave out, with a warning, what a method lacks that replaces the one of a card or file."""
    named = [one for one in settings if one.key == "inference"]
    if not named:
        return [*settings]
    foreign = foreign_settings(named[-1].value)
    for origin in dict.fromkeys(one.origin for one in named if one.origin != named[-1].origin):
        lost = [one.key for one in settings if one.origin == origin and one.key in foreign]
        settings = [one for one in settings if one.origin != origin or one.key not in foreign]
        if lost:
            method = f"inference = {abbreviated(named[-1].value)} of {named[-1].origin}"
            warn(f"{origin}: left out {', '.join(lost)}, which {method} lacks.", UserWarning)
    return [*settings]


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
        reason = _wrong_key(table, key, keys_of(table), f"[{table}] has no key")
        raise InputError(f"{origin}: {reason}")
    if not tables:
        known = {key for table in ("", *TABLES) for key in keys_of(table)}
        raise InputError(f"{origin}: {_wrong_key('', key, known, 'no key is named')}")
    if not dot and len(tables) > 1:
        which = " or ".join(f"{each}.{key}" for each in tables)
        raise InputError(f"{origin}: {key!r} is a key of several tables; write {which}.")
    return table if dot else tables[0], key


def _wrong_key(table: str, key: str, known: Collection[str], start: str) -> str:
    """Explain an unknown key of a table: it belongs to another one, or is near a ``known`` name."""
    tables = [each for each in _tables_with(key) if table in ("", *TABLES)]
    if key in RUN_KEYS:
        return f"{key!r} is set by the run itself; {RUN_KEYS[key]}."
    if (table, key) == ("cluster", "partitions"):
        return (
            "'partitions' was removed after version 0.2.0, because the numbers of a fit no longer "
            "depend on the workers; remove it."
        )
    if table in ("", "inference") and key in REMOVED:
        return f"{key!r} was removed after version 0.2.0; {REMOVED[key][1]}."
    if tables:
        place = f"in [{tables[0]}]" if tables[0] else "above all tables"
        return f"{key!r} belongs {place}; move it there."
    pairs = ((tree, task) for tree in TREES for task in tasks_of(tree))
    if written := _table_for(key, (p for pair in pairs for p in tree_parameters(*pair).values())):
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
    place = f"{where.name} [{table}]" if table else where.name
    try:
        return section.model_validate(content, context=(where.parent, root))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        first = min(errors, key=lambda one: one["type"] == "missing")
        key, kind = str(first["loc"][0]), first["type"]
        if kind == "missing":
            raise InputError(f"{place} has no {key}; add {key} = ...") from error
        one = settings.get(key, Setting(place, table, key, None))  # a default may be wrong
        if kind == "extra_forbidden":
            reason = _wrong_key(one.table, key, section.model_fields, "unknown key")
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
    wrong = _wrong_setting(given.values(), tree, task)
    if wrong is not None:
        raise InputError(f"{wrong.origin}: {_reason(wrong, tree, task)}")
    known = tree_parameters(tree, task)
    found = {name: one.default for name, one in known.items()}
    for (_, key), one in given.items():
        try:
            found[key] = known[key].from_file(one.value)
        except ValueError as error:  # from a class of the user
            raise InputError(f"{one.origin}: {key}: {error}") from error
    return found


def _wrong_setting(settings: Iterable[Setting], tree: str, task: str) -> Setting | None:
    """Return the first setting that a tree cannot take."""
    given = {(one.table, one.key): one for one in settings if one.task in (None, task)}
    for table in CARD_KEYS:
        content = {key: one.value for (place, key), one in given.items() if place == table}
        try:
            settings_table(tree, task, table).model_validate(content)
        except ValidationError as error:
            key = error.errors(include_url=False, include_input=False)[0]["loc"][0]
            return given[table, str(key)]
    return None


def inference_cards(tree: str, task: str) -> list[str]:
    """Return the names of the inference cards whose values are all parameters of a tree."""
    return [
        card.name
        for card in cards("inference")
        if _wrong_setting(card_settings(card, "inference"), tree, task) is None
    ]


def _reason(setting: Setting, tree: str, task: str) -> str:
    """Explain why a tree cannot take a setting, and say what to do."""
    known, table, key = tree_parameters(tree, task), setting.table, setting.key
    if key in known and known[key].group == table:
        fixed = key in TREES[tree].fixed
        of_tree, remedy = (f" of tree {tree!r}", "; choose another tree") if fixed else ("", "")
        if reason := _wrong_part(known[key], setting.value):
            return reason
        return _must_be(f"{key}{of_tree}", known[key].expected_in_file, setting.value, remedy)
    named = () if key in REMOVED and "inference" in known else known.values()
    if key not in known and (written := _table_for(key, named)):
        return f"{key!r} belongs in a table: write {written}."
    others = trees_by_parameter()[table].get(key)
    if others is None:
        return _wrong_key(table, key, known, f"tree {tree!r} has no parameter")
    if tree in others:
        return f"tree {tree!r} has no parameter {key!r} for {task}; remove it."
    reason = f"tree {tree!r} has no parameter {key!r}, which {', '.join(others)} have; remove it."
    if table == "inference" and (fitting := inference_cards(tree, task)):
        reason += f" Inference cards of {tree!r}: {', '.join(fitting)}."
    return reason


def _wrong_part(parameter: Parameter, value: Any) -> str:
    """Return what is wrong with a table of settings, if its name is right; else empty."""
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
