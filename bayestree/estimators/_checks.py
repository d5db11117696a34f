"""Checks of a fitted tree: convergence, and leave-one-out scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from bayestree import diagnostics
from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.wording import warn
from bayestree.diagnostics import Convergence, Evidence, HeldOut, Loo
from bayestree.diagnostics.calibration import residuals
from bayestree.diagnostics.label_free import box_rows, spread_rows, typical_rows
from bayestree.estimators._cross_validated import cross_validated
from bayestree.estimators._draws import TreeDraws
from bayestree.estimators._numbers import fitted_rows
from bayestree.protocols import has_draws, has_single_leaf

if TYPE_CHECKING:
    import xarray as xr

MAX_POINTS = 400  # rows of all nodes together at which P(right) is compared
MIN_POINTS = 4  # rows of each node
LEVEL = 0.9  # probability of the intervals that are compared with held-out values


class UnconvergedWarning(ConvergenceWarning):
    """The inference of a fit has not converged."""


class TreeChecks(TreeDraws):
    """Checks that fitted soft trees inherit."""

    def _warn_if_unconverged(self) -> None:
        """Warn if a convergence check of the fit failed, and say what to do."""
        if not has_draws(self):
            return
        if self.n_outputs_ > 1:  # without quantities to compare, which are those of one output
            found = diagnostics.check_convergence(None, self.posterior_.stats)
        else:
            found = self.check_convergence()
        if found.settled == "no":
            failed = [check for check in found.checks if check.verdict == "failed"]
            figures = ", ".join(check.figure for check in failed)
            warn(f"the fit has not converged: {figures}. {failed[0].remedy}", UnconvergedWarning)

    def check_convergence(
        self, X: ArrayLike | None = None, y: ArrayLike | None = None, *, n_rows: int = 20
    ) -> Convergence:
        """Which results of this fit are reliable, and whether its inference has converged.

        Parameters
        ----------
        X, n_rows
            As for :meth:`label_free`.
        y : array, shape (n,), optional
            Outcomes of the rows X. For rows that were not used in the fit, the verdict also
            states whether the predictions are calibrated, and better than the class frequencies
            or the mean.

        Returns
        -------
        Convergence
            Can be printed; see ``predictions``, ``intervals``, ``settled`` and ``to_frame``. With
            several modes, each check is that of the worst mode, and the check ``modes`` tells how
            far their predictions differ.

        Raises
        ------
        ValueError
            If y is given without X, or has unknown classes.
        """
        self._one_output("check_convergence")
        held_out = None if y is None else held_out_of(self, X, y)
        return diagnostics.check_convergence(
            self.label_free(X, n_rows=n_rows),
            self.posterior_.stats,
            held_out=held_out,
            single_leaf=has_single_leaf(self.tree_),
        )

    def label_free(self, X: ArrayLike | None = None, *, n_rows: int = 20) -> xr.Dataset:
        """Quantities that can be compared across chains, invariant to the order of experts.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d), optional
            Rows from which those at which splits and predictions are compared are selected. By
            default rows are generated inside the bounding box of each node's training rows,
            because the estimator keeps no rows.
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
        check_is_fitted(self)
        self._one_output("label_free")
        if n_rows < 1:
            raise ValueError(f"n_rows must be 1 or more, got {n_rows}.")
        posterior, topology = self.posterior_, self.posterior_.model.topology
        n_points = min(n_rows, max(MIN_POINTS, MAX_POINTS // max(1, topology.n_nodes)))
        numbers = None
        if X is None:
            rows, own = self._generated_rows(n_rows, n_points)
        else:
            given = fitted_rows(self, X)
            own = self._rows_of_nodes(given, n_points)
            rows, numbers = self._spread(given, n_rows)
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
            class_names=self.tree_.class_names,
            fixed_sides=not posterior.settings.get("mirror", False),
        )

    def evidence(self) -> Evidence:
        """Log evidence, and posterior of the number of leaves and the depth.

        Returns
        -------
        Evidence
            Can be printed; see ``log_evidence``, ``standard_error``, ``leaf_probabilities`` and
            ``depth_probabilities``. The density is that of y in its own units.

        Raises
        ------
        ValueError
            Unless the fit had ``inference="smc"``.
        """
        check_is_fitted(self)
        return diagnostics.evidence(self.posterior_.stats)

    def loo(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        method: Literal["psis", "kfold"] = "psis",
        n_folds: int = 10,
    ) -> Loo:
        """Log score of rows that are left out, by importance sampling or by refits.

        Parameters
        ----------
        X, y, sample_weight : arrays
            All rows of the fit, as they were given to ``fit``.
        method : {"psis", "kfold"}
            ``"psis"`` leaves out one row at a time, by importance sampling from the draws of the
            fit, for those of a sampler (``inference="nuts"``). Draws of a variational fit are
            usually too far from the posterior. ``"kfold"`` refits the estimator without each of
            ``n_folds`` parts of the rows, growth included, for all kinds of fits.
        n_folds : int
            Number of refits.

        Returns
        -------
        Loo
            Can be printed; ``compare`` compares it with that of another model. With several modes
            it is the score of their mixture, whose weights ``"psis"`` takes as given.

        Raises
        ------
        ValueError
            For ``"psis"``, if the score cannot be trusted because Pareto k is too large for more
            than a tenth of the rows, these are not the rows of the fit (by their total weight),
            some of them were held out (``validation_fraction``), or there is only one draw. For
            ``"kfold"``, if a class or the table has fewer rows than ``n_folds``.
        """
        check_is_fitted(self)
        if method == "kfold":
            return cross_validated(self, X, y, sample_weight, n_folds)
        if method != "psis":
            raise ValueError(f"method must be 'psis' or 'kfold', got {method!r}.")
        if self.validation_fraction:
            raise ValueError(
                "the rows that validation_fraction held out were not used by the posterior, so "
                "that leaving them out is meaningless; set method='kfold', or fit with "
                "validation_fraction=0."
            )
        data, _ = self._training_rows(X, y, sample_weight)
        given, fitted = float(data.weights.sum()), float(self.tree_.leaf_rows.sum())
        if not np.isclose(given, fitted, rtol=1e-6):
            raise ValueError(
                f"X, y and sample_weight must be those of the fit: their weights sum to {given:g}, "
                f"those of the fit to {fitted:g}. On new rows, score predict_proba or predict."
            )
        groups = ["posterior", "log_likelihood"]
        return diagnostics.loo_of(self.to_arviz(X, y, sample_weight, groups=groups))

    def _generated_rows(
        self, n_rows: int, n_points: int
    ) -> tuple[FloatArray, dict[int, FloatArray]]:
        """Rows in the boxes of the nodes, on the scale of the draws: of all, and by node."""
        reach = self._reach
        own: dict[int, FloatArray] = {}
        for place, node in enumerate(reach.nodes.tolist()):
            # Two nodes of tree_ may share a node of the posterior; the upper one has more rows.
            if node not in own:
                own[node] = box_rows(reach.low[place], reach.high[place], n_points, seed=node)
        if len(reach.nodes):
            return box_rows(reach.low[0], reach.high[0], n_rows), own
        return typical_rows(len(self._units.scale), n_rows), own

    def _rows_of_nodes(self, X: FloatArray, n_points: int) -> dict[int, FloatArray]:
        """Some of the rows that reach each node, on the scale of the draws."""
        standard = self._standardise(X)
        own: dict[int, FloatArray] = {}
        for place, reached, _ in self.tree_.walk(X):
            there = standard[reached]
            own.setdefault(int(self._reach.nodes[place]), there[spread_rows(there, n_points)])
        return own

    def _spread(self, X: FloatArray, n_rows: int) -> tuple[FloatArray, IntArray]:
        """Rows that represent all of X, on the scale of the draws, and their numbers."""
        standard = self._standardise(X)
        numbers = spread_rows(standard, n_rows)
        return standard[numbers], numbers


def held_out_of(estimator: Any, X: ArrayLike | None, y: ArrayLike) -> HeldOut:
    """Calibration of the predictions of X, and how much better they are than a constant."""
    if X is None:
        raise ValueError("y needs the rows to which it belongs; give X as well.")
    if hasattr(estimator, "classes_"):
        probability = estimator.predict_proba(X)
        scores = diagnostics.calibration(y, probability, classes=estimator.classes_)
        return diagnostics.held_out_classes(scores)
    inside = estimator.in_interval(X, y, LEVEL)
    whole = estimator.posterior_.model.leaf.whole
    values, extra = estimator._separate(y)
    residual = None  # times may be censored
    if not hasattr(estimator, "predict_median"):
        given = {} if extra is None else {"exposure": extra}
        residual = residuals(values, estimator.predict(X, **given), extra)
    return diagnostics.held_out_intervals(inside, LEVEL, at_least=whole, residual=residual)
