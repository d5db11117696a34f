"""Base class of the trees: the fit, and the fitted results."""

from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.progress import Verbose, fitting
from bayestree._utils.threads import threads_for
from bayestree.estimators._columns import ColumnChoice, with_unused_columns
from bayestree.estimators._contents import Arrays, describe_tree, restore_tree, tree_arrays
from bayestree.estimators._dependence import Dependence
from bayestree.estimators._explained import Explained
from bayestree.estimators._file_rows import FileRows
from bayestree.estimators._numbers import fitted_rows
from bayestree.estimators._shown import Shown
from bayestree.estimators._units import UnitRule, units
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.data import UNUSED
from bayestree.inference.single_leaf import ONE_WAY, warn_single_leaf
from bayestree.models import Network, SoftTree, named
from bayestree.models.leaves import Leaf
from bayestree.routed_tree import Frame, RoutedTree, weight_unit
from bayestree.topology import Topology

ALL = slice(None)
SINGLE_ROWS = 10_000  # from which dtype="auto" is single precision
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class TrainingRows(NamedTuple):
    """Rows in the units of the data, with encoded y."""

    X: FloatArray | FileRows
    y: AnyArray
    weights: FloatArray
    class_names: tuple[str, ...] = ()
    extra: FloatArray | None = None  # (n,), a number that the leaves need (see ``Leaf.extra``)

    @property
    def response(self) -> AnyArray:
        """y, with the extra number of each row as a second column if there is one."""
        return self.y if self.extra is None else np.column_stack((self.y, self.extra))

    def counted(self) -> "TrainingRows":
        """The rows of positive weight; the others are ignored."""
        kept = self.weights > 0
        X = self.X.where(kept) if isinstance(self.X, FileRows) else self.X[kept]
        extra = None if self.extra is None else self.extra[kept]
        return self._replace(X=X, y=self.y[kept], weights=self.weights[kept], extra=extra)


class Prepared(NamedTuple):
    """The rows and the model of a fit."""

    rows: TrainingRows  # of positive weight
    model: SoftTree
    data: Data  # the rows in the units of the fit
    given: Data  # their columns in use: ``data`` itself, if all are used


