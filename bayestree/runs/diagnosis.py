"""Verdict on the results of a run: which of them are reliable."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bayestree._utils.wording import counted
from bayestree.diagnostics import (
    Convergence,
    HeldOut,
    calibration,
    held_out_classes,
    held_out_intervals,
)
from bayestree.diagnostics.calibration import residuals
from bayestree.diagnostics.draws import spread
from bayestree.diagnostics.verdict import Settled
from bayestree.protocols import has_draws, has_single_leaf, modes_of, trees_of
from bayestree.runs.folder import METRICS, PREDICTIONS
from bayestree.runs.scores import LEVEL
from bayestree.runs.store import Run
from bayestree.tables import InputError

MAX_ROWS = 10_000  # maximum number of held-out rows on which predictions are judged


@dataclass(frozen=True)
class Diagnosis:
    """A verdict on a run: its inference, such as ``"nuts, 4 chains of 200 draws"``, and the checks.

    There are no checks of a point estimate.
    """

    how: str
    checks: Convergence

    @property
    def converged(self) -> Settled:
        """Whether the inference has converged; ``"nothing to judge"`` for a point estimate."""
        return self.checks.settled

    @property
    def passes(self) -> bool:
        """Whether no check failed, which the exit code reports."""
        return self.converged in ("yes", "doubtful", "nothing to judge")

    def __str__(self) -> str:
        return f"{self.how}\n\n{self.checks}"


def diagnose(run: Run) -> Diagnosis:
    """Judge a run by its draws, the statistics of its inference and its predictions.

    The table that it was fitted to need not exist. See
    :func:`bayestree.diagnostics.check_convergence` for the checks.
    """
    run.columns.check_single("diagnose")
    estimator, held_out = run.estimator, _held_out(run)
    if has_draws(estimator) and hasattr(estimator, "check_convergence"):
        checks = replace(estimator.check_convergence(), held_out=held_out)
    else:
        constant = all(map(has_single_leaf, trees_of(estimator)))
        checks = Convergence((), (), pd.DataFrame(), "point", held_out, single_leaf=constant)
    return Diagnosis(_inference(run), checks)


def _held_out(run: Run) -> HeldOut | None:
    """Calibration of the predictions of held-out rows; None if there are none."""
    path = run.folder / PREDICTIONS
    if not path.is_file() or not (run.folder / METRICS).is_file():
        return None
    if run.metrics.get("scored_on") != "held-out rows":
        return None
    try:
        table = pq.read_table(path)
        # By position, because the target may be named like another column.
        _, y, predicted, *others = (column.to_numpy() for column in table.columns)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{str(path)!r} was changed after it was written; fit again.") from error
    kept = spread(len(y), MAX_ROWS)
    if run.task == "survival" or (run.task == "regression" and not others):
        return None  # times may be censored; or the tree has no model of y
    if run.task == "regression":
        low, high, *exposure = (column[kept] for column in others)
        inside = (y[kept] >= low) & (y[kept] <= high)
        posterior = getattr(run.estimator, "posterior_", None)  # a forest has none
        whole = posterior is not None and posterior.model.leaf.whole
        apart = residuals(y[kept], predicted[kept], *exposure)
        return held_out_intervals(inside, LEVEL, at_least=whole, residual=apart)
    classes = run.estimator.classes_
    kept = kept[np.isin(y[kept], classes)]
    if len(kept) == 0:
        return None
    probability = np.stack(others, axis=1)[kept]
    return held_out_classes(calibration(y[kept], probability, classes=classes))


def _inference(run: Run) -> str:
    """The tree, its inference and number of draws, in words."""
    posterior: Any = getattr(run.estimator, "posterior_", None)
    if posterior is None:
        return f"{run.file.tree}: a forest of {len(run.estimator.estimators_)} trees"
    chains, draws = posterior.n_chains, posterior.n_draws
    several = len(modes_of(run.estimator))
    name = f"{run.file.tree}, {posterior.inference}{f', {several} modes, each' if several else ''}"
    if chains * draws == 1:
        return f"{name}: a point estimate"
    return f"{name}: {counted(chains, 'chain')} of {draws:,} draws"
