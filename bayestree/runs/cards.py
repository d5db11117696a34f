"""Cards: what is believed (``model``) and how it is fitted (``inference``), as TOML files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from bayestree._utils.write import write_whole
from bayestree.runs.nearest import nearest
from bayestree.runs.paths import check_output, place
from bayestree.runs.toml import read_toml
from bayestree.runs.trees import TASKS
from bayestree.tables import InputError

Kind = Literal["model", "inference"]

#: The folder of each kind of cards, in a checkout and in an installed package.
FOLDERS: dict[Kind, str] = {"model": "models", "inference": "inference"}


@dataclass(frozen=True)
class Card:
    """A card: values for the parameters of an estimator.

    Parameters
    ----------
    name : str
        Of a shipped card; the path of another.
    kind : {"model", "inference"}
    path : Path
    tree : str, optional
        The tree that it is of, where it says one.
    values : mapping
        Parameter to value, for every task.
    by_task : mapping
        ``"classification"`` or ``"regression"`` to values in place of those.
    """

    name: str
    kind: Kind
    path: Path
    tree: Any = None
    values: Mapping[str, Any] = field(default_factory=dict)
    by_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The file, as it was written."""
        return self.path.read_text(encoding="utf-8-sig")

    @property
    def summary(self) -> str:
        """What it is: the comment that it begins with, up to where its values come from."""
        comment = takewhile(lambda line: line.startswith("#"), self.text.splitlines())
        return " ".join(line.lstrip("# ") for line in comment).partition(" Values are")[0]


def cards(kind: Kind | None = None) -> list[Card]:
    """The cards that the package carries, models first, by name."""
    return [
        read_card(path, each, name=path.stem)
        for each in FOLDERS
        if kind in (None, each)
        for path in sorted(_folder(each).glob("*.toml"), key=lambda path: path.stem)
    ]


def find_card(
    name: str, kind: Kind, *, folder: Path = Path(), root: Path | None = None, where: str = ""
) -> Card:
    """A shipped card by its name, or any by its path.

    Parameters
    ----------
    name : str
        A path has a folder or ends in ``.toml``; anything else is a name.
    kind : {"model", "inference"}
    folder : Path
        What a path is relative to.
    root : Path, optional
        Folder that a path must not leave.
    where : str
        What begins the message of an error.

    Raises
    ------
    InputError
        If there is no such card, or it cannot be read.
    """
    if _is_path(name):
        path = place(name, folder, root=root, what=f"{where}card")
        return read_card(path, kind, name=name)
    path = _shipped(kind, name)
    if not path.is_file():
        known = [path.stem for path in _folder(kind).glob("*.toml")]
        raise InputError(f"{where}no {kind} card is named {name!r}{nearest(name, known)}")
    return read_card(path, kind, name=name)


def find_any(name: str, *, root: Path | None = None, where: str = "") -> Card:
    """A shipped card of either kind by its name, or any by its path.

    Parameters
    ----------
    name : str
        ``"models/tao"`` and ``"inference/tao"`` tell cards of one name apart. A file by its path
        is read as a card of a model, which may name its tree.
    root, where
        As for :func:`find_card`.

    Raises
    ------
    InputError
        If there is no such card, or there are two.
    """
    if name.endswith(".toml"):
        return find_card(name, "model", folder=Path.cwd(), root=root, where=where)
    named = {f"{FOLDERS[card.kind]}/{card.name}": card for card in cards()}
    found = [full for full in named if name in (full, full.partition("/")[2])]
    if len(found) > 1:
        raise InputError(f"{where}two cards are named {name!r}; write {' or '.join(found)}.")
    if not found:
        known = {card.name for card in named.values()}
        raise InputError(f"{where}no card is named {name!r}{nearest(name, known)}")
    return named[found[0]]


def read_card(path: Path, kind: Kind, *, name: str | None = None) -> Card:
    """A card from its file; its values are not checked yet.

    Raises
    ------
    InputError
        If it is no TOML file.
    """
    content = read_toml(path, f"{kind} card")
    tree = content.pop("tree", None) if kind == "model" else None
    by_task = {task: content.pop(task) for task in TASKS if isinstance(content.get(task), dict)}
    return Card(name or str(path), kind, path, tree, content, by_task)


def copy_card(card: Card, path: Path, *, force: bool = False) -> None:
    """Write a card to a file, to be changed.

    Raises
    ------
    InputError
        If the file exists and ``force`` is false, or its folder does not exist.
    """
    check_output(path, force=force)
    write_whole(path, card.text)


def _is_path(name: str) -> bool:
    return name.endswith(".toml") or Path(name).name != name


def _shipped(kind: Kind, name: str) -> Path:
    return _folder(kind) / f"{'' if _is_path(name) else name}.toml"


def _folder(kind: Kind) -> Path:
    """Where the cards are: inside an installed package, beside it in a checkout."""
    package = Path(str(files("bayestree")))
    inside = package / "cards" / FOLDERS[kind]
    return inside if inside.is_dir() else package.parent / FOLDERS[kind]
