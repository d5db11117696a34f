"""`bayestree diagnose`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import Json
from bayestree._cli.tables import records

if TYPE_CHECKING:
    from bayestree.runs.diagnosis import Diagnosis

NOT_CONVERGED = 1  # exit code


def diagnose(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run.")],
    *,
    as_json: Json = False,
) -> None:
    """Say what can be trusted of a run, in plain words: its predictions, its intervals.

    Predictions are judged by the held-out rows of the run, where it has any. Chains are compared
    on quantities that do not depend on the order of the experts (R-hat, effective draws); of a
    sampler divergences, tree depth and energy are checked, of a variational fit whether its bound
    has converged.

    The exit code is 0 if no check failed, or if there is no posterior to check; it is 1 if a check
    failed, or if too little was recorded to tell.

    For example:

        bayestree diagnose results/wines && bayestree report results/wines
    """
    with clear_errors():
        from bayestree.runs.diagnosis import diagnose as judge
        from bayestree.runs.store import open_run

        run = open_run(folder)
        found = judge(run)
        if as_json:
            told = {"folder": str(run.folder)} | _plain(found)
            print(json.dumps(told, indent=2, ensure_ascii=False))
        else:
            print(found)
    if not found.passes:
        raise typer.Exit(NOT_CONVERGED)


def _plain(found: "Diagnosis") -> dict[str, Any]:
    checks = found.checks
    return {
        "converged": found.converged,
        "inference": found.how,
        "predictions": checks.predictions,
        "intervals": checks.intervals,
        "stands_for_the_posterior": checks.faithful,
        "checks": records(checks.to_frame()),
        "not_judged": list(checks.not_judged),
    }
