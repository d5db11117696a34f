"""`bayestree report`."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import FolderArgument, Json
from bayestree._cli.output import display, print_json
from bayestree._cli.tables import PAGE, check_output

if TYPE_CHECKING:
    from bayestree.runs.rows import Prepared
    from bayestree.runs.store import Run


def report(
    folder: FolderArgument,
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write; by default report.html in the folder."),
    ] = None,
    no_rows: Annotated[
        bool,
        typer.Option("--no-rows", help="Do not read the data; omit the figures that need it."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the report of a run: a self-contained HTML page.

    The page shows the tree with selectable nodes and leaves, the posterior of its facets, the
    uncertainty of its splits, scores, calibration, convergence in plain words, and the command that
    repeats the run. It can be read offline, on a phone and on paper, and sent by e-mail.

    The rows are read again and must be unchanged; with --no-rows they are not needed.

    For example:

        bayestree report results/tumours

        bayestree report results/tumours --out tumours.html
    """
    with clear_errors():
        page = (folder / "report.html" if out is None else out).absolute()
        if out is not None:
            check_output(page, PAGE, force=True)
        from bayestree._utils.progress import watching
        from bayestree._utils.write import write_whole
        from bayestree.runs.folder import RunFolder
        from bayestree.runs.outputs import report_of
        from bayestree.runs.store import open_run

        run = open_run(folder)
        run.columns.check_single("report")
        rows = None if no_rows else _rows(run)
        with closing(display(quiet=as_json)) as shown, watching(shown):
            shown.stage("report")
            text = report_of(
                RunFolder(run.folder),
                run.file,
                rows,
                run.estimator,
                run.manifest,
                metrics=run.metrics,
            )
        write_whole(page, text)
        if as_json:
            print_json({"file": str(page), "bytes": len(text.encode())})
        else:
            print(f"written to {page}: open it in a browser")


def _rows(run: "Run") -> "Prepared":
    from bayestree.tables import InputError

    try:
        return run.rows()
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')}; or add --no-rows.") from error
