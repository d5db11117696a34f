"""Base class of the estimators of one tree: the fit, and the deterministic tree."""

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parameters import parameters_of
from bayestree.estimators._estimator import Estimator
from bayestree.fitted import single_rows
from bayestree.fitted.training_rows import Scaling, TrainingRows, UnitRule, units
from bayestree.fitted.tree import Mixture
from bayestree.fitted.validation import fitted_rows, validated
from bayestree.fitting.engine import Recipe, fit_tree
from bayestree.fitting.hard import HardForm
from bayestree.fitting.plan import precision_of
from bayestree.fitting.rules import BASE, CONTRACT, Case, Rules, check_rules, rules_of
from bayestree.inference import Data, GrowthLimits, Posterior, Units
from bayestree.models import SoftTree, named
from bayestree.models.leaves import Categorical, Leaf
from bayestree.models.priors import GroupedScale
from bayestree.tables import Encoding, Numbers


class BaseTree(Estimator):
    """Fit, route and describe one tree; classifier and regressor add y.

    A subclass defines how its model is fitted (``_infer``) and, unless they are the usual ones, the
    model (``_model``) and the units of the features (``_unit_rule``).

    Attributes
    ----------
    tree_ : Tree
        The tree, in the units of the data.
    posterior_ : Posterior
        Its splits as one draw, on the standardised features.
    """

    # Values of parameters that a subclass does not have.
    max_depth: Any  # an integer, or None where the method has a default
    max_leaves: int | None = None
    min_rows: float = 2.0
    min_leaf: int = 1
    min_gain: float = 0.0
    smoothing: float = 0.0
    dtype: Literal["auto", "float64", "float32"] = "float64"
    device: str = "cpu"
    monotonic_cst: Any = None

    _rules: ClassVar[Rules] = BASE

    # Fitting.

    def _model(self, leaf: Leaf) -> SoftTree:
        """Return the model before its topology is known: by default, a hyperplane for each node."""
        return named.oblique(leaf)

    def _infer(self, model: SoftTree, data: Data, scaling: Scaling) -> Posterior:
        """Fit the model to rows in the units of a scaling."""
        raise NotImplementedError

    def _unit_rule(self) -> UnitRule:
        """Return the rule for the units of the features in the fit."""
        return "standard"

    def _some_family(self) -> Leaf:
        """Return a family with the attributes of the family in use, for any number of classes."""
        raise NotImplementedError

    def _limits(self) -> GrowthLimits:
        return GrowthLimits(
            self._depth(), self.max_leaves, self.min_rows, self.min_leaf, self.min_gain
        )

    def _depth(self) -> int:
        """Return the maximum number of splits on a path: as given, or the default of the method."""
        return GrowthLimits.max_depth if self.max_depth is None else int(self.max_depth)

    def _work(self, n_rows: int, n_features: int) -> int:
        """Number of values that a step of the fit processes, which determines the threads."""
        return n_rows * n_features

    def _weights_are_counts(self) -> bool:
        """Return whether the scale of the weights matters, as it does for a posterior."""
        return False

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        """Keep the fitted tree."""
        rows = rows.counted()
        recipe = self._recipe(rows, leaf)
        self._check(recipe.model)
        self._keep(Mixture.of(fit_tree(recipe, rows)))
        return self

    def _check(self, model: SoftTree, *, but: Rules = ()) -> None:
        """Raise ParameterError for a combination of parameters that is refused."""
        check_rules([rule for rule in rules_of(type(self)) if rule not in but], self._case(model))

    def _case(self, model: SoftTree | None) -> Case:
        """Return what rules judge."""
        known = parameters_of(type(self))
        names = {*known, "device", "dtype", "leaf"}  # which not all classes have as parameters
        return Case(
            SimpleNamespace(**{name: getattr(self, name) for name in names}),
            {name: one.default for name, one in known.items()},
            model,
            used=None if model is None else self._used,
            start=self.fitted_ if self._continues() else None,
        )

    def _recipe(self, rows: TrainingRows, leaf: Leaf) -> Recipe:
        """Return what the fit of a tree to rows of positive weight needs."""
        n_rows, n_features = rows.X.shape
        return Recipe(
            model=self._model(leaf),
            method=self._infer,
            form=self._form(),
            scaling=self._scaling,
            units=self._unit_rule(),
            continues=self._continues(),
            whole=self._in_place(),
            counts=self._weights_are_counts(),
            dtype=precision_of(self.dtype, n_rows, self._some_family().needs_double),
            device=self.device,
            work=self._work(n_rows, n_features),
            verbose=self.verbose,
            parameters=self.get_params(deep=False),
        )

    def _form(self) -> HardForm:
        """Return how the posterior becomes the deterministic tree."""
        return HardForm(self._limits(), self._feature_names, self.smoothing)

    def _before_fit(self, X: ArrayLike) -> tuple[SoftTree, FloatArray]:
        """Return the model, and the columns in use of X in the units that a fit to X would have."""
        rows: FloatArray = validated(self, X, dtype=np.float64)
        weights = np.ones(len(rows))
        self._choose_columns(rows, weights)
        center, scale = units(rows, weights, self._unit_rule())
        return self._model(Categorical(2)).among(self._used), ((rows - center) / scale)[
            :, self._used
        ]

    # Fitted.

    @property
    def tree_(self) -> Any:
        """The deterministic tree, in the units of the data."""
        check_is_fitted(self)
        return self.fitted_.shown.tree

    @property
    def posterior_(self) -> Posterior:
        """Named draws of the splits and leaves of ``tree_``, on the standardised features."""
        check_is_fitted(self)
        return self.fitted_.shown.posterior

    @posterior_.setter
    def posterior_(self, posterior: Posterior) -> None:
        if self.fitted_.several:
            raise AttributeError(
                f"posterior_ cannot be replaced in a mixture of {len(self.fitted_.trees)} trees: "
                "set it on one of modes_."
            )
        self.fitted_ = Mixture.of(replace(self.fitted_.shown, posterior=posterior))

    explain = single_rows.explain
    robustness = single_rows.robustness

    def apply(self, X: ArrayLike) -> IntArray:
        """Number of the leaf of ``tree_`` that each row reaches, shape (n,)."""
        found: IntArray = self._by_parts(X, self.tree_.apply)
        return found

    def decision_path(self, X: ArrayLike) -> csr_matrix:
        """Mark the nodes, then leaves, of ``tree_`` that each row passes: (n, nodes + leaves)."""
        rows = fitted_rows(self, X)
        return self.tree_.decision_path(rows)


