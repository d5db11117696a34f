"""PSIS leave-one-out cross-validation for samplers and variational approximations."""

from dataclasses import dataclass
from textwrap import fill
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from bayestree._utils.arrays import FloatArray
from bayestree._utils.psis import good_k, psis

WIDTH = 88  # line width of printed text
MAX_BAD_SHARE = 0.1  # share of rows of too large a k, above which a sum of all is not trusted


class LooDifference(NamedTuple):
    """Difference in leave-one-out score between two models.

    Attributes
    ----------
    elpd : float
        Difference of the scores in nats; positive if the first model predicts better.
    se : float
        Its standard error, from the spread of the row-wise differences; NaN for one row.
    n_bad : int
        Number of rows whose term is unreliable for either model.
    """

    elpd: float
    se: float
    n_bad: int

    def __str__(self) -> str:
        bad = f", unreliable rows: {self.n_bad}" if self.n_bad else ""
        return f"{self.elpd:+.2f} (standard error {self.se:.2f}{bad})"


@dataclass(frozen=True, eq=False)
class Loo:
    """Leave-one-out expected log predictive density.

    Attributes
    ----------
    elpd : float
        Sum over the rows of log p(y_i | the other rows), in nats: higher is better.
    se : float
        Its standard error, from the spread of the terms; NaN for one row.
    p_loo : float
        Effective number of parameters: in-sample log predictive density minus ``elpd``.
    elpd_row : array, shape (n,)
        The term of each row.
    fitted_row : array, shape (n,)
        Log predictive density of each row under the posterior of all rows.
    k : array, shape (n,)
        Pareto k of each row; terms with k above ``good_k`` are unreliable.
    good_k : float
        min(1 - 1 / log10(draws), 0.7).
    n_draws : int
        Number of draws over all chains.
    corrected : bool
        Whether draws of an approximation were reweighted to the posterior.
    n_folds : int
        Number of folds of a score by refits, which has no k (-inf); 0 for importance sampling.
    """

    elpd: float
    se: float
    p_loo: float
    elpd_row: FloatArray
    fitted_row: FloatArray
    k: FloatArray
    good_k: float
    n_draws: int
    corrected: bool
    n_folds: int = 0

    @classmethod
    def of(
        cls,
        elpd_row: FloatArray,
        fitted_row: FloatArray,
        *,
        k: FloatArray | float = -np.inf,
        good_k: float = np.inf,
        n_draws: int = 0,
        corrected: bool = False,
        n_folds: int = 0,
    ) -> "Loo":
        """The score with these terms."""
        n = len(elpd_row)
        return cls(
            elpd=float(elpd_row.sum()),
            se=float(np.sqrt(n) * elpd_row.std(ddof=1)) if n > 1 else np.nan,
            p_loo=float((fitted_row - elpd_row).sum()),
            elpd_row=elpd_row,
            fitted_row=fitted_row,
            k=np.broadcast_to(k, n),
            good_k=good_k,
            n_draws=n_draws,
            corrected=corrected,
            n_folds=n_folds,
        )

    @property
    def bad_rows(self) -> NDArray[np.int64]:
        """Indices of the rows whose k is above ``good_k``."""
        return np.flatnonzero(~(self.k <= self.good_k))

    @property
    def trusted(self) -> bool:
        """Whether the sum over all rows means something: k is good for nine rows of ten."""
        return len(self.bad_rows) <= MAX_BAD_SHARE * len(self.k)

    @property
    def warning(self) -> str:
        """Caveats about the result and what to do about them; empty if none."""
        n_bad, n = len(self.bad_rows), len(self.k)
        if n_bad == 0:
            return ""
        head = f"k is above {self.good_k:.2f} for {n_bad} of {n} rows: their terms are unreliable."
        if not self.trusted:
            return (
                f"{head} Draws of a variational fit are usually too far from the posterior for "
                "importance sampling. Refit without the rows, as loo(X, y, method='kfold') of an "
                "estimator does, or sample the tree (inference='nuts')."
            )
        return (
            f"{head} Each of them influences the posterior strongly: inspect them, draw more, or "
            "refit without them and score them as held-out rows."
        )

    def compare(self, other: "Loo") -> LooDifference:
        """Difference between this score and that of another model of the same rows.

        Rows are compared pairwise: difficulty shared by both models cancels, so the standard
        error is smaller than those of the two scores suggest (Vehtari, Gelman and Gabry 2017,
        section 5.2). It is an underestimate for few rows or very similar models.

        Parameters
        ----------
        other : Loo
            Score of another model on the same rows in the same order and, for regression, with
            y in the same units.

        Raises
        ------
        ValueError
            If the numbers of rows or of refits differ.
        """
        n = len(self.elpd_row)
        if len(other.elpd_row) != n:
            raise ValueError(
                f"other must score the same rows: it has {len(other.elpd_row)}, this has {n}."
            )
        if other.n_folds != self.n_folds:
            raise ValueError(
                f"other must be scored in the same way: it has {other.n_folds} refits, this has "
                f"{self.n_folds}."
            )
        each = self.elpd_row - other.elpd_row
        return LooDifference(
            elpd=float(each.sum()),
            se=float(np.sqrt(n) * each.std(ddof=1)) if n > 1 else np.nan,
            n_bad=len(np.union1d(self.bad_rows, other.bad_rows)),
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per row of the data: ``elpd``, ``k``, and whether k is ``good``."""
        index = pd.RangeIndex(len(self.k), name="row")
        good = self.k <= self.good_k
        return pd.DataFrame({"elpd": self.elpd_row, "k": self.k, "good": good}, index=index)

    def __str__(self) -> str:
        lines = [
            f"elpd   {self.elpd:12.2f}  (standard error {self.se:.2f})",
            f"p_loo  {self.p_loo:12.2f}",
        ]
        if self.n_folds:
            return "\n".join([f"{self.n_folds} refits, {len(self.k)} rows", *lines])
        kind = ", reweighted from an approximation" if self.corrected else ""
        lines.insert(0, f"PSIS-LOO, {len(self.k)} rows, {self.n_draws} draws{kind}")
        lines.append(f"largest k {self.k.max():.2f}, good up to {self.good_k:.2f}")
        return "\n".join([*lines, *([fill(self.warning, WIDTH)] if self.warning else [])])


def loo(
    log_likelihood: ArrayLike,
    *,
    log_p: ArrayLike | None = None,
    log_q: ArrayLike | None = None,
    reff: float = 1.0,
) -> Loo:
    """PSIS-LOO from the log-likelihood of each row under each draw.

    Vehtari, Gelman and Gabry (2017). Draws of an approximation q to the posterior p are also
    weighted by p / q: the ratios of row i are p / (q p(y_i)) (Magnusson et al., "Bayesian
    leave-one-out cross-validation for large data", ICML 2019).

    Parameters
    ----------
    log_likelihood : array, shape (chain, draw, n)
    log_p, log_q : arrays, shape (chain, draw), optional
        Log joint density of parameters and all rows of each draw, up to a constant, and its
        log-density under the approximation it was drawn from. Give both or neither.
    reff : float
        Relative efficiency: effective draws per draw.

    Returns
    -------
    Loo
        Can be printed; see also ``to_frame`` and ``warning``.

    Raises
    ------
    ValueError
        If shapes disagree, there is only one draw, only one of ``log_p`` and ``log_q`` is given,
        or a ratio is NaN or infinite.
    """
    terms = np.asarray(log_likelihood, dtype=np.float64)
    if terms.ndim != 3 or 0 in terms.shape:
        raise ValueError(f"log_likelihood must have shape (chain, draw, row), got {terms.shape}.")
    if (log_p is None) != (log_q is None):
        raise ValueError("log_p and log_q belong together; give both or neither.")
    correction = np.zeros(terms.shape[:2])
    if log_p is not None and log_q is not None:
        correction = np.asarray(log_p, dtype=np.float64) - np.asarray(log_q, dtype=np.float64)
    if correction.shape != terms.shape[:2]:
        raise ValueError(
            f"log_p and log_q must have shape {terms.shape[:2]} like the draws of "
            f"log_likelihood, got {correction.shape}."
        )
    flat = terms.reshape(-1, terms.shape[2])
    n_draws, n = flat.shape
    if n_draws == 1:
        raise ValueError("PSIS-LOO needs a posterior, and one draw is a point estimate.")
    elpd_row, k = np.empty(n), np.empty(n)
    # p(y_i | y_-i) = sum_s w_s p(y_i | theta_s) with w_s ~ p_s / (q_s p(y_i | theta_s)), sum w = 1.
    for row, log_lik in enumerate(flat.T):
        log_weights, k[row] = psis(correction.ravel() - log_lik, reff)
        elpd_row[row] = logsumexp(log_weights + log_lik)
    fitted = logsumexp(flat, axis=0) - np.log(n_draws)
    return Loo.of(
        elpd_row,
        fitted,
        k=k,
        good_k=good_k(n_draws),
        n_draws=n_draws,
        corrected=log_p is not None,
    )
