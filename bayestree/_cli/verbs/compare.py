"""`bayestree compare`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.folders import check_output, write_table
from bayestree._cli.options import Json
from bayestree._cli.tables import records


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDERS", help="Folders of two runs or more.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table: .csv or .parquet.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: Json = False,
) -> None:
    """Compare runs: which predicts better, and how sure that is.

    By leave-one-out cross-validation (PSIS-LOO, through ArviZ) of the rows that all were fitted
    to: elpd is the sum of the log predictive densities, the higher the better; difference is how
    far a run is behind the best, with its standard error; weight is that of its predictions in the
    best average of all; bad_k is the share of rows whose score is not to be trusted.

    Where that share is above 10 % for any run, or fewer than two runs have a posterior, the log
    scores of the held-out rows are compared instead, row by row: held_out is their sum, with the
    difference from the best and its standard error.

    Runs of other rows are refused: they need the same table and target, and the same seed and
    test_fraction, or a test table.

    For example:

        bayestree compare results/tumours results/laplace
    """
    with clear_errors():
        if out is not None:
            check_output(out, folders[0], force=force)
        from bayestree.runs.compare import compare as weigh
        from bayestree.runs.store import open_run

        found = weigh([open_run(folder) for folder in folders])
        if out is not None:
            write_table(found.table.reset_index(), out)
        if as_json:
            plain = {
                "runs": records(found.table),
                "basis": found.basis,
                "scored_on": found.scored_on,
                "remarks": list(found.remarks),
            }
            print(json.dumps(plain, indent=2, ensure_ascii=False))
        else:
            print(found)
