"""`bayestree predict`."""

from pathlib import Path
from typing import Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.folders import check_output, read_folder, write_table
from bayestree._cli.output import predictions, score_if_possible


def predict(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder that `bayestree fit` wrote.")
    ],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with the same columns.")
    ],
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")] = Path(
        "predictions.csv"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Predict the rows of a table, in their order.

    For classes: the prediction and the probability of each class. For numbers: the prediction
    and, from a posterior, an interval that holds the value with probability 0.9. Columns may be
    in any order, and others are ignored; if the target is among them, the predictions are scored.
    """
    with clear_errors():
        check_output(out, data, force=force)
        from bayestree import tables

        estimator, columns, encoding = read_folder(folder)
        text = [*encoding.text, *([columns["target"]] if columns["is_text"] else [])]
        frame = tables.read_table(data, text=text)
        X, remarks = encoding.encode(frame)
        for remark in remarks:
            typer.echo(f"warning: {remark}", err=True)
        write_table(predictions(estimator, X), out)
        print(f"{len(X)} rows predicted: {out}")
        if columns["target"] in frame:
            print(score_if_possible(estimator, columns, frame, X))
