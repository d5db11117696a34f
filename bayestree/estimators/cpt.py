"""Convex polytope trees as scikit-learn estimators."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from numpy.typing import ArrayLike
from pydantic import InstanceOf
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from bayestree import models
from bayestree._utils.arrays import FloatArray
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
from bayestree._utils.user_classes import Own
from bayestree.diagnostics.sparsity import NearOptimalTrees
from bayestree.estimators import _parameters
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._data_sets import (
    fit_files,
    partial_fit_classes,
    partial_fit_numbers,
    sample_check,
)
from bayestree.estimators._regressor import NumericRegressor
from bayestree.estimators._tree import StagedTree
from bayestree.fitted import assessment, diagnostics
from bayestree.fitted.tree import Mixture, one_output
from bayestree.fitted.validation import counted_rows
from bayestree.fitting.defaults import METHODS, MethodName, polytope_plan
from bayestree.fitting.engine import Recipe
from bayestree.fitting.modes import fit_modes, mode_seeds
from bayestree.fitting.plan import FitPlan, Table, Task
from bayestree.fitting.projection import Projection, near_optimal
from bayestree.fitting.rules import POLYTOPE
from bayestree.fitting.settings import SETTINGS, prior_settings, with_methods, with_priors
from bayestree.inference import Stage
from bayestree.models.leaves import Leaf
from bayestree.tables.encoding import column_numbers


@declare
@takes(
    _parameters.WarmStart,
    _parameters.RandomRun,
    _parameters.Hardware,
    _parameters.Prediction,
    _parameters.SplitPriors,
    _parameters.FacetColumns,
    _parameters.Limits,
    _parameters.MethodDepth,
    _parameters.Modes,
    _parameters.Sparse,
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
        The fitted trees of the mixture; ``near_optimal_trees`` makes all of them sparse.
    mode_weights_ : array, shape (M,)
    """

    n_experts: Annotated[
        Count | None,
        Model(
            "Maximum number of facets of a split; by default 4 (beyond 10,000 rows 8) with 'vi' or "
            "'mcmc', otherwise 20 for classes, 8 for numbers. 1: an oblique tree, CPT (K = 1)."
        ),
    ] = None
    inference: Annotated[
        Literal["auto", MethodName]
        | Annotated[InstanceOf[Stage], ByName(METHODS)]
        | tuple[InstanceOf[Stage], ...],
        Inference(
            "'auto' is 'vi' for up to 10,000 rows or 100 features, and 10 million numbers, unless "
            "another parameter needs 'svi' (see ``plan``). 'grow' stops at the greedy tree; 'map' "
            "refines all nodes; 'vi' gives a posterior in seconds, and 'svi' for any table; "
            "'nuts' and 'mcmc' sample the exact posterior of a small tree; 'smc' also samples the "
            "topology, for max_depth up to 3 and 2,000 rows, and gives the evidence. Or an object, "
            "such as bayestree.inference.Svi(epochs=20), or a list of stages, the method last: "
            "[Growth(learning_rate=0.05), Svi(epochs=20), Nuts(n_chains=2)]."
        ),
    ] = "auto"
    scaling: Annotated[
        Literal["standard", "common"],
        Model(
            "Units of the features: the standard deviation of each, or one for all, such as pixels."
        ),
    ] = "standard"
    n_jobs: Annotated[
        int | None,
        Inference(
            "Processes for n_modes (not 'vi') or chains of NUTS; by default, as many as long fits "
            "keep busy."
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

    def near_optimal_trees(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        without: str | int | Iterable[str | int] = (),
    ) -> NearOptimalTrees:
        """Project the posterior onto a sparse tree from each mode, for a choice between them.

        If the topology was sampled (``inference="smc"``), each topology with at least 1 % of the
        draws gives a tree. Trees that are nearly the same are merged.

        Parameters
        ----------
        X, y, sample_weight : arrays
            The rows of the fit in their order, which the estimator does not keep.
        without : str, int, or sequence of them
            Columns that no tree may use, by name or number. The predictions that are projected are
            still those of the posterior, which may use them.

        Returns
        -------
        NearOptimalTrees
            The best tree first. Can be printed; see ``to_frame`` and ``without``.

        Raises
        ------
        ValueError
            For rows that ``fit`` would refuse, unknown columns, if no column is left, or if no mode
            has a tree with a split.
        """
        one_output(self, "near_optimal_trees")
        remedy = "To score a tree on new rows, use the log_score of a fit."
        rows, _ = counted_rows(self, X, y, sample_weight, remedy)
        names = self.encoding_.names
        excluded = column_numbers(without, names)
        return near_optimal(self._projection(self._again()), self.fitted_, rows, names, excluded)

    def _fit(self, task: Task) -> Mixture:
        if task.plan.n_trees == 1:
            found = super()._fit(task)
        else:
            self._check(task, self._model(task))
            found = fit_modes(task.plan, self._recipes(task), task.rows, verbose=self.verbose)
            assessment.warn_if_unconverged(found)
        return self._projection(task).shown(found, task.rows)

    def _recipes(self, task: Task) -> list[Recipe]:
        """Return the recipes of the modes, each for a tree that an estimator alone would fit."""
        whole, found = self._recipe(task), []
        seeds = mode_seeds(self.random_state, task.plan.n_trees)
        sloping = "logistic" if task.leaf.n_classes else "linear"
        for number, seed in enumerate(seeds):
            start = None if task.start is None else task.start.alone(task.start.trees[number])
            linear = number >= task.plan.n_trees - task.plan.n_linear
            family = "constant" if self.leaf == "auto" else self.leaf
            family = sloping if linear else family
            own = {"n_modes": 1, "random_state": seed, "n_jobs": None, "verbose": False}
            given = self.get_params(deep=False) | own | {"leaf": family}
            plan = polytope_plan(given, self._leaf_family(), task.plan.table, start)
            stages = replace(
                whole.method,
                plan=plan,
                random_state=seed,
                progress=False,
                split_seed=seeds[0] if number else None,
                start=None if start is None else start.shown.posterior,
            )
            leaf = _parameters.sloping_leaves(task) if linear else task.leaf
            model = self._model(replace(task, plan=plan, leaf=leaf))
            found.append(
                replace(whole, model=model, method=stages, verbose=False, parameters=given)
            )
        return found

    def _projection(self, task: Task) -> Projection:
        """Return how the deterministic tree becomes sparse."""
        return Projection(
            self._form(task),
            self.get_params(deep=False),
            task.encoding.places,
            self.device,
            task.plan.sparse,
        )

    def _model(self, task: Task) -> models.SoftTree:
        plan, encoding = task.plan, task.encoding
        priors = models.Priors(
            plan.weight_prior, _parameters.in_columns(plan.prior, encoding, task.n_used)
        )
        found = models.named.convex_polytope(task.leaf, n_experts=plan.n_experts, priors=priors)
        return found.with_(
            monotone=_parameters.directions(self.monotonic_cst, encoding),
            groups=_parameters.facet_groups(self.interaction_constraints, encoding),
        )

    def _planned(self, table: Table) -> FitPlan:
        start = self.fitted_ if self._continues() else None
        return polytope_plan(self.get_params(deep=False), self._leaf_family(), table, start)

    def _in_place(self) -> bool:
        return self.image_shape is not None or getattr(self.prior, "couples_features", False)


@declare
@takes(_parameters.MonotoneColumns)
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
        _parameters.ClassName | Annotated[InstanceOf[Leaf], Own],
        Model(
            "Class probabilities in a leaf: constant; by a multinomial logistic regression on the "
            "features, with a shrinkage of each that is learned; or constant, with an order of the "
            "classes (of a pandas ordered categorical, or sorted). 'auto' is constant, but "
            "logistic in half of several trees by VI. Or a family of your own (see "
            "docs/develop/own-leaves.md)."
        ),
    ] = "constant"

    partial_fit = partial_fit_classes
    fit_files = fit_files
    sample_check_ = property(sample_check)


@declare
@takes(_parameters.MonotoneColumns)
class ConvexPolytopeTreeRegressor(NumericRegressor, BasePolytopeTree):
    """Regression tree whose splits are convex polytopes, with a posterior.

    Leaves are normal with conjugate priors, whose parameters are learned from the leaves that were
    grown: their scales are similar where the noise is, and differ where it does. Their means are
    constant in half of several trees and linear in the features in the others, and the rows decide
    between them; ``leaf="constant"`` is the tree of the paper. With ``leaf="poisson"`` y are
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
    >>> reg = ConvexPolytopeTreeRegressor(random_state=0).fit(X[:200], y[:200])
    >>> low, high = reg.predict_interval(X[200:], 0.9)
    """

    _takes_outputs = True

    leaf: _parameters.MixedFamily = "auto"

    partial_fit = partial_fit_numbers
    fit_files = fit_files
    sample_check_ = property(sample_check)
