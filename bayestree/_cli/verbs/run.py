"""`bayestree run`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import Json, Root
from bayestree._cli.output import command_line, display, print_run, resume_hint


def run(
    file: Annotated[
        Path, typer.Argument(metavar="RUN.toml", help="Run file, or the folder of a run.")
    ],
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A value in place of the file's, such as model.max_depth=3; may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder to write, for output.folder.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was interrupted.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the run in a folder that holds one.")
    ] = False,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Dask scheduler to send trees of a forest and chains to: tcp://HOST:PORT.",
        ),
    ] = None,
    root: Root = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress and no tree.")] = False,
) -> None:
    """Run a run file: data, a model, an inference.

    The folder that it names then holds the resolved run file (run.toml), versions, seed and what
    the data was (manifest.json), the model (model.safetensors), the tree (tree.txt), scores on
    held-out rows (metrics.json), posterior draws (posterior.nc), predictions
    (predictions.parquet), a log (run.log) and a page for people (report.html).

    A run may be interrupted in any way, by Ctrl-C or by a power cut: the folder stays whole, and
    --resume continues from the last checkpoint. On the same machine and with the same library
    versions, the results are exactly those of an uninterrupted run.

    For example:

        bayestree run tumours.toml

        bayestree run tumours.toml --set model.max_depth=3 --out results/deeper

        bayestree run tumours.toml --resume
    """
    with clear_errors(interrupted=resume_hint(force=force)):
        from bayestree.runs.cluster import spread
        from bayestree.runs.runner import run as run_file
        from bayestree.runs.schema import read_run

        sets = list(settings or [])
        if out is not None:
            sets.append(f"output.folder={json.dumps(str(out.absolute()))}")
        found = read_run(file / "run.toml" if file.is_dir() else file, sets, root=root)
        with spread(scheduler):
            done = run_file(
                found,
                resume=resume,
                force=force,
                display=display(quiet=quiet or as_json),
                command=command_line(),
            )
        print_run(done, as_json=as_json, quiet=quiet)
