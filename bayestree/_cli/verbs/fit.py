"""`bayestree fit`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import Json, card_names, tree_names
from bayestree._cli.output import command_line, display, print_run, resume_hint
from bayestree.runs.trees import TREES


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
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(TREES)}; by default cpt.",
            autocompletion=tree_names,
        ),
    ] = None,
    card: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CARD",
            help="Name or TOML file of a card of parameters; may be repeated.",
            autocompletion=card_names,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any value of a run file; may be repeated."
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
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a fit that was interrupted.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the files of a folder that is not empty.")
    ] = False,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress and no tree.")] = False,
) -> None:
    """Fit a tree to a table: a run without a file.

    The tree is scored on held-out rows and written to a folder, that of `bayestree run`, with a
    run file (run.toml) that makes the same again. Text columns become one feature for each
    category. Cards are read in their order, then the
    options that name a parameter, then --set; what comes later wins.
    """
    with clear_errors(interrupted=resume_hint(force=force)):
        from bayestree.runs.options import from_options
        from bayestree.runs.runner import run

        file = from_options(
            {
                "seed": seed,
                "data": {
                    "path": data,
                    "target": target,
                    "task": task.value,
                    "weights": weights,
                    "drop": tuple(drop or ()),
                    "test_fraction": test_fraction,
                },
                "output": {"folder": out},
            },
            tree=tree,
            cards=card or [],
            options={
                "--inference": ("inference", inference),
                "--depth": ("max_depth", depth),
                "--experts": ("n_experts", experts),
                "--epochs": ("epochs", epochs),
                "--draws": ("n_draws", draws),
            },
            pairs=settings or [],
        )
        done = run(
            file,
            resume=resume,
            force=force,
            display=display(quiet=quiet or as_json),
            command=command_line(),
        )
        print_run(done, as_json=as_json, quiet=quiet)
