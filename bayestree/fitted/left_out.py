"""Log score of rows that are left out, by importance sampling or by refits."""

import warnings
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from bayestree import diagnostics
from bayestree._utils.arrays import AnyArray, FloatArray, IntArray, smallest_class, split_rows
from bayestree._utils.parallel import Call, in_order
from bayestree._utils.progress import Track, fitting
from bayestree.diagnostics import Loo
from bayestree.fitted.arviz import to_arviz
from bayestree.fitted.assessment import is_variational, log_score
from bayestree.fitted.tree import StagedEstimator
from bayestree.fitted.validation import checked_weights, training_rows
from bayestree.tables.encoding import as_pandas

SEED = 0  # of the folds, which are the same for two models of the same rows
#: Parameters of the deterministic tree alone, off.
OF_TREE: dict[str, Any] = {"sparsity": None, "max_columns": None, "points": None}


def loo(
    estimator: StagedEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    method: Literal["auto", "psis", "kfold"] = "auto",
    n_folds: int = 5,
    n_jobs: int | None = None,
) -> Loo:
    """Compute the log score of rows that are left out, by importance sampling or by refits.

    Parameters
    ----------
    X, y, sample_weight : arrays
        All rows of the fit, as they were given to ``fit``.
    method : {"auto", "psis", "kfold"}
        ``"psis"`` leaves out one row at a time, by importance sampling from the draws of a sampler
        such as ``inference="nuts"``; those of a variational fit are too far from the posterior.
        The tree, which growth chose with all rows, is kept: the score is optimistic, the more so
        the larger the tree.
        ``"kfold"`` refits the estimator without each of ``n_folds`` parts of the rows, including
        growth and everything else that depends on y, for all kinds of fits. Its score is that of
        fits to a share 1 - 1 / ``n_folds`` of the rows, which is slightly pessimistic. The parts
        depend on the rows alone.
        ``"auto"`` is ``"psis"`` for a sampler if k is good for nine rows of ten, otherwise
        ``"kfold"``, with as many folds as the smallest class has rows if these are fewer than
        ``n_folds``. The result says which it is, and why.
    n_folds : int
        Number of refits.
    n_jobs : int, optional
        Processes, as in joblib, that refit at the same time; by default one after the other.

    Returns
    -------
    Loo
        Can be printed; ``compare`` compares it with another model, and ``to_arviz`` converts it
        for ``arviz.compare``. With several modes it is the score of their mixture, whose weights
        ``"psis"`` takes as given.

    Raises
    ------
    ValueError
        If these are not the rows of the fit (by their total weight). For ``"psis"``, if the score
        cannot be trusted because Pareto k is too large for more than a tenth of the rows, some of
        them were held out (``validation_fraction``), or there is only one draw. For refits, if a
        class or the table has fewer rows than ``n_folds``.

    Notes
    -----
    Refits leave out the work on the deterministic tree. Those that start from the full fit would
    take a quarter of the time, but were optimistic on eight of twelve tables of 250 rows, by up to
    35 nats: the tree that they keep, and text columns encoded by means of y, have seen the rows
    that are left out.
    """
    check_is_fitted(estimator)
    if method not in ("auto", "psis", "kfold"):
        raise ValueError(f"method must be 'auto', 'psis' or 'kfold', got {method!r}.")
    data, numbers = training_rows(estimator, X, y, sample_weight, "On new rows, use log_score.")
    reason = ""
    if method == "auto":
        reason = _why_no_importance_sampling(estimator)
    elif method == "psis" and estimator.validation_fraction:
        raise ValueError(
            "the rows that validation_fraction held out were not used by the posterior, so "
            "that leaving them out is meaningless; set method='kfold', or fit with "
            "validation_fraction=0."
        )
    if method == "psis" or (method == "auto" and not reason):
        groups = ["posterior", "log_likelihood"]
        container = to_arviz(estimator, X, y, sample_weight, groups=groups)
        found = diagnostics.loo_of(container, refuse=method == "psis")
        if found.trusted:
            chosen = "k is good for nine rows of ten or more" if method == "auto" else ""
            return replace(found, reason=chosen)
        reason = f"k is above {found.good_k:.2f} for {len(found.bad_rows)} of {len(numbers)} rows"
    labels = np.ravel(y)[numbers] if estimator.fitted_.response.classifies else None
    if reason:
        most = len(numbers) if labels is None else smallest_class(labels)[1]
        n_folds = max(2, min(n_folds, most))
    rows = data.weights.numpy(force=True).astype(np.float64)
    scores = _cross_validated(estimator, (X, y, sample_weight), numbers, labels, n_folds, n_jobs)
    n_draws = sum(tree.n_draws for tree in estimator.fitted_.trees)
    return Loo.of(*(rows * one for one in scores), n_draws=n_draws, n_folds=n_folds, reason=reason)


