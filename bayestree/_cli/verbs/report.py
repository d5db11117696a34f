"""`bayestree report`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import Json

if TYPE_CHECKING:
    from bayestree.runs.rows import Prepared
    from bayestree.runs.store import Run


def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a finished run.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write; by default report.html in the folder."),
    ] = None,
    no_rows: Annotated[
        bool,
        typer.Option("--no-rows", help="Leave the data alone: no pictures of rows."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the report of a run: one HTML page that needs nothing else.

    The page shows the tree, whose nodes and leaves can be chosen, the posterior of its facets,
    how sure its splits are, scores, calibration, convergence in plain words, and the command that
    repeats the run. It can be read offline, on a phone and on paper, and sent by mail.

    The rows are read again, and must be those of the run; with --no-rows they need not be there.

    For example:

        bayestree report results/tumours

        bayestree report results/tumours --out tumours.html
    """
    with clear_errors():
        page = (folder / "report.html" if out is None else out).absolute()
        if out is not None:
            _check(page)
        from bayestree._utils.write import write_whole
        from bayestree.runs.folder import RunFolder
        from bayestree.runs.outputs import report_of
        from bayestree.runs.store import open_run

        run = open_run(folder)
        text = report_of(
            RunFolder(run.folder),
            run.file,
            None if no_rows else _rows(run),
            run.estimator,
            metrics=run.metrics,
            manifest=run.manifest,
        )
        write_whole(page, text)
        if as_json:
            print(json.dumps({"file": str(page), "bytes": len(text.encode())}, indent=2))
            return
        print(f"written to {page}: open it in a browser")


def _rows(run: "Run") -> "Prepared":
    from bayestree.tables import InputError

    try:
        return run.rows()
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')}; or add --no-rows.") from error


def _check(page: Path) -> None:
    """Refuse a file that cannot be written, before any work is done."""
    from bayestree.tables import InputError

    if page.suffix not in (".html", ".htm"):
        raise InputError(f"--out {str(page)!r} must end in .html.")
    if page.is_dir():
        raise InputError(f"--out {str(page)!r} is a folder; name a file.")
    if not page.parent.is_dir():
        raise InputError(f"--out {str(page)!r} is in a folder that does not exist; make it first.")
