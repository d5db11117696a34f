"""From the content of a run file to its checked sections."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from bayestree.runs.cards import Card, find_card
from bayestree.runs.keys import (
    OWN_KEYS,
    SECTIONS,
    TABLES,
    find_key,
    keys_of,
    misplaced,
    wrong_key,
)
from bayestree.runs.nearest import nearest
from bayestree.runs.parameters import TableName
from bayestree.runs.paths import check_links, place
from bayestree.runs.sections import DataTable, Head, OutputTable, Section
from bayestree.runs.settings import Layer
from bayestree.runs.toml import shown
from bayestree.runs.trees import TREES, tasks_of
from bayestree.tables import InputError

DEFAULT_TREE = "cpt"
Parts = Mapping[str, Any]
Checked = TypeVar("Checked", bound=Section)


def read_parts(
    parts: Parts,
    where: Path,
    sets: Iterable[tuple[str, Any]],
    root: Path | None,
    *,
    source: str = "--set",
) -> dict[str, Any]:
    """The fields of a run file, by the content of one.

    Parameters
    ----------
    parts : mapping
    where : Path
        The file, which need not be there.
    sets : iterable of (str, value)
        ``"table.key"`` or ``"key"``, and a value in place of the file's.
    root : Path, optional
    source : str
        Where ``sets`` was written, for messages.

    Raises
    ------
    InputError
        For a table or key that is not known, a value that it cannot have, a card that cannot be
        read, a path outside of ``root``.
    """
    content, layers = _with_sets(_by_table(parts, where.name), sets, source)
    cards: dict[TableName, Card | None] = {
        "model": _card(content["model"], "model", where, root),
        "inference": _card(content["inference"], "inference", where, root),
    }
    named = {} if cards["model"] is None else tree_of_card(cards["model"])
    if "tree" in content["model"]:
        named[f"{where.name}: [model]"] = content["model"]["tree"]
    return {
        **checked(Head, content[""], where.name, "").model_dump(),
        "data": _data(content["data"], where, root),
        "tree": one_tree(named),
        "model": _layers("model", content, cards, layers, (where.name, source)),
        "inference": _layers("inference", content, cards, layers, (where.name, source)),
        "output": _output(content["output"], where, root),
    }


def checked(section: type[Checked], values: Parts, source: str, table: str) -> Checked:
    """A section of a file, every key of which is known.

    Parameters
    ----------
    section : type
    values : mapping
    source, table : str
        The file, and the table in it, for messages.

    Raises
    ------
    InputError
        If a value is missing, or none that the key can have.
    """
    try:
        return section.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        at = f"{source}: [{table}]" if table else f"{source}:"
        if first["type"] == "missing":
            raise InputError(f"{at} has no {name}; add a line {name} = ...") from error
        reason = first["msg"].replace("Input", "it", 1).replace("Tuple", "it", 1)
        reason = reason.replace("valid tuple", "list")  # as TOML calls it
        raise InputError(f"{at} {name} = {shown(values[name])}, but {reason}.") from error


def check_task(tree: str, task: str) -> None:
    """Refuse a task that a tree has no estimator of."""
    if task not in tasks_of(tree):
        able = ", ".join(name for name, other in TREES.items() if other.of(task))
        raise InputError(f"tree {tree!r} is of classes only; for {task} take {able}.")


def tree_of_card(card: Card) -> dict[str, Any]:
    """The tree that a card names, by the card; empty where it names none."""
    return {} if card.tree is None else {f"card {card.name!r}": card.tree}


def one_tree(named: Mapping[str, Any]) -> str:
    """The tree that all of several places name, the default where there is none.

    Raises
    ------
    InputError
        If one of them names no tree, or two name different ones.
    """
    for source, name in named.items():
        if not (isinstance(name, str) and name in TREES):
            raise InputError(f"{source}: no tree is named {shown(name)}{nearest(str(name), TREES)}")
    if len(set(named.values())) > 1:
        told = " and ".join(f"{source} names {name!r}" for source, name in named.items())
        raise InputError(f"two trees at once: {told}; take one.")
    return next(iter(named.values()), DEFAULT_TREE)


def _by_table(parts: Parts, source: str) -> dict[str, dict[str, Any]]:
    """The content by table; keys above all tables are of the table with no name."""
    content: dict[str, dict[str, Any]] = {each: {} for each in ("", *TABLES)}
    for name, value in parts.items():
        if name not in TABLES:
            if name not in keys_of(""):
                raise InputError(f"{source}: {misplaced(name, value)}")
            content[""][name] = value
        elif not isinstance(value, Mapping):
            raise InputError(
                f"{source}: {name} = {shown(value)}, but it must be a table, [{name}]."
            )
        else:
            content[name] = {key: each for key, each in value.items() if each is not None}
    for table in TABLES:
        for key in content[table]:
            if key not in keys_of(table) and table in SECTIONS:
                raise InputError(f"{source}: {wrong_key(table, key)}")
    return content


def _with_sets(
    content: dict[str, dict[str, Any]], sets: Iterable[tuple[str, Any]], source: str
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The content with single settings put in, and those that are parameters by their table."""
    content = {table: dict(values) for table, values in content.items()}
    parameters: dict[str, dict[str, Any]] = {table: {} for table in OWN_KEYS}
    for name, value in sets:
        table, key = find_key(name, source)
        if table in OWN_KEYS and key not in OWN_KEYS[table]:
            parameters[table][key] = value
        else:
            content[table][key] = value
            if (table, key) == ("data", "test"):
                content[table].pop("test_fraction", None)
            if (table, key) == ("data", "test_fraction"):
                content[table].pop("test", None)
    return content, parameters


