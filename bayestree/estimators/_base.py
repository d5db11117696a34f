"""Base classes of the estimators: the fit, and the fitted results."""

import re
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import wraps
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bayestree import inference
from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.parameters import ParameterError, Seed
from bayestree._utils.progress import Verbose, fitting
from bayestree._utils.threads import threads_for
from bayestree._utils.wording import counted
from bayestree.diagnostics.polytopes import Reach
from bayestree.estimators.files import save
from bayestree.export.text import export_text
from bayestree.fitted import explanations
from bayestree.fitted.predictions import by_parts
from bayestree.fitted.rows import FileRows, TrainingRows
from bayestree.fitted.scaling import (
    Scaling,
    UnitRule,
    columns_in_use,
    units,
    with_unused_columns,
)
from bayestree.fitted.tree import FittedTree, Mixture, Prediction
from bayestree.fitted.validation import checked, fitted_rows, validated
from bayestree.inference import Data, GrowthLimits, Posterior, Units
from bayestree.inference.data import UNUSED
from bayestree.inference.single_leaf import ONE_WAY, warn_single_leaf
from bayestree.models import Network, SoftTree, named
from bayestree.models.leaves import Categorical, Leaf
from bayestree.routed_tree import Frame, RoutedTree, weight_unit
from bayestree.tables import Encoding
from bayestree.tables.invalid import quote_columns
from bayestree.topology import Topology

ALL = slice(None)
SINGLE_ROWS = 10_000  # from which dtype="auto" is single precision
DTYPES = {"float32": torch.float32, "float64": torch.float64}
MAX_LEAVES = 60  # of the largest tree that a notebook shows
NO_UNITS = Units(np.zeros(0), np.ones(0))  # before the features are measured
REMEDY = "set warm_start=False to fit a new tree"
KEPT_LEAF = f"warm_start=True keeps the single leaf of the fit before; {REMEDY}"
OTHER_FEATURES = re.compile(r"X has \d+ features|The feature names")  # scikit-learn's messages
Fit = TypeVar("Fit", bound=Callable[..., Any])


def at_once(fit: Fit) -> Fit:
    """Let a method that fits its estimator change it at its end, or not at all.

    The method works on a copy, whose attributes the estimator takes over. After an exception or an
    interruption the estimator is as it was before.
    """

    @wraps(fit)
    def whole(self: Any, *args: Any, **given: Any) -> Any:
        fitted = copy(self)
        fit(fitted, *args, **given)
        self.__dict__ = fitted.__dict__
        return self

    return cast(Fit, whole)


class Prepared(NamedTuple):
    """The rows and the model of a fit."""

    rows: TrainingRows  # of positive weight
    model: SoftTree
    data: Data  # the rows in the units of the fit
    given: Data  # their columns in use: ``data`` itself, if all are used


