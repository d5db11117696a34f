"""`bayestree`: trees from the command line. Every verb calls public functions."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bayestree import __version__
from bayestree._cli.errors import clear_errors
from bayestree._cli.folders import check_folder, check_output, read_folder, write_table
from bayestree._cli.output import predictions, report, score_if_possible, tell_data
from bayestree._cli.rows import check_columns, prepare
from bayestree._cli.settings import choose, fit_rows, make
from bayestree._cli.trees import TREES

EXAMPLES = """
Examples:

    bayestree fit iris.csv --target species --out iris-tree

    bayestree fit iris.csv --target species --tree tao --set max_depth=3 --out iris-tao

    bayestree predict iris-tree new.csv --out predictions.csv
"""

app = typer.Typer(
    name="bayestree",
    help="Bayesian decision trees whose splits are convex polytopes, with a posterior; and the "
    "oblique trees that are their special cases.\n" + EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class TaskOption(StrEnum):
    """What the target is."""

    auto = "auto"
    classification = "classification"
    regression = "regression"


def main() -> None:
    """Run the command line."""
    app()


def _version(value: bool) -> None:
    if value:
        print(f"bayestree {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def fit(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with a header.")
    ],
    *,
    target: Annotated[str, typer.Option(help="Column to predict.")],
    out: Annotated[Path, typer.Option(help="Folder to write; new or empty.")],
    task: Annotated[
        TaskOption, typer.Option(help="auto: classes for text or few whole numbers.")
    ] = TaskOption.auto,
    tree: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"One of {', '.join(TREES)}; by default cpt."),
    ] = None,
    card: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="TOML file of parameters; may be repeated."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any parameter of the estimator; may be repeated."
        ),
    ] = None,
    inference: Annotated[
        str | None,
        typer.Option(
            help="Of cpt: svi (the default), nuts give a posterior; map the best tree; grow the "
            "greedy one."
        ),
    ] = None,
    depth: Annotated[int | None, typer.Option(min=0, help="Most splits on a path.")] = None,
    experts: Annotated[
        int | None, typer.Option(min=1, help="Most facets of a split; by default 20.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the rows; by default the fit decides.")
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Posterior draws; by default 50, nuts 250 a chain.")
    ] = None,
    test_fraction: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of the rows held out to be scored.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Of the random numbers.")] = 0,
    weights: Annotated[
        str | None, typer.Option(help="Column of weights: each row counts so many times.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Column to leave out; may be repeated.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the files of a folder that is not empty.")
    ] = False,
) -> None:
    """Fit a tree to a table, score it on held-out rows, and write it to a folder.

    Text columns become one feature for each category. The folder then holds the model
    (model.safetensors), the tree as text (tree.txt), the columns and their categories
    (columns.json), the scores (metrics.json) and, where there is a posterior, that of the number
    of facets of each node (facets.csv). Cards are read in their order, then the options that
    name a parameter, then --set; what comes later wins.
    """
    with clear_errors():
        options = {
            "--inference": ("inference", inference),
            "--depth": ("max_depth", depth),
            "--experts": ("n_experts", experts),
            "--epochs": ("epochs", epochs),
            "--draws": ("n_draws", draws),
        }
        choice = choose(tree, card or [], options, settings or [])
        check_folder(out, force=force)
        from bayestree import tables

        frame = tables.read_table(data)
        check_columns(frame, target, weights, drop or [])
        frame = frame.drop(columns=drop or [])
        prepared = prepare(frame, target, weights, task=task, fraction=test_fraction, seed=seed)
        estimator = make(choice, prepared.task, seed=seed)
        tell_data(data, target, prepared)
        fit_rows(estimator, prepared, choice)
        report(estimator, choice.tree, prepared, target, out)


@app.command()
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


if __name__ == "__main__":
    main()
