"""Parameters of the named trees, and the types of the tables of a run file that hold them."""

from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from bayestree import estimators
from bayestree._utils.parameters import RUN, Parameter, parameters_of
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
        name: replace(found[name], default=value, annotation=Literal[value])
        for name, value in named.fixed.items()
    }


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
