"""`bayestree fit`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.folders import check_folder
from bayestree._cli.output import report, tell_data
from bayestree._cli.rows import check_columns, prepare
from bayestree._cli.settings import choose, fit_rows, make
from bayestree._cli.trees import TREES


class TaskOption(StrEnum):
    """What the target is."""

    auto = "auto"
    classification = "classification"
    regression = "regression"


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