def _why_no_importance_sampling(estimator: StagedEstimator) -> str:
    """Return why the draws of a fit cannot be reweighted, whatever their k; empty if they can."""
    posteriors = [tree.posterior for tree in estimator.fitted_.trees]
    if estimator.validation_fraction:
        return "the posterior has not used the rows that validation_fraction held out"
    if all(tree.n_draws == 1 for tree in estimator.fitted_.trees):
        return "a point estimate has no draws to reweight"
    if any(is_variational(one) for one in posteriors):
        return "the draws of a variational fit are not those of the posterior"
    return ""


def _cross_validated(
    estimator: StagedEstimator,
    given: tuple[Any, Any, Any],
    numbers: IntArray,
    labels: AnyArray | None,
    n_folds: int,
    n_jobs: int | None,
) -> tuple[FloatArray, FloatArray]:
    """Score rows, by their ``numbers``, by refits to the other folds, and by the fit of all.

    ``given`` are X, y and the weights, and ``labels`` the classes of these rows, None of numbers.
    """
    X, y = as_pandas(given[0]), given[1]
    # shares, unlike those of a fold, sum to 1
    weights = None if given[2] is None else checked_weights(given[2], len(X))
    _check_folds(n_folds, len(numbers), labels)
    if labels is not None and estimator.fitted_.shown.posterior.model.leaf.ordered:
        # Refits keep the order of the fit, which plain labels do not state.
        known: Any = estimator.fitted_.response.labels
        order = pd.CategoricalDtype(known, ordered=True)
        y = pd.Series(np.asarray(y), dtype=order)

    rows = (X, y, weights)
    again = clone(estimator).set_params(**_for_predictions(estimator))
    elpd = np.empty(len(numbers))
    folds = split_rows(len(numbers), labels, n_folds, SEED)
    calls: list[Call[FloatArray]] = [
        (_refit_score, (again, rows, numbers[train], numbers[held]), {}) for train, held in folds
    ]
    with fitting(estimator.verbose):
        found = in_order(calls, n_jobs=n_jobs)
        for _, held in Track(folds, "folds", show=bool(estimator.verbose)):
            elpd[held] = next(found)
    return elpd, log_score(estimator, *_some(rows, numbers))


def _for_predictions(estimator: StagedEstimator) -> dict[str, Any]:
    """Return the parameters of refits: the method chosen for all rows, no work on ``tree_``.

    The deterministic tree takes up to half the time of a fit. Log scores are of the posterior,
    unless it is a point estimate or ``prediction="tree"``.
    """
    found = {}
    chosen = estimator.get_params(deep=False).get("inference") == "auto"
    # "auto" finds a guide for priors that the package's own cannot fit
    if chosen and getattr(estimator.plan_.last, "own_guide", True):
        found["inference"] = estimator.plan_.last
    if estimator.fitted_.averages(estimator.prediction) and estimator.fitted_.shown.n_draws > 1:
        known = estimator.get_params(deep=False)
        found |= {name: value for name, value in OF_TREE.items() if name in known}
    return found


def _refit_score(
    estimator: StagedEstimator, rows: tuple[Any, ...], train: IntArray, held: IntArray
) -> FloatArray:
    """Fit to some rows of X, y and weights, and return the log scores of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the fit of all rows gives those that count
        again = clone(estimator).fit(*_some(rows, train))
        return log_score(again, *_some(rows, held)[:2])


def _some(rows: tuple[Any, ...], numbers: IntArray) -> list[Any]:
    return [None if one is None else _safe_indexing(one, numbers) for one in rows]


def _check_folds(n_folds: int, n_rows: int, labels: AnyArray | None) -> None:
    if not 2 <= n_folds <= n_rows:
        raise ValueError(
            f"n_folds must be between 2 and the number of rows, {n_rows}, got {n_folds}."
        )
    label, count = (None, n_folds) if labels is None else smallest_class(labels)
    if count < n_folds:
        remedy = f"set n_folds={count}" if count > 1 else "give it more rows, or leave it out"
        raise ValueError(
            f"n_folds={n_folds} needs as many rows of each class, but class {label!r} has {count}: "
            f"{remedy}."
        )
