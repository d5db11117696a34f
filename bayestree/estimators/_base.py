"""Base class of the estimators of one tree: the fit, and the deterministic tree."""

from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix
from sklearn.utils.validation import check_is_fitted

from bayestree import inference
from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.parallel import threads_for
from bayestree._utils.progress import fitting
from bayestree.diagnostics.polytopes import Reach
from bayestree.estimators._combinations import BASE, Rules, check_combinations
from bayestree.estimators._estimator import REMEDY, Estimator
from bayestree.fitted import single_rows
from bayestree.fitted.rows import FileRows, TrainingRows, UnitRule, units, with_unused_columns
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitted.validation import fitted_rows, validated
from bayestree.fitting.plan import precision_of
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.data import UNUSED
from bayestree.inference.single_leaf import ONE_WAY, warn_single_leaf
from bayestree.models import Network, SoftTree, named
from bayestree.models.leaves import Categorical, Leaf
from bayestree.routed_tree import Frame, RoutedTree, weight_unit
from bayestree.topology import Topology

ALL = slice(None)
DTYPES = {"float32": torch.float32, "float64": torch.float64}
KEPT_LEAF = f"warm_start=True keeps the single leaf of the fit before; {REMEDY}"


class Prepared(NamedTuple):
    """The rows and the model of a fit."""

    rows: TrainingRows  # of positive weight
    model: SoftTree
    data: Data  # the rows in the units of the fit
    given: Data  # their columns in use: ``data`` itself, if all are used


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

    _refits_leaves = True  # whether leaves that regress are refitted with a learned prior
    _rules: ClassVar[Rules] = BASE

    # Fitting.

    def _model(self, leaf: Leaf) -> SoftTree:
        """Return the model before its topology is known: by default, a hyperplane for each node."""
        return named.oblique(leaf)

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        """Fit the model to rows in the units of ``_unit_rule``."""
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

    def _needs_double(self) -> bool:
        """Return whether ``dtype="auto"`` is double precision for any number of rows."""
        return self._some_family().needs_double

    def _weights_are_counts(self) -> bool:
        """Return whether the scale of the weights matters, as it does for a posterior."""
        return False

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        """Keep the fitted tree."""
        self.fitted_ = Mixture.of(self._fitted_tree(rows, leaf))
        return self

    def _fitted_tree(self, rows: TrainingRows, leaf: Leaf) -> FittedTree:
        """Fit the model to scaled rows, and derive the deterministic tree."""
        return self._from_prepared(self._prepare(rows, leaf))

    def _from_prepared(self, prepared: Prepared) -> FittedTree:
        with threads_for(self._work(*prepared.rows.X.shape)), fitting(self.verbose):
            found = self._infer(prepared.model, prepared.given)
            if self._refits_leaves and prepared.model.leaf.regresses:
                found = inference.recalibrated(found, prepared.given)
        return self._complete(found, prepared)

    def _prepare(self, rows: TrainingRows, leaf: Leaf) -> Prepared:
        """Check the parameters, and scale the rows of positive weight."""
        model = self._model(leaf)
        check_combinations(self, model)
        rows = rows.counted()
        center, scale = units(rows.X, rows.weights, self._unit_rule())
        if not self._continues():
            scale = np.where(self._used, scale, UNUSED)
            own = self._scaling.units._replace(center=center, scale=scale)
            self._scaling = replace(self._scaling, units=own)
        unit = 1.0 if self._weights_are_counts() else weight_unit(rows.weights)
        reduced = not (self._used.all() or self._in_place())
        columns = self._used if reduced else ALL
        data = given = self._data(rows, unit).for_leaf(leaf)
        if reduced:
            given = self._data(rows, unit, columns).for_leaf(leaf)
        model = model.with_(leaf=leaf.informed(given.y, given.weights))
        return Prepared(rows, model, data, given)

    def _complete(self, found: Posterior, prepared: Prepared) -> FittedTree:
        """Complete the result of the inference by the deterministic tree."""
        reduced = prepared.given is not prepared.data
        posterior = with_unused_columns(found, self._used, reduced=reduced)
        tree, reach = self._hardened(posterior, prepared.rows, prepared.data)
        of_y, extra = self._scaling.units, prepared.rows.extra
        return FittedTree(
            tree=tree.rescaled(of_y.y_scale, of_y.y_center),
            posterior=posterior,
            scaling=self._scaling,
            reach=reach,
            parameters=self.get_params(deep=False),
            with_extra=extra is not None and bool((extra != 1).any()),
        )

    def _precision(self, n_rows: int) -> str:
        """Return the name of the precision of a fit to so many rows."""
        return precision_of(self.dtype, n_rows, self._needs_double())

    def _data(self, rows: TrainingRows, unit: float, columns: slice | BoolArray = ALL) -> Data:
        """Return the rows in the units of the fit."""
        dtype = DTYPES[self._precision(len(rows.y))]
        X: Any = self._scaling.standardise(rows.X)
        X = X.tensor(dtype, self.device, columns) if isinstance(X, FileRows) else X[:, columns]
        return Data.of(X, rows.response, rows.weights / unit, dtype=dtype, device=self.device)

    def _hardened(
        self, posterior: Posterior, rows: TrainingRows, data: Data
    ) -> tuple[Any, Reach | None]:
        """Derive the deterministic tree from the point estimate and the training rows.

        Also the statistics of these rows, if the posterior has diagnostics.
        """
        tree = self._splits(posterior, rows.class_names).prune(rows.X, self.min_leaf)
        if posterior.model.topology.n_nodes:
            self._warn_if_single_leaf(tree.topology, posterior.model.leaf, data, ONE_WAY)
        return self._filled(tree, posterior, rows, data), None

    def _filled(self, tree: Any, posterior: Posterior, rows: TrainingRows, data: Data) -> Any:
        """Fill the leaves of the deterministic tree from the training rows."""
        filled = tree.fill(rows.X, rows.y, rows.weights, len(rows.class_names), self.smoothing)
        return filled._with(**self._leaf_values(filled, posterior, rows, data))

    def _leaf_values(
        self, tree: Any, posterior: Posterior, rows: TrainingRows, data: Data
    ) -> dict[str, FloatArray]:
        """Return the fields of ``tree_`` that the family of leaves estimates itself."""
        family = posterior.model.leaf
        if family.averages:
            return {}
        each = family.statistics(data.for_leaf(family).y, data.weights)
        sums = each.new_zeros(tree.n_leaves, each.shape[1])
        sums.index_add_(0, torch.as_tensor(tree.apply(rows.X), device=each.device), each)
        found = family.tree_values(sums.cpu())
        if "slope" in found:
            found["slope"] = found["slope"] / self._scaling.units.scale
        return found

    def _warn_if_single_leaf(self, topology: Topology, leaf: Leaf, data: Data, reason: str) -> None:
        if topology.n_nodes == 0:
            warn_single_leaf(data.y, leaf, self._limits(), reason)

    def _splits(self, posterior: Posterior, class_names: tuple[str, ...]) -> RoutedTree:
        """Return the splits of a point estimate at 1/2, in the units of the data."""
        model = posterior.model
        point = with_unused_columns(posterior, self._used, reduced=False).point
        own = self._scaling.units
        frame: Frame = {
            "center": own.center,
            # networks receive the unused columns as well, in a unit that makes them vanish
            "scale": own.scale
            if isinstance(model.split, Network)
            else np.where(self._used, own.scale, 1.0),
            "feature_names": self._feature_names,
            "class_names": class_names,
            "quantity": model.leaf.quantity,
        }
        return model.split.tree(model.topology, point, frame)

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

    def _shown_trees(self) -> list[tuple[float, RoutedTree]]:
        return [(1.0, self.tree_)]
