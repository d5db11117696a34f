"""The posterior of a fitted tree as an ArviZ container, and as draws of y."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.progress import fitting
from bayestree._utils.seed import RandomState
from bayestree.estimators._fitted import FittedTree
from bayestree.estimators._mixed_draws import spread_draws
from bayestree.estimators._numbers import fitted_rows, validated
from bayestree.inference import Data, pointwise


class TreeDraws(FittedTree):
    """Methods of fitted soft trees; classifier and regressor encode y."""

    _feature_names: tuple[str, ...]

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
        """The posterior as a container for ArviZ.

        Parameters
        ----------
        X, y, sample_weight : arrays, shapes (n, d), (n,), (n,), optional
            The rows of the fit, which the estimator does not keep. They give the groups
            ``log_likelihood``, ``posterior_predictive``, ``prior_predictive`` and
            ``observed_data``, each with one variable, ``obs``. Rows of weight 0 are omitted. Rows
            held out by ``validation_fraction`` are included, because they are not recorded; then
            leave-one-out scores (``arviz.loo``) are meaningless.
        groups : iterable of str, optional
            The groups to create; by default all that are available. Groups with rows contain
            draws * n numbers each: name only the others to save memory.
        n_prior : int
            Number of draws from the prior.
        random_state : int, RandomState or Generator
            Seed of the draws from the prior and of y.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            The former with ArviZ 0.x, the latter with 1.x. Draws of the parameters refer to the
            scaled features (``constant_data`` has ``center`` and ``scale``) and, for regression,
            to standardised y; X and y are in their original units, and classes are numbered in
            the order of the coordinate ``class``. ``log_likelihood`` is the term of each row in
            the log-likelihood, including its weight. With several modes, whose trees have
            different parameters, the draws are those of the mixture: each is a draw of one mode
            (coordinate ``mode``), in proportion to the weights. ``posterior`` and ``prior`` then
            hold predictions in the units of y, and ``log_likelihood`` gives the leave-one-out
            score of the mixture; ``modes_[m].to_arviz`` gives the parameters of one mode.

        Raises
        ------
        ValueError
            If X is given without y, y has unknown classes, or a group is unknown or needs rows.
        """
        check_is_fitted(self)
        data, row_labels = None, None
        if X is not None or y is not None:
            data, row_labels = self._training_rows(X, y, sample_weight)
        elif sample_weight is not None:
            raise ValueError("sample_weight needs the rows; give X and y.")
        with fitting(self.verbose):
            return self._container(
                data, row_labels, groups=groups, n_prior=n_prior, random_state=random_state
            )

    def _container(
        self,
        data: Data | None,
        row_labels: IntArray | None,
        *,
        groups: Iterable[str] | None,
        n_prior: int,
        random_state: RandomState,
    ) -> Any:
        """The container, with rows on the scale of the draws."""
        return self.posterior_.to_arviz(
            data,
            groups=groups,
            feature_names=self._feature_names,
            class_names=tuple(str(label) for label in getattr(self, "classes_", ())),
            units=self._units,
            row_labels=row_labels,
            n_prior=n_prior,
            random_state=random_state,
            attributes=self._attributes(),
        )

    def _attributes(self) -> dict[str, str]:
        """The estimator and its parameters, as attributes of a container."""
        parameters = self.get_params(deep=False)  # type: ignore[attr-defined]
        return {
            "estimator": type(self).__name__,
            "parameters": json.dumps(parameters, default=str),
            "random_state": str(self.random_state),
        }

    def sample_posterior_predictive(
        self, X: ArrayLike, draws: int | None = None, *, random_state: RandomState = None
    ) -> AnyArray:
        """Draws of y from the posterior predictive distribution, for any ``prediction``.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
        draws : int, optional
            Number of draws; by default one for each draw of the posterior, chain after chain.
            Fewer are spread evenly over these; more repeat them in order. Several modes follow one
            another, each with draws in proportion to its weight.
        random_state : int, RandomState or Generator, optional

        Returns
        -------
        array, shape (draws, n)
            Classes, or values in the units of y. Rows are processed in chunks, so that this
            array determines the memory needed.

        Raises
        ------
        ValueError
            If ``draws`` is below 1.
        """
        return self._sampled(X, draws, random_state)

    def _sampled(
        self,
        X: ArrayLike,
        draws: int | None,
        random_state: RandomState,
        known: FloatArray | None = None,
    ) -> AnyArray:
        """Draws of y; ``known`` (n,) is what they need beside the features (see ``Leaf.known``)."""
        rows = fitted_rows(self, X)
        posterior = self.posterior_
        total = posterior.n_chains * posterior.n_draws
        count = total if draws is None else draws
        if count < 1:
            raise ValueError(f"draws must be 1 or more, got {draws}.")
        picked = spread_draws(count, total).tolist()
        each = (posterior.sites(*divmod(pick, posterior.n_draws)) for pick in picked)
        also = None if known is None else torch.as_tensor(known)
        standard = self._standardise(rows)
        values = pointwise.sample_y(posterior.model, each, standard, random_state, also)
        return self._decode(values)

    def training_data(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Data:
        """Rows as used by the model of ``posterior_``, for functions of ``bayestree.inference``.

        For example ``bayestree.inference.nuts(clf.posterior_.model, clf.training_data(X, y),
        init=clf.posterior_, mirror=True)``, with settings that estimators do not have.

        Parameters
        ----------
        X, y, sample_weight : arrays, shapes (n, d), (n,), (n,)
            The rows of the fit, which the estimator does not keep. With
            ``validation_fraction``, the posterior is based on only a part of them.

        Returns
        -------
        Data
            Scaled X, y as class numbers in the order of ``classes_`` or standardised, and weights
            that include those of the classes; without rows of weight 0.

        Raises
        ------
        ValueError
            For rows that ``fit`` would refuse, or unknown classes.
        """
        check_is_fitted(self)
        data, _ = self._training_rows(X, y, sample_weight)
        return data

    def _training_rows(
        self, X: ArrayLike | None, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[Data, IntArray]:
        """Rows of positive weight, on the scale of the draws, and their numbers."""
        if X is None or y is None:
            raise ValueError("X and y belong together; give both, or neither.")
        y, extra = self._separate(y)
        checks = self._y_checks(y)
        rows, values = validated(self, X, y, reset=False, dtype=np.float64, **checks)
        self._check_outputs(values)
        weights = self._row_weights(sample_weight, values)
        numbers = np.flatnonzero(weights > 0)
        if len(numbers) == 0:
            raise ValueError("class_weight is zero for all classes of y.")
        standard = self._standardise(rows[numbers])
        response = self._response(values, extra, numbers)
        return Data.of(standard, response, weights[numbers]), numbers
