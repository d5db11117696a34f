"""`bayestree fit`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import ForceRun, Json, Quiet, Resume, card_names, tree_names
from bayestree._cli.output import resume_hint, run_and_print
from bayestree.estimators.registry import TREES


class TaskOption(StrEnum):
    """Kind of target."""

    auto = "auto"
    classification = "classification"
    regression = "regression"
    survival = "survival"


def fit(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with a header.")
    ],
    *,
    target: Annotated[str, typer.Option(help="Column to predict.")],
    out: Annotated[Path, typer.Option(help="Folder to write; new or empty.")],
    task: Annotated[
        TaskOption,
        typer.Option(
            help="auto: survival with --event, regression with --exposure; classification for text "
            "or few integers."
        ),
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
            "--set", metavar="NAME=VALUE", help="Any setting of a run file; may be repeated."
        ),
    ] = None,
    inference: Annotated[
        str | None,
        typer.Option(
            help="For cpt: svi (the default), nuts or smc for a posterior, map for the best tree, "
            "grow for a greedy tree."
        ),
    ] = None,
    depth: Annotated[
        int | None, typer.Option(min=0, help="Maximum number of splits on a path.")
    ] = None,
    experts: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of facets of a split; by default 20.")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of passes over the rows; by default chosen by the fit."),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of posterior draws; by default 50; 250 for nuts, 1000 for smc per chain.",
        ),
    ] = None,
    test_fraction: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of the rows held out for scoring.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")] = 0,
    weights: Annotated[
        str | None, typer.Option(help="Column of row weights; a weight of 2 counts a row twice.")
    ] = None,
    exposure: Annotated[
        str | None,
        typer.Option(help="Column of exposures of counts, with --set leaf=poisson."),
    ] = None,
    event: Annotated[
        str | None,
        typer.Option(help="Column of events of survival times; false or 0 if censored."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Column to leave out; may be repeated.")
    ] = None,
    resume: Resume = False,
    force: ForceRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a tree to a table, without a run file.

    The tree is scored on held-out rows and written to the same kind of folder as by `bayestree
    run`, with a run file (run.toml) that reproduces it. A text column becomes one feature for each
    category. Cards are read first, in their order, then the options that set a parameter, then
    --set; later values win.
    """
    with clear_errors(interrupted=resume_hint(force=force)):
        from bayestree.runs.schema import run_from_options

        file = run_from_options(
            {
                "DATA": ("data.path", data),
                "--target": ("data.target", target),
                "--task": ("data.task", task.value),
                "--weights": ("data.weights", weights),
                "--exposure": ("data.exposure", exposure),
                "--event": ("data.event", event),
                "--drop": ("data.drop", tuple(drop or ())),
                "--test-fraction": ("data.test_fraction", test_fraction),
                "--out": ("output.folder", out),
                "--seed": ("seed", seed),
                "--tree": ("model.tree", tree),
                "--inference": ("inference.inference", inference),
                "--depth": ("model.max_depth", depth),
                "--experts": ("model.n_experts", experts),
                "--epochs": ("inference.epochs", epochs),
                "--draws": ("inference.n_draws", draws),
            },
            cards=card or [],
            pairs=settings or [],
        )
        run_and_print(file, resume=resume, force=force, as_json=as_json, quiet=quiet)
