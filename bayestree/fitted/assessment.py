"""Checks of a fit: convergence, scores of new rows, and intervals of what is printed.

The functions that take an estimator are its methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from bayestree import diagnostics
from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.wording import warn
from bayestree.diagnostics import Convergence, Evidence, HeldOut, TreeIntervals, printed
from bayestree.diagnostics.draws import tails
from bayestree.diagnostics.label_free import spread_rows
from bayestree.diagnostics.polytopes import cuts_off
from bayestree.diagnostics.verdict import residuals
from bayestree.fitted.tree import FittedTree, Mixture, MixtureEstimator, one_output
from bayestree.fitted.validation import checked_weights, fitted_rows, training_rows, validated
from bayestree.inference import Data, Posterior, pointwise
from bayestree.inference.data import PART

if TYPE_CHECKING:
    import xarray as xr

MOST_ROWS = 2_000  # on which intervals of the numbers of a tree are fitted
CHECKED_ROWS = 20  # at which predictions and splits are compared
MAX_POINTS = 400  # rows of all nodes together at which P(right) is compared
MIN_POINTS = 4  # rows of each node
LEVEL = 0.9  # probability of the intervals that are compared with held-out values
EVENT = "event"  # the auxiliary column of survival times


class UnconvergedWarning(ConvergenceWarning):
    """The inference of a fit has not converged."""


def warn_if_unconverged(mixture: Mixture) -> None:
    """Warn if a convergence check of the fit failed, and say what to do."""
    if mixture.shown.n_draws == 1:
        return
    if mixture.response.n_outputs > 1:  # quantities to compare are defined for one output
        found = diagnostics.check_convergence(None, mixture.shown.posterior.stats)
    else:
        # The draws of one guide are independent, so that there are no chains to compare.
        alone = all(is_variational(tree.posterior) for tree in mixture.trees)
        found = _judged(mixture, None, None if alone else CHECKED_ROWS)
    if found.settled == "no":
        failed = [check for check in found.checks if check.verdict == "failed"]
        figures = ", ".join(check.figure for check in failed)
        warn(f"the fit has not converged: {figures}. {failed[0].remedy}", UnconvergedWarning)


def is_variational(posterior: Posterior) -> bool:
    """Tell whether the draws are independent ones from a distribution that a fit has chosen."""
    return posterior.n_chains == 1 and bool({"elbo", "log_q"} & posterior.stats.keys())


def check_convergence(
    estimator: MixtureEstimator,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    *,
    n_rows: int = CHECKED_ROWS,
) -> Convergence:
    """Judge which results of this fit are reliable, and whether its inference has converged.

    Parameters
    ----------
    X, n_rows
        As for :meth:`label_free`. How far the predictions of several modes differ is measured at
        all of these rows: those given, or those that the fit keeps.
    y : array, shape (n,), optional
        Outcomes of the rows X. For rows that were not used in the fit, the verdict also states
        whether the predictions are calibrated, and better than the class frequencies or the mean.
    sample_weight : array, shape (n,), optional
        Weights of the rows in what is said about y.

    Returns
    -------
    Convergence
        Can be printed; see ``predictions``, ``intervals``, ``settled`` and ``to_frame``. With
        several modes, each check shows the worst mode, and the check ``modes`` tells how
        far their predictions differ.

    Raises
    ------
    ValueError
        If y is given without X, or has unknown classes.
    """
    one_output(estimator, "check_convergence")
    held_out = None if y is None else held_out_of(estimator, X, y, sample_weight)
    rows = None if X is None else fitted_rows(estimator, X)
    return _judged(estimator.fitted_, rows, n_rows, held_out)


def _judged(
    mixture: Mixture, rows: FloatArray | None, n_rows: int | None, held_out: HeldOut | None = None
) -> Convergence:
    """Run the checks of all trees; without a number of rows, those of the recorded statistics."""
    if not mixture.several:
        return _checked(mixture.shown, rows, n_rows, held_out)
    return diagnostics.mixed_convergence(
        [_checked(tree, rows, n_rows) for tree in mixture.trees],
        mixture.weights,
        None if n_rows is None else _label_free_mixture(mixture, rows, n_rows),
        means=None if n_rows is None else _mean_predictions(mixture, rows),
        unit=_unit(mixture.shown.posterior.model.leaf),
        held_out=held_out,
    )


def _checked(
    fitted: FittedTree, X: FloatArray | None, n_rows: int | None, held_out: HeldOut | None = None
) -> Convergence:
    """Run the checks of one tree."""
    return diagnostics.check_convergence(
        None if n_rows is None else _label_free(fitted, X, n_rows),
        fitted.posterior.stats,
        held_out=held_out,
        single_leaf=fitted.tree.is_constant,
    )


def label_free(
    estimator: MixtureEstimator, X: ArrayLike | None = None, *, n_rows: int = 20
) -> xr.Dataset:
    """Compute quantities to compare across chains, invariant to the order of experts.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d), optional
        Rows from which those at which splits and predictions are compared are selected; by
        default the at most 200 training rows that the fit keeps. A model of an earlier version
        keeps none, and is compared at made-up rows.
    n_rows : int
        Number of rows at which predictions and each split are compared; fewer for each split
        if there are more than 20.

    Returns
    -------
    xarray.Dataset
        See :func:`bayestree.diagnostics.label_free`; predictions are class probabilities,
        or means on the scale of standardised y, with the position of the row in X as its
        coordinate. It can be plotted by ``arviz.plot_trace``.
        With several modes, each is a chain (or as many as the sampler had), and what refers to
        nodes is left out: ``prediction`` and the number of ``leaves`` in use remain.
    """
    one_output(estimator, "label_free")
    mixture, rows = estimator.fitted_, None if X is None else fitted_rows(estimator, X)
    if mixture.several:
        return _label_free_mixture(mixture, rows, n_rows)
    return _label_free(mixture.shown, rows, n_rows)


def _label_free(fitted: FittedTree, X: FloatArray | None, n_rows: int) -> xr.Dataset:
    """Compute the quantities of one tree."""
    _check_number(n_rows)
    posterior, topology = fitted.posterior, fitted.posterior.model.topology
    n_points = min(n_rows, max(MIN_POINTS, MAX_POINTS // max(1, topology.n_nodes)))
    X = fitted.sample if X is None else X
    own = _rows_of_nodes(fitted, X, n_points)
    rows, numbers = _representative(fitted, X, n_rows)
    # A node that is not in tree_ is compared at the rows of the whole tree.
    node_rows = [own.get(node, rows[:n_points]) for node in range(topology.n_nodes)]
    widest = max((len(one) for one in node_rows), default=0)
    return diagnostics.label_free(
        posterior.described_draws,
        topology,
        rows,
        row_labels=numbers,
        node_rows=[np.resize(one, (widest, rows.shape[1])) for one in node_rows],
        steepness=posterior.model.steepness,
        lp=posterior.stats.get("lp", posterior.stats.get("log_p")),
        log_likelihood=posterior.stats.get("log_likelihood"),
        facets=_facets(fitted),
        class_names=fitted.tree.class_names,
        fixed_sides=not posterior.settings.get("mirror", False),
    )


def _facets(fitted: FittedTree) -> IntArray | None:
    """Count the facets of each node in each draw, (chain, draw, V); 0 of nodes not in ``tree_``."""
    reach, n_nodes = fitted.reach, fitted.posterior.model.topology.n_nodes
    drawn = fitted.posterior.n_chains, fitted.posterior.n_draws
    if reach is None or reach.cut is None or reach.cut.shape[:2] != drawn:  # of other draws
        return None
    counts = np.zeros((*reach.cut.shape[:2], n_nodes), dtype=np.int64)
    counts[..., reach.nodes] = cuts_off(reach.cut).sum(axis=-1)
    return counts


def _label_free_mixture(mixture: Mixture, X: FloatArray | None, n_rows: int) -> xr.Dataset:
    """Compare trees, with the draws of each as one chain, or as many as it has."""
    _check_number(n_rows)
    shown = mixture.shown
    rows, numbers = _representative(shown, shown.sample if X is None else X, n_rows)
    found = [_compared(tree, rows, numbers) for tree in mixture.trees]
    import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and this module is imported by estimators

    joined = xr.concat(found, dim="chain")
    modes = np.repeat(np.arange(len(found)), [one.sizes["chain"] for one in found])
    return joined.assign_coords(chain=np.arange(len(modes)), mode=("chain", modes)).assign_attrs(
        mode_weights=mixture.weights.tolist()
    )


def _mean_predictions(mixture: Mixture, X: FloatArray | None) -> FloatArray:
    """Predict by each tree, (M, n) or (M, n, C), in its ``_unit``."""
    X = mixture.shown.sample if X is None else X
    leaf: Any = mixture.shown.posterior.model.leaf
    if leaf.extra != EVENT:
        return np.stack([tree.moments(X, averages=True)[0] for tree in mixture.trees])
    parts = np.split(mixture.scaling.standardise(X), range(PART, len(X), PART))
    at = np.array([leaf.unit])
    each = [[tree.posterior.distributions(part, at) for part in parts] for tree in mixture.trees]
    return np.stack([1 - np.concatenate([one.mean(axis=0) for one in own]) for own in each])


def _unit(leaf: Any) -> str:
    """Describe the unit of mean predictions."""
    if leaf.n_classes:
        return "in probability"
    if leaf.extra == EVENT:
        return f"in the probability of survival to {leaf.unit:.4g}"
    return "events per unit of exposure" if leaf.extra else "units of y"


def _compared(fitted: FittedTree, rows: FloatArray, numbers: IntArray | None) -> xr.Dataset:
    """Compute the quantities of a tree that are compared with other trees."""
    posterior, leaves = fitted.posterior, fitted.polytopes.leaves
    found = diagnostics.label_free(
        posterior.described_draws,
        posterior.model.topology,
        rows,
        row_labels=numbers,
        steepness=posterior.model.steepness,
        class_names=fitted.tree.class_names,
    )[["prediction"]]
    return found if leaves is None else found.assign(leaves=(("chain", "draw"), leaves))


def _check_number(n_rows: int) -> None:
    if n_rows < 1:
        raise ValueError(f"n_rows must be 1 or more, got {n_rows}.")


def evidence(estimator: MixtureEstimator) -> Evidence:
    """Log evidence, and posterior of the number of leaves and the depth.

    Returns
    -------
    Evidence
        Can be printed; see ``log_evidence``, ``standard_error``, ``leaf_probabilities`` and
        ``depth_probabilities``. It is a density of y in its own units.

    Raises
    ------
    ValueError
        Unless the fit had ``inference="smc"``.
    """
    check_is_fitted(estimator)
    return diagnostics.evidence(estimator.fitted_.shown.posterior.stats)


def log_score(
    estimator: MixtureEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> FloatArray:
    """Compute the log predictive density of y in each row.

    It is the logarithm of the mean of p(y | x, parameters) over all draws and modes, so that higher
    is better. Its mean over new rows is the log score, a proper scoring rule; minus this mean is
    scikit-learn's log loss.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
    y : array, shape (n,)
        As for ``fit``: with several outputs of shape (n, q), with an exposure as second column for
        counts, with events for survival times.
    sample_weight : array, shape (n,), optional
        Weights of the fit, if X and y are all rows of a fit with weights, in their order. Text
        columns of many categories are then encoded as in the fit, without the y of the row, where
        ``predict_proba`` includes it.

    Returns
    -------
    array, shape (n,)
        In nats, without rows of weight 0. For classes it is the log-probability of the class of the
        row, -inf if that is 0; for numbers the log-density in the units of y, jointly for several
        outputs; for counts the log-probability; for survival times the log-density of an event, or
        the log-probability to survive a censored time.

    Raises
    ------
    ValueError
        If y holds a class that was absent from the fit, or for leaves without a distribution of y.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import ConvexPolytopeTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = ConvexPolytopeTreeClassifier(inference="map", random_state=0).fit(X[::2], y[::2])
    >>> bool(clf.log_score(X[1::2], y[1::2]).mean() > -0.5)
    True
    """
    check_is_fitted(estimator)
    mixture = estimator.fitted_
    if mixture.response.classifies:
        given = {"reset": False, "dtype": np.float64, "sample_weight": sample_weight}
        rows, labels, _ = validated(estimator, X, np.ravel(y), **given)
        counted = checked_weights(sample_weight, len(labels)) > 0
        probability = mixture.expectation(rows[counted], estimator.prediction)[0]
        own = mixture.response.encode(labels[counted])
        with np.errstate(divide="ignore"):  # a tree without smoothing may give a class 0
            found: FloatArray = np.log(probability[np.arange(len(own)), own])
        return found
    data, _ = training_rows(estimator, X, y, sample_weight)
    data = Data(data.X, data.y, data.weights.new_ones(len(data.weights)))  # of single copies
    posteriors = [tree.posterior for tree in mixture.trees]
    each = [pointwise.log_density(one.model, one.each(), data) for one in posteriors]
    density: FloatArray = logsumexp(each, axis=0, b=mixture.weights[:, None])
    return density - np.log(mixture.scaling.units.y_scale).sum()


def tree_intervals(
    estimator: MixtureEstimator, X: ArrayLike, *, level: float = 0.9
) -> TreeIntervals:
    """Compute credible intervals of the numbers of ``tree_``: limits, coefficients and leaves.

    Each draw of all modes is projected onto the form of the tree: what limits, coefficients and
    leaves predict its means of y best.

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
        Rows at which the tree is to predict, such as those of the fit, all with the same weight; at
        most 2,000 are used.
    level : float
        Probability of the intervals.

    Returns
    -------
    TreeIntervals
        Can be printed; see also ``to_frame()``. ``export_text(estimator, intervals=...)`` writes
        them next to the numbers.

    Raises
    ------
    TypeError
        If the tree has splits without facets.
    ValueError
        For a point estimate, no rows or those that ``predict`` refuses, a ``level`` that is not
        between 0 and 1, logistic leaves, or if the votes of several facets add up
        (``sparsity=None``).
    """
    one_output(estimator, "tree_intervals")
    tails(level)
    if estimator.fitted_.shown.n_draws < 2:
        raise ValueError(
            "a point estimate has no intervals: fit with a method that draws, such as "
            "inference='auto'."
        )
    rows, mixture = fitted_rows(estimator, X), estimator.fitted_
    rows = rows[:: max(1, -(-len(rows) // MOST_ROWS))]
    drawn = mixture.drawn(rows)
    return printed.tree_intervals(mixture.shown.tree, rows, drawn, mixture.chains, level)


def _rows_of_nodes(fitted: FittedTree, X: FloatArray, n_points: int) -> dict[int, FloatArray]:
    """Select some of the rows that reach each node, on the scale of the draws."""
    standard = fitted.scaling.standardise(X)
    own: dict[int, FloatArray] = {}
    for place, reached, _ in fitted.tree.walk(X):
        there = standard[reached]
        own.setdefault(int(fitted.polytopes.nodes[place]), there[spread_rows(there, n_points)])
    return own


def _representative(fitted: FittedTree, X: FloatArray, n_rows: int) -> tuple[FloatArray, IntArray]:
    """Select rows that represent all of X, on the scale of the draws, with their numbers."""
    standard = fitted.scaling.standardise(X)
    numbers = spread_rows(standard, n_rows)
    return standard[numbers], numbers


def held_out_of(
    estimator: Any, X: ArrayLike | None, y: ArrayLike, sample_weight: ArrayLike | None
) -> HeldOut:
    """Judge the calibration of predictions, and their gain over a constant."""
    if X is None:
        raise ValueError("y needs the rows to which it belongs; give X as well.")
    response = estimator.fitted_.response
    weights = checked_weights(sample_weight, len(np.asarray(y)))
    if response.classifies:
        probability = estimator.predict_proba(X)
        scores = diagnostics.calibration(y, probability, classes=response.labels, weights=weights)
        return diagnostics.held_out_classes(scores)
    inside = estimator.in_interval(X, y, LEVEL)
    whole = response.leaf.whole
    values, extra = response.separate(y)
    residual = None  # times may be censored
    if not hasattr(estimator, "predict_median"):
        given = {} if extra is None else {"exposure": extra}
        residual = residuals(values, estimator.predict(X, **given), extra, weights)
    return diagnostics.held_out_intervals(
        inside, LEVEL, at_least=whole, residual=residual, weights=weights
    )
