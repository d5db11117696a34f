"""The evidence and the posterior of the size of the tree, from runs of sequential Monte Carlo.

Reference for the comparison of models: Kass and Raftery, "Bayes factors" (1995).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.wording import counted


@dataclass(frozen=True, eq=False)
class Evidence:
    """Log evidence, and posterior probabilities of the number of leaves and of the depth.

    Attributes
    ----------
    runs : array, shape (chain,)
        The log evidence of each independent run, log p(y | X), with the topology integrated out.
    n_leaves, depth : arrays of int, shape (chain, draw)
    rows : int, optional
        A fingerprint of y and of the weights of the rows; None if an earlier version made the fit.
    """

    runs: FloatArray
    n_leaves: IntArray
    depth: IntArray
    rows: int | None = None

    @property
    def log_evidence(self) -> float:
        """Logarithm of the mean of the evidence over the runs; each run alone is consistent."""
        top = float(self.runs.max())
        return top + float(np.log(np.exp(self.runs - top).mean()))

    @property
    def standard_error(self) -> float:
        """Standard error of ``log_evidence`` from the spread of the runs; NaN for one run.

        With few runs it is itself uncertain: with four, by a factor of about two.
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

    def to_json(self) -> dict[str, Any]:
        """Log evidence, standard error (None for one run), and probabilities by size, as text."""
        sizes = {"leaves": self.leaf_probabilities, "depth": self.depth_probabilities}
        return {
            "log_evidence": self.log_evidence,
            "standard_error": None if len(self.runs) == 1 else self.standard_error,
            **{
                name: {str(size): float(p) for size, p in table["probability"].items()}
                for name, table in sizes.items()
            },
        }

    def __str__(self) -> str:
        n_runs, n_draws = self.n_leaves.shape
        tables = (self.leaf_probabilities, self.depth_probabilities)
        error = f" (standard error {self.standard_error:.2f})" if n_runs > 1 else ""
        return "\n".join(
            [
                f"Log evidence {self.log_evidence:,.2f}{error}, "
                f"{counted(n_runs, 'run')} of {counted(n_draws, 'draw')}",
                *(table.to_string(float_format="{:.3f}".format) for table in tables),
            ]
        )


def evidence(stats: Mapping[str, Any]) -> Evidence:
    """Read the evidence from the recorded statistics of sequential Monte Carlo.

    Parameters
    ----------
    stats : mapping of arrays
        ``Posterior.stats`` or ArviZ's ``sample_stats`` after ``inference="smc"``: ``log_evidence``
        (chain,), ``n_leaves`` and ``depth`` (chain, draw), and, if it is known, ``rows``.

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
    runs, n_leaves, depth = (
        np.asarray(stats[name]) for name in ("log_evidence", "n_leaves", "depth")
    )
    return Evidence(runs, n_leaves, depth, int(stats["rows"]) if "rows" in stats else None)


def compare_evidence(models: Mapping[str, Evidence]) -> pd.DataFrame:
    """Compare models of the same rows by Bayes factors and posterior probabilities.

    Standard errors come from the spread of the runs, and do not show what all of them miss: above
    0.3 nats the evidence is uncertain, above 0.7 it decides nothing (``check_convergence``).

    Parameters
    ----------
    models : mapping of str to Evidence
        Two or more, such as ``{"oblique": one.evidence(), "polytope": two.evidence()}``.

    Returns
    -------
    DataFrame
        A row for each model, the most probable first:

        - ``log_evidence`` and ``se``, its standard error from the spread of the runs;
        - ``log_bayes_factor``: difference of ``log_evidence`` from the first model, and its
          standard error ``log_bayes_factor_se``;
        - ``probability`` of the model given the rows, if all are equally probable before.

    Raises
    ------
    ValueError
        If there are fewer than two, or if their targets or weights differ. Rows of X are not
        compared.
    """
    if len(models) < 2:
        raise ValueError(f"one model cannot be compared; give two or more, got {[*models]}.")
    order = sorted(models, key=lambda name: -models[name].log_evidence)
    known = {name: models[name].rows for name in order if models[name].rows is not None}
    first, *others = known or [""]
    for name in others:
        if known[name] != known[first]:
            raise ValueError(
                f"{first!r} and {name!r} were fitted to different targets or weights, and "
                "their evidence cannot be compared: fit both to the same rows in the same order."
            )
    log_evidence = np.array([models[name].log_evidence for name in order])
    error = np.array([models[name].standard_error for name in order])
    factor = log_evidence - log_evidence[0]
    columns = {
        "log_evidence": log_evidence,
        "se": error,
        "log_bayes_factor": factor,
        "log_bayes_factor_se": np.r_[0.0, np.hypot(error[1:], error[0])],
        "probability": np.exp(factor) / np.exp(factor).sum(),
    }
    return pd.DataFrame(columns, index=pd.Index(order, name="model"))


def _probabilities(values: IntArray, name: str) -> pd.DataFrame:
    """Compute shares of each value, with standard errors from the spread of the runs."""
    levels = np.unique(values)
    shares = (values[..., None] == levels).mean(axis=1)  # (chain, level)
    error = np.full(len(levels), np.nan)
    if len(shares) > 1:
        error = shares.std(axis=0, ddof=1) / np.sqrt(len(shares))
    columns = {"probability": shares.mean(axis=0), "error": error}
    return pd.DataFrame(columns, index=pd.Index(levels, name=name))
