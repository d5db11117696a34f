"""`bayestree predict`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.folders import check_output
from bayestree._cli.options import Json


def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run or a fit.")],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with the same columns.")
    ],
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")] = Path(
        "predictions.csv"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: Json = False,
) -> None:
    """Predict the rows of a table by a run.

    The predictions are in the order of the rows. For classes: the prediction and the probability
    of each class. For numbers: the prediction and, from a posterior, an interval that holds the
    value with probability 0.9. Columns may be in any order, and others are ignored; if the target
    is among them, the predictions are scored. For the table of the run itself, the output says how
    many of its rows the model was fitted to.
    """
    with clear_errors():
        check_output(out, data, force=force)
        from bayestree.runs.predict import predict_file
        from bayestree.runs.scores import listed

        n_rows, remarks, found, n_seen = predict_file(folder, data, out)
        for remark in remarks:
            typer.echo(f"warning: {remark}", err=True)
        if as_json:
            said = {"file": str(out), "rows": n_rows, "scores": found, "rows_of_the_fit": n_seen}
            print(json.dumps(said, indent=2))
            return
        print(f"{n_rows} rows predicted: {out}")
        if found is not None:
            scored = f"scores{_label(n_rows, n_seen)}: "
            print(f"not scored: {found}" if isinstance(found, str) else scored + listed(found))


def _label(n_rows: int, n_seen: int | None) -> str:
    """Which rows were scored, where the model was fitted to some of them."""
    if not n_seen:
        return ""
    if n_seen == n_rows:
        return " on rows the model was fitted to (expect worse on new rows)"
    return f" on {n_rows} rows, {n_seen} of them training rows"
