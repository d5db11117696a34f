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
    """Say in plain words whether the inference of a run has converged.

    Chains are compared on quantities that do not depend on the order of the experts (R-hat,
    effective draws); of a sampler divergences, tree depth and energy are looked at, of a
    variational fit whether its bound has settled and how near its guide comes to the posterior.

    The exit code is 0 where the inference has converged, in doubt or not, or where there is no
    posterior that could converge; and 1 where it has not, or nothing tells.

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
        "stands_for_the_posterior": None if checks is None else checks.faithful,
        "checks": [] if checks is None else records(checks.to_frame()),
        "not_judged": [] if checks is None else list(checks.not_judged),
    }
