"""Row-by-row scores of held-out rows, for paired comparisons of runs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from bayestree._utils import arviz_compat
from bayestree._utils.arrays import FloatArray
from bayestree.protocols import Mode, modes_of
from bayestree.runs.outputs import MAX_NUMBERS
from bayestree.runs.rows import Prepared
from bayestree.runs.scores import TINY, predict_rows


class Gap(NamedTuple):
    """Total difference between the scores of two runs, and its standard error."""

    total: float
    se: float

    @classmethod
    def of(cls, differences: FloatArray) -> "Gap":
        n = len(differences)
        se = float(np.sqrt(n) * differences.std(ddof=1)) if n > 1 else np.nan
        return cls(float(differences.sum()), se)


class HeldOut(NamedTuple):
    """Scores of the held-out rows by run (higher is better), and their kind."""

    in_nats: bool
    rows: Mapping[str, FloatArray]

    @property
    def measure(self) -> str:
        return "log score, in nats" if self.in_nats else "squared error"

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.rows.values())))


def held_out_scores(
    estimators: Mapping[str, Any], prepared: Mapping[str, Prepared]
) -> HeldOut | None:
    """Log scores of the held-out rows, or squared errors if a run has no density of y.

    None if no rows were held out, or for rates without densities.
    """
    if not all(rows.held_out for rows in prepared.values()):
        return None
    scores = {name: _log_scores(one, prepared[name]) for name, one in estimators.items()}
    logs = {name: rows for name, rows in scores.items() if rows is not None}
    if len(logs) == len(scores):
        return HeldOut(True, logs)
    if any(rows.y.ndim > 1 or rows.task == "survival" for rows in prepared.values()):
        return None  # predictions are rates, not values of y
    errors: dict[str, FloatArray] = {
        name: -_weights(rows) * (estimators[name].predict(rows.X_held) - rows.y_held) ** 2
        for name, rows in prepared.items()
    }
    return HeldOut(False, errors)


def _log_scores(estimator: Any, rows: Prepared) -> FloatArray | None:
    """The weighted log p(y) of each held-out row, given the training rows."""
    if hasattr(estimator, "classes_"):
        _, probability = predict_rows(estimator, rows.X_held, rows.y_held)
        return _weights(rows) * np.log(np.maximum(probability, TINY))
    posterior = getattr(estimator, "posterior_", None)
    if posterior is None or not hasattr(estimator, "to_arviz"):
        return None
    n_draws = posterior.n_chains * posterior.n_draws
    if posterior.model.likelihood.plug_in or len(rows.X_held) * n_draws > MAX_NUMBERS:
        return None
    each, modes = [], modes_of(estimator) or [Mode(0, 1.0, estimator)]
    for mode in modes:
        container = mode.estimator.to_arviz(rows.X_held, rows.y_held, groups=["log_likelihood"])
        terms = arviz_compat.group(container, "log_likelihood")["obs"]
        by_draw = terms.transpose("chain", "draw", ...).to_numpy().reshape(n_draws, -1)
        each.append(logsumexp(by_draw, axis=0) - np.log(n_draws))
    scores: FloatArray = logsumexp(each, axis=0, b=[[mode.weight] for mode in modes])
    return _weights(rows) * scores


def _weights(rows: Prepared) -> FloatArray:
    """Weights of the held-out rows; 1 if all are zero."""
    weights = rows.weights_held
    return weights if weights.any() else np.ones_like(weights)
