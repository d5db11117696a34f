"""JSON schemas (draft 2020-12) of run files, sweep files and cards, for editors of TOML files."""

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from bayestree.estimators.registry import TASKS, TREES, tasks_of
from bayestree.runs import configuration
from bayestree.runs.cards import FOLDERS, CardKind, cards
from bayestree.runs.settings import CARD_KEYS, keys_of, settings_table

Json = dict[str, Any]


class _TomlSchema(GenerateJsonSchema):
    """Schemas without null, which TOML does not have."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> Json:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Json:
        return {
            k: value for k, value in super().default_schema(schema).items() if value is not None
        }


def run_schema() -> Json:
    """Return the schema of a run file.

    If a run names its tree, or the card of a tree, only the parameters of this tree are valid.
    """
    kinds: dict[str, type[BaseModel]] = {
        "data": configuration.DataTable,
        "output": configuration.OutputTable,
        "cluster": configuration.ClusterTable,
    }
    tables = {name: _schema(kind) for name, kind in kinds.items()}
    del tables["output"]["required"]  # the default folder has the name of the run file
    tables |= {kind: _table(kind) for kind in FOLDERS}
    schema = _file("Run file", _schema(configuration.Head), tables)
    return schema | {"required": ["data"], "allOf": [_keys_of_tree(tree) for tree in TREES]}


def card_schema(kind: CardKind) -> Json:
    """Return the schema of a model card or an inference card."""
    table = _table(kind)
    if kind == "model":  # which may state how its tree is fitted
        table["properties"] |= _table("inference")["properties"]
    del table["properties"]["card"]
    values = {name: key for name, key in table["properties"].items() if name != "tree"}
    return _file(f"{kind.capitalize()} card", table, dict.fromkeys(TASKS, _closed(values)))


def sweep_schema() -> Json:
    """Return the schema of a sweep file."""
    values = {"anyOf": [{"type": "array", "minItems": 1}, _schema(configuration.Range)]}
    keys = {table: keys_of(table) for table in CARD_KEYS}
    nested = {t: _names(names) | {"additionalProperties": values} for t, names in keys.items()}
    flat = {name for t, names in keys.items() for key in names for name in (key, f"{t}.{key}")}
    vary = {
        "type": "object",
        "description": "[vary]: parameters, each with a list of values or a range.",
        "properties": nested,
        "additionalProperties": values,
        **_names([*nested, *sorted(flat - {"card"})]),  # card is ambiguous
    }
    sweep = _schema(configuration.SweepTable)
    del sweep["required"]  # the default folder has the name of the sweep file
    return _file("Sweep file", _schema(configuration.SweepHead), {"sweep": sweep, "vary": vary})


def _file(title: str, schema: Json, properties: Json) -> Json:
    return schema | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{title} of bayestree",
        "properties": schema["properties"] | properties,
    }


def _schema(kind: type[BaseModel]) -> Json:
    schema = kind.model_json_schema(schema_generator=_TomlSchema)
    return _inlined(schema, schema.pop("$defs", {}))


def _inlined(value: Any, definitions: Json) -> Any:
    """Return the schema with its references replaced by what they refer to."""
    if isinstance(value, list):
        return [_inlined(each, definitions) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inlined(definitions[value["$ref"].rpartition("/")[2]], definitions)
    return {key: _inlined(each, definitions) for key, each in value.items()}


def _closed(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _names(names: Collection[str]) -> Json:
    return {"type": "object", "propertyNames": {"enum": list(names)}}


def _table(table: CardKind) -> Json:
    """Return the schema of a table with the parameters of all trees."""
    shipped = {"enum": [card.name for card in cards(table)]}
    properties: Json = {
        "card": {
            "description": "Name of a card of the package, or path of a card.",
            "anyOf": [shipped, {"type": "string", "pattern": r"\.toml$|/"}],
        }
    }
    if table == "model":
        properties["tree"] = {"description": "Name of the tree.", "enum": list(TREES)}
    for kind in (settings_table(tree, task, table) for tree in TREES for task in tasks_of(tree)):
        for name, key in _schema(kind)["properties"].items():
            empty = {"description": key.pop("description"), "anyOf": []}
            found = properties.setdefault(name, empty)["anyOf"]
            one = {k: value for k, value in key.items() if k not in ("default", "title")}
            found += [each for each in one.get("anyOf", [one]) if each not in found]
    return _closed(properties) | {"description": f"[{table}]"}


def _keys_of_tree(tree: str) -> Json:
    """Return the condition that a run of this tree has no parameters of other trees."""
    named = [{"properties": {k: {"const": tree}}, "required": [k]} for k in CARD_KEYS["model"]]
    names = {}
    for table in CARD_KEYS:
        kinds = (settings_table(tree, task, table) for task in tasks_of(tree))
        names[table] = _names(sorted({*CARD_KEYS[table]}.union(*(k.model_fields for k in kinds))))
    return {
        "if": {"properties": {"model": {"anyOf": named}}, "required": ["model"]},
        "then": {"properties": names},
    }
