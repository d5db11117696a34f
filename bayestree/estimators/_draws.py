"""The posterior of a fitted tree: in ArviZ's container, and as draws of y."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import FloatArray
from bayestree._utils.seed import RandomState
from bayestree.estimators._file_rows import FileRows
from bayestree.estimators._fitted import FittedTree
from bayestree.estimators._numbers import validated
from bayestree.inference import Data, by_row


class TreeDraws(FittedTree):
    """Methods of every fitted tree; classifier and regressor say how y is coded."""

    def to_arviz(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        groups: Iterable[str] | None = None,
        n_prior: int = 200,
        random_state: RandomState = 0,
    ) -> Any:
        """The posterior as ArviZ's functions take it.

        Parameters
        ----------
        X, y, sample_weight : arrays, shapes (n, d), (n,), (n,), optional
            The rows of the fit, which the estimator does not keep. They make the groups
            ``log_likelihood``, ``posterior_predictive``, ``prior_predictive`` and
            ``observed_data``, each with one variable, ``obs``. Rows of weight zero are left out.
            Those that ``validation_fraction`` held out are among them, for which they are is not
            kept: leaving rows out (``arviz.loo``) then means nothing.
        groups : iterable of str, optional
            Which groups to make; by default all for which there is something. Those of rows hold
            draws * n numbers each: name the others to save memory.
        n_prior : int
            Draws from the prior.
        random_state : int, RandomState or Generator
            Of the draws from the prior and of y.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            The former with ArviZ 0.x, the latter with 1.x. Draws of the parameters are on the
            scaled features (``constant_data`` has ``center`` and ``scale``) and, for regression,
            on standardised y; X and y are in their own units, classes are numbered in the order
            of the coordinate ``class``. ``log_likelihood`` holds the term of each row in the
            log-likelihood, its weight included.

        Raises
        ------
        ValueError
            If X comes without y, y has unknown classes, or a group is not known or needs rows.
        """
        check_is_fitted(self)
        data, numbers = None, None
        if X is not None or y is not None:
            data, numbers = self._rows_of_fit(X, y, sample_weight)
        elif sample_weight is not None:
            raise ValueError("sample_weight needs the rows; give X and y.")
        parameters = self.get_params(deep=False)  # type: ignore[attr-defined]
        return self.posterior_.to_arviz(
            data,
            groups=groups,
            feature_names=tuple(getattr(self, "feature_names_in_", ())),
            class_names=tuple(str(label) for label in getattr(self, "classes_", ())),
            units=self._units,
            row_labels=numbers,
            n_prior=n_prior,
            random_state=random_state,
            attributes={
                "estimator": type(self).__name__,
                "parameters": json.dumps(parameters, default=str),
                "random_state": str(self.random_state),
            },
        )

    def sample_posterior_predictive(
        self, X: ArrayLike, draws: int | None = None, *, random_state: RandomState = None
    ) -> NDArray[Any]:
        """Draws of y from the posterior predictive distribution, whatever ``prediction`` says.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
        draws : int, optional
            By default one for each draw of the posterior, chain after chain. Fewer are spread
            evenly over these; more go through them again.
        random_state : int, RandomState or Generator, optional

        Returns
        -------
        array, shape (draws, n)
            Classes, or values in the units of y. The rows go through the tree some at a time:
            this array is what takes memory.

        Raises
        ------
        ValueError
            If ``draws`` is below 1.
        """
        rows = self._check_rows(X)
        posterior = self.posterior_
        total = posterior.n_chains * posterior.n_draws
        count = total if draws is None else draws
        if count < 1:
            raise ValueError(f"draws must be 1 or more, got {draws}.")
        picked = np.arange(count) * total // count if count < total else np.arange(count) % total
        each = (posterior.sites(*divmod(int(pick), posterior.n_draws)) for pick in picked)
        values = by_row.sample_y(posterior.model, each, self._standardise(rows), random_state)
        return self._decoded(values)

    def training_data(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Data:
        """Rows as the model of ``posterior_`` has them, for the functions of the package itself.

        As in ``bayestree.inference.nuts(clf.posterior_.model, clf.training_data(X, y),
        init=clf.posterior_, mirror=True)``, with all the settings that estimators do not have.

        Parameters
        ----------
        X, y, sample_weight : arrays, shapes (n, d), (n,), (n,)
            The rows of the fit, which the estimator does not keep. After a fit with
            ``validation_fraction`` the posterior has seen a part of them only.

        Returns
        -------
        Data
            X on the scaled features, y as numbers of the classes in the order of ``classes_`` or
            standardised, weights with those of the classes; without rows of weight zero.

        Raises
        ------
        ValueError
            For rows that ``fit`` would refuse, unknown classes, or no row that counts.
        """
        check_is_fitted(self)
        data, _ = self._rows_of_fit(X, y, sample_weight)
        return data

    def _rows_of_fit(
        self, X: ArrayLike | None, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[Data, NDArray[np.int64]]:
        """Rows that count, on the scale of the draws, and their numbers."""
        if X is None or y is None:
            raise ValueError("X and y belong together; give both, or neither.")
        rows, values = validated(self, X, y, reset=False, dtype=np.float64)
        weights = self._row_weights(sample_weight, rows, values)
        numbers = np.flatnonzero(weights > 0)
        if len(numbers) == 0:
            raise ValueError("sample_weight is zero everywhere; some row must count.")
        standard = self._standardise(rows[numbers])
        return Data.of(standard, self._coded(values[numbers]), weights[numbers]), numbers

    # What y is.

    def _row_weights(
        self, sample_weight: ArrayLike | None, rows: FloatArray | FileRows, values: NDArray[Any]
    ) -> FloatArray:
        """How often each row counts, shape (n,)."""
        raise NotImplementedError

    def _coded(self, values: NDArray[Any]) -> NDArray[Any]:
        """y as the model has it: class numbers, or standardised values."""
        raise NotImplementedError

    def _decoded(self, values: NDArray[Any]) -> NDArray[Any]:
        """The inverse of :meth:`_coded`."""
        raise NotImplementedError
