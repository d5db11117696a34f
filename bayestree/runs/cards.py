"""TOML files, and cards: files of values for the model of a tree, or for its inference method."""

import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from bayestree._utils.wording import InputError, nearest_match, refuse_special
from bayestree.estimators.registry import TASKS
from bayestree.runs.configuration import BACKSLASHES, abbreviated, resolve_path
from bayestree.tables.files import table_format

MAX_BYTES = 2**20  # bytes
MAX_LEVELS = 8  # of tables and lists, and of a dotted key; files of runs have up to four
BARE_WORD = re.compile(r"[A-Za-z_./~\\][\w./~:+\\-]*")  # words and paths
TOKENS = re.compile(  # texts, whose end may be missing; comments; and letters that show the depth
    r'''"""(?:[^"\\]|\\.|"(?!""))*+"{0,5}|"(?:\\.|[^"\\\n])*+"?|'''
    r"""'''(?:[^']|'(?!''))*+'{0,5}|'[^'\n]*'?|\#[^\n]*|[][{}.=,\n]""",
    re.DOTALL,
)
#: Kind of file by a key that only it has, and the command that runs it.
KINDS = {"data": ("run file", "run"), "vary": ("sweep file", "sweep")}


def load_toml(text: str) -> dict[str, Any]:
    """Parse TOML of few levels; the parser takes memory by the square of the parts of a key."""
    brackets = dots = 0
    for found in TOKENS.finditer(text):
        token = found[0]
        brackets += (token in "[{") - (token in "]}")
        dots = dots + 1 if token == "." else 0 if token in "[]{}=,\n" else dots
        if max(brackets, dots + 1) > MAX_LEVELS:
            where = f"line {text.count(chr(10), 0, found.start()) + 1}: over {MAX_LEVELS} levels"
            raise ValueError(f"it is nested too deeply ({where})")
    content = tomllib.loads(text)
    repr(content)  # a ValueError for hexadecimal integers too long to be shown
    return content


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file of at most 1 MiB; messages name the kind of file (``what``)."""
    name = f"{what} {str(path)!r}"
    refuse_special(path)
    if not path.is_file():
        raise InputError(f"{name} {'is not a file' if path.exists() else 'does not exist'}.")
    if table_format(path):
        command = f"bayestree fit {shlex.quote(str(path))} --target COLUMN --out FOLDER"
        raise InputError(
            f"{str(path)!r} is a table, not a {what}; fit a tree to it by `{command}`."
        )
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InputError(f"{name} is larger than 1 MiB; expected a short TOML file.")
    try:
        found = load_toml(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not valid TOML: it is not text in UTF-8.") from error
    except ValueError as error:
        reason = str(error).rstrip(".")
        remedy = f"; {BACKSLASHES}" if re.search("Unescaped|hex value", reason) else ""
        raise InputError(f"{name} is not valid TOML: {reason}{remedy}.") from error
    for key, (kind, verb) in KINDS.items():
        if key in found and kind != what:
            command = f"bayestree {verb} {shlex.quote(str(path))}"
            raise InputError(f"{str(path)!r} is a {kind}, not a {what}; run it by `{command}`.")
    return found


def read_pair(pair: str) -> tuple[str, Any]:
    """Split ``NAME=VALUE`` and parse the value as TOML; a bare word is a string."""
    name, equals, text = (part.strip() for part in pair.partition("="))
    if not (name and equals and text):
        raise InputError(f"--set {pair!r} does not have the form NAME=VALUE.")
    try:
        found = load_toml(f"value = {text}")
    except ValueError:
        text = text.strip('"') if "\\" in text else text  # the path of a file under Windows
        found = {"value": text} if BARE_WORD.fullmatch(text) else {}
    if found.keys() != {"value"}:
        raise InputError(
            f"--set {pair!r}: {text!r} is not a TOML value; write a number, true, false, "
            '"text" or [a list].'
        )
    return name, found["value"]


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
        read_card(path, each, name=name)
        for each in FOLDERS
        if kind in (None, each)
        for name, path in sorted(_files(each).items())
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
    known = _files(kind)
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


def _files(kind: CardKind) -> dict[str, Any]:
    """Return the cards by name: inside an installed package, next to it in a checkout."""
    package: Any = files("bayestree")  # a Path, or that of a zip file, which has fewer methods
    inside = package / "cards" / FOLDERS[kind]
    each = (inside if inside.is_dir() else package.parent / FOLDERS[kind]).iterdir()
    return {one.name.removesuffix(".toml"): one for one in each if one.name.endswith(".toml")}