class BaseTree(ColumnChoice, Explained, Dependence, Shown, BaseEstimator):
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
    verbose: Verbose = "auto"
    _has_units = False  # whether the units of the features were given before the fit

    # Fitting.

    def _model(self, leaf: Leaf) -> SoftTree:
        """The model, before its topology is known: by default one hyperplane for each node."""
        return named.oblique(leaf)

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        """Fit the model to rows in the units of ``_unit_rule``."""
        raise NotImplementedError

    def _unit_rule(self) -> UnitRule:
        """The rule for the units of the features in the fit."""
        return "standard"

    def _check_combination(self, model: SoftTree) -> None:
        """Refuse invalid combinations of parameters before any work is done."""
        try:
            torch.zeros(1, device=self.device).item()  # "meta" makes tensors, but no numbers
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"device {self.device!r} cannot be used here: {reason}") from error
        if self._continues():
            self._check_same_split(model)

    def _limits(self) -> GrowthLimits:
        return GrowthLimits(
            self._depth(), self.max_leaves, self.min_rows, self.min_leaf, self.min_gain
        )

    def _depth(self) -> int:
        """Maximum number of splits on a path: as given, or the default of the method."""
        return self._default_depth() if self.max_depth is None else int(self.max_depth)

    def _default_depth(self) -> int:
        return GrowthLimits.max_depth

    def _work(self, n_rows: int, n_features: int) -> int:
        """Number of values that a step of the fit processes, which determines the threads."""
        return n_rows * n_features

    def _needs_double(self) -> bool:
        """Whether ``dtype="auto"`` is double precision for any number of rows."""
        return False

    def _weights_are_counts(self) -> bool:
        """Whether the scale of the weights matters, as it does for a posterior."""
        return False

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        """Scale, infer, and derive the deterministic tree."""
        prepared = self._prepare(rows, leaf)
        with threads_for(self._work(*rows.X.shape)), fitting(self.verbose):
            found = self._infer(prepared.model, prepared.given)
        return self._complete(found, prepared)

    def _prepare(self, rows: TrainingRows, leaf: Leaf) -> "Prepared":
        """Check the parameters, and scale the rows of positive weight."""
        model = self._model(leaf)
        self._check_combination(model)
        rows = rows.counted()
        center, scale = units(rows.X, rows.weights, self._unit_rule())
        if not (self._continues() or self._has_units):
            scale = np.where(self._used, scale, UNUSED)
            self._units = self._units._replace(center=center, scale=scale)
        unit = 1.0 if self._weights_are_counts() else weight_unit(rows.weights)
        data = given = self._data(rows, unit).for_leaf(leaf)
        reduced = not (self._used.all() or self._in_place())
        if reduced:
            given = self._data(rows, unit, self._used).for_leaf(leaf)
        model = model.with_(leaf=leaf.informed(given.y, given.weights))
        return Prepared(rows, model, data, given)

    def _complete(self, found: Posterior, prepared: "Prepared") -> Self:
        """Keep the result of the inference, and derive the deterministic tree."""
        reduced = prepared.given is not prepared.data
        self.posterior_ = with_unused_columns(found, self._used, reduced=reduced)
        self._harden(prepared.rows, prepared.data)
        self.tree_ = self.tree_.rescaled(self._units.y_scale, self._units.y_center)
        return self

    def _data(self, rows: TrainingRows, unit: float, columns: slice | BoolArray = ALL) -> Data:
        """Rows in the units of the fit."""
        single = len(rows.y) >= SINGLE_ROWS and not self._needs_double()
        auto = "float32" if single else "float64"
        dtype = DTYPES[auto if self.dtype == "auto" else self.dtype]
        X: Any = self._standardise(rows.X)
        X = X.tensor(dtype, self.device, columns) if isinstance(X, FileRows) else X[:, columns]
        return Data.of(X, rows.response, rows.weights / unit, dtype=dtype, device=self.device)

    def _harden(self, rows: TrainingRows, data: Data) -> None:
        """Derive ``tree_`` from the point estimate and the training rows."""
        tree = self._splits(self.posterior_, rows.class_names).prune(rows.X, self.min_leaf)
        if self.posterior_.model.topology.n_nodes:
            self._warn_if_single_leaf(tree.topology, self.posterior_.model.leaf, data, ONE_WAY)
        self.tree_ = tree.fill(rows.X, rows.y, rows.weights, len(rows.class_names), self.smoothing)
        self.tree_ = self.tree_._with(**self._leaf_values(rows, data))

    def _leaf_values(self, rows: TrainingRows, data: Data) -> dict[str, FloatArray]:
        """Fields of ``tree_`` that the family of leaves estimates itself."""
        family = self.posterior_.model.leaf
        if family.averages:
            return {}
        each = family.statistics(data.for_leaf(family).y, data.weights)
        sums = each.new_zeros(self.tree_.n_leaves, each.shape[1])
        sums.index_add_(0, torch.as_tensor(self.tree_.apply(rows.X), device=each.device), each)
        found = family.tree_values(sums.cpu())
        if "slope" in found:
            found["slope"] = found["slope"] / self._units.scale
        return found

    def _warn_if_single_leaf(self, topology: Topology, leaf: Leaf, data: Data, reason: str) -> None:
        if topology.n_nodes == 0:
            warn_single_leaf(data.y, leaf, self._limits(), reason)

    def _splits(self, posterior: Posterior, class_names: tuple[str, ...]) -> RoutedTree:
        """The splits of a point estimate at 1/2, in the units of the data."""
        model = posterior.model
        point = with_unused_columns(posterior, self._used, reduced=False).point
        frame: Frame = {
            "center": self._units.center,
            # networks receive the unused columns as well, in a unit that makes them vanish
            "scale": self._units.scale
            if isinstance(model.split, Network)
            else np.where(self._used, self._units.scale, 1.0),
            "feature_names": self._feature_names,
            "class_names": class_names,
            "quantity": model.leaf.quantity,
        }
        return model.split.tree(model.topology, point, frame)

    # Fitted.

    def apply(self, X: ArrayLike) -> IntArray:
        """Number of the leaf of ``tree_`` that each row reaches, shape (n,)."""
        return self._by_parts(X, self.tree_.apply)

    def decision_path(self, X: ArrayLike) -> csr_matrix:
        """Nodes of ``tree_`` that each row passes, shape (n, nodes + leaves), leaves last."""
        return self.tree_.decision_path(fitted_rows(self, X))

    def get_depth(self) -> int:
        """Depth of the deterministic tree."""
        check_is_fitted(self)
        return self.tree_.depth

    def get_n_leaves(self) -> int:
        """Number of leaves of the deterministic tree."""
        check_is_fitted(self)
        return self.tree_.n_leaves

    def _fitted_trees(self) -> list[Self]:
        return [self]

    def _describe(self) -> dict[str, Any]:
        return describe_tree(self)

    def _arrays(self) -> Arrays:
        return tree_arrays(self)

    def _restore(self, described: dict[str, Any], arrays: Arrays, network: Network | None) -> None:
        restore_tree(self, described, arrays, network)

    def _averages(self) -> bool:
        """Whether predictions average over draws."""
        return False

    def _expectation(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """E(y | x), class probabilities or means, and its standard deviation over the draws."""
        return self._moments(rows, averages=self._averages())

    def _moments(self, rows: FloatArray, *, averages: bool) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the draws, or what the deterministic tree predicts."""
        if not averages:
            only = self.tree_.predict(rows)
            return only, np.zeros(only.shape)  # unlike zeros_like, takes no memory until it is used
        return self._in_units(*self.posterior_.predictive(self._standardise(rows)))

    def _in_units(self, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Predictions of the posterior in the units of y."""
        raise NotImplementedError
