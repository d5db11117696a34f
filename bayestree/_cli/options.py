"""Options that several verbs share, and their completions in the shell."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print a single JSON object on stdout and nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress and no tree.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume a run that was interrupted.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file.")]
ForceRun = Annotated[
    bool, typer.Option("--force", help="Replace the run in a folder that is not empty.")
]
TableOut = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the table: .csv or .parquet.")
]
FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run.")]
Root = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder that no path may leave.")]


def tree_names(incomplete: str) -> list[str]:
    """Names of the trees that start with the typed text."""
    from bayestree.estimators.registry import TREES

    return [name for name in TREES if name.startswith(incomplete)]


def card_names(incomplete: str) -> list[str]:
    """Names of packaged cards that start with the typed text; the shell itself completes paths."""
    from bayestree.runs.cards import cards

    names = sorted({card.name for card in cards()})
    return [name for name in names if name.startswith(incomplete)]
