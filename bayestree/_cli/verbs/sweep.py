"""`bayestree sweep`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import Json, Root
from bayestree._cli.output import command_line, display, print_json

if TYPE_CHECKING:
    from bayestree.runs.sweep import Sweep

INCOMPLETE = 1  # exit code where points failed
MAX_PRINTED = 20  # settings; the table contains all of them
RESUME_HINT = "interrupted; repeat the same command to fit the remaining points"


def sweep(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="SWEEP.toml", help="Sweep file: a run file, and the parameters to vary."
        ),
    ],
    *,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of points fitted at once on this machine, instead of sweep.n_jobs.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Dask scheduler that distributes the points: tcp://HOST:PORT."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that contains something else.")
    ] = False,
    root: Root = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Fit and score a run with varied parameters, seeds and folds, and write one table.

    The folder then contains the table (results.parquet, with one row for each fit), the run file
    of the best setting (best.toml, for `bayestree run`), the sweep itself (sweep.toml,
    sweep.json), and a small file for each finished point (points/).

    Finished points are not fitted again: after an interruption, or with more values in the file,
    the same command fits only the remaining points. If a point fails, its error is written to the
    table, the other points continue, and the exit code is 1.

    For example:

        bayestree sweep depths.toml --jobs 4

        bayestree sweep depths.toml --scheduler tcp://10.0.0.1:8786
    """
    with clear_errors(interrupted=RESUME_HINT):
        from bayestree.runs.sweep import read_sweep
        from bayestree.runs.sweep import sweep as run_sweep
        from bayestree.tables import InputError

        if jobs == 0:
            raise InputError("--jobs must be 1 or more, or -1 for all cores, got 0.")
        found = run_sweep(
            read_sweep(file, root=root),
            n_jobs=jobs,
            scheduler=scheduler,
            force=force,
            display=display(quiet=quiet or as_json),
            command=command_line(),
        )
        _print(found, as_json=as_json)
    if found.n_failed:
        raise typer.Exit(INCOMPLETE)


def _print(found: "Sweep", *, as_json: bool) -> None:
    from bayestree.runs.sweep.results import TABLE

    table = found.folder / TABLE
    if as_json:
        content = {
            "folder": str(found.folder),
            "table": str(table),
            "best": None if found.best is None else str(found.best),
            "metric": found.metric,
            "points": len(found.table),
            "failed": found.n_failed,
            "ranking": json.loads(found.ranking.to_json(orient="records")),
        }
        print_json(content)
        return
    shown = found.ranking.head(MAX_PRINTED).rename(columns={"mean": found.metric})
    print(f"\n{shown.to_string(index=False, na_rep='', float_format='{:.4g}'.format)}\n")
    if len(found.ranking) > MAX_PRINTED:
        print(f"and {len(found.ranking) - MAX_PRINTED} more settings\n")
    if found.n_failed:
        print(f"{found.n_failed} of {len(found.table)} points failed: see `error` in the table")
    best = "" if found.best is None else f"; the best setting as a run file: {found.best}"
    print(f"{len(found.table)} points in {table}{best}")
