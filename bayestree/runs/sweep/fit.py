"""Fit and score one point of a sweep, in any process."""

import os
import socket
import threading
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import pandas as pd
from joblib import parallel_config
from threadpoolctl import threadpool_limits

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.threads import threads_for
from bayestree.runs.scores import scored

DONE: Final = "done"
FAILED: Final = "failed"
#: torch's generator is global, but a worker of a cluster may have several threads.
LOCK = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """The result of a point.

    For a forest, ``leaves`` counts those of all trees, and ``depth`` is that of the deepest.
    ``seconds`` is the time of the fit, ``warnings`` are distinct, ``error`` is the reason of a
    failure in one line, and ``worker`` names the host and process that fitted the point.
    """

    status: Literal["done", "failed"]
    scores: dict[str, float] = field(default_factory=dict)
    leaves: int | None = None
    depth: int | None = None
    training_rows: int | None = None
    scored_rows: int | None = None
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    worker: str = ""

    @classmethod
    def failed(cls, error: str) -> Self:
        return cls(FAILED, error=" ".join(error.split()))


def fit_and_score(
    estimator: Any,
    X: pd.DataFrame,
    y: AnyArray,
    weights: FloatArray,
    *,
    X_scored: pd.DataFrame,
    y_scored: AnyArray,
    weights_scored: FloatArray,
    fold: tuple[IntArray, IntArray] | None = None,
) -> Outcome:
    """Fit an estimator and score it, on one thread so that the numbers are the same anywhere.

    An error is an outcome too, so that the other points are not affected. With ``fold``, the rows
    of X with these numbers are used for training and scoring instead.
    """
    if fold is not None:
        train, held = fold
        X_scored, y_scored, weights_scored = X.iloc[held], y[held], weights[held]
        X, y, weights = X.iloc[train], y[train], weights[train]
    with LOCK, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = time.perf_counter()
        try:
            with parallel_config("sequential"), threads_for(0), threadpool_limits(1):
                estimator.fit(X, y, weights)
                seconds = time.perf_counter() - started
                scores = scored(estimator, X_scored, y_scored, weights_scored)
        except Exception as error:
            return Outcome.failed(f"{type(error).__name__}: {error}")
    return Outcome(
        DONE,
        scores=scores,
        leaves=int(estimator.get_n_leaves()),
        depth=int(estimator.get_depth()),
        training_rows=len(X),
        scored_rows=len(X_scored),
        seconds=seconds,
        warnings=list(dict.fromkeys(str(one.message) for one in caught)),
        worker=f"{socket.gethostname()}:{os.getpid()}",
    )
