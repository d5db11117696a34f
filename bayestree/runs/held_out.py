"""Scores of held-out rows, row by row, by which runs are compared in pairs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from bayestree._utils import arviz_compat
from bayestree._utils.arrays import FloatArray
from bayestree.runs.outputs import MOST_NUMBERS
from bayestree.runs.rows import Prepared
from bayestree.runs.scores import TINY, said_of


class Gap(NamedTuple):
    """By how much one run predicts better than another, and the standard error of that."""

    total: float
    se: float

    @classmethod
    def of(cls, rows: FloatArray) -> "Gap":
        """The gap by the differences of the rows."""
        n = len(rows)
        return cls(float(rows.sum()), float(np.sqrt(n) * rows.std(ddof=1)) if n > 1 else np.nan)


class HeldOut(NamedTuple):
    """Scores of the held-out rows by run, the higher the better, and what they are."""

    measure: str
    rows: Mapping[str, FloatArray]

    @property
    def n_rows(self) -> int:
        """How many rows were scored."""
        return len(next(iter(self.rows.values())))


def held_out_scores(
    estimators: Mapping[str, Any], prepared: Mapping[str, Prepared]
) -> HeldOut | None:
    """Log scores of the held-out rows, or squared errors where a run gives y no density.

    Returns
    -------
    HeldOut or None
        None if no rows were held out.
    """
    if not all(rows.held_out for rows in prepared.values()):
        return None
    found = {name: _log_scores(one, prepared[name]) for name, one in estimators.items()}
    logs = {name: rows for name, rows in found.items() if rows is not None}
    if len(logs) == len(found):
        return HeldOut("log score, in nats", logs)
    errors = {name: _squared_errors(one, prepared[name]) for name, one in estimators.items()}
    return HeldOut("squared error", errors)


def _log_scores(estimator: Any, rows: Prepared) -> FloatArray | None:
    """The weighted log p(y) of each held-out row, given the training rows."""
    if hasattr(estimator, "classes_"):
        _, own = said_of(estimator, rows.X_held, rows.y_held)
        return _weights(rows) * np.log(np.maximum(own, TINY))
    posterior = getattr(estimator, "posterior_", None)
    if posterior is None or not hasattr(estimator, "to_arviz"):
        return None
    n_draws = posterior.n_chains * posterior.n_draws
    if posterior.model.likelihood.plug_in or len(rows.X_held) * n_draws > MOST_NUMBERS:
        return None
    made = estimator.to_arviz(
        rows.X_held, rows.y_held, _weights(rows), groups=["posterior", "log_likelihood"]
    )
    terms = (
        arviz_compat.group(made, "log_likelihood")["obs"].transpose("chain", "draw", ...).to_numpy()
    )
    found: FloatArray = logsumexp(terms.reshape(n_draws, -1), axis=0) - np.log(n_draws)
    return found


def _squared_errors(estimator: Any, rows: Prepared) -> FloatArray:
    errors: FloatArray = (estimator.predict(rows.X_held) - rows.y_held) ** 2
    return -_weights(rows) * errors


def _weights(rows: Prepared) -> FloatArray:
    """Weights of the held-out rows; where all are zero, each counts once."""
    weights = rows.weights_held
    return weights if weights.any() else np.ones_like(weights)
