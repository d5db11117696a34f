"""The draws of a fit: as a container for ArviZ, and as draws of y.

The functions that take an estimator are its methods.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bayestree._utils import arviz_compat
from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.progress import fitting, steps_of
from bayestree._utils.seed import RandomState, draw_seed
from bayestree.diagnostics.label_free import box_rows, spread_rows, typical_rows
from bayestree.fitted.mixed_draws import (
    MIXED_GROUPS,
    MixedContainer,
    mode_counts,
    spread_draws,
)
from bayestree.fitted.tree import FittedEstimator, FittedTree, Mixture
from bayestree.fitted.validation import fitted_rows, validated
from bayestree.inference import Data, pointwise

if TYPE_CHECKING:
    import xarray as xr

MAX_SHOWN = 20  # rows at which a container of a mixture has predictions


def to_arviz(
    estimator: Any,
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
    check_is_fitted(estimator)
    data, row_labels = None, None
    if X is not None or y is not None:
        data, row_labels = training_rows(estimator, X, y, sample_weight)
    elif sample_weight is not None:
        raise ValueError("sample_weight needs the rows; give X and y.")
    mixture, attributes = estimator.fitted_, _attributes(estimator)
    of_trees = {
        "feature_names": estimator._feature_names,
        "class_names": tuple(str(label) for label in getattr(estimator, "classes_", ())),
        "row_labels": row_labels,
    }
    with fitting(estimator.verbose):
        if mixture.several:
            return _mixed_container(
                mixture,
                data,
                attributes,
                of_trees,
                groups=groups,
                n_prior=n_prior,
                random_state=random_state,
            )
        return mixture.shown.posterior.to_arviz(
            data,
            groups=groups,
            units=mixture.shown.scaling.units,
            n_prior=n_prior,
            random_state=random_state,
            attributes=attributes,
            **of_trees,
        )


def _attributes(estimator: Any) -> dict[str, str]:
    """The estimator and its parameters, as attributes of a container."""
    return {
        "estimator": type(estimator).__name__,
        "parameters": json.dumps(estimator.get_params(deep=False), default=str),
        "random_state": str(estimator.random_state),
    }


def _mixed_container(
    mixture: Mixture,
    data: Data | None,
    attributes: dict[str, str],
    of_trees: dict[str, Any],
    *,
    groups: Iterable[str] | None,
    n_prior: int,
    random_state: RandomState,
) -> Any:
    """The container of several trees, with rows on the scale of the draws."""
    from bayestree.inference.arviz_groups import attributes_of  # noqa: PLC0415 - imports xarray

    wanted = _mixed_groups(mixture, groups, data)
    of_modes = [name for name in wanted if name != "posterior"]
    seeds = check_random_state(draw_seed(random_state))
    # 0 or less is refused by the trees, and one of weight 0 has a draw that is not taken
    shares = np.ceil(n_prior * mixture.weights).astype(int).clip(min(n_prior, 1))
    of_prior = shares.tolist()
    made = MixedContainer(
        mixture.trees,
        mixture.weights,
        [
            tree.posterior.to_arviz(
                data,
                groups=of_modes,
                units=tree.scaling.units,
                n_prior=count,
                random_state=seeds,
                attributes={},
                **of_trees,
            )
            for tree, count in steps_of([*zip(mixture.trees, of_prior, strict=True)], "modes")
        ],
        _shown_rows(mixture.shown, data, of_trees["row_labels"]),
        None if data is None else data.weights.numpy(force=True).astype(np.float64),
        of_prior,
        n_prior,
        seeds,
    )
    attributes = attributes_of(mixture.shown.posterior) | attributes
    del attributes["scale"]  # of the parameters
    attributes["mode_weights"] = json.dumps(mixture.weights.tolist())
    return arviz_compat.container(
        {name: made.group(name).assign_attrs(attributes) for name in wanted}, attributes
    )


def _mixed_groups(mixture: Mixture, groups: Iterable[str] | None, data: Data | None) -> list[str]:
    """The groups to create: those that all modes have, or the given ones."""
    point = max(tree.n_draws for tree in mixture.trees) == 1
    if groups is None:
        from bayestree.inference import arviz_groups  # noqa: PLC0415 - imports xarray

        each = [arviz_groups.available(tree.posterior, data) for tree in mixture.trees]
        known = [name for name in MIXED_GROUPS if all(name in one for one in each)]
        return [name for name in known if not (point and name == "log_likelihood")]
    wanted = [groups] if isinstance(groups, str) else [*groups]
    for name in wanted:
        if name not in MIXED_GROUPS:
            raise ValueError(
                f"the mixture of {len(mixture.trees)} modes has the groups {[*MIXED_GROUPS]}, "
                f"got {name!r}; for the parameters of one mode, use modes_[m].to_arviz()."
            )
    if point and "log_likelihood" in wanted:
        raise ValueError(
            "group 'log_likelihood' cannot be created: the modes are point estimates, whose "
            "leave-one-out score is not known; loo(X, y, method='kfold') refits them."
        )
    return wanted


def _shown_rows(shown: FittedTree, data: Data | None, row_labels: IntArray | None) -> xr.DataArray:
    """The rows at which the container has predictions, on the scale of the draws."""
    import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and this module is imported by estimators

    if data is None or row_labels is None:
        return xr.DataArray(generated_rows(shown, MAX_SHOWN, 1)[0], dims=("point", "feature"))
    standard = data.X.numpy(force=True)
    some = np.sort(spread_rows(standard, MAX_SHOWN))
    labels = {"row": row_labels[some]}
    return xr.DataArray(standard[some], dims=("row", "feature"), coords=labels)


def generated_rows(
    fitted: FittedTree, n_rows: int, n_points: int
) -> tuple[FloatArray, dict[int, FloatArray]]:
    """Rows in the boxes of the nodes, on the scale of the draws: of all, and by node."""
    reach = fitted.polytopes
    own: dict[int, FloatArray] = {}
    for place, node in enumerate(reach.nodes.tolist()):
        # Two nodes of tree_ may share a node of the posterior; the upper one has more rows.
        if node not in own:
            own[node] = box_rows(reach.low[place], reach.high[place], n_points, seed=node)
    if len(reach.nodes):
        return box_rows(reach.low[0], reach.high[0], n_rows), own
    return typical_rows(len(fitted.scaling.source), n_rows), own


def sample_posterior_predictive(
    estimator: FittedEstimator,
    X: ArrayLike,
    draws: int | None = None,
    *,
    random_state: RandomState = None,
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
    return sampled(estimator, X, draws, random_state)


def sampled(
    estimator: Any,
    X: ArrayLike,
    draws: int | None,
    random_state: RandomState,
    known: FloatArray | None = None,
) -> AnyArray:
    """Draws of y; ``known`` (n,) is what they need beside the features (see ``Leaf.known``)."""
    rows, mixture = fitted_rows(estimator, X), estimator.fitted_
    total = sum(tree.n_draws for tree in mixture.trees) if draws is None else draws
    if total < 1:
        raise ValueError(f"draws must be 1 or more, got {draws}.")
    if not mixture.several:
        return estimator._decode(_sampled(mixture.shown, rows, total, random_state, known))
    seeds = check_random_state(draw_seed(random_state))
    counts = mode_counts(mixture.weights, total, seeds)
    each = [
        _sampled(tree, rows, int(count), seeds, known)
        for tree, count in zip(mixture.trees, counts, strict=True)
        if count
    ]
    return np.concatenate([estimator._decode(values) for values in each])


def _sampled(
    fitted: FittedTree,
    rows: FloatArray,
    count: int,
    random_state: RandomState,
    known: FloatArray | None,
) -> AnyArray:
    """Draws of encoded y from the posterior predictive distribution of one tree."""
    posterior = fitted.posterior
    picked = spread_draws(count, fitted.n_draws).tolist()
    each = (posterior.sites(*divmod(pick, posterior.n_draws)) for pick in picked)
    also = None if known is None else torch.as_tensor(known)
    standard = fitted.scaling.standardise(rows)
    return pointwise.sample_y(posterior.model, each, standard, random_state, also)


def training_data(
    estimator: FittedEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
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
    check_is_fitted(estimator)
    data, _ = training_rows(estimator, X, y, sample_weight)
    return data


def training_rows(
    estimator: Any, X: ArrayLike | None, y: ArrayLike | None, sample_weight: ArrayLike | None
) -> tuple[Data, IntArray]:
    """Rows of positive weight, on the scale of the draws, and their numbers."""
    if X is None or y is None:
        raise ValueError("X and y belong together; give both, or neither.")
    y, extra = estimator._separate(y)
    checks = estimator._y_checks(y)
    rows, values = validated(estimator, X, y, reset=False, dtype=np.float64, **checks)
    estimator._check_outputs(values)
    weights = estimator._row_weights(sample_weight, values)
    numbers = np.flatnonzero(weights > 0)
    if len(numbers) == 0:
        raise ValueError("class_weight is zero for all classes of y.")
    standard = estimator._scaling.standardise(rows[numbers])
    response = estimator._response(values, extra, numbers)
    return Data.of(standard, response, weights[numbers]), numbers
