"""PSIS leave-one-out cross-validation, and the weights of several posteriors by its scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from scipy.special import logsumexp, softmax

from bayestree._utils import arviz_compat
from bayestree._utils.arrays import FloatArray
from bayestree._utils.monte_carlo import ess, good_k, psis

WIDTH = 88  # line width of printed text
MAX_BAD_SHARE = 0.1  # share of rows of too large a k, above which a sum of all is not trusted
GAP = 1e-6  # nats by which the total score may be below its maximum
MAX_STEPS = 1000  # a dozen suffice unless rounding errors of the gradient exceed the gap
SHORTEST = 1e-10  # share of a Newton step
ENOUGH = 1e-4  # share of the rise that the slope promises
SUM_SCALE = 1e3
BLOCK = 2**20  # terms that are reweighted at a time


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
        Number of folds if the score comes from refits, which have no k (-inf); otherwise 0.
    reason : str
        Why an estimator's ``loo(method="auto")`` chose this method; empty if it was given.
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
    reason: str = ""

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
        reason: str = "",
    ) -> "Loo":
        """Make a score of the terms of the rows."""
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
            reason=reason,
        )

    @property
    def bad_rows(self) -> NDArray[np.int64]:
        """Indices of the rows whose k is above ``good_k``."""
        return np.flatnonzero(~(self.k <= self.good_k))

    @property
    def trusted(self) -> bool:
        """Whether the sum over all rows can be trusted: k is good for at least nine rows in ten."""
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
        """Compare this score with the score of another model of the same rows.

        Rows are compared pairwise: difficulty shared by both models cancels, so the standard
        error is smaller than the two errors of the scores suggest (Vehtari, Gelman and Gabry 2017,
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
                f"{self.n_folds}; compute both by loo(X, y, method='kfold') with equal n_folds."
            )
        each = self.elpd_row - other.elpd_row
        return LooDifference(
            elpd=float(each.sum()),
            se=float(np.sqrt(n) * each.std(ddof=1)) if n > 1 else np.nan,
            n_bad=len(np.union1d(self.bad_rows, other.bad_rows)),
        )

    def to_arviz(self) -> Any:
        """Return this score as ArviZ's own ``ELPDData``, for ``arviz.compare`` and its plots.

        It has the terms of the rows and, for importance sampling, their k. Give ``arviz.compare``
        scores of the same rows by the same method, as for :meth:`compare`.
        """
        return arviz_compat.elpd_data(
            self.elpd_row,
            None if self.n_folds else self.k,
            elpd=self.elpd,
            se=self.se,
            p=self.p_loo,
            n_samples=self.n_draws,
            warning=len(self.bad_rows) > 0,
            good_k=self.good_k,
            n_folds=self.n_folds,
        )

    def to_frame(self) -> pd.DataFrame:
        """Tabulate each row of the data: ``elpd``, ``k``, and whether k is ``good``."""
        index = pd.RangeIndex(len(self.k), name="row")
        good = self.k <= self.good_k
        return pd.DataFrame({"elpd": self.elpd_row, "k": self.k, "good": good}, index=index)

    def __str__(self) -> str:
        lines = [
            f"elpd   {self.elpd:12.2f}  (standard error {self.se:.2f})",
            f"p_loo  {self.p_loo:12.2f}",
        ]
        if self.n_folds:
            each = "each fold scored by a fit to the others"
            lines.insert(0, f"{self.n_folds}-fold cross-validation, {len(self.k)} rows; {each}")
        else:
            kind = ", reweighted from an approximation" if self.corrected else ""
            lines.insert(0, f"PSIS-LOO, {len(self.k)} rows, {self.n_draws} draws{kind}")
            lines.append(f"largest k {self.k.max():.2f}, good up to {self.good_k:.2f}")
        chosen = f"Chosen because {self.reason}." if self.reason else ""
        return "\n".join([*lines, *(fill(one, WIDTH) for one in (chosen, self.warning) if one)])


