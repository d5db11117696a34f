"""`bayestree fit`, `run`, `plan`, `sweep` and `warm-up`."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bayestree._utils.wording import InputError
from bayestree.cli import shared
from bayestree.cli.shared import ForceMemory, ForceRun, Json, Quiet, Replaced, Resume, Root, sets
from bayestree.estimators.registry import TREES
from bayestree.runs.configuration import Task

if TYPE_CHECKING:
    from bayestree.runs.sweep import Sweep


def fit(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="CSV or Parquet file, or folder or pattern of Parquet files."
        ),
    ],
    *,
    target: Annotated[str, sets("data.target", help="Column to predict.")],
    out: Annotated[Path, sets("output.folder", help="Folder to write; new or empty.")],
    task: Annotated[Task | None, sets("data.task")] = None,
    tree: Annotated[
        str | None,
        sets(
            "model.tree",
            metavar="NAME",
            help=f"One of {', '.join(TREES)}; by default cpt.",
            autocompletion=shared.tree_names,
        ),
    ] = None,
    card: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CARD",
            help="Name or TOML file of a card of parameters; may be repeated.",
            autocompletion=shared.card_names,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any setting of a run file; may be repeated."
        ),
    ] = None,
    inference: Annotated[
        str | None,
        sets(
            "inference.inference",
            help="For cpt: auto (the default) for vi or svi by the size of the table, vi, svi, "
            "nuts, mcmc or smc for a posterior, map for the best tree, grow for a greedy tree.",
        ),
    ] = None,
    depth: Annotated[
        int | None, sets("model.max_depth", min=0, help="Maximum number of splits on a path.")
    ] = None,
    experts: Annotated[
        int | None,
        sets(
            "model.n_experts",
            min=1,
            help="Maximum number of facets of a split; by default 4 for vi and mcmc, otherwise 20 "
            "for classes and 8 for numbers.",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        sets(
            "inference.epochs",
            min=1,
            help="Number of passes over the rows, by default chosen by the fit; for cpt with "
            "--inference svi, map or nuts.",
        ),
    ] = None,
    draws: Annotated[
        int | None,
        sets(
            "inference.n_draws",
            min=1,
            help="Number of posterior draws; by default 50; per chain 250 for nuts and mcmc, 1000 "
            "for smc.",
        ),
    ] = None,
    test_fraction: Annotated[float | None, sets("data.test_fraction")] = None,
    seed: Annotated[int | None, sets("seed")] = None,
    weights: Annotated[str | None, sets("data.weights")] = None,
    exposure: Annotated[str | None, sets("data.exposure")] = None,
    event: Annotated[str | None, sets("data.event")] = None,
    drop: Annotated[
        list[str] | None, sets("data.drop", help="Column to leave out; may be repeated.")
    ] = None,
    resume: Resume = False,
    force: ForceRun = False,
    force_memory: ForceMemory = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a tree to a table, without a run file.

    The tree is scored on held-out rows and written to the same kind of folder as by `bayestree
    run`, with a run file (run.toml) that reproduces it. A text column becomes one feature for each
    category. Cards are read first, in their order, then the options that set a parameter, then
    --set; later values win.
    """
    given = {"DATA": ("data.path", data)} | shared.settings_of(fit, locals())
    with shared.clear_errors(interrupted=shared.resume_hint(force=force)):
        from bayestree._utils.parallel import memory_forced
        from bayestree.runs.schema import run_from_options

        memory_forced.set(force_memory)
        file = run_from_options(given, cards=card or [], pairs=settings or [])
        shared.run_and_print(file, resume=resume, force=force, as_json=as_json, quiet=quiet)


