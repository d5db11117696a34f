"""Options that several verbs share, options that set keys of a run file, and completions."""

from collections.abc import Callable, Mapping
from inspect import get_annotations
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic.fields import FieldInfo

from bayestree.estimators.registry import TREES
from bayestree.runs.configuration import SECTIONS

Json = Annotated[
    bool, typer.Option("--json", help="Print a single JSON object on stdout and nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress and no tree.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume a run that was interrupted.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file.")]
ForceRun = Annotated[
    bool, typer.Option("--force", help="Replace the run in a folder that is not empty.")
]
ForceMemory = Annotated[bool, typer.Option("--force-memory", help="Fit even if memory is short.")]
Quote = Annotated[
    bool, typer.Option("--quote-formulas", help="In CSV, put ' before text like =A1 or -x.")
]
TableOut = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the table: .csv or .parquet.")
]
FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run.")]
Replaced = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a value of the file: model.max_depth=3; may be repeated.",
    ),
]
Root = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder that no path may leave.")]


def tree_names(incomplete: str) -> list[str]:
    """Return the names of the trees that start with the typed text."""
    return [name for name in TREES if name.startswith(incomplete)]


def card_names(incomplete: str) -> list[str]:
    """Return names of cards that start with the typed text; the shell itself completes paths."""
    from bayestree.runs.cards import cards

    names = sorted({card.name for card in cards()})
    return [name for name in names if name.startswith(incomplete)]


def sets(key: str, **shown: Any) -> Any:
    """Return an option that sets a key of a run file, such as ``"data.target"``.

    It has the description, bounds and default of the key, unless the key is a parameter of a
    tree. Arguments of ``typer.Option`` in ``shown`` replace them.
    """
    table, _, name = key.rpartition(".")
    if table in SECTIONS:
        shown = _described(SECTIONS[table].model_fields[name]) | shown
    option: Any = typer.Option(**shown)
    option.key = key
    return option


def _described(field: FieldInfo) -> dict[str, Any]:
    """Return the description of a key, the bounds of its values and its default."""
    found = {"help": field.description, "show_default": False}
    for constraint in field.metadata:
        found |= {"min": constraint.ge} if hasattr(constraint, "ge") else {}
        found |= {"max": constraint.le} if hasattr(constraint, "le") else {}
    if isinstance(field.default, str | int | float):
        found["show_default"] = str(field.default)
    return found


def settings_of(verb: Callable[..., None], values: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the key and the value of each option of a verb that sets a key, by the option."""
    found = {}
    for name, annotation in get_annotations(verb).items():
        for one in get_args(annotation)[1:]:
            if hasattr(one, "key"):
                found[f"--{name.replace('_', '-')}"] = (one.key, values[name])
    return found
