"""JSON schemas (draft 2020-12) of run files, sweep files and cards, for editors of TOML files."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from bayestree.runs.cards import Kind, cards
from bayestree.runs.parameters import TABLES, settings_table
from bayestree.runs.settings import CARD_KEYS, DataTable, Head, OutputTable, keys_of
from bayestree.runs.sweep.file import SweepHead, SweepTable
from bayestree.runs.sweep.settings import Range
from bayestree.runs.trees import TASKS, TREES, tasks_of

Json = dict[str, Any]


class _TomlSchema(GenerateJsonSchema):
    """Schemas without null, which TOML does not have, and without titles of keys."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> Json:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Json:
        found = super().default_schema(schema)
        return {key: value for key, value in found.items() if value is not None}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def run_schema() -> Json:
    """Return the schema of a run file.

    If a run names its tree, or the card of a tree, only the parameters of this tree are valid.
    """
    head, output = _schema(Head), _schema(OutputTable)
    del output["required"]  # the default folder has the name of the run file
    found = _file(
        "Run file",
        head | {"required": ["data"]},
        data=_schema(DataTable),
        model=_table("model"),
        inference=_table("inference"),
        output=output,
    )
    return found | {"allOf": [_keys_of_tree(tree) for tree in TREES]}


def card_schema(kind: Kind) -> Json:
    """Return the schema of a card of a model or of an inference."""
    table = _table(kind)
    del table["properties"]["card"]
    values = {name: key for name, key in table["properties"].items() if name != "tree"}
    by_task = {"type": "object", "properties": values, "additionalProperties": False}
    return _file(f"Card of a {kind}", table, **dict.fromkeys(TASKS, by_task))


def sweep_schema() -> Json:
    """Return the schema of a sweep file."""
    keys = {table: list(keys_of(table)) for table in TABLES}
    flat = {name for table in TABLES for key in keys[table] for name in (key, f"{table}.{key}")}
    values = {"anyOf": [{"type": "array", "minItems": 1}, _schema(Range)]}
    nested = {
        table: {"type": "object", "additionalProperties": values, "propertyNames": {"enum": names}}
        for table, names in keys.items()
    }
    vary = {
        "type": "object",
        "description": "[vary]: parameters, each with a list of values or a range.",
        "properties": nested,
        "additionalProperties": values,
        "propertyNames": {"enum": [*nested, *sorted(flat - {"card"})]},  # card is ambiguous
    }
    sweep = _schema(SweepTable)
    del sweep["required"]  # the default folder has the name of the sweep file
    return _file("Sweep file", _schema(SweepHead), sweep=sweep, vary=vary)


def _file(title: str, schema: Json, **properties: Json) -> Json:
    return schema | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{title} of bayestree",
        "properties": schema["properties"] | properties,
    }


def _schema(kind: type[BaseModel]) -> Json:
    return kind.model_json_schema(schema_generator=_TomlSchema)


def _table(table: Kind) -> Json:
    """Return the schema of a table with the parameters of all trees."""
    shipped = [card.name for card in cards(table)]
    properties: Json = {
        "card": {
            "description": "Name of a card of the package, or path of a card.",
            "anyOf": [{"enum": shipped}, {"type": "string", "pattern": r"\.toml$|/"}],
        }
    }
    if table == "model":
        properties["tree"] = {"description": "Name of the tree.", "enum": list(TREES)}
    for kind in (settings_table(tree, task, table) for tree in TREES for task in tasks_of(tree)):
        for name, key in _schema(kind)["properties"].items():
            text = key.pop("description")
            key.pop("default")
            found = properties.setdefault(name, {"description": text, "anyOf": []})["anyOf"]
            found += [each for each in key.get("anyOf", [key]) if each not in found]
    return {
        "type": "object",
        "description": f"[{table}]",
        "properties": properties,
        "additionalProperties": False,
    }


def _keys_of_tree(tree: str) -> Json:
    """Return the condition that a run of this tree has no parameters of other trees."""
    named = [
        {"properties": {key: {"const": tree}}, "required": [key]} for key in CARD_KEYS["model"]
    ]
    keys = {
        table: {*CARD_KEYS[table]}.union(
            *(settings_table(tree, task, table).model_fields for task in tasks_of(tree))
        )
        for table in TABLES
    }
    names = {table: {"propertyNames": {"enum": sorted(each)}} for table, each in keys.items()}
    return {
        "if": {"properties": {"model": {"anyOf": named}}, "required": ["model"]},
        "then": {"properties": names},
    }
