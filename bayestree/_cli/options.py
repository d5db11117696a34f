"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")
]
Root = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder that no path may leave.")]
