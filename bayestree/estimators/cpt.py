"""Convex polytope trees with the face of scikit-learn."""

from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin, _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from bayestree._seed import RandomState
from bayestree.estimators._base import TOO_LARGE, BasePolytopeTree
from bayestree.inference import Units
from bayestree.models import Categorical, Gaussian

Floats = NDArray[np.float64]
LEAF_SHAPE = 50.0  # rows over two that the common scale of the leaves is worth


class ConvexPolytopeTreeClassifier(ClassifierMixin, BasePolytopeTree):
    """Decision tree whose splits are convex polytopes, with a posterior.

    Armandpour, Sadeghian and Zhou, "Convex Polytope Trees" (2021). Every internal node is a
    noisy-OR committee of linear experts; a truncated gamma process decides how many of them
    count (the facets of the polytope), and inverse-gamma scales keep each facet sparse.

    Parameters
    ----------
    max_depth : int, default=4
        Most splits on a path from the root to a leaf.
    n_experts : int, default=20
        Most facets of a split. 1 is the oblique tree CPT (K = 1): one expert of weight 1.
    inference : {"svi", "nuts", "map", "grow"}, default="svi"
        ``"grow"`` stops at the greedy tree; ``"map"`` refines all nodes jointly; ``"svi"`` gives
        a variational posterior; ``"nuts"`` samples the exact one of the tree that was found,
        from there: for small trees and up to some thousand rows, in minutes.
    max_leaves : int, optional
        Splits of the least gain are dropped until so many leaves are left.
    min_rows : float, default=20
        Least weight of rows in a node that is split.
    min_leaf : int, default=10
        Least number of rows on each side of a split.
    min_gain : float, default=10.0
        Least gain of a split in nats of log-likelihood.
    extend : bool, default=False
        Let the deterministic tree split leaves further by the polytopes above them at other
        levels of their score: in steps, what the soft splits say gradually. It may then be
        deeper than ``max_depth``; ``max_leaves`` holds.
    concentration, rate : float, default=1.0
        gamma_0 and c_0 of the gamma process.
    scale_shape : float, default=0.5
        a_beta of the inverse-gamma scales of the hyperplanes (CPT, eq. 6).
    shrinkage_shape, shrinkage_rate : float, default=0.1
        e_0 and f_0 (a rate) of the gamma prior of b_beta.
    scaling : {"standard", "common"}, default="standard"
        Units of the features inside: each its own standard deviation, or one for all. The latter
        is for features that share a unit: pixels, indicators, fingerprints.
    growth_rate : float, default=0.015
        Learning rate of the stumps, in units of a starting hyperplane. Gentle growth leaves more
        to the refinement, which is what generalises in classification.
    search_facets : bool, default=False
        Under SVI, and before NUTS, at steepness 1: search for the number of facets of every node
        by moves that add, drop and exchange facets and are accepted by the ELBO, with full
        covariance within each expert. For up to some ten features; else the cost grows with
        their square.
    steepness : float, optional
        Final factor of the log-odds of every split; 1 is the paper's model, more makes the
        soft tree close to its deterministic form. By default 20 for MAP and 6 for SVI and NUTS,
        but 1 with ``search_facets``. Posteriors of unlike steepness are of unlike models: to
        compare a fit with the search and one without it, give the latter ``steepness=1``.
    epochs, batch_size, learning_rate : int (optional), int, float
        Of the refinement (see ``bayestree.inference.map`` and ``svi``).
    kl_weight : float, default=1.0
        Tempering of the prior under SVI; 1 is the posterior.
    guide : str, default="polytope"
        The package's own guide, or the name of a Pyro autoguide.
    covariance : {"diagonal", "expert"}, default="diagonal"
        Of the package's own guide: ``"expert"`` is full within each expert, its weight included;
        it costs (d + 1)^2 numbers an expert, and is what ``search_facets`` uses.
    n_restarts : int, default=1
        SVI fits, of which the one of the best ELBO is kept.
    n_draws : int, optional
        Posterior draws kept, of each chain; by default 50 under SVI and 250 under NUTS.
    n_chains, n_warmup : int, default=4, 500
        Chains of NUTS, and the transitions that each adapts on.
    target_acceptance : float, default=0.9
        Of the steps of NUTS: nearer to 1 they are smaller, and fewer transitions diverge.
    n_jobs : int, optional
        Processes that the chains of NUTS share; None is one. The numbers do not depend on it.
    validation_fraction : float, default=0.0
        Share of the rows held out, to choose the depth and (``"map"``) when to stop.
    prediction : {"auto", "tree", "posterior"}, default="auto"
        Predict by the deterministic tree, by the average over the draws, or (``"auto"``) by the
        latter where there is more than one draw.
    class_weight : dict or "balanced", optional
        Factors of the row weights by class.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the inference; float32 is some four times as fast.
    device : str, default="cpu"
        Where the inference runs, as torch names it.
    random_state : int or RandomState, optional
    verbose : bool, default=False
        Show progress bars on a terminal.

    Attributes
    ----------
    classes_ : array, shape (C,)
    tree_ : Tree
        The deterministic tree, in the units of the data.
    posterior_ : Posterior
        Named draws, on the standardised features.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import ConvexPolytopeTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = ConvexPolytopeTreeClassifier(max_depth=2, epochs=30, random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BasePolytopeTree._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        *,
        max_depth: int = 4,
        n_experts: int = 20,
        inference: str = "svi",
        max_leaves: int | None = None,
        min_rows: float = 20,
        min_leaf: int = 10,
        min_gain: float = 10.0,
        extend: bool = False,
        concentration: float = 1.0,
        rate: float = 1.0,
        scale_shape: float = 0.5,
        shrinkage_shape: float = 0.1,
        shrinkage_rate: float = 0.1,
        scaling: str = "standard",
        growth_rate: float = 0.015,
        search_facets: bool = False,
        steepness: float | None = None,
        epochs: int | None = None,
        batch_size: int = 500,
        learning_rate: float = 0.03,
        kl_weight: float = 1.0,
        guide: str = "polytope",
        covariance: Literal["diagonal", "expert"] = "diagonal",
        n_restarts: int = 1,
        n_draws: int | None = None,
        n_chains: int = 4,
        n_warmup: int = 500,
        target_acceptance: float = 0.9,
        n_jobs: int | None = None,
        validation_fraction: float = 0.0,
        prediction: str = "auto",
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        dtype: str = "float64",
        device: str = "cpu",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            max_depth=max_depth,
            n_experts=n_experts,
            inference=inference,
            max_leaves=max_leaves,
            min_rows=min_rows,
            min_leaf=min_leaf,
            min_gain=min_gain,
            extend=extend,
            concentration=concentration,
            rate=rate,
            scale_shape=scale_shape,
            shrinkage_shape=shrinkage_shape,
            shrinkage_rate=shrinkage_rate,
            scaling=scaling,
            growth_rate=growth_rate,
            search_facets=search_facets,
            steepness=steepness,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            kl_weight=kl_weight,
            guide=guide,
            covariance=covariance,
            n_restarts=n_restarts,
            n_draws=n_draws,
            n_chains=n_chains,
            n_warmup=n_warmup,
            target_acceptance=target_acceptance,
            n_jobs=n_jobs,
            validation_fraction=validation_fraction,
            prediction=prediction,
            dtype=dtype,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
        y : array, shape (n,)
            Labels of any kind, two or more of them.
        sample_weight : array, shape (n,), optional
            Each row counts so many times.

        Raises
        ------
        ValueError
            For missing or infinite values, other shapes, or a single class.
        """
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        weights = self._row_weights(sample_weight, rows, labels)
        self.classes_, encoded = np.unique(labels, return_inverse=True)
        counted = np.unique(labels[weights > 0]).tolist()
        if len(counted) < 2:
            raise ValueError(
                f"the rows of y with positive weight hold one class or none, {counted}; a "
                "classifier needs two classes or more."
            )
        names = tuple(str(label) for label in self.classes_)
        return self._fit(rows, encoded, weights, Categorical(len(names)), names)

    @overload
    def predict_proba(self, X: ArrayLike, *, return_std: Literal[False] = ...) -> Floats: ...
    @overload
    def predict_proba(
        self, X: ArrayLike, *, return_std: Literal[True]
    ) -> tuple[Floats, Floats]: ...
    def predict_proba(
        self, X: ArrayLike, *, return_std: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """Probability of each class, shape (n, C).

        With ``return_std`` also its standard deviation over the posterior draws: zero for a
        point estimate and for ``prediction="tree"``.
        """
        rows = self._check_rows(X)
        if self._averages():
            mean, sd = self.posterior_.predictive(self._standardise(rows))
            # the draws of float32 fits sum to 1 in float32 only
            mean = mean / mean.sum(axis=1, keepdims=True)
        else:
            mean = self.tree_.predict(rows)
            sd = np.zeros_like(mean)
        return (mean, sd) if return_std else mean

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable class, shape (n,)."""
        probability = self.predict_proba(X)
        return self.classes_[probability.argmax(axis=1)]

    def _row_weights(
        self, sample_weight: ArrayLike | None, rows: Floats, values: NDArray[Any]
    ) -> Floats:
        weights: Floats = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        if self.class_weight is not None:
            weights = weights * compute_sample_weight(self.class_weight, values)
            if not ((weights >= 0) & np.isfinite(weights)).all():
                raise ValueError(f"class_weight must be zero or more, got {self.class_weight}.")
        return weights

    def _coded(self, values: NDArray[Any]) -> NDArray[np.int64]:
        numbers = {label: number for number, label in enumerate(self.classes_.tolist())}
        unknown = sorted({str(label) for label in values.tolist() if label not in numbers})
        if unknown:
            raise ValueError(
                f"y holds classes that the fit did not see, {unknown[:5]}; it saw "
                f"{[str(label) for label in numbers]}."
            )
        return np.array([numbers[label] for label in values.tolist()], dtype=np.int64)

    def _decoded(self, values: NDArray[Any]) -> NDArray[Any]:
        return self.classes_[values]


class ConvexPolytopeTreeRegressor(RegressorMixin, BasePolytopeTree):
    """Regression tree whose splits are convex polytopes, with a posterior.

    Leaves are normal with conjugate priors; a strong prior, centred on the pooled scale of the
    leaves that were grown, keeps their scales alike. Parameters are those of
    :class:`ConvexPolytopeTreeClassifier` without ``class_weight``; by default ``n_experts`` is 8,
    ``growth_rate`` 0.15, ``scale_shape`` 2, ``shrinkage_shape`` and ``shrinkage_rate`` 1.

    Attributes
    ----------
    tree_ : Tree
        The deterministic tree; its values are means in the units of y.
    posterior_ : Posterior
        Named draws, on standardised features and standardised y.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import ConvexPolytopeTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = ConvexPolytopeTreeRegressor(max_depth=2, epochs=30, random_state=0).fit(X, y)
    >>> low, high = reg.predict_interval(X, 0.9)
    """

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
        y : array, shape (n,)
            Real values.
        sample_weight : array, shape (n,), optional
            Each row counts so many times.

        Raises
        ------
        ValueError
            For missing or infinite values, or other shapes.
        """
        rows, target = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        target = target.astype(np.float64)
        weights = self._row_weights(sample_weight, rows, target)
        if not weights.sum() > 0:
            raise ValueError("sample_weight is zero everywhere; some row must count.")
        self._y_mean = float(np.average(target, weights=weights))
        with np.errstate(over="ignore"):
            spread = float(np.sqrt(np.average((target - self._y_mean) ** 2, weights=weights)))
        if not np.isfinite(spread):
            raise ValueError(f"y {TOO_LARGE}")
        self._y_scale = spread if spread > 0 else 1.0
        self._fit(rows, self._coded(target), weights, Gaussian(shape=LEAF_SHAPE))
        self.tree_ = self.tree_.with_value(self.tree_.value * self._y_scale + self._y_mean)
        return self

    @overload
    def predict(self, X: ArrayLike, *, return_std: Literal[False] = ...) -> Floats: ...
    @overload
    def predict(self, X: ArrayLike, *, return_std: Literal[True]) -> tuple[Floats, Floats]: ...
    def predict(self, X: ArrayLike, *, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Expected value, shape (n,).

        With ``return_std`` also its standard deviation over the posterior draws (of the
        expectation, not of y): zero for a point estimate and for ``prediction="tree"``.
        """
        rows = self._check_rows(X)
        if self._averages():
            mean, sd = self.posterior_.predictive(self._standardise(rows))
            mean, sd = mean * self._y_scale + self._y_mean, sd * self._y_scale
        else:
            mean = self.tree_.predict(rows)
            sd = np.zeros_like(mean)
        return (mean, sd) if return_std else mean

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[Floats, Floats]:
        """Central interval that holds y with probability ``level``, by the posterior.

        The quantiles of the mixture of all draws and leaves.

        Returns
        -------
        low, high : arrays, shape (n,)

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}.")
        standard = self._standardise(self._check_rows(X))
        tail = (1 - level) / 2
        bounds = self.posterior_.quantiles(standard, np.array([tail, 1 - tail]))
        low, high = bounds * self._y_scale + self._y_mean
        return low, high

    def _units(self) -> Units:
        return Units(self._center, self._scale, self._y_mean, self._y_scale)

    def _row_weights(
        self, sample_weight: ArrayLike | None, rows: Floats, values: NDArray[Any]
    ) -> Floats:
        weights: Floats = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        return weights

    def _coded(self, values: NDArray[Any]) -> Floats:
        return (np.asarray(values, dtype=np.float64) - self._y_mean) / self._y_scale

    def _decoded(self, values: NDArray[Any]) -> Floats:
        return values * self._y_scale + self._y_mean