def _card(values: Parts, kind: TableName, where: Path, root: Path | None) -> Card | None:
    name = values.get("card")
    if name is None:
        return None
    source = f"{where.name}: [{kind}] "
    if not isinstance(name, str | Path):
        raise InputError(f"{source}card = {shown(name)}, but it must be a name or a path.")
    return find_card(str(name), kind, folder=where.parent, root=root, where=source)


def _layers(
    table: TableName,
    content: Mapping[str, Parts],
    cards: Mapping[TableName, Card | None],
    sets: Mapping[str, Parts],
    sources: tuple[str, str],
) -> tuple[Layer, ...]:
    """The card, the file and the single settings, as far as they say anything."""
    own = {key: each for key, each in content[table].items() if key not in OWN_KEYS[table]}
    card = cards[table]
    found = [] if card is None else [Layer.of_card(card)]
    file, setting = sources
    found += [Layer(f"{file}: [{table}]", own), Layer(setting, sets[table])]
    return tuple(layer for layer in found if layer.says())


def _data(values: Parts, where: Path, root: Path | None) -> Section:
    source = f"{where.name}: [data]"
    if not values:
        raise InputError(f"{where.name}: the table [data] is missing; it names path and target.")
    if "test" in values:
        if "test_fraction" in values:
            raise InputError(f"{source} has both test and test_fraction; leave one out.")
        values = {**values, "test_fraction": 0.0}
    placed = _placed(values, ("path", "test"), source, where, root)
    return checked(DataTable, placed, where.name, "data")


def _output(values: Parts, where: Path, root: Path | None) -> Section:
    values = {"folder": Path("results", where.stem), **values}
    placed = _placed(values, ("folder",), f"{where.name}: [output]", where, root)
    found = checked(OutputTable, placed, where.name, "output")
    if root is not None:
        check_links(found.folder, root)
    return found


def _placed(
    values: Parts, names: tuple[str, ...], source: str, where: Path, root: Path | None
) -> dict[str, Any]:
    placed = {
        name: place(values[name], where.parent, root=root, what=f"{source} {name}")
        for name in names
        if isinstance(values.get(name), str | Path)
    }
    return {**values, **placed}