def loo(
    log_likelihood: ArrayLike,
    *,
    log_p: ArrayLike | None = None,
    log_q: ArrayLike | None = None,
    reff: float = 1.0,
) -> Loo:
    """Compute PSIS-LOO from the log-likelihood of each row under each draw.

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
        If shapes disagree, there is only one draw, ``log_p`` or ``log_q`` is given alone,
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
    size = max(1, BLOCK // n_draws)
    for rows in (slice(start, start + size) for start in range(0, n, size)):
        log_lik = flat.T[rows]
        log_weights, k[rows] = psis(correction.ravel() - log_lik, reff)
        elpd_row[rows] = logsumexp(log_weights + log_lik, axis=1)
    fitted = logsumexp(flat, axis=0) - np.log(n_draws)
    return Loo.of(
        elpd_row, fitted, k=k, good_k=good_k(n_draws), n_draws=n_draws, corrected=log_p is not None
    )


def stacking_weights(
    log_density: ArrayLike, *, row_weights: ArrayLike | None = None, prior_rows: float = 0.0
) -> FloatArray:
    """Find the weights of the mixture with the highest total log score.

    They maximise sum_n v_n log sum_m w_m p_m(y_n), where p_m(y_n) is the predictive density of
    row n under model m, fitted without this row, and v_n the weight of the row. Reference: Yao,
    Vehtari, Simpson and Gelman, "Using stacking to average Bayesian predictive distributions",
    Bayesian Analysis 2018.

    Parameters
    ----------
    log_density : array, shape (n, M)
        log p_m(y_n).
    row_weights : array, shape (n,), optional
        The number of equal rows that each row stands for; by default 1.
    prior_rows : float
        Rows in favour of each model that are added to the given ones: the weights are then the
        mode of their posterior under a Dirichlet prior, which keeps few rows from deciding alone.

    Returns
    -------
    array, shape (M,)
        Zero or more, with sum 1; equal if every row has the same density under all models. Their
        total score is below the highest one by less than a millionth of a nat. Without
        ``prior_rows``, several models that predict alike may leave all their weight to one.

    Raises
    ------
    ValueError
        If a shape is wrong, a number is NaN or +inf, a row has density 0 under all models, or
        ``row_weights`` or ``prior_rows`` are negative.
    """
    scores = np.asarray(log_density, dtype=np.float64)
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"log_density must have shape (rows, models), got {scores.shape}.")
    if not prior_rows >= 0:
        raise ValueError(f"prior_rows must be 0 or more, got {prior_rows}.")
    rows = np.ones(len(scores)) if row_weights is None else np.asarray(row_weights, np.float64)
    if rows.shape != (len(scores),) or not (np.isfinite(rows) & (rows >= 0)).all():
        raise ValueError(
            f"row_weights must be {len(scores)} finite numbers of 0 or more, got shape "
            f"{rows.shape} with a minimum of {rows.min(initial=np.inf):g}."
        )
    highest = scores.max(axis=1, keepdims=True)
    if not np.isfinite(highest).all():  # the maximum of a row with NaN is NaN
        raise ValueError(
            "log_density must be below inf, and above -inf for one model or more of each row; rows "
            f"{np.flatnonzero(~np.isfinite(highest.ravel()))[:5].tolist()} are not."
        )
    density = np.exp(scores - highest)
    n_models = density.shape[1]
    if prior_rows:  # log w_m is the log score of a row that model m alone can explain
        density = np.concatenate([density, np.eye(n_models)])
        rows = np.append(rows, np.full(n_models, prior_rows))
    return _highest_score(density[rows > 0], rows[rows > 0])


def _highest_score(density: FloatArray, rows: FloatArray) -> FloatArray:
    """Maximize f(w) = sum_n v_n log sum_m w_m p_nm over weights w, with v = ``rows``.

    f is concave, and its gradient g has w . g = sum v. So f lies below its maximum by at most
    max_u (u - w) . g = max g - sum v. Near the maximum an EM step, w <- w g / sum v, is tiny
    where two models predict nearly alike, or an unneeded model has a gradient of nearly sum v.
    Newton's method under the constraints therefore gives the steps, and EM,
    which never lowers f, takes the rare ones that rounding errors prevent from raising it.
    """
    total, n_models = rows.sum(), density.shape[1]
    weights = np.full(n_models, 1 / n_models)
    for _ in range(MAX_STEPS):
        mixed = density @ weights
        gradient = (rows / mixed) @ density
        if gradient.max() - total < GAP:
            break
        target = _newton_target(density / mixed[:, None], rows)
        length, slope, score = 1.0, gradient @ (target - weights), rows @ np.log(mixed)
        while length > SHORTEST:
            found = (1 - length) * weights + length * target
            with np.errstate(divide="ignore"):  # a weight of 0 may exclude a row
                rise = rows @ np.log(density @ found) - score
            if rise > ENOUGH * length * slope > 0:
                break
            length /= 2
        weights = found if length > SHORTEST else weights * gradient / total
        weights /= weights.sum()
    return weights


def _newton_target(ratio: FloatArray, rows: FloatArray) -> FloatArray:
    """Maximize the quadratic approximation of f at the current weights over weights u.

    With ratios q_nm = p_nm / p(y_n), which average to 1 under w, it is a constant minus
    sum_n v_n (2 - sum_m u_m q_nm)^2 / 2. Its maximum with u >= 0 is a least-squares problem; a row
    of large weight makes the sum of u nearly 1, whatever the models.
    """
    system = np.sqrt(rows)[:, None] * np.insert(ratio, ratio.shape[1], 2.0, axis=1)
    triangle = np.linalg.qr(system)[1]
    sum_row = np.full(triangle.shape[1], SUM_SCALE * np.sqrt(rows.sum()))
    system = np.concatenate([triangle, sum_row[None]])
    found: FloatArray = nnls(system[:, :-1], system[:, -1])[0]
    return found / found.sum()


def elbo_weights(elbo: ArrayLike) -> FloatArray:
    """Compute weights in proportion to exp(ELBO), shape (M,), a bound of each mode's evidence."""
    return softmax(np.asarray(elbo, dtype=np.float64))


