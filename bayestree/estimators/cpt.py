"""Convex polytope trees with the face of scikit-learn."""

from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions

from bayestree._utils.arrays import FloatArray
from bayestree._utils.progress import Verbose
from bayestree._utils.seed import RandomState
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._polytope import BasePolytopeTree
from bayestree.estimators._priors import Prior
from bayestree.estimators._regressor import TreeRegressor


class ConvexPolytopeTreeClassifier(TreeClassifier, BasePolytopeTree):
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
    refine : {"tao"}, optional
        Polish the deterministic tree by alternating optimisation: its splits and leaves are
        trained in turn for its own 0/1 (squared) loss, from where they are. The posterior and
        its diagnostics stay as they are.
    concentration, rate : float, default=1.0
        gamma_0 and c_0 of the gamma process.
    prior : {"inverse-gamma", "laplace", "flat", "spatial"}, default="inverse-gamma"
        Of the hyperplanes. ``"inverse-gamma"`` is the paper's (eq. 6), which learns the scale of
        each facet; ``"laplace"`` the l1 penalty of sparse oblique trees as a prior, beside wide
        normal intercepts; ``"spatial"`` prefers smooth images. The latter and ``"flat"`` are
        improper: their posterior is that about the tree that was found, and a warning names the
        nodes whose coefficients the rows do not hold (see docs/model.md).
    scale_shape : float, default=0.5
        a_beta of the inverse-gamma scales of the hyperplanes (CPT, eq. 6).
    shrinkage_shape, shrinkage_rate : float, default=0.1
        e_0 and f_0 (a rate) of the gamma prior of b_beta.
    l1 : float, default=1.0
        Rate of the ``"laplace"`` prior.
    spatial : float, default=1.0
        Strength of the ``"spatial"`` prior (E2EDT, eq. 15).
    image_shape : (int, int), optional
        Height and width of the image that the features are, row by row; for ``"spatial"``.
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
    smoothing : float, default=1.0
        Rows that the Dirichlet prior of each leaf of ``tree_`` is worth, spread over the classes
        as the training rows are; with 0 a leaf predicts the shares of its own rows.
    class_weight : dict or "balanced", optional
        Factors of the row weights by class.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the inference; float32 is some four times as fast.
    device : str, default="cpu"
        Where the inference runs, as torch names it.
    random_state : int or RandomState, optional
    verbose : bool or "auto", default="auto"
        Show progress on a terminal or in a notebook: at once, not at all, or (``"auto"``) where the
        fit takes more than a second and is not one of several in parallel.

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
        "smoothing": [Interval(Real, 0, None, closed="left")],
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
        refine: Literal["tao"] | None = None,
        concentration: float = 1.0,
        rate: float = 1.0,
        prior: Prior = "inverse-gamma",
        scale_shape: float = 0.5,
        shrinkage_shape: float = 0.1,
        shrinkage_rate: float = 0.1,
        l1: float = 1.0,
        spatial: float = 1.0,
        image_shape: tuple[int, int] | None = None,
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
        smoothing: float = 1.0,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        dtype: str = "float64",
        device: str = "cpu",
        random_state: RandomState = None,
        verbose: Verbose = "auto",
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
            refine=refine,
            concentration=concentration,
            rate=rate,
            prior=prior,
            scale_shape=scale_shape,
            shrinkage_shape=shrinkage_shape,
            shrinkage_rate=shrinkage_rate,
            l1=l1,
            spatial=spatial,
            image_shape=image_shape,
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
        self.smoothing = smoothing
        self.class_weight = class_weight


class ConvexPolytopeTreeRegressor(TreeRegressor, BasePolytopeTree):
    """Regression tree whose splits are convex polytopes, with a posterior.

    Leaves are normal with conjugate priors; a strong prior, centred on the pooled scale of the
    leaves that were grown, keeps their scales alike. Parameters are those of
    :class:`ConvexPolytopeTreeClassifier` without ``class_weight`` and ``smoothing``; by default
    ``n_experts`` is 8, ``growth_rate`` 0.15, ``scale_shape`` 2, ``shrinkage_shape`` and
    ``shrinkage_rate`` 1.

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

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
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
        levels = np.array([(1 - level) / 2, 1 - (1 - level) / 2])

        def bounds(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
            found = self.posterior_.quantiles(self._standardise(rows), levels)
            low, high = found * self._y_scale + self._y_mean
            return low, high

        low, high = self._by_parts(X, bounds)
        return low, high
