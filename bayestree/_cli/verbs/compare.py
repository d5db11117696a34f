"""`bayestree compare`."""

from pathlib import Path
from typing import Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import Force, Json, TableOut
from bayestree._cli.output import print_json
from bayestree._cli.tables import check_output, records, write_table


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
