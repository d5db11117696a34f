"""`bayestree run`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import ForceRun, Json, Quiet, Resume, Root
from bayestree._cli.output import resume_hint, run_and_print


def run(
    file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Run file, or folder of a run.")],
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace a value of the file: model.max_depth=3; may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder to write, instead of output.folder."),
    ] = None,
    resume: Resume = False,
    force: ForceRun = False,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Dask scheduler for the trees of a forest and for chains: tcp://HOST:PORT.",
        ),
    ] = None,
    root: Root = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a run file: data, a model and an inference method.

    The output folder then contains the run file with every value explicit (run.toml), the library
    versions, the seed and the fingerprint of the data (manifest.json), the model
    (model.safetensors), the tree (tree.txt), scores on held-out rows (metrics.json), posterior
    draws (posterior.nc), predictions (predictions.parquet), a log (run.log) and a report
    (report.html).

    A run may be interrupted at any time, by Ctrl-C or by a power cut: the folder stays consistent,
    and --resume continues from the last checkpoint. On the same machine and with the same library
    versions, the results are identical to those of an uninterrupted run.

    For example:

        bayestree run tumours.toml

        bayestree run tumours.toml --set model.max_depth=3 --out results/deeper

        bayestree run tumours.toml --resume
    """
    with clear_errors(interrupted=resume_hint(force=force)):
        from bayestree.runs.cluster import spread
        from bayestree.runs.schema import read_run

        sets = list(settings or [])
        if out is not None:
            sets.append(f"output.folder={json.dumps(str(out.absolute()))}")
        found = read_run(file / "run.toml" if file.is_dir() else file, sets, root=root)
        with spread(scheduler):
            run_and_print(found, resume=resume, force=force, as_json=as_json, quiet=quiet)