#: Parameters that name columns, and their values for the two columns below.
OF_TWO_COLUMNS = {"interaction_constraints": ((0,), (1,))}


def check_without_rows(estimator: Any) -> None:
    """Raise ValueError for a combination that is refused whatever the rows are.

    Two columns that vary and two classes stand for the rows; the fit checks the rules about their
    numbers, contracts of the user's own parts, which may need a certain number of columns, and the
    device, which another machine may have.
    """
    tree = copy(estimator._trees()[0] if hasattr(estimator, "_trees") else estimator)
    n_features = math.prod(getattr(tree, "image_shape", None) or (2,))
    number = np.arange(n_features)
    tree.encoding_ = Encoding(tuple(map(Numbers, map(str, number))))
    tree._scaling = Scaling(np.where(number < 2, number, -1), Units(number, number))
    tree.n_features_in_, tree.device = n_features, "cpu"
    if is_classifier(tree):
        tree.classes_ = np.arange(2)
    if (given := tree.monotonic_cst) is not None:
        each = given.values() if isinstance(given, Mapping) else given
        tree.monotonic_cst = {0: max(map(abs, each), default=0)}
    for name, value in OF_TWO_COLUMNS.items():
        if getattr(tree, name, None) is not None:
            setattr(tree, name, value)
    if isinstance(prior := getattr(tree, "prior", None), GroupedScale):
        tree.prior = replace(prior, groups=((0, 1),))
    tree._check(tree._model(tree._some_family()), but=(CONTRACT,))
