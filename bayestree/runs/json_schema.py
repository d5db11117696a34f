"""The JSON schemas of run files, sweep files and cards, for editors that know TOML."""

import inspect
from typing import Any

from pydantic import BaseModel, TypeAdapter

from bayestree.runs.cards import cards
from bayestree.runs.keys import keys_of
from bayestree.runs.parameters import Parameter, TableName, parameters_of
from bayestree.runs.schema import TABLES
from bayestree.runs.sections import DataTable, Head, OutputTable
from bayestree.runs.sweep.file import SweepHead, SweepTable
from bayestree.runs.sweep.settings import Range
from bayestree.runs.trees import TASKS, TREES, tasks_of

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def run_schema() -> dict[str, Any]:
    """The schema of a run file.

    Returns
    -------
    dict
        JSON Schema, draft 2020-12. Where a run names its tree, or the card of one, only the
        parameters of this tree are let through.
    """
    head = _section(Head)
    tables = {
        "data": _section(DataTable),
        "model": _table("model"),
        "inference": _table("inference"),
        "output": _section(OutputTable),
    }
    tables["output"].pop("required", None)  # the folder is named after the run file
    return {
        "$schema": DRAFT,
        "title": "Run file of bayestree",
        "type": "object",
        "properties": head["properties"] | tables,
        "required": ["data"],
        "additionalProperties": False,
        "allOf": [_of_tree(tree) for tree in TREES],
    }


def card_schema(kind: TableName) -> dict[str, Any]:
    """The schema of a card, of a model or of an inference."""
    found = _table(kind)
    del found["properties"]["card"]
    own = dict(found["properties"])
    own.pop("tree", None)
    by_task = {"type": "object", "properties": own, "additionalProperties": False}
    return {
        "$schema": DRAFT,
        "title": f"Card of bayestree: {kind}",
        **found,
        "properties": found["properties"] | dict.fromkeys(TASKS, by_task),
    }


def sweep_schema() -> dict[str, Any]:
    """The schema of a sweep file."""
    head, names = _section(SweepHead), {each: list(keys_of(each)) for each in TABLES}
    values = {"anyOf": [{"type": "array", "minItems": 1}, _section(Range)]}
    nested = {
        table: {"type": "object", "additionalProperties": values, "propertyNames": {"enum": own}}
        for table, own in names.items()
    }
    flat = [name for table, own in names.items() for key in own for name in (key, f"{table}.{key}")]
    table = _section(SweepTable)
    table.pop("required")  # the folder is named after the sweep file
    vary = {
        "type": "object",
        "description": "[vary]: each parameter to a list of values, or to a range.",
        "properties": nested,
        "additionalProperties": values,
        "propertyNames": {"enum": [*nested, *sorted({*flat} - {"card"})]},  # of both tables
    }
    return {
        "$schema": DRAFT,
        "title": "Sweep file of bayestree",
        "type": "object",
        "properties": head["properties"] | {"sweep": table, "vary": vary},
        "required": head["required"],
        "additionalProperties": False,
    }


def _section(section: type[BaseModel]) -> dict[str, Any]:
    found = section.model_json_schema()
    return {
        "type": "object",
        "description": (inspect.getdoc(section) or "").replace("``", ""),
        "properties": {name: _plain(each) for name, each in found["properties"].items()},
        "required": found.get("required", []),
        "additionalProperties": False,
    }


def _plain(described: dict[str, Any]) -> dict[str, Any]:
    """A key's schema without what TOML has not: null."""
    kept = {key: value for key, value in described.items() if key != "title" and value is not None}
    several = [each for each in kept.pop("anyOf", []) if each != {"type": "null"}]
    return kept | several[0] if several else kept


def _table(table: TableName) -> dict[str, Any]:
    """All parameters of a table, each with what any tree lets it be."""
    shipped = [card.name for card in cards(table)]
    properties: dict[str, Any] = {
        "card": {
            "description": "Name of a card of the package, or path of one's own.",
            "anyOf": [{"enum": shipped}, {"type": "string", "pattern": r"\.toml$|/"}],
        }
    }
    if table == "model":
        properties["tree"] = {"description": "Name of the tree.", "enum": list(TREES)}
    found: dict[str, list[Parameter]] = {}
    for tree in TREES:
        for task in tasks_of(tree):
            for name, one in parameters_of(tree, task).items():
                if one.table == table:
                    found.setdefault(name, []).append(one)
    properties |= {name: _any(several) for name, several in found.items()}
    return {
        "type": "object",
        "description": f"[{table}]",
        "properties": properties,
        "additionalProperties": False,
    }


def _any(several: list[Parameter]) -> dict[str, Any]:
    """What one of several trees lets a parameter be."""
    kinds: list[dict[str, Any]] = []
    for one in several:
        kind = TypeAdapter(one.type).json_schema()
        kinds += [each for each in kind.get("anyOf", [kind]) if each not in kinds]
    texts = list(dict.fromkeys(one.text for one in several if one.text))
    return {"description": texts[0] if texts else "", "anyOf": kinds}


def _of_tree(tree: str) -> dict[str, Any]:
    """That a run which names this tree has none but its parameters."""
    names: dict[str, set[str]] = {"model": {"card", "tree"}, "inference": {"card"}}
    for task in tasks_of(tree):
        for name, one in parameters_of(tree, task).items():
            names[one.table].add(name)
    named = {
        "anyOf": [
            {"properties": {key: {"const": tree}}, "required": [key]} for key in ("tree", "card")
        ]
    }
    return {
        "if": {"properties": {"model": named}, "required": ["model"]},
        "then": {
            "properties": {
                table: {"propertyNames": {"enum": sorted(each)}} for table, each in names.items()
            }
        },
    }
