"""The parameters of every named tree: which table of a run file each is of, and what it may be."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, create_model

from bayestree import estimators
from bayestree._utils import parameters
from bayestree.runs.fields import NONE
from bayestree.runs.trees import TREES, tasks_of

TableName = Literal["model", "inference"]

#: What is believed: splits, priors, leaves, loss, units, growth limits. All else is how it is
#: fitted.
BELIEVED = frozenset(
    """
    split n_experts n_estimators max_features patch_size image_shape
    prior concentration rate scale_shape shrinkage_shape shrinkage_rate l1 spatial
    pair_cost pair_penalty criterion ccp_alpha leaf leaf_ridge class_weight scaling smoothing
    max_depth max_leaves min_rows min_leaf min_gain
    """.split()  # noqa: SIM905 - a line of words reads better
)
#: Parameters that a run sets itself, and what says them.
OWN = {"random_state": "seed", "verbose": None}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a tree.

    Parameters
    ----------
    name : str
    table : {"model", "inference"}
    type : type
        For pydantic; of what a file may say.
    words : str
        What it may be.
    text : str
        What it is.
    default : object
        Where the tree begins.
    open : bool
        Whether ``"none"`` stands for None.
    """

    name: str
    table: TableName
    type: Any
    words: str
    text: str
    default: Any
    open: bool

    def described(self) -> dict[str, Any]:
        """All of it for machines."""
        return {
            "name": self.name,
            "table": self.table,
            "default": self.written(self.default),
            "values": self.words,
            "description": self.text,
        }

    def value(self, written: Any) -> Any:
        """What the estimator is given for what is written."""
        return None if self.open and written == NONE else written

    def written(self, value: Any) -> Any:
        """The inverse of :meth:`value`, in what TOML has."""
        if value is None:
            return NONE
        return list(value) if isinstance(value, tuple) else value


def table_of(name: str) -> TableName:
    """The table of a run file that a parameter belongs to."""
    return "model" if name in BELIEVED else "inference"


def estimator_of(tree: str, task: str) -> Any:
    """The class of a tree's estimator for a task that it has."""
    return getattr(estimators, str(TREES[tree].of(task)))


@cache
def parameters_of(tree: str, task: str) -> dict[str, Parameter]:
    """Parameters of a tree's estimator that a file can give, in the order of its signature."""
    kind = estimator_of(tree, task)
    begins = {**TREES[tree].start, **TREES[tree].fixed}
    found = {}
    declared = parameters.parameters_of(kind)
    for name, signed in signature(kind).parameters.items():
        if name in OWN:
            continue
        field = declared[name]
        found[name] = Parameter(
            name=name,
            table=cast(TableName, field.group.value),
            type=field.file_type,
            words=field.expected_in_file,
            text=field.description,
            default=begins.get(name, signed.default),
            open=field.optional,
        )
    return found


@cache
def all_parameters() -> dict[str, list[str]]:
    """Every parameter of any tree, and the trees that have it."""
    found: dict[str, list[str]] = {}
    for tree, name in _each():
        if tree not in found.setdefault(name, []):
            found[name].append(tree)
    return found


@cache
def table_type(tree: str, task: str, table: TableName) -> type[BaseModel]:
    """The parameters of one table as a model of pydantic, which refuses all others."""
    fields: dict[str, Any] = {
        name: (one.type, Field(one.default, description=f"{one.text} It may be {one.words}."))
        for name, one in parameters_of(tree, task).items()
        if one.table == table
    }
    return create_model(f"{tree} {task} {table}", __config__=ConfigDict(extra="forbid"), **fields)


def _each() -> Iterator[tuple[str, str]]:
    for tree in TREES:
        for task in tasks_of(tree):
            yield from ((tree, name) for name in parameters_of(tree, task))


def is_random(tree: str, task: str) -> bool:
    """Whether a tree's estimator takes a seed."""
    return "random_state" in signature(estimator_of(tree, task)).parameters


def defaults(tree: str, task: str, table: TableName) -> dict[str, Any]:
    """Values where a tree begins."""
    own = parameters_of(tree, task).values()
    return {one.name: one.default for one in own if one.table == table}