def mixed_loo(
    each: Sequence[Loo], weights: ArrayLike, *, row_weights: ArrayLike | None = None
) -> Loo:
    """Score the mixture of several posteriors of the same rows.

    Parameters
    ----------
    each : sequence of M Loo
    weights : array, shape (M,)
        The weights are taken as given, although they may have been chosen by the same scores.
    row_weights : array, shape (n,), optional
        Weights by which the terms of the rows were multiplied; by default 1.

    Returns
    -------
    Loo
        The Pareto k of a row is the largest among the posteriors of positive weight.

    Raises
    ------
    ValueError
        If there is not one weight for each score, or the scores are of different rows.
    """
    share = np.asarray(weights, dtype=np.float64)
    if share.shape != (len(each),) or len({len(one.k) for one in each}) > 1:
        raise ValueError(
            f"each of {len(each)} scores needs a weight and the same rows, got weights of shape "
            f"{share.shape} and {[len(one.k) for one in each]} rows."
        )
    kept = [(one, weight) for one, weight in zip(each, share, strict=True) if weight > 0]
    rows = (
        np.ones(len(kept[0][0].k))
        if row_weights is None
        else np.asarray(row_weights, dtype=np.float64)
    )
    log_weight = np.log([[weight] for _, weight in kept])
    elpd_row = rows * logsumexp(log_weight + [one.elpd_row / rows for one, _ in kept], axis=0)
    fitted_row = rows * logsumexp(log_weight + [one.fitted_row / rows for one, _ in kept], axis=0)
    return Loo.of(
        elpd_row,
        fitted_row,
        k=np.max([one.k for one, _ in kept], axis=0),
        good_k=min(one.good_k for one, _ in kept),
        n_draws=sum(one.n_draws for one, _ in kept),
        corrected=any(one.corrected for one, _ in kept),
    )


def loo_of(container: Any, name: str = "obs", *, refuse: bool = True) -> Loo:
    """Compute PSIS-LOO of a posterior in an ArviZ container.

    The result agrees with ``arviz.loo``, but is refused if it cannot be trusted. (ArviZ 0.x divides
    the variance of the terms by n; ArviZ 1.x and this function divide by n - 1.) A container of a
    mixture gives the score of the mixture (see ``to_arviz``).

    Parameters
    ----------
    container : arviz.InferenceData or xarray.DataTree
        With the groups ``posterior`` and ``log_likelihood``.
    name : str
        Name of the variable in ``log_likelihood``.
    refuse : bool
        Whether to raise an error, instead of returning the score, if it cannot be trusted.

    Raises
    ------
    ValueError
        If a group or the variable is missing, k is too large for more than a tenth of the rows, or
        the container of a mixture was made by an earlier version.
    """
    likelihood = arviz_compat.group(container, "log_likelihood")
    if name not in likelihood:
        raise ValueError(f"log_likelihood has no variable {name!r}, only {[*likelihood]}.")
    if "mode" in likelihood.coords and "chain" in likelihood["mode"].dims:
        raise ValueError(
            "the container is that of a mixture from an earlier version, whose chains are modes "
            "without their weights; make it again by to_arviz(X, y)."
        )
    terms = likelihood[name].transpose("chain", "draw", ...).to_numpy()
    draws = arviz_compat.group(container, "posterior")
    found = loo(terms.reshape(*terms.shape[:2], -1), reff=_relative_ess(draws))
    if refuse and not found.trusted:
        raise ValueError(f"leave-one-out by importance sampling fails: {found.warning}")
    return found


def _relative_ess(posterior: Any) -> float:
    """Average effective draws per draw over all parameters, as in ArviZ; 1 for one chain."""
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if n_chains == 1:
        return 1.0
    each = [ess(values.transpose("chain", "draw", ...), "mean") for values in posterior.values()]
    return float(np.mean(np.concatenate([one.ravel() for one in each])) / (n_chains * n_draws))
