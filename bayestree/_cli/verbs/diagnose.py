"""`bayestree diagnose`."""

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import FolderArgument, Json
from bayestree._cli.output import print_json
from bayestree._cli.tables import records

NOT_CONVERGED = 1  # exit code


def diagnose(folder: FolderArgument, *, as_json: Json = False) -> None:
    """Report in plain words which predictions and intervals of a run can be trusted.

    Predictions are judged on the held-out rows of the run, if it has any. Chains are compared by
    quantities that do not depend on the order of the experts (R-hat, effective sample size).
    Samplers are also checked for divergences, tree depth and energy, and variational fits for
    convergence of the bound. The log evidence and the posterior of the number of leaves and of the
    depth are shown for runs by sequential Monte Carlo.

    The exit code is 0 if no check failed, or if there is no posterior to check; it is 1 if a check
    failed, or if there is too little information to decide.

    For example:

        bayestree diagnose results/wines && bayestree report results/wines
    """
    with clear_errors():
        from bayestree.runs.diagnosis import diagnose as diagnose_run
        from bayestree.runs.store import open_run

        run = open_run(folder)
        diagnosis = diagnose_run(run)
        checks = diagnosis.checks
        if as_json:
            print_json(
                {
                    "folder": str(run.folder),
                    "converged": diagnosis.converged,
                    "inference": diagnosis.how,
                    "predictions": checks.predictions,
                    "intervals": checks.intervals,
                    "stands_for_the_posterior": checks.faithful,
                    "checks": records(checks.to_frame()),
                    "not_judged": list(checks.not_judged),
                    "evidence": checks.evidence and checks.evidence.to_json(),
                }
            )
        else:
            print(diagnosis)
    if not diagnosis.passes:
        raise typer.Exit(NOT_CONVERGED)
