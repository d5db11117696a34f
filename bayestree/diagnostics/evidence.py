"""The evidence and the posterior of the size of the tree, from runs of sequential Monte Carlo."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Evidence:
    """Log evidence, and posterior probabilities of the number of leaves and of the depth.

    Attributes
    ----------
    runs : array, shape (chain,)
        Log evidence by each independent run: log p(y | X), the topology integrated out.
    n_leaves, depth : arrays of int, shape (chain, draw)
    """

    runs: FloatArray
    n_leaves: IntArray
    depth: IntArray

    @property
    def log_evidence(self) -> float:
        """Logarithm of the mean of the evidence over the runs, each of which is unbiased."""
        top = float(self.runs.max())
        return top + float(np.log(np.exp(self.runs - top).mean()))

    @property
    def standard_error(self) -> float:
        """Standard error of ``log_evidence`` from the spread of the runs; NaN for one run.

        With few runs it is itself uncertain, by a factor of about two with four.
        """
        if len(self.runs) == 1:
            return float("nan")
        relative = np.exp(self.runs - self.log_evidence)  # of mean 1
        return float(relative.std(ddof=1) / np.sqrt(len(relative)))

    @property
    def leaf_probabilities(self) -> pd.DataFrame:
        """Posterior of the number of leaves, with columns ``probability`` and ``error``."""
        return _probabilities(self.n_leaves, "leaves")

    @property
    def depth_probabilities(self) -> pd.DataFrame:
        """Posterior of the depth, with columns ``probability`` and ``error``."""
        return _probabilities(self.depth, "depth")

    def __str__(self) -> str:
        n_runs, n_draws = self.n_leaves.shape
        tables = (self.leaf_probabilities, self.depth_probabilities)
        return "\n".join(
            [
                f"Log evidence {self.log_evidence:.2f} (standard error {self.standard_error:.2f}), "
                f"{n_runs} runs of {n_draws} particles",
                *(table.to_string(float_format="{:.3f}".format) for table in tables),
            ]
        )


def evidence(stats: Mapping[str, Any]) -> Evidence:
    """The evidence from the recorded statistics of sequential Monte Carlo.

    Parameters
    ----------
    stats : mapping of arrays
        ``Posterior.stats`` or ArviZ's ``sample_stats`` after ``inference="smc"``:
        ``log_evidence`` (chain,), ``n_leaves`` and ``depth`` (chain, draw).

    Returns
    -------
    Evidence
        Can be printed.

    Raises
    ------
    ValueError
        If another method made the draws.
    """
    if "log_evidence" not in stats:
        raise ValueError(
            "the evidence and the posterior of the topology are computed by sequential Monte "
            "Carlo only: fit with inference='smc'."
        )
    return Evidence(*(np.asarray(stats[name]) for name in ("log_evidence", "n_leaves", "depth")))


def _probabilities(values: IntArray, name: str) -> pd.DataFrame:
    """Shares of each value, with standard errors from the spread of the runs; NaN for one run."""
    levels = np.unique(values)
    shares = (values[..., None] == levels).mean(axis=1)  # (chain, level)
    error = np.full(len(levels), np.nan)
    if len(shares) > 1:
        error = shares.std(axis=0, ddof=1) / np.sqrt(len(shares))
    columns = {"probability": shares.mean(axis=0), "error": error}
    return pd.DataFrame(columns, index=pd.Index(levels, name=name))
