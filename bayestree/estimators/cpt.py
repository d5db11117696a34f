"""Convex polytope trees as scikit-learn estimators."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import InstanceOf
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from bayestree import models
from bayestree._utils.arrays import FloatArray
from bayestree._utils.own import Own
from bayestree._utils.parameters import (
    ByName,
    Count,
    Inference,
    Model,
    Parameter,
    Share,
    declare,
    takes,
)
from bayestree.diagnostics.polytopes import Reach
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._combinations import POLYTOPE, check_combinations
from bayestree.estimators._modes import Modes, fit_modes
from bayestree.estimators._parameters import (
    ClassName,
    FacetColumns,
    Hardware,
    Limits,
    MethodDepth,
    MonotoneColumns,
    NumericFamily,
    Prediction,
    RandomRun,
    SplitPriors,
    WarmStart,
    directions,
    facet_groups,
    in_columns,
)
from bayestree.estimators._partitioned import fit_files
from bayestree.estimators._regressor import NumericRegressor
from bayestree.estimators._sparsity import Sparse, near_optimal_trees, with_sparse_tree
from bayestree.estimators._stages import StagedTree
from bayestree.estimators._streaming import partial_fit_classes, partial_fit_numbers
from bayestree.fitted import checks, diagnostics
from bayestree.fitted.rows import TrainingRows, UnitRule
from bayestree.fitting.plan import METHODS, FitPlan, Table, polytope_plan
from bayestree.fitting.settings import SETTINGS, prior_settings, with_methods, with_priors
from bayestree.inference import (
    Data,
    Map,
    Posterior,
    Stage,
    fits_worse_than_tree,
)
from bayestree.inference.training import leaf_sums
from bayestree.models.leaves import Leaf
from bayestree.models.soft_tree import isotonic, larger_side, leaf_order
from bayestree.tree import Tree


@declare
@takes(
    WarmStart,
    RandomRun,
    Hardware,
    Prediction,
    SplitPriors,
    FacetColumns,
    Limits,
    MethodDepth,
    Modes,
    Sparse,
)
class BasePolytopeTree(StagedTree):
    """Grow and refine a convex polytope tree; classifier and regressor add y.

    Attributes
    ----------
    tree_ : Tree
        The deterministic tree, in the units of the data; of several modes, the tree of the medoid.
    posterior_ : Posterior
        Named draws of the same mode, on the standardised features.
    modes_ : sequence of M estimators
        The fitted trees of the mixture. Only the tree of the medoid is made sparse;
        ``near_optimal_trees`` does this for all.
    mode_weights_ : array, shape (M,)
    """

    n_experts: Annotated[
        Count | None,
        Model(
            "Maximum number of facets of a split; by default 4 with inference 'vi' or 'mcmc', "
            "otherwise 20 for classes and 8 for numbers. 1 gives the oblique tree CPT (K = 1): one "
            "expert of weight 1."
        ),
    ] = None
    inference: Annotated[
        Literal["auto", "vi", "svi", "nuts", "mcmc", "smc", "map", "grow"]
        | Annotated[InstanceOf[Stage], ByName(METHODS)]
        | tuple[InstanceOf[Stage], ...],
        Inference(
            "'auto': 'vi' for up to 10,000 rows in memory and 100 features, unless a parameter is "
            "set that only 'svi' can follow (monotonic_cst, image_shape, device, dtype='float32' "
            "or another prior); otherwise 'svi', with guide='AutoNormal' for a prior of your own "
            "without expected_log_prob. 'grow' stops at the greedy tree; 'map' "
            "refines all nodes jointly; 'vi' gives a variational posterior by natural gradients, "
            "in seconds; 'svi' by Adam in minibatches, for any number of rows and columns; 'nuts' "
            "samples the exact posterior given the topology, starting from the SVI fit: for small "
            "trees and up to a few thousand rows, in minutes; 'mcmc' samples the same posterior, "
            "starting from the VI fit and under the inverse-gamma prior, by Metropolis-Hastings "
            "moves of all chains at once; "
            "'smc' samples the topology as well, and gives the evidence: for max_depth up to 3 and "
            "2,000 rows, with at most four experts in each node. "
            "Or a method with its own settings, such as bayestree.inference.Svi(epochs=20), or a "
            "list of several for the stages of a fit, of which the last names the method: "
            "[Growth(learning_rate=0.05), Svi(epochs=20), Nuts(n_chains=2)]. ``plan`` tells what a "
            "fit will do."
        ),
    ] = "auto"
    scaling: Annotated[
        Literal["standard", "common"],
        Model(
            "Units of the features in the fit: the standard deviation of each, or one unit for "
            "all, for features that share a unit, such as pixels, indicators or fingerprints."
        ),
    ] = "standard"
    n_jobs: Annotated[
        int | None,
        Inference(
            "Processes, as in joblib, for the trees of n_modes (VI fits them at once, in one "
            "process) or, if there is one, for the chains of NUTS, unless the run takes a few "
            "seconds; they do not affect the results. By default, trees fitted to 10,000 or more "
            "rows in memory have as many as PyTorch's threads keep busy."
        ),
    ] = None
    validation_fraction: Annotated[
        Share,
        Inference("Share of the rows held out to choose the depth and (in MAP) when to stop."),
    ] = 0.0

    _rules = POLYTOPE

    @classmethod
    def file_settings(cls) -> Mapping[str, Parameter]:
        return SETTINGS | prior_settings(classes=issubclass(cls, ClassifierMixin))

    @classmethod
    def with_objects(cls, given: Mapping[str, Any], fitted: str = "", /) -> dict[str, Any]:
        return with_priors(with_methods(given, fitted), cls.file_settings())

    @property
    def modes_(self) -> Sequence[Self]:
        """The fitted trees of the mixture: the estimator itself if ``n_modes`` is 1."""
        check_is_fitted(self)
        mixture = self.fitted_
        return [self._view(one) for one in mixture.trees] if mixture.several else [self]

    @property
    def mode_weights_(self) -> FloatArray:
        """The weights of ``modes_``, shape (M,), with sum 1."""
        check_is_fitted(self)
        return self.fitted_.weights

    co_membership = diagnostics.co_membership
    sparsity_path = diagnostics.sparsity_path
    near_optimal_trees = near_optimal_trees

    def _members(self) -> dict[str, list[Any]]:
        return {"modes": [*self.modes_]} if self.fitted_.several else {}

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        if self._plan.n_trees == 1:
            super()._fit(rows, leaf)
        else:
            check_combinations(self, self._model(leaf))
            self.fitted_ = fit_modes(self, rows, leaf)
            self._scaling = self.fitted_.shown.scaling
            checks.warn_if_unconverged(self)
        self.fitted_ = with_sparse_tree(self, self.fitted_, rows)
        return self

    def _infer_several(
        self, members: Sequence[Any], model: models.SoftTree, data: Data
    ) -> list[Posterior]:
        reduced = data.X.shape[1] < len(self._used)  # to the columns in use
        own = model.among(self._used) if reduced else model
        found = super()._infer_several(members, own, data)
        if model.monotone:
            found = [_ordered(one, data) for one in found]
        every = {"monotone": model.monotone, "groups": model.groups}
        return [
            replace(
                one,
                model=one.model.with_(**every, priors=model.priors),
            )
            for one in found
        ]

    def _hardened(
        self, posterior: Posterior, rows: TrainingRows, data: Data
    ) -> tuple[Any, Reach | None]:
        tree, reach = super()._hardened(posterior, rows, data)
        return _with_ordered_leaves(tree, posterior.model.monotone), reach

    def _with_leaves(
        self, tree: Tree, posterior: Posterior, rows: TrainingRows, data: Data
    ) -> Tree:
        """Fill the leaves of a deterministic tree with other splits."""
        filled = self._filled(tree, posterior, rows, data)
        return _with_ordered_leaves(filled, posterior.model.monotone)

    def _model(self, leaf: Leaf) -> models.SoftTree:
        plan = self._plan
        prior = in_columns(plan.prior, self.encoding_, int(self._used.sum()))
        priors = models.Priors(plan.weight_prior, prior)
        found = models.named.convex_polytope(leaf, n_experts=plan.n_experts, priors=priors)
        return found.with_(
            monotone=directions(self.monotonic_cst, self.encoding_),
            groups=facet_groups(self.interaction_constraints, self.encoding_),
        )

    def _sharpened(self, found: Posterior, data: Data, common: dict[str, Any]) -> Posterior:
        if not (self._plan.steeper and fits_worse_than_tree(found, data)):
            return found
        last: Any = self._plan.last
        stage = replace(last, steepness=found.model.steepness)
        start = replace(found, model=found.model.with_(steepness=Map.default_steepness))
        repeated: Posterior = stage.run(start, data, **common)
        return repeated

    def _planned(self, table: Table) -> FitPlan:
        start = self.fitted_ if self._continues() else None
        return polytope_plan(self.get_params(deep=False), self._some_family(), table, start)

    def _in_place(self) -> bool:
        return self.image_shape is not None or getattr(self.prior, "couples_features", False)

    def _unit_rule(self) -> UnitRule:
        return self.scaling

    def _work(self, n_rows: int, n_features: int) -> int:
        plan = self._plan
        depth = min(plan.limits.max_depth, 60)  # larger powers could have millions of digits
        n_leaves = min(2**depth, self.max_leaves or n_rows, n_rows // self.min_leaf + 1)
        return min(n_rows, plan.batch_size) * plan.n_experts * n_leaves


@declare
@takes(MonotoneColumns)
class ConvexPolytopeTreeClassifier(TreeClassifier, BasePolytopeTree):
    """Decision tree whose splits are convex polytopes, with a posterior.

    Armandpour, Sadeghian and Zhou, "Convex Polytope Trees" (2021). Every internal node is a
    noisy-OR committee of linear experts; a truncated gamma process determines how many of them
    are active (the facets of the polytope), and inverse-gamma scales keep each facet sparse.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import ConvexPolytopeTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = ConvexPolytopeTreeClassifier(random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    leaf: Annotated[
        ClassName | Annotated[InstanceOf[Leaf], Own],
        Model(
            "Class probabilities in a leaf: constant, without an order of the classes; a "
            "multinomial logistic regression on all features, which suits probabilities that "
            "change smoothly, for up to 150 coefficients; or constant with an order, which makes "
            "neighbouring classes inform one another. The order is that of a pandas ordered "
            "categorical, or of the sorted labels. Or a family of your own (see "
            "docs/develop/development.md)."
        ),
    ] = "constant"

    partial_fit = partial_fit_classes
    fit_files = fit_files


@declare
@takes(MonotoneColumns)
class ConvexPolytopeTreeRegressor(NumericRegressor, BasePolytopeTree):
    """Regression tree whose splits are convex polytopes, with a posterior.

    Leaves are normal with conjugate priors, whose parameters are learned from the leaves that were
    grown: their scales are similar where the noise is, and differ where it does. Their means are
    constant or, with ``leaf="linear"``, linear in the features. With ``leaf="poisson"`` y are
    counts, and leaves have rates of events per unit of ``exposure``. y may have several
    columns, which are independent given the leaf; ``output(j)`` is the regressor of one of them.

    {parameters}

    {attributes}
    tree_ : Tree
        The deterministic tree; its values are means in the units of y (or rates, see
        ``tree_.quantity``), and with linear leaves its ``slope`` is set. Of several modes, that of
        the medoid.
    posterior_ : Posterior
        Named draws of the same mode, on standardised features and standardised y (counts are
        not).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import ConvexPolytopeTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = ConvexPolytopeTreeRegressor(random_state=0).fit(X, y)
    >>> low, high = reg.predict_interval(X, 0.9)
    """

    _takes_outputs = True

    leaf: NumericFamily = "constant"

    partial_fit = partial_fit_numbers
    fit_files = fit_files


def _with_ordered_leaves(tree: Tree, directions: tuple[int, ...]) -> Tree:
    """Order the leaves of the deterministic tree as its splits demand."""
    if not (directions and tree.n_nodes):
        return tree
    risen = tree.hyperplane @ np.array(directions, dtype=np.float64)
    order = leaf_order(tree.topology, larger_side(np.add.reduceat(risen, tree.expert_start[:-1])))
    classes = len(tree.class_names) > 0
    return tree.with_value(_in_order(tree.value, tree.leaf_rows, order, classes))


def _ordered(found: Posterior, data: Data) -> Posterior:
    """Order the leaves of a posterior as its splits demand, in every draw."""
    model, point = found.model, found.point
    if model.topology.n_nodes == 0:
        return found
    sums = leaf_sums(model, found.point_sites(data.X), data)
    mass = model.leaf.level(sums)[0].numpy(force=True).astype(np.float64)
    risen = (point["hyperplane"] * np.array(model.monotone)).sum(axis=(1, 2))
    order, site = leaf_order(model.topology, larger_side(risen)), str(model.leaf.level_site)
    classes = model.leaf.n_classes > 0
    changed = [
        {**sites, site: _in_order(sites[site], mass, order, classes)}
        for sites in (found.draws, point)
    ]
    return replace(found, draws=changed[0], point=changed[1])


def _in_order(
    values: NDArray[Any], mass: FloatArray, order: NDArray[np.int64], classes: bool
) -> NDArray[Any]:
    """Order predictions (..., L), or probabilities of two classes (..., L, 2)."""
    if not classes:
        return isotonic(values, mass, order)
    second = isotonic(values[..., 1], mass, order)
    moved = second != values[..., 1]
    return np.where(moved[..., None], np.stack((1 - second, second), axis=-1), values)