def run(
    file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Run file, or folder of a run.")],
    *,
    settings: Replaced = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder to write, instead of output.folder."),
    ] = None,
    resume: Resume = False,
    force: ForceRun = False,
    force_memory: ForceMemory = False,
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
    with shared.clear_errors(interrupted=shared.resume_hint(force=force)):
        from bayestree._utils.parallel import memory_forced
        from bayestree.runs.runner import spread
        from bayestree.runs.schema import read_run

        memory_forced.set(force_memory)
        sets = list(settings or [])
        if out is not None:
            sets.append(f"output.folder={json.dumps(str(out.absolute()))}")
        if file.is_dir():
            found = read_run(file / "run.toml", sets, root=root, removed="default")
        else:
            found = read_run(file, sets, root=root)
        if found.cluster is not None and scheduler is not None:
            cluster = found.cluster.model_copy(update={"scheduler": scheduler, "workers": None})
            found, scheduler = found.model_copy(update={"cluster": cluster}), None
        with spread(scheduler):
            shared.run_and_print(found, resume=resume, force=force, as_json=as_json, quiet=quiet)


def plan(
    file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Run file, or folder of a run.")],
    *,
    settings: Replaced = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Tell what the fit of a run file will do and why, without fitting.

    The rows are read, as the method, the size of the trees and the precision may depend on them.
    """
    with shared.clear_errors():
        from bayestree.runs.runner import plan as planned
        from bayestree.runs.schema import read_run

        where = file / "run.toml" if file.is_dir() else file
        removed: Literal["default", "refused"] = "default" if file.is_dir() else "refused"
        found = planned(read_run(where, settings or [], root=root, removed=removed))
        shared.print_result(found.to_json(), found, as_json=as_json)


INCOMPLETE = 1  # exit code where points failed
MAX_RANKED = 20  # settings; the table contains all of them
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
    with shared.clear_errors(interrupted=RESUME_HINT):
        from bayestree.runs.sweep import sweep as run_sweep
        from bayestree.runs.sweep_file import read_sweep

        if jobs == 0:
            raise InputError("--jobs must be 1 or more, or -1 for all cores, got 0.")
        found = run_sweep(
            read_sweep(file, root=root),
            n_jobs=jobs,
            scheduler=scheduler,
            force=force,
            display=shared.display(quiet=quiet or as_json),
            command=shared.command_line(),
        )
        _print_sweep(found, as_json=as_json)
    if found.n_failed:
        raise typer.Exit(INCOMPLETE)


def _print_sweep(found: "Sweep", *, as_json: bool) -> None:
    from bayestree.runs.sweep import TABLE

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
        shared.print_json(content)
        return
    shown = found.ranking.head(MAX_RANKED).rename(columns={"mean": found.metric})
    print(f"\n{shown.to_string(index=False, na_rep='', float_format='{:.4g}'.format)}\n")
    if len(found.ranking) > MAX_RANKED:
        print(f"and {len(found.ranking) - MAX_RANKED} more settings\n")
    if found.n_failed:
        print(f"{found.n_failed} of {len(found.table)} points failed: see `error` in the table")
    best = "" if found.best is None else f"; the best setting as a run file: {found.best}"
    print(f"{len(found.table)} points in {table}{best}")


def warm_up() -> None:
    """Compile the loops of VI and the sampler, as the first fit would; print how long that took.

    The code is kept for later processes of this installation.
    """
    import numpy as np

    from bayestree import ConvexPolytopeTreeClassifier
    from bayestree.inference import Vi
    from bayestree.inference.core import experts

    folder = experts.sweep.stats.cache_path
    if folder is None:
        raise InputError(
            "numba finds no folder for compiled code, so that every process compiles it; set "
            "NUMBA_CACHE_DIR to a folder that can be written."
        )
    X, began = np.arange(100.0)[:, None], time.perf_counter()
    short = Vi(n_steps=1, n_draws=1, n_sweeps=1)
    ConvexPolytopeTreeClassifier(max_depth=1, inference=short).fit(X, X[:, 0] > 49)
    seconds = time.perf_counter() - began
    print(f"The loops are compiled, by a fit that took {seconds:.1f} s; their code is in {folder}.")
