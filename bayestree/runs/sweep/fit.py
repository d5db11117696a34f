"""One point of a sweep: fitted on some rows, scored on others, wherever it runs."""

import os
import socket
import threading
import time
import warnings
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Self

import numpy as np
import pandas as pd
from joblib import parallel_config
from numpy.typing import NDArray
from pydantic import TypeAdapter
from threadpoolctl import threadpool_limits

from bayestree._utils.threads import threads_for
from bayestree.runs.scores import scored

DONE: Final = "done"
FAILED: Final = "failed"
#: torch's generator is one for the whole process, but a worker of a cluster may have threads.
ALONE = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """What came of a point.

    Parameters
    ----------
    status : {"done", "failed"}
    scores : dict of str to float
    leaves, depth : int, optional
        Of the tree; of a forest all leaves, and the deepest tree.
    training_rows, scored_rows : int, optional
    seconds : float
        Of the fit.
    warnings : list of str
        Different ones, in their order.
    error : str
        Why it failed, in a line.
    worker : str
        Host and process.
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

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> "Outcome":
        """The inverse of :meth:`to_json`.

        Raises
        ------
        ValueError
            If it is no outcome.
        """
        return TypeAdapter(cls).validate_python(content)

    @classmethod
    def failed(cls, error: str) -> Self:
        """That of a point that could not be fitted."""
        return cls(FAILED, error=" ".join(error.split()))


def fit_and_score(
    estimator: Any,
    X: pd.DataFrame,
    y: NDArray[Any],
    weights: NDArray[np.float64],
    *,
    X_scored: pd.DataFrame,
    y_scored: NDArray[Any],
    weights_scored: NDArray[np.float64],
    fold: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> Outcome:
    """Fit an estimator and score it; on one thread, so that sums are in the same order anywhere.

    An error is an outcome as well: the other points go on.

    Parameters
    ----------
    estimator : a classifier or regressor of this package, not fitted
    X, y, weights : the training rows
    X_scored, y_scored, weights_scored : the rows to score on
    fold : (training rows, scored rows), optional
        Numbers of rows of X to be taken for the two instead.
    """
    if fold is not None:
        train, held = fold
        X_scored, y_scored, weights_scored = X.iloc[held], y[held], weights[held]
        X, y, weights = X.iloc[train], y[train], weights[train]
    with ALONE, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        begun = time.perf_counter()
        try:
            with parallel_config("sequential"), threads_for(0), threadpool_limits(1):
                estimator.fit(X, y, weights)
                seconds = time.perf_counter() - begun
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
        warnings=list(dict.fromkeys(str(one.message) for one in said)),
        worker=f"{socket.gethostname()}:{os.getpid()}",
    )
