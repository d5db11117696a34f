"""A run by the options of a command, without a run file."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bayestree.runs.cards import find_any
from bayestree.runs.keys import find_key
from bayestree.runs.parameters import TableName, table_of
from bayestree.runs.reading import one_tree, read_parts, tree_of_card
from bayestree.runs.schema import TABLES, RunFile
from bayestree.runs.settings import Layer
from bayestree.runs.toml import read_pair


def from_options(
    sections: Mapping[str, Any],
    *,
    tree: str | None = None,
    cards: Iterable[str | Path] = (),
    options: Mapping[str, tuple[str, Any]] | None = None,
    pairs: Iterable[str] = (),
    root: Path | None = None,
) -> RunFile:
    """A run whose parameters come from cards, then options, then single settings; later ones win.

    Parameters
    ----------
    sections : mapping
        ``seed``, ``data`` and ``output`` as in a run file; paths are relative to the present
        folder.
    tree : str, optional
        As ``--tree`` says; else what a card says, else the convex polytope tree.
    cards : iterable of names or paths
        Of models or of inferences; a file may be both.
    options : mapping
        Option, as it is typed, to a parameter and its value; None where it was not given.
    pairs : iterable of str
        ``NAME=VALUE``.
    root : Path, optional
        Folder that no path may leave.

    Raises
    ------
    InputError
        For a card that cannot be read, a tree that is not known, two trees at once, or a value
        that is none of the tree's.
    """
    found = [find_any(str(name), root=root, where="--card: ") for name in cards]
    named = {} if tree is None else {"--tree": tree}
    for card in found:
        named |= tree_of_card(card)
    layers = [Layer.of_card(card) for card in found]
    layers += [
        Layer(option, {name: value})
        for option, (name, value) in (options or {}).items()
        if value is not None
    ]
    others = []
    for name, value in map(read_pair, pairs):
        table, key = find_key(name)
        if table in TABLES:
            layers.append(Layer("--set", {key: value}))
        else:
            others.append((name, value))
    fields = read_parts(sections, Path("options"), others, root)
    fields |= {"tree": one_tree(named)}
    run = RunFile(**fields | {table: _of_table(layers, table) for table in TABLES})
    run.check()
    return run


def _of_table(layers: Iterable[Layer], table: TableName) -> tuple[Layer, ...]:
    """The layers as far as they are of one table."""
    sorted_out = [
        Layer(
            layer.source,
            _own(layer.values, table),
            {task: _own(values, table) for task, values in layer.by_task.items()},
        )
        for layer in layers
    ]
    return tuple(layer for layer in sorted_out if layer.says())


def _own(values: Mapping[str, Any], table: TableName) -> dict[str, Any]:
    return {name: value for name, value in values.items() if table_of(name) == table}
