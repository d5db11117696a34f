"""Values for the parameters of a tree, from where they were written to what its estimator takes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from bayestree.runs.cards import Card, cards
from bayestree.runs.nearest import nearest
from bayestree.runs.parameters import (
    OWN,
    TableName,
    all_parameters,
    parameters_of,
    table_of,
    table_type,
)
from bayestree.runs.toml import shown
from bayestree.runs.trees import TREES, tasks_of
from bayestree.tables import InputError


@dataclass(frozen=True)
class Layer:
    """Values from one place; those of a later layer win.

    Parameters
    ----------
    source : str
        The place, as messages name it: ``"card 'svi'"``, ``"--set"``.
    values : mapping
        Parameter to value.
    by_task : mapping
        Task to values in place of those, for that task.
    """

    source: str = field(compare=False)
    values: Mapping[str, Any]
    by_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of_card(cls, card: Card) -> "Layer":
        """What a card says."""
        return cls(f"card {card.name!r}", card.values, card.by_task)

    def says(self) -> bool:
        """Whether there is any value."""
        return bool(self.values) or any(self.by_task.values())

    def of_task(self, task: str) -> dict[str, Any]:
        """The values for a task."""
        return {**self.values, **self.by_task.get(task, {})}


def merged(layers: Iterable[Layer], tree: str, task: str, table: TableName) -> dict[str, Any]:
    """All values of one table that are set for a tree, as its estimator takes them.

    Raises
    ------
    InputError
        If a value is of no parameter of the tree, of the other table, fixed by the tree's name,
        or none that the parameter can take.
    """
    own = parameters_of(tree, task)
    found: dict[str, Any] = {}
    for layer in layers:
        given = layer.of_task(task)
        for name, value in given.items():
            _check_name(layer.source, name, value, tree, task, table)
        _check_values(layer.source, given, tree, task, table)
        found |= {name: own[name].value(value) for name, value in given.items()}
    return found


def suiting(tree: str, task: str) -> list[str]:
    """Names of the shipped inference cards whose values are all parameters of a tree."""
    kind = table_type(tree, task, "inference")
    found = []
    for card in cards("inference"):
        try:
            kind.model_validate(Layer.of_card(card).of_task(task))
        except ValidationError:
            continue
        found.append(card.name)
    return found


def own_message(name: str) -> str:
    """Why a parameter that the run sets itself cannot be set."""
    remedy = f"set {OWN[name]!r} instead" if OWN[name] else "leave it out"
    return f"{name!r} is set by the run itself; {remedy}."


def _check_name(source: str, name: str, value: Any, tree: str, task: str, table: TableName) -> None:
    own = parameters_of(tree, task)
    if name in OWN:
        raise InputError(f"{source}: {own_message(name)}")
    if name not in own:
        told = _unknown(name, tree, task)
        if source.startswith("card ") and table == "inference":
            told = f"{told.rstrip('.')}. Cards of this tree: {', '.join(suiting(tree, task))}."
        raise InputError(f"{source}: {told}")
    if table_of(name) != table:
        raise InputError(
            f"{source}: {name!r} is of [{table_of(name)}], not of [{table}]; move it there."
        )
    fixed = TREES[tree].fixed
    if name in fixed and fixed[name] != value:
        raise InputError(
            f"{source}: {name} = {shown(value)}, but tree {tree!r} is the one with {name} = "
            f"{fixed[name]!r}; name another tree."
        )


def _unknown(name: str, tree: str, task: str) -> str:
    """Why a name is no parameter of a tree, and what to do."""
    others = [other for other in tasks_of(tree) if name in parameters_of(tree, other)]
    if others:
        return f"tree {tree!r} has no parameter {name!r} for {task}; leave it out."
    able = all_parameters().get(name)
    if able is not None:
        return (
            f"tree {tree!r} has no parameter {name!r}, which is of {', '.join(able)}; leave it out."
        )
    return f"tree {tree!r} has no parameter {name!r}{nearest(name, parameters_of(tree, task))}"


def _check_values(
    source: str, given: Mapping[str, Any], tree: str, task: str, table: TableName
) -> None:
    try:
        table_type(tree, task, table).model_validate(dict(given))
    except ValidationError as error:
        name = str(error.errors(include_url=False)[0]["loc"][0])
        words = parameters_of(tree, task)[name].words
        raise InputError(
            f"{source}: {name} = {shown(given[name])}, but it must be {words}."
        ) from error
