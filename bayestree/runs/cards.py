"""Cards: TOML files of values for the model of a tree, or for its inference method."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from bayestree._utils.errors import InputError
from bayestree._utils.wording import nearest_match
from bayestree.estimators.registry import TASKS
from bayestree.runs.configuration import abbreviated, resolve_path
from bayestree.runs.toml import read_toml

CardKind = Literal["model", "inference"]

#: Folder of each kind of card, in a checkout and in an installed package.
FOLDERS: dict[CardKind, str] = {"model": "models", "inference": "inference"}


@dataclass(frozen=True)
class Card:
    """Values for the parameters of an estimator, read from a TOML file but not checked.

    The name is a name in the package, or the path of another card. A model card may name its
    tree. Values of a task in ``by_task`` replace the same keys of ``values`` for this task.
    """

    name: str
    kind: CardKind
    path: Path
    tree: Any = None
    values: Mapping[str, Any] = field(default_factory=dict)
    by_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8-sig")

    @property
    def summary(self) -> str:
        """First comment of the file, up to the source of its values."""
        comment = takewhile(lambda line: line.startswith("#"), self.text.splitlines())
        return " ".join(line.lstrip("# ") for line in comment).partition(" Values are")[0]


def cards(kind: CardKind | None = None) -> list[Card]:
    """Return the cards of the package, model cards first, sorted by name."""
    return [
        read_card(path, each, name=path.stem)
        for each in FOLDERS
        if kind in (None, each)
        for path in sorted(_folder(each).glob("*.toml"), key=lambda path: path.stem)
    ]


def find_card(
    name: Any,
    kind: CardKind,
    *,
    folder: Path = Path(),
    root: str | Path | None = None,
    where: str = "",
) -> Card:
    """Return a card of the package by its name, or any card by its path.

    Text that contains a folder or ends in ``.toml`` is a path, relative to ``folder`` and inside
    ``root``. ``where`` begins the message of an InputError if there is no such card.
    """
    if not isinstance(name, str | Path):
        raise InputError(f"{where}card must be a name or a path, got {abbreviated(name)}.")
    name = str(name)
    if name.endswith(".toml") or Path(name).name != name:
        path = resolve_path(name, folder, root=root, what=f"{where}card")
        return read_card(path, kind, name=name)
    known = {path.stem: path for path in _folder(kind).glob("*.toml")}
    if name not in known:
        end = nearest_match(name, known)
        raise InputError(f"{where}no {kind} card is named {abbreviated(name)}{end}")
    return read_card(known[name], kind, name=name)


def find_any(name: str, *, where: str = "") -> Card:
    """Return a card of the package of either kind by its name, or any card by its path.

    ``"models/tao"`` and ``"inference/tao"`` distinguish cards of the same name. A file is read as a
    model card, which may name its tree. ``where`` begins the message of an InputError.
    """
    if name.endswith(".toml"):
        return find_card(name, "model", folder=Path.cwd(), where=where)
    named = {f"{FOLDERS[card.kind]}/{card.name}": card for card in cards()}
    found = [full for full in named if name in (full, full.partition("/")[2])]
    if len(found) > 1:
        raise InputError(f"{where}two cards are named {name!r}; write {' or '.join(found)}.")
    if not found:
        known = {card.name for card in named.values()}
        raise InputError(f"{where}no card is named {abbreviated(name)}{nearest_match(name, known)}")
    return named[found[0]]


def read_card(path: Path, kind: CardKind, *, name: str | None = None) -> Card:
    """Read a card; its values are not checked."""
    content = read_toml(path, f"{kind} card")
    tree = content.pop("tree", None) if kind == "model" else None
    by_task = {task: content.pop(task) for task in TASKS if isinstance(content.get(task), dict)}
    return Card(name or str(path), kind, path, tree, content, by_task)


def _folder(kind: CardKind) -> Path:
    """Folder of the cards: inside an installed package, next to the package in a checkout."""
    package = Path(str(files("bayestree")))
    inside = package / "cards" / FOLDERS[kind]
    return inside if inside.is_dir() else package.parent / FOLDERS[kind]
