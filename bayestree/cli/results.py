"""`bayestree diagnose`, `compare` and `report`."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayestree._utils.errors import InputError
from bayestree.cli.errors import clear_errors
from bayestree.cli.options import FolderArgument, Force, Json, TableOut
from bayestree.cli.output import PAGE, check_output, display, print_json, records, write_table

if TYPE_CHECKING:
    from bayestree.runs.rows import RunRows
    from bayestree.runs.store import Run


NOT_CONVERGED = 1  # exit code


def diagnose(folder: FolderArgument, *, as_json: Json = False) -> None:
    """Report in plain words which predictions and intervals of a run can be trusted.

    Predictions are judged on the held-out rows of the run, if it has any. Chains are compared by
    quantities that do not depend on the order of the experts (R-hat, effective sample size).
    Samplers are also checked for divergences, tree depth and energy, and variational fits for
    convergence of the bound. The log evidence and the posterior of the number of leaves and of the
    depth are shown for runs by sequential Monte Carlo.

    The exit code is 0 if no check failed, or if there is no posterior to check; it is 1 if a check
    failed, or if there is too little information to decide.

    For example:

        bayestree diagnose results/wines && bayestree report results/wines
    """
    with clear_errors():
        from bayestree.runs.results import diagnose as diagnose_run
        from bayestree.runs.store import open_run

        run = open_run(folder)
        diagnosis = diagnose_run(run)
        checks = diagnosis.checks
        if as_json:
            print_json(
                {
                    "folder": str(run.folder),
                    "converged": diagnosis.converged,
                    "inference": diagnosis.how,
                    "predictions": checks.predictions,
                    "intervals": checks.intervals,
                    "stands_for_the_posterior": checks.faithful,
                    "checks": records(checks.to_frame()),
                    "not_judged": list(checks.not_judged),
                    "evidence": checks.evidence and checks.evidence.to_json(),
                }
            )
        else:
            print(diagnosis)
    if not diagnosis.passes:
        raise typer.Exit(NOT_CONVERGED)


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDERS", help="Folders of two or more runs.")
    ],
    *,
    out: TableOut = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare runs: which is more probable or predicts better, and how certain that is.

    Runs by sequential Monte Carlo are compared by their evidence: log_bayes_factor is the
    difference of the log evidence from the most probable run, and probability that of a run's
    model.

    Others are compared by leave-one-out cross-validation (PSIS-LOO, through ArviZ) on the rows that
    all of them were fitted to: elpd is the sum of the log predictive densities (higher is better);
    difference is the difference from the best run, with its standard error; weight is the stacking
    weight of a run; bad_k is the share of rows whose score is unreliable.

    If that share is above 10 % for any run, or fewer than two runs have a posterior, the log scores
    of the held-out rows are compared instead, row by row: held_out is their sum, with the
    difference from the best run and its standard error.

    Runs on different rows are refused: they need the same table and target, and the same seed and
    test_fraction, or a test table.

    For example:

        bayestree compare results/tumours results/laplace
    """
    with clear_errors():
        if out is not None:
            check_output(out, force=force)
        from bayestree.runs.compare import compare as compare_runs
        from bayestree.runs.store import open_run

        comparison = compare_runs([open_run(folder) for folder in folders])
        if out is not None:
            write_table(comparison.table.reset_index(), out)
        if as_json:
            print_json(
                {
                    "runs": records(comparison.table),
                    "basis": comparison.basis,
                    "scored_on": comparison.scored_on,
                    "remarks": list(comparison.remarks),
                }
            )
        else:
            print(comparison)


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
        from bayestree.runs.outputs import report_of
        from bayestree.runs.store import RunFolder, open_run

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


def _rows(run: "Run") -> "RunRows":
    try:
        return run.rows()
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')}; or add --no-rows.") from error
