"""Convex polytope trees as scikit-learn estimators."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

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
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._data_sets import fit_files, sample_check
from bayestree.estimators._parameters import (
    ClassName,
    FacetColumns,
    Hardware,
    Limits,
    MethodDepth,
    Modes,
    MonotoneColumns,
    NumericFamily,
    Prediction,
    RandomRun,
    Sparse,
    SplitPriors,
    WarmStart,
    directions,
    facet_groups,
    in_columns,
)
from bayestree.estimators._regressor import NumericRegressor
from bayestree.estimators._soft_tree import StagedTree
from bayestree.estimators._streaming import partial_fit_classes, partial_fit_numbers
from bayestree.fitted import assessment, diagnostics
from bayestree.fitted.training_rows import TrainingRows, UnitRule
from bayestree.fitted.tree import Mixture
from bayestree.fitting.engine import Recipe
from bayestree.fitting.modes import fit_modes, mode_seeds
from bayestree.fitting.plan import METHODS, FitPlan, Table, polytope_plan
from bayestree.fitting.projection import Projection, near_optimal_trees
from bayestree.fitting.rules import POLYTOPE
from bayestree.fitting.settings import SETTINGS, prior_settings, with_methods, with_priors
from bayestree.inference import Stage
from bayestree.models.leaves import Leaf


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
            "otherwise 20 for classes and 8 for numbers. 1 gives an oblique tree, CPT (K = 1)."
        ),
    ] = None
    inference: Annotated[
        Literal["auto", "vi", "svi", "nuts", "mcmc", "smc", "map", "grow"]
        | Annotated[InstanceOf[Stage], ByName(METHODS)]
        | tuple[InstanceOf[Stage], ...],
        Inference(
            "'auto' is 'vi' for up to 10,000 rows in memory and 100 features, unless another "
            "parameter needs 'svi' (see ``plan``). 'grow' stops at the greedy tree; 'map' "
            "refines all nodes jointly; 'vi' gives a variational posterior by natural "
            "gradients, in seconds; 'svi' by Adam in minibatches, for any table; 'nuts' and "
            "'mcmc' sample the exact posterior of a small tree, from the fit by SVI or VI; "
            "'smc' also samples the topology, for max_depth up to 3 and 2,000 rows, and gives "
            "the evidence. Or an object with settings, such as "
            "bayestree.inference.Svi(epochs=20), or a list of stages whose last is the method: "
            "[Growth(learning_rate=0.05), Svi(epochs=20), Nuts(n_chains=2)]."
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
            "Processes for the trees of n_modes, except by 'vi', or for the chains of NUTS; "
            "results do not depend on them. By default, long fits have as many as PyTorch's "
            "threads keep busy."
        ),
    ] = None
    validation_fraction: Annotated[
        Share,
        Inference("Share of the rows held out to choose the depth and (in MAP) when to stop."),
    ] = 0.0

    _rules = POLYTOPE

    @classmethod
    def file_settings(cls) -> Mapping[str, Parameter]:
        """Return the settings of methods and priors that files have beside the parameters."""
        return SETTINGS | prior_settings(classes=issubclass(cls, ClassifierMixin))

    @classmethod
    def with_objects(cls, given: Mapping[str, Any], fitted: str = "", /) -> dict[str, Any]:
        """Return the parameters of a file with settings of methods and priors in their objects."""
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
        rows = rows.counted()
        if self._plan.n_trees == 1:
            super()._fit(rows, leaf)
        else:
            self._check(self._model(leaf))
            found = fit_modes(
                self._recipes(rows, leaf),
                rows,
                mode_weights=self.mode_weights,
                n_jobs=self.n_jobs,
                verbose=self.verbose,
            )
            self._keep(found)
            assessment.warn_if_unconverged(self.fitted_)
        self._keep(self._projection().shown(self.fitted_, rows))
        return self

    def _recipes(self, rows: TrainingRows, leaf: Leaf) -> list[Recipe]:
        """Return the recipes of the modes, each for a tree that an estimator alone would fit."""
        whole, found = self._recipe(rows, leaf), []
        seeds = mode_seeds(self.random_state, self._plan.n_trees)
        for number, seed in enumerate(seeds):
            start = Mixture.of(self.fitted_.trees[number]) if self._continues() else None
            own = {"n_modes": 1, "random_state": seed, "n_jobs": None, "verbose": False}
            given = self.get_params(deep=False) | own
            plan = polytope_plan(given, self._some_family(), self._plan.table, start)
            stages = replace(
                whole.method,
                plan=plan,
                random_state=seed,
                progress=False,
                split_seed=seeds[0] if number else None,
                start=None if start is None else start.shown.posterior,
            )
            model = self._model(leaf, plan)
            found.append(
                replace(whole, model=model, method=stages, verbose=False, parameters=given)
            )
        return found

    def _projection(self) -> Projection:
        """Return how the deterministic tree becomes sparse."""
        return Projection(
            self._form(),
            self.get_params(deep=False),
            self.encoding_.places,
            self.device,
            self._plan.sparse,
        )

    def _model(self, leaf: Leaf, plan: FitPlan | None = None) -> models.SoftTree:
        plan = plan or self._plan
        prior = in_columns(plan.prior, self.encoding_, int(self._used.sum()))
        priors = models.Priors(plan.weight_prior, prior)
        found = models.named.convex_polytope(leaf, n_experts=plan.n_experts, priors=priors)
        return found.with_(
            monotone=directions(self.monotonic_cst, self.encoding_),
            groups=facet_groups(self.interaction_constraints, self.encoding_),
        )

    def _planned(self, table: Table, **changes: Any) -> FitPlan:
        start = self.fitted_ if self._continues() else None
        given = self.get_params(deep=False) | changes
        return polytope_plan(given, self._some_family(), table, start)

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
            "Class probabilities in a leaf: constant; multinomial logistic in all features, "
            "with up to 150 coefficients; or constant with an order of the classes, that of a "
            "pandas ordered categorical or of the sorted labels. Or a family of your own (see "
            "docs/develop/development.md)."
        ),
    ] = "constant"

    partial_fit = partial_fit_classes
    fit_files = fit_files
    sample_check_ = property(sample_check)


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
    sample_check_ = property(sample_check)
