"""Parameters of the named trees, and the types of the tables of a run file that hold them."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, TypeAdapter, create_model

from bayestree import estimators
from bayestree._utils.parameters import RUN, ByName, Parameter, parameters_of
from bayestree.estimators.registry import TREES, tasks_of

TableName = Literal["model", "inference"]
TABLES: tuple[TableName, ...] = ("model", "inference")


def estimator_of(tree: str, task: str) -> Any:
    """Return the estimator class of a tree for a task that it supports."""
    return getattr(estimators, str(TREES[tree].of(task)))


@cache
def tree_parameters(tree: str, task: str) -> dict[str, Parameter]:
    """Return the parameters of a tree that a run file can set, with the defaults of the tree."""
    named = TREES[tree]
    found = {
        name: replace(one, default=named.start.get(name, one.default))
        for name, one in parameters_of(estimator_of(tree, task)).items()
        if one.group != RUN
    }
    return found | {
        name: replace(found[name], default=value, annotation=_only(found[name], value))
        for name, value in named.fixed.items()
    }


def _only(parameter: Parameter, value: Any) -> Any:
    """The type of a parameter of which a tree fixes the value, or the name of a table."""
    kind = parameter.named.get(value)
    if kind is None:
        return Literal[value]
    table: Any = InstanceOf[kind]  # type: ignore[misc,valid-type]
    return Literal[value] | Annotated[table, ByName({value: kind})]


def all_parameters() -> list[Parameter]:
    """Return the parameters of each tree for each task."""
    return [one for t in TREES for task in tasks_of(t) for one in tree_parameters(t, task).values()]


@cache
def trees_by_parameter() -> dict[str, dict[str, list[str]]]:
    """Return the parameters of each table, and for each the trees that have it."""
    found: dict[str, dict[str, list[str]]] = {table: {} for table in TABLES}
    for tree in TREES:
        for task in tasks_of(tree):
            for name, one in tree_parameters(tree, task).items():
                trees = found[one.group].setdefault(name, [])
                trees += [tree] if tree not in trees else []
    return found


def table_for(key: str, parameters: Iterable[Parameter]) -> str:
    """How to write a setting that only tables of a parameter hold; empty if there is none."""
    for one in parameters:
        for name, kind in one.named.items():
            if key in parameters_of(kind):
                return f'{one.name} = {{name = "{name}", {key} = ...}}'
    return ""


@cache
def settings_table(tree: str, task: str, table: TableName) -> type[BaseModel]:
    """Return the type of a table of a run file with the parameters of a tree."""
    fields: dict[str, Any] = {
        name: (one.file_type, Field(one.to_file(one.default), description=one.description))
        for name, one in tree_parameters(tree, task).items()
        if one.group == table
    }
    forbid = ConfigDict(extra="forbid")
    return create_model(f"{tree} {task} {table}", __config__=forbid, **fields)


@cache
def settings_types(task: str) -> TypeAdapter[Any]:
    """Return the union of the settings of all trees for a task, discriminated by ``tree``."""
    kinds = []
    for tree in TREES:
        if task in tasks_of(tree):
            tables: Any = {each: settings_table(tree, task, each) for each in TABLES}
            name: Any = Literal[tree]
            kinds.append(create_model(f"{tree} {task}", tree=name, **tables))
    union: Any = Union[tuple(kinds)]  # noqa: UP007 - the members are computed
    return TypeAdapter(Annotated[union, Field(discriminator="tree")])
