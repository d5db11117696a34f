"""`bayestree predict`."""

from pathlib import Path
from typing import Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import Force, Json
from bayestree._cli.output import print_json
from bayestree._cli.tables import check_output


def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run or a fit.")],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with the same columns.")
    ],
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")] = Path(
        "predictions.csv"
    ),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict the rows of a table with the model of a run.

    The predictions are in the order of the rows. For classes they consist of the prediction and the
    probability of each class; for numbers, of the prediction and, if there is a posterior, an
    interval that contains the value with probability 0.9. Columns may be in any order, and others
    are ignored; if the target is among them, the predictions are scored. For the table of the run
    itself, the output reports how many of its rows the model was fitted to.
    """
    with clear_errors():
        check_output(out, force=force, data=data)
        from bayestree.runs.predict import predict_file
        from bayestree.runs.scores import format_scores

        n_rows, remarks, scores, n_seen = predict_file(folder, data, out)
        for remark in remarks:
            typer.echo(f"warning: {remark}", err=True)
        if as_json:
            print_json(
                {"file": str(out), "rows": n_rows, "scores": scores, "rows_of_the_fit": n_seen}
            )
            return
        print(f"{n_rows} rows predicted: {out}")
        if isinstance(scores, str):
            print(f"not scored: {scores}")
        elif scores is not None:
            print(f"scores{_rows_label(n_rows, n_seen)}: {format_scores(scores)}")


def _rows_label(n_rows: int, n_seen: int | None) -> str:
    """Name of the scored rows, if the model was fitted to some of them."""
    if not n_seen:
        return ""
    if n_seen == n_rows:
        return " on rows the model was fitted to (expect worse on new rows)"
    return f" on {n_rows} rows, {n_seen} of them training rows"