class Estimator(BaseEstimator):
    """Read the columns of X, and keep what the fit has found; a subclass fits (``_fit``).

    Attributes
    ----------
    n_features_in_, feature_names_in_
    encoding_ : bayestree.tables.Encoding
        How the columns of X become features.
    fitted_ : bayestree.fitted.tree.Mixture
        The fitted trees with their posteriors and weights.
    """

    # Values of parameters that a subclass does not have.
    warm_start: bool = False
    prediction: Prediction = "tree"
    verbose: Verbose = "auto"
    random_state: Seed
    missing_values: Any = None
    leaf: Any = "constant"

    classes_: AnyArray  # of classifiers
    encoding_: Encoding
    fitted_: Mixture
    _scaling: Scaling
    _to_come: ArrayLike | None = None  # classes of later batches, during the fit of the first

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        takes = tags.input_tags
        takes.allow_nan = takes.string = takes.categorical = not self._in_place()
        return tags

    # Fitting.

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        """Fit to rows and keep the result as ``fitted_``."""
        raise NotImplementedError

    def _continues(self) -> bool:
        """Whether the next fit continues from the fitted tree."""
        return self.warm_start and hasattr(self, "fitted_")

    def _in_parts(self) -> bool:
        """Whether the fit processes the rows in chunks, so that they may stay in a file."""
        return False

    def _in_place(self) -> bool:
        """Whether every column must keep its position in the fit, like the pixels of an image."""
        return False

    def _checked_fit(self, X: Any, y: Any, sample_weight: Any, **checks: Any) -> Any:
        """X and y of a fit (see ``checked``); one that continues needs the same features."""
        continues = self._continues()
        if continues and (names := self.encoding_.by_y):
            raise ValueError(
                f"warm_start=True cannot continue with the features of {quote_columns(names)}, "
                f"which are means of the y of the fit before: {REMEDY}."
            )
        try:
            return checked(
                self,
                X,
                in_parts=self._in_parts(),
                y=y,
                reset=not continues,
                sample_weight=sample_weight,
                **checks,
            )
        except ValueError as error:
            if continues and OTHER_FEATURES.match(str(error)):
                raise ValueError(
                    f"{str(error).rstrip().rstrip('.')}. warm_start=True needs the features of "
                    f"the fit before: give these, or {REMEDY}."
                ) from error
            raise

    def _choose_columns(
        self, X: FloatArray | FileRows, weights: FloatArray, of_y: Units = NO_UNITS
    ) -> None:
        """Choose the columns in use, given the units of y."""
        if self._continues():
            return
        names = self._feature_names or None
        source = columns_in_use(X, weights, names, whole_image=self._in_place())
        self._scaling = Scaling(source, of_y)

    @property
    def _used(self) -> BoolArray:
        """Columns that the fit may use."""
        return self._scaling.used

    @property
    def _feature_names(self) -> tuple[str, ...]:
        """Names of the features, into which the columns of X are encoded; empty without names."""
        if self.encoding_.is_plain and not hasattr(self, "feature_names_in_"):
            return ()
        return tuple(self.encoding_.feature_names)

    def _separate(self, y: Any) -> tuple[Any, FloatArray | None]:
        """y, and the further number of each row (see ``Leaf.extra``) that it comes with."""
        return y, None

    def _y_checks(self, y: Any) -> dict[str, bool]:
        """Arguments of scikit-learn's checks of y."""
        return {}

    def _check_response(self, y: AnyArray, extra: FloatArray | None) -> None:
        """Refuse y that the leaves cannot generate."""

    def _check_outputs(self, y: AnyArray) -> None:
        """Refuse y with another number of outputs than in the fit."""
        given = y.shape[1] if y.ndim == 2 else 1
        if given != self.n_outputs_:
            raise ValueError(
                f"y must have {self.n_outputs_} outputs, as in the fit, got the shape {y.shape}."
            )

    def _response(self, y: AnyArray, extra: FloatArray | None, rows: AnyArray) -> AnyArray:
        """y as the fit takes it, with the further numbers, of some of the rows; all are checked."""
        self._check_response(y, extra)
        found = self._encode(y[rows])
        return found if extra is None else np.column_stack((found, extra[rows]))

    def _row_weights(self, sample_weight: ArrayLike | None, y: AnyArray) -> FloatArray:
        raise NotImplementedError

    def _encode(self, values: AnyArray) -> AnyArray:
        """y as class numbers, or in the units of the fit."""
        raise NotImplementedError

    def _decode(self, values: AnyArray) -> AnyArray:
        """The inverse of ``_encode``."""
        raise NotImplementedError

    # Fitted.

    @property
    def n_outputs_(self) -> int:
        """Number of outputs of the fit: columns of y, 1 for y (n,)."""
        check_is_fitted(self)
        return self.fitted_.shown.posterior.model.leaf.n_outputs

    def get_depth(self) -> int:
        """Depth of the deterministic tree, or of the deepest one of a forest."""
        check_is_fitted(self)
        return max(tree.depth for _, tree in self._shown_trees())

    def get_n_leaves(self) -> int:
        """Number of leaves of the deterministic tree, or of all trees of a forest together."""
        check_is_fitted(self)
        return sum(tree.n_leaves for _, tree in self._shown_trees())

    def save(self, path: str | Path) -> None:
        """Write the fitted tree or forest and its posterior to a file (see ``bayestree.load``)."""
        save(self, path)

    importance = explanations.importance
    shapley_values = explanations.shapley_values
    partial_dependence = explanations.partial_dependence
    interactions = explanations.interactions
    feature_importances_ = property(explanations.feature_importances)
    _by_parts = by_parts

    def _shown_trees(self) -> list[tuple[float, RoutedTree]]:
        """The deterministic trees whose weighted mean is the prediction without a posterior."""
        raise NotImplementedError

    def _members(self) -> dict[str, list[Any]]:
        """The estimators of the trees of a mixture, by their role; none for a single tree."""
        return {}

    def _view(self, fitted: FittedTree, kind: type["Estimator"] | None = None) -> Any:
        """An estimator of one of the trees, of the given class or of this one."""
        found = (kind or type(self))(**fitted.parameters)
        for name in ("classes_", "n_features_in_", "feature_names_in_", "encoding_"):
            if hasattr(self, name):
                setattr(found, name, getattr(self, name))
        found.fitted_, found._scaling = Mixture.of(fitted), fitted.scaling
        return found

    def _averages(self) -> bool:
        """Whether predictions average over draws."""
        return self.fitted_.averages(self.prediction)

    def _expectation(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """E(y | x), class probabilities or means, and its standard deviation over the draws."""
        return self.fitted_.expectation(rows, self.prediction)

    # Notebooks: the fitted tree below scikit-learn's table of parameters.

    def _repr_html_inner(self) -> str:
        return f"{super()._repr_html_inner()}{self._tree_html()}"

    def _repr_mimebundle_(self, **settings: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**settings)
        if "text/html" in bundle:
            bundle["text/html"] += self._tree_html()
        return bundle

    def _tree_html(self) -> str:
        """The tree as text that can be folded; empty before the fit."""
        if not hasattr(self, "fitted_"):
            return ""
        n_leaves = self.get_n_leaves()
        title = f"{counted(n_leaves, 'leaf')}, depth {self.get_depth()}"
        text = "bayestree.export_text writes it."
        if n_leaves <= MAX_LEAVES:
            text = export_text(self, max_facets=3, max_features=3)
        return f"<details open><summary>{title}</summary><pre>{escape(text)}</pre></details>"


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
    refine: Any = None
    mode_tree: Any = None
    monotonic_cst: Any = None

    _has_units = False  # whether the units of the features were given before the fit
    _refits_leaves = False  # whether leaves of a regression are refitted with a learned prior

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

    def _some_family(self) -> Leaf:
        """A family with the attributes of that in use, for any number of classes."""
        raise NotImplementedError

    def _check_combination(self, model: SoftTree) -> None:
        """Refuse invalid combinations of parameters before any work is done."""
        try:
            torch.zeros(1, device=self.device).item()  # "meta" makes tensors, but no numbers
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"device {self.device!r} cannot be used here: {reason}") from error
        if self._continues():
            self._check_same_split(model)
        self._check_family(model.leaf)

    def _check_family(self, family: Leaf) -> None:
        """Refuse parameters that do not suit the family of leaves."""
        n_used = int(self._used.sum())
        if family.most_features is not None and n_used > family.most_features:
            raise ParameterError(
                f"leaf={self.leaf!r} is for at most {family.most_features} features that vary, got "
                f"{n_used}: its cost grows with the square of their number. Select features, or "
                "set leaf='constant'."
            )
        if family.needs_double and self.dtype == "float32":
            raise ParameterError(
                f"leaf={self.leaf!r} needs double precision, because its sums of squares "
                "cancel; set dtype='auto' or 'float64', got 'float32'."
            )
        if not family.averages and (self.refine == "tao" or self.mode_tree == "distilled"):
            name = "refine='tao'" if self.refine == "tao" else "mode_tree='distilled'"
            raise ParameterError(
                f"leaf={self.leaf!r} cannot be combined with {name}, which fits leaves of means; "
                "leave this parameter at its default."
            )

    def _check_same_split(self, model: SoftTree) -> None:
        """Refuse parameters that give the splits another form than that of the fitted ones."""
        fitted = self.posterior_.model.split
        dropped = self.posterior_.settings.get("drop_idle", False)  # by the fit itself
        if model.split != fitted and not dropped:
            raise ValueError(
                f"warm_start=True continues from {fitted!r} splits, but the parameters ask for "
                f"{model.split!r}: change n_experts or split back, or {REMEDY}."
            )

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
        return self._some_family().needs_double

    def _weights_are_counts(self) -> bool:
        """Whether the scale of the weights matters, as it does for a posterior."""
        return False

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        """Keep the fitted tree."""
        self.fitted_ = Mixture.of(self._fitted_tree(rows, leaf))
        return self

    def _fitted_tree(self, rows: TrainingRows, leaf: Leaf) -> FittedTree:
        """Scale, infer, and derive the deterministic tree."""
        prepared = self._prepare(rows, leaf)
        with threads_for(self._work(*rows.X.shape)), fitting(self.verbose):
            found = self._infer(prepared.model, prepared.given)
            if self._refits_leaves and leaf.regresses:
                found = inference.recalibrated(found, prepared.given)
        return self._complete(found, prepared)

    def _prepare(self, rows: TrainingRows, leaf: Leaf) -> Prepared:
        """Check the parameters, and scale the rows of positive weight."""
        model = self._model(leaf)
        self._check_combination(model)
        rows = rows.counted()
        center, scale = units(rows.X, rows.weights, self._unit_rule())
        if not (self._continues() or self._has_units):
            scale = np.where(self._used, scale, UNUSED)
            own = self._scaling.units._replace(center=center, scale=scale)
            self._scaling = replace(self._scaling, units=own)
        unit = 1.0 if self._weights_are_counts() else weight_unit(rows.weights)
        data = given = self._data(rows, unit).for_leaf(leaf)
        reduced = not (self._used.all() or self._in_place())
        if reduced:
            given = self._data(rows, unit, self._used).for_leaf(leaf)
        model = model.with_(leaf=leaf.informed(given.y, given.weights))
        return Prepared(rows, model, data, given)

    def _complete(self, found: Posterior, prepared: Prepared) -> FittedTree:
        """The result of the inference, with the deterministic tree."""
        reduced = prepared.given is not prepared.data
        posterior = with_unused_columns(found, self._used, reduced=reduced)
        tree, reach = self._hardened(posterior, prepared.rows, prepared.data)
        of_y = self._scaling.units
        return FittedTree(
            tree=tree.rescaled(of_y.y_scale, of_y.y_center),
            posterior=posterior,
            scaling=self._scaling,
            reach=reach,
            parameters=self.get_params(deep=False),
        )

    def _data(self, rows: TrainingRows, unit: float, columns: slice | BoolArray = ALL) -> Data:
        """Rows in the units of the fit."""
        single = len(rows.y) >= SINGLE_ROWS and not self._needs_double()
        auto = "float32" if single else "float64"
        dtype = DTYPES[auto if self.dtype == "auto" else self.dtype]
        X: Any = self._scaling.standardise(rows.X)
        X = X.tensor(dtype, self.device, columns) if isinstance(X, FileRows) else X[:, columns]
        return Data.of(X, rows.response, rows.weights / unit, dtype=dtype, device=self.device)

    def _hardened(
        self, posterior: Posterior, rows: TrainingRows, data: Data
    ) -> tuple[Any, Reach | None]:
        """The deterministic tree from the point estimate and the training rows.

        Also the statistics of these rows, if the posterior has diagnostics.
        """
        tree = self._splits(posterior, rows.class_names).prune(rows.X, self.min_leaf)
        if posterior.model.topology.n_nodes:
            self._warn_if_single_leaf(tree.topology, posterior.model.leaf, data, ONE_WAY)
        return self._filled(tree, posterior, rows, data), None

    def _filled(self, tree: Any, posterior: Posterior, rows: TrainingRows, data: Data) -> Any:
        """The deterministic tree with the leaves that the training rows give it."""
        filled = tree.fill(rows.X, rows.y, rows.weights, len(rows.class_names), self.smoothing)
        return filled._with(**self._leaf_values(filled, posterior, rows, data))

    def _leaf_values(
        self, tree: Any, posterior: Posterior, rows: TrainingRows, data: Data
    ) -> dict[str, FloatArray]:
        """Fields of ``tree_`` that the family of leaves estimates itself."""
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
        """The splits of a point estimate at 1/2, in the units of the data."""
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
        """The model, and the columns in use of X in the units that a fit to X would have."""
        rows: FloatArray = validated(self, X, dtype=np.float64)
        weights = np.ones(len(rows))
        self._choose_columns(rows, weights)
        center, scale = units(rows, weights, self._unit_rule())
        return self._model(Categorical(2)), ((rows - center) / scale)[:, self._used]

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

    explain = explanations.explain

    def apply(self, X: ArrayLike) -> IntArray:
        """Number of the leaf of ``tree_`` that each row reaches, shape (n,)."""
        found: IntArray = self._by_parts(X, self.tree_.apply)
        return found

    def decision_path(self, X: ArrayLike) -> csr_matrix:
        """Nodes of ``tree_`` that each row passes, shape (n, nodes + leaves), leaves last."""
        rows = fitted_rows(self, X)
        return self.tree_.decision_path(rows)

    def _shown_trees(self) -> list[tuple[float, RoutedTree]]:
        return [(1.0, self.tree_)]
