"""What the scikit-learn faces share: checked input, the fit in stages, the fitted results."""

from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import BoolArray
from bayestree._utils.progress import Verbose, fitting
from bayestree._utils.threads import threads_for
from bayestree.estimators._columns import ColumnChoice, with_unused_columns
from bayestree.estimators._contents import Arrays, describe_tree, restore_tree, tree_arrays
from bayestree.estimators._file_rows import FileRows
from bayestree.estimators._fitted import FittedTree
from bayestree.estimators._units import UnitRule, units
from bayestree.estimators.files import save
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.data import UNUSED
from bayestree.inference.unsplit import ONE_WAY, warn_single_leaf
from bayestree.models import Network, SoftTree
from bayestree.models.leaves import Leaf
from bayestree.routed_tree import Frame, RoutedTree, weight_unit

ALL = slice(None)
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class BaseTree(ColumnChoice, FittedTree, BaseEstimator):
    """Fit, route and describe one tree; classifier and regressor add y.

    A subclass says what is believed (``_model``), in which units (``_unit_rule``) and how it is
    fitted (``_infer``).
    """

    # Parameters that a subclass may leave out, at their values then.
    max_depth: int
    max_leaves: int | None = None
    min_rows: float = 2.0
    min_leaf: int = 1
    min_gain: float = 0.0
    smoothing: float = 0.0
    dtype: Literal["float64", "float32"] = "float64"
    device: str = "cpu"
    verbose: Verbose = "auto"

    # Fitting.

    def _model(self, leaf: Leaf) -> SoftTree:
        """What is believed, before its topology is known."""
        raise NotImplementedError

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        """Fit the model to rows in the units of ``_unit_rule``."""
        raise NotImplementedError

    def _unit_rule(self) -> UnitRule:
        """In which units the fit measures the features."""
        return "standard"

    def _check_combination(self, model: SoftTree) -> None:
        """Refuse, before any work is done, what the last stage of the fit would refuse."""
        try:
            torch.zeros(1, device=self.device).item()  # "meta" makes tensors, but no numbers
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"device {self.device!r} cannot be used here: {reason}") from error

    def _limits(self) -> GrowthLimits:
        return GrowthLimits(
            self.max_depth, self.max_leaves, self.min_rows, self.min_leaf, self.min_gain
        )

    def _work(self, n_rows: int, n_features: int) -> int:
        """Numbers that a step of the fit goes through, which say how many threads are of use."""
        return n_rows * n_features

    def _in_parts(self) -> bool:
        """Whether the fit goes through the rows by parts of them, so that they may be in a file."""
        return False

    def _weighs_evidence(self) -> bool:
        """Whether the scale of the weights matters, as it does to a posterior."""
        return False

    def _fit(
        self,
        X: NDArray[np.float64] | FileRows,
        y: NDArray[Any],
        weights: NDArray[np.float64],
        leaf: Leaf,
        class_names: tuple[str, ...] = (),
    ) -> Self:
        """Scale, infer, and read off the deterministic tree. y is encoded."""
        model = self._model(leaf)
        self._check_combination(model)
        counted = weights > 0  # a row of weight 0 is no row
        X = X.where(counted) if isinstance(X, FileRows) else X[counted]
        y, weights = y[counted], weights[counted]
        center, scale = units(X, weights, self._unit_rule())
        self._units = self._units._replace(center=center, scale=np.where(self._used, scale, UNUSED))
        counts = weights if self._weighs_evidence() else weights / weight_unit(weights)
        data = given = self._data(X, y, counts)
        reduced = not (self._used.all() or self._in_place())
        if reduced:
            given = self._data(X, y, counts, self._used)
        with threads_for(self._work(*X.shape)), fitting(self.verbose):
            found = self._infer(model, given)
        self.posterior_ = with_unused_columns(found, self._used, reduced=reduced)
        self._read_off(X, y, weights, data, class_names)
        return self

    def _data(
        self,
        X: NDArray[np.float64] | FileRows,
        y: NDArray[Any],
        weights: NDArray[np.float64],
        columns: slice | BoolArray = ALL,
    ) -> Data:
        """Rows in the units of the fit."""
        dtype = DTYPES[self.dtype]
        rows: Any = self._standardise(X)
        if isinstance(rows, FileRows):
            rows = rows.tensor(dtype, self.device, columns)
        else:
            rows = rows[:, columns]
        return Data.of(rows, y, weights, dtype=dtype, device=self.device)

    def _read_off(
        self,
        X: NDArray[np.float64] | FileRows,
        y: NDArray[Any],
        weights: NDArray[np.float64],
        data: Data,
        class_names: tuple[str, ...],
    ) -> None:
        """Make ``tree_`` from the point estimate: splits that part rows, leaves of the rows."""
        tree = self._splits(self.posterior_, class_names).prune(X)
        if tree.n_leaves == 1 and self.posterior_.model.topology.n_nodes:
            warn_single_leaf(data.y, self._limits(), ONE_WAY)
        self.tree_ = tree.fill(X, y, weights, len(class_names), self.smoothing)

    def _splits(self, posterior: Posterior, class_names: tuple[str, ...]) -> RoutedTree:
        """The splits of a point estimate at 1/2, in the units of the data."""
        model = posterior.model
        point = with_unused_columns(posterior, self._used, reduced=False).point
        frame: Frame = {
            "center": self._units.center,
            # networks see columns that are not in use, in a unit in which nothing is left of them
            "scale": self._units.scale
            if isinstance(model.split, Network)
            else np.where(self._used, self._units.scale, 1.0),
            "feature_names": tuple(getattr(self, "feature_names_in_", ())),
            "class_names": class_names,
        }
        return model.split.tree(model.topology, point, frame)

    # Fitted.

    def apply(self, X: ArrayLike) -> NDArray[np.int64]:
        """Number of the leaf of ``tree_`` that each row reaches, shape (n,)."""
        leaf: NDArray[np.int64] = self._by_parts(X, self.tree_.apply)
        return leaf

    def decision_path(self, X: ArrayLike) -> csr_matrix:
        """Nodes of ``tree_`` that each row passes, shape (n, nodes + leaves), leaves last."""
        return self.tree_.decision_path(self._check_rows(X))

    def get_depth(self) -> int:
        """Depth of the deterministic tree."""
        check_is_fitted(self)
        return self.tree_.depth

    def get_n_leaves(self) -> int:
        """Number of leaves of the deterministic tree."""
        check_is_fitted(self)
        return self.tree_.n_leaves

    def save(self, path: str | Path) -> None:
        """Write the fitted tree and its posterior to a file (see :func:`bayestree.load`)."""
        save(self, path)

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
