"""The draws of a fit: as a container for ArviZ, and as draws of y.

The functions that take an estimator are its methods.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayestree._utils import arviz_compat
from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.diagnostics.draws import (
    Draws,
    Matches,
    branch_log_probs,
    effective_number,
    match,
    scores,
    weight_of,
)
from bayestree.diagnostics.loo import loo, mixed_loo
from bayestree.diagnostics.polytopes import cuts_off, votes_and_cuts
from bayestree.fitted.tree import FittedTree, sides_of
from bayestree.inference import Posterior

if TYPE_CHECKING:
    import xarray as xr
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.progress import fitting, steps_of
from bayestree._utils.state import RandomState, draw_seed
from bayestree.diagnostics.label_free import spread_rows
from bayestree.fitted.predictions import mode_counts, spread_draws
from bayestree.fitted.tree import Mixture, MixtureEstimator
from bayestree.fitted.validation import training_rows
from bayestree.inference import Data

if TYPE_CHECKING:
    import xarray as xr

MAX_SHOWN = 20  # rows at which a container of a mixture has predictions
MIN_DRAWS = 100  # of a mixture, so that the share of a mode is its weight to within a hundredth
MIXED_GROUPS = (
    "posterior", "sample_stats", "log_likelihood", "log_prior", "posterior_predictive", "prior",
    "prior_predictive", "observed_data", "constant_data",
)  # fmt: skip


def to_arviz(
    estimator: MixtureEstimator,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    *,
    groups: Iterable[str] | None = None,
    n_prior: int = 200,
    random_state: RandomState = 0,
) -> Any:
    """Convert the posterior to a container for ArviZ.

    Parameters
    ----------
    X, y, sample_weight : arrays, shapes (n, d), (n,), (n,), optional
        The rows of the fit, which the estimator does not keep. They give the groups
        ``log_likelihood``, ``posterior_predictive``, ``prior_predictive`` and
        ``observed_data``, each with one variable, ``obs``. Rows of weight 0 are omitted. Rows
        held out by ``validation_fraction`` are included, because they are not recorded; then
        leave-one-out scores (``arviz.loo``) are meaningless. Those of variational fits, and of
        their mixtures, are not right either: use ``loo(X, y).to_arviz()``.
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
        different parameters, the draws come from the mixture: each is a draw of a mode
        (coordinate ``mode``), in proportion to the weights. ``posterior`` and ``prior`` then
        hold predictions in the units of y and, for each node of ``tree_``, what the draws say
        of their node that divides the rows most alike: ``p_right`` at some rows, the number of
        ``facets`` that alone cut off 1 % of its rows, the ``weight`` of the experts by ``rank``,
        their ``effective`` number, and whether the draw has such a node (``alike``);
        ``log_likelihood`` gives the leave-one-out score of the mixture; ``modes_[m].to_arviz``
        gives the parameters of one mode.

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
    mixture, parameters = estimator.fitted_, estimator.get_params(deep=False)
    attributes = {
        "estimator": type(estimator).__name__,
        "parameters": json.dumps(parameters, default=str),
        "random_state": str(parameters["random_state"]),
    }
    of_trees = {
        "feature_names": mixture.shown.tree.feature_names,
        "class_names": mixture.response.class_names,
        "row_labels": row_labels,
    }
    wanted: Any = {"groups": groups, "n_prior": n_prior, "random_state": random_state}
    with fitting(estimator.verbose):
        if mixture.several:
            return _mixed_container(mixture, data, attributes, of_trees, **wanted)
        shown = mixture.shown
        return shown.posterior.to_arviz(
            data, units=shown.scaling.units, attributes=attributes, **of_trees, **wanted
        )


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
    """Make the container of several trees from rows on the scale of the draws."""
    from bayestree.inference.arviz_groups import attributes_of  # noqa: PLC0415 - imports xarray

    wanted = _mixed_groups(mixture, groups, data)
    of_modes = [name for name in wanted if name != "posterior"]
    seeds = check_random_state(draw_seed(random_state))
    # 0 or less is refused by the trees, and a tree of weight 0 has a draw that is not taken
    shares = np.ceil(n_prior * mixture.weights).astype(int).clip(min(n_prior, 1))
    of_prior = shares.tolist()
    made = MixedContainer(
        mixture.shown,
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
    """Return the groups to create: the given ones, by default all that every mode has."""
    point = max(tree.n_draws for tree in mixture.trees) == 1
    if groups is None:
        from bayestree.inference import arviz_groups  # noqa: PLC0415 - imports xarray

        each = [arviz_groups.available(tree.posterior, data) for tree in mixture.trees]
        known = [name for name in MIXED_GROUPS if all(name in one for one in each)]
        unknown = {"log_likelihood"} if data is not None else {"log_likelihood", "sample_stats"}
        return [name for name in known if not (point and name in unknown)]
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
    """Select the rows at which the container has predictions, on the scale of the draws."""
    import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and this module is imported by estimators

    kept = shown.scaling.standardise(shown.sample) if data is None else data.X.numpy(force=True)
    some = np.sort(spread_rows(kept, MAX_SHOWN))
    if row_labels is None:  # of the rows that the fit keeps
        return xr.DataArray(kept[some], dims=("point", "feature"))
    labels = {"row": row_labels[some]}
    return xr.DataArray(kept[some], dims=("row", "feature"), coords=labels)


class MixedDraws(NamedTuple):
    """The draws of the modes that their mixture has, in random order."""

    mode: IntArray  # of each draw, (T,)
    draw: IntArray  # its number among the draws of this mode, chain after chain, (T,)

    @classmethod
    def of(
        cls, weights: FloatArray, lengths: Sequence[int], total: int, seeds: np.random.RandomState
    ) -> MixedDraws:
        """Choose ``total`` of the ``lengths`` draws of the modes, in proportion to weights."""
        counts = mode_counts(weights, total, seeds)
        numbers = [spread_draws(*each) for each in zip(counts, lengths, strict=True)]
        order = seeds.permutation(total)
        return cls(np.repeat(np.arange(len(counts)), counts)[order], np.concatenate(numbers)[order])

    def dataset(self, of_modes: Sequence[xr.Dataset]) -> xr.Dataset:
        """Select these draws, as one chain, from the draws [chain, draw, ...] of each mode."""
        import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and estimators import this module

        parts = []
        widest = max(one.sizes.get("rank", 0) for one in of_modes)
        if widest:  # experts that a mode lacks have weight 0
            of_modes = [
                one.pad(rank=(0, widest - one.sizes["rank"]), constant_values=0.0)
                for one in of_modes
            ]
        for number, one in enumerate(of_modes):
            own = np.divmod(self.draw[self.mode == number], one.sizes["draw"])
            chain, draw = (xr.DataArray(index, dims="sample") for index in own)
            parts.append(one.isel(chain=chain, draw=draw).drop_vars(["chain", "draw"]))
        # ``parts`` have the draws mode by mode; these are their places in random order
        places = np.argsort(np.argsort(self.mode, kind="stable"))
        joined = xr.concat(parts, dim="sample").isel(sample=places).rename(sample="draw")
        numbers = np.arange(len(places))
        found = joined.expand_dims(chain=[0]).assign_coords(draw=numbers, mode=("draw", self.mode))
        return found.transpose("chain", "draw", ...)


@dataclass(frozen=True, eq=False)
class MixedContainer:
    """The ArviZ groups of a mixture.

    ``trees``, of which one is ``shown``, have the ``weights`` (M,), and ``containers`` are theirs,
    with the same groups.
    Predictions are shown at ``rows`` [row or point, feature], on the scale of the draws, and
    ``row_weights`` (n,) are the weights of all rows.
    ``of_prior`` are the numbers of prior draws of the modes; ``n_prior`` are taken in all.
    """

    shown: FittedTree
    trees: Sequence[FittedTree]
    weights: FloatArray
    containers: Sequence[Any]
    rows: xr.DataArray
    row_weights: FloatArray | None
    of_prior: Sequence[int]
    n_prior: int
    seeds: np.random.RandomState

    def group(self, name: str) -> xr.Dataset:
        """Return a group by its name; ``posterior`` and ``prior`` have what all modes share."""
        if name == "posterior":
            return self._drawn.dataset([self._of_draws(tree) for tree in self.trees])
        each = [arviz_compat.group(one, name) for one in self.containers]
        if name == "observed_data":
            return each[0]
        if name == "constant_data":
            return self._constant(each[0])
        if name == "prior":
            each = [self._of_prior(*one) for one in zip(self.trees, each, strict=True)]
        elif name == "log_prior":
            each = [one - one.mean() for one in each]
        elif name == "log_likelihood":
            each = self._mixed_likelihood([one["obs"] for one in each])
        elif name == "sample_stats":  # what is recorded by step differs in length
            each = [one[[key for key in one if "draw" in one[key].dims]] for one in each]
        return (self._drawn_prior if name.startswith("prior") else self._drawn).dataset(each)

    @cached_property
    def _drawn(self) -> MixedDraws:
        lengths = [tree.n_draws for tree in self.trees]
        total = max(sum(lengths), MIN_DRAWS)
        return MixedDraws.of(self.weights, lengths, total, self.seeds)

    @cached_property
    def _drawn_prior(self) -> MixedDraws:
        return MixedDraws.of(self.weights, self.of_prior, self.n_prior, self.seeds)

    def _of_draws(self, tree: FittedTree) -> xr.Dataset:
        """Return predictions and numbers of leaves in the draws of a tree."""
        found = self._predictions(tree, tree.posterior)
        if self.sides is not None:
            draws = tree.posterior.draws
            matches = match(draws, tree.scaling.standardise(self.shown.sample), *self.sides)
            found = found.merge(self._nodes(tree, draws, matches))
        if any(one.polytopes.leaves is None for one in self.trees):  # of files of earlier versions
            return found
        return found.assign(leaves=(("chain", "draw"), tree.polytopes.leaves))

    def _of_prior(self, tree: FittedTree, drawn: xr.Dataset) -> xr.Dataset:
        """Predict from draws of a tree's prior."""
        sites = {str(name): drawn[name].to_numpy() for name in drawn if name != "weight"}
        found = self._predictions(tree, replace(tree.posterior, draws=sites))
        if self.sides is None:
            return found
        n_nodes = max(1, tree.posterior.model.topology.n_nodes)  # all have the same prior
        every = np.arange(self.shown.tree.n_nodes) % n_nodes
        return found.merge(self._nodes(tree, sites, Matches.fixed(every, sites)))

    @cached_property
    def sides(self) -> tuple[BoolArray, BoolArray] | None:
        """The sides of the kept rows in the tree that is shown, and whether they reach its nodes.

        None if nodes of draws have no facets, or the tree no nodes.
        """
        polytopes = all("hyperplane" in one.posterior.draws for one in self.trees)
        if not (polytopes and self.shown.tree.n_nodes and self.shown.n_draws > 1):
            return None
        return sides_of(self.shown.tree, self.shown.sample)

    def _nodes(self, tree: FittedTree, draws: Draws, matches: Matches) -> xr.Dataset:
        """Describe the nodes of draws that match those of the tree that is shown."""
        import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and estimators import this module

        own, exchanged = matches.of_nodes(draws), matches.exchanged
        score = np.moveaxis(scores(own, ..., self.rows.to_numpy()), 0, -1)
        right = np.exp(branch_log_probs(score, tree.posterior.model.steepness)[1])
        standard = tree.scaling.standardise(self.shown.sample)
        facets = np.empty(exchanged.shape, dtype=np.int64)
        assert self.sides is not None
        for node, reached in enumerate(self.sides[1].T):
            experts = {name: value[:, :, node] for name, value in own.items()}
            cut = votes_and_cuts(experts, standard[reached])[1]
            facets[:, :, node] = cuts_off(cut).sum(axis=-1)
        weight = -np.sort(-weight_of(own, ...), axis=-1)
        row, labels = self.rows.dims[0], self.shown.tree.topology.node_labels
        variables = {
            "p_right": np.where(exchanged[..., None], 1 - right, right),
            "facets": facets,
            "effective": effective_number(weight),
            "weight": weight,
            "alike": matches.alike,
        }
        last = {"p_right": (row,), "weight": ("rank",)}
        return xr.Dataset(
            {n: (("chain", "draw", "node", *last.get(n, ())), v) for n, v in variables.items()},
            coords={"node": list(labels)},
        )

    def _predictions(self, tree: FittedTree, posterior: Posterior) -> xr.Dataset:
        """Compute E(y | x) of each draw, in the units of y."""
        import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and estimators import this module

        each = np.concatenate([*posterior.expectations(self.rows.to_numpy())])
        values, _ = tree.in_units(each.astype(np.float64), each)
        shaped = values.reshape(posterior.n_chains, posterior.n_draws, *values.shape[1:])
        classes = tree.tree.class_names
        row, last = self.rows.dims[0], "class" if classes else "output"
        found = xr.DataArray(shaped, dims=("chain", "draw", row, last)[: shaped.ndim])
        own: dict[Hashable, Any] = {name: np.arange(size) for name, size in found.sizes.items()}
        own |= {"class": list(classes)} if classes else {}
        own |= {row: self.rows[row].to_numpy()}
        return found.assign_coords(own).to_dataset(name="prediction")

    def _mixed_likelihood(self, terms: Sequence[xr.DataArray]) -> list[xr.Dataset]:
        """Return terms by which importance sampling scores the mixture without each row.

        Leaving a row out changes the draws of each mode, but not its weight. The ratio of a draw
        of mode m is therefore p_m(y_i | y_-i) / p(y_i | draw), while ArviZ takes exp(-term) for
        the ratio, and exp(term) for the density. A constant for each mode and row makes both
        right: exp(term) = p(y_i | draw) p(y_i | y_-i) / p_m(y_i | y_-i), where
        p(y_i | y_-i) = sum_m w_m p_m(y_i | y_-i).
        """
        scores = [loo(one.transpose("chain", "draw", "row")) for one in terms]
        mixed = mixed_loo(scores, self.weights, row_weights=self.row_weights).elpd_row
        return [
            (one + (mixed - score.elpd_row)).to_dataset(name="obs")
            for one, score in zip(terms, scores, strict=True)
        ]

    def _constant(self, found: xr.Dataset) -> xr.Dataset:
        """Return what the modes share, with their weights."""
        shared = found.drop_dims(["node", "side"]).assign(mode_weight=("mode", self.weights))
        shared = shared.assign_coords(mode=np.arange(len(self.weights)))
        if "X" in shared:
            return shared
        return shared.assign(X=self.rows * shared["scale"] + shared["center"])
