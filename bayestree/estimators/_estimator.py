"""Base class of all estimators: the columns of X, and what the fit has found."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.parameters import Parameter, ParameterError, Seed
from bayestree._utils.progress import Verbose
from bayestree._utils.state import InUsualState
from bayestree._utils.wording import counted, nearest_match
from bayestree.estimators.files import save
from bayestree.export.words import export_text
from bayestree.fitted import explanations
from bayestree.fitted.predictions import by_parts
from bayestree.fitted.training_rows import Scaling, TrainingRows, columns_in_use
from bayestree.fitted.tree import FittedTree, Mixture, Prediction
from bayestree.fitted.validation import Encoded, checked, checked_weights
from bayestree.fitting.plan import Task
from bayestree.inference import Units
from bayestree.inference.stage import Settings
from bayestree.models.leaves import Leaf
from bayestree.tables import Encoding
from bayestree.tables.columns import quote_columns

MAX_LEAVES = 60  # of the largest tree that a notebook shows
NO_UNITS = Units(np.zeros(0), np.ones(0))  # before the features are measured
REMEDY = "set warm_start=False to fit a new tree"
OTHER_FEATURES = re.compile(r"X has \d+ features|The feature names")  # scikit-learn's messages


class Estimator(InUsualState, BaseEstimator):
    """Read the columns of X, and keep what the fit has found; a subclass fits (``_fit``).

    Attributes
    ----------
    n_features_in_, feature_names_in_
    encoding_ : bayestree.tables.Encoding
        How the columns of X become features.
    fitted_ : bayestree.fitted.tree.Mixture
        The result of the fit: its trees with their posteriors and weights.
    """

    # Values of parameters that a subclass does not have.
    warm_start: bool = False
    prediction: Prediction = "tree"
    verbose: Verbose = "auto"
    random_state: Seed
    missing_values: Any = None
    leaf: Any = "constant"
    class_weight: Any = None

    fitted_: Mixture
    #: Checks the rows of a fit: X, y, their weights and, for batches, all classes.
    _task_of: Callable[..., Task]
    _tree: ClassVar[type["Estimator"] | None] = None  # of the trees of a forest

    @classmethod
    def file_settings(cls) -> Mapping[str, Parameter]:
        """Return the settings of methods and priors that files have beside the parameters."""
        return {}

    @classmethod
    def with_objects(cls, given: Mapping[str, Any], _fitted: str = "", /) -> dict[str, Any]:
        """Return the parameters of a file with these settings in their objects.

        A model file has the method that fitted its tree, and ignores the settings of others.
        """
        return dict(given)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters and, if ``deep``, the settings in them, as "inference__epochs"."""
        found: dict[str, Any] = super().get_params(deep)
        for name, part in [*found.items()]:
            if deep and isinstance(part, Settings):
                found |= {f"{name}__{key}": value for key, value in part.chosen().items()}
        return found

    def set_params(self, **given: Any) -> Self:
        """Set parameters; ``inference__epochs=5`` replaces an object by one with this setting."""
        for key in [key for key in given if "__" in key]:
            name, _, setting = key.partition("__")
            part: Any = given.get(name, getattr(self, name, None))
            if isinstance(part, BaseEstimator):
                continue
            if isinstance(part, str | list | tuple):
                raise ParameterError(
                    f"{name}={part!r} is not one object with settings: set one first, such as "
                    f"inference=Svi() or prior=Laplace(), or set {name} as a whole."
                )
            known = [one.name for one in fields(part)] if is_dataclass(part) else []
            if setting not in known:
                end = nearest_match(setting, known, ".")
                raise ValueError(f"{name}={part!r} has no setting {setting!r}{end}")
            given[name] = replace(part, **{setting: given.pop(key)})
        return super().set_params(**given)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        takes = tags.input_tags
        takes.allow_nan = takes.string = takes.categorical = not self._in_place()
        return tags

    # Fitting.

    def _fit(self, task: Task) -> Mixture:
        """Return the fitted trees."""
        raise NotImplementedError

    def _fit_task(self, task: Task) -> Self:
        """Fit, and keep the result."""
        self.fitted_ = replace(self._fit(task), encoding=task.encoding, plan=task.plan)
        return self

    def _task_from(
        self, rows: TrainingRows, leaf: Leaf, scaling: Scaling, encoding: Encoding
    ) -> Task:
        """Return the task of a fit to rows that have been checked."""
        names, start = self._feature_names(encoding), self.fitted_ if self._continues() else None
        return Task(rows.counted(), leaf, scaling, encoding, names, start)

    def _continues(self) -> bool:
        """Return whether the next fit continues from the fitted tree."""
        return self.warm_start and hasattr(self, "fitted_")

    def _in_parts(self) -> bool:
        """Return whether the fit processes the rows in chunks, so that they may stay in a file."""
        return False

    def _in_place(self) -> bool:
        """Return whether every column must keep its position, like the pixels of an image."""
        return False

    def _checked_fit(self, X: Any, y: Any, weights: Any, in_parts: bool, **checks: Any) -> Encoded:
        """Check X and y (see ``checked``); a fit that continues needs the same features."""
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
                in_parts=in_parts,
                in_place=in_parts,
                y=y,
                reset=not continues,
                sample_weight=weights,
                **checks,
            )
        except ValueError as error:
            if continues and OTHER_FEATURES.match(str(error)):
                raise ValueError(
                    f"{str(error).rstrip().rstrip('.')}. warm_start=True needs the features of "
                    f"the fit before: give these, or {REMEDY}."
                ) from error
            raise

    def _scaling_of(self, found: Encoded, weights: FloatArray, of_y: Units = NO_UNITS) -> Scaling:
        """Choose the columns in use, given the units of y; a fit that continues keeps both."""
        if self._continues():
            return self.fitted_.scaling
        names = self._feature_names(found.encoding) or None
        return Scaling(columns_in_use(found.X, weights, names, whole_image=self._in_place()), of_y)

    def _feature_names(self, encoding: Encoding) -> tuple[str, ...]:
        """Names of the features, into which the columns of X are encoded; empty without names."""
        if encoding.is_plain and not hasattr(self, "feature_names_in_"):
            return ()
        return tuple(encoding.feature_names)

    def _y_checks(self, y: Any) -> dict[str, bool]:
        """Return the arguments of scikit-learn's checks of y."""
        return {}

    def _row_weights(self, sample_weight: ArrayLike | None, y: AnyArray) -> FloatArray:
        """Return the weights of the rows, shape (n,), times those of their classes."""
        weights = checked_weights(sample_weight, len(y))
        if self.class_weight is not None:
            weights = weights * compute_sample_weight(self.class_weight, y)
            if not ((weights >= 0) & np.isfinite(weights)).all():
                raise ValueError(f"class_weight must be zero or more, got {self.class_weight}.")
        return weights

    # Fitted.

    @property
    def encoding_(self) -> Encoding:
        """How the columns of X become features."""
        check_is_fitted(self)
        return self.fitted_.encoding

    @property
    def n_outputs_(self) -> int:
        """Number of outputs of the fit: columns of y, 1 for y (n,)."""
        check_is_fitted(self)
        return self.fitted_.response.n_outputs

    def get_depth(self) -> int:
        """Return the depth of the deterministic tree, or of the deepest tree of a forest."""
        check_is_fitted(self)
        return max(tree.depth for _, tree in self.fitted_.hard_trees)

    def get_n_leaves(self) -> int:
        """Number of leaves of the deterministic tree, or of all trees of a forest together."""
        check_is_fitted(self)
        return sum(tree.n_leaves for _, tree in self.fitted_.hard_trees)

    def save(self, path: str | Path) -> None:
        """Write the fitted tree or forest and its posterior to a file (see ``bayestree.load``)."""
        save(self, path)

    importance = explanations.importance
    shapley_values = explanations.shapley_values
    partial_dependence = explanations.partial_dependence
    interactions = explanations.interactions
    feature_importances_ = property(explanations.feature_importances)
    _by_parts = by_parts

    def _view(self, fitted: FittedTree) -> Any:
        """Return the estimator of one of the trees."""
        found = (self._tree or type(self))(**fitted.parameters)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(found, name, getattr(self, name))
        found.fitted_ = self.fitted_.alone(fitted)
        return found

    def _expectation(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return class probabilities or means, and their standard deviation over the draws."""
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
        """Write the tree as text that can be folded; nothing before the fit."""
        if not hasattr(self, "fitted_"):
            return ""
        n_leaves = self.get_n_leaves()
        title = f"{counted(n_leaves, 'leaf')}, depth {self.get_depth()}"
        text = "bayestree.export_text writes it."
        if n_leaves <= MAX_LEAVES:
            text = export_text(self, max_facets=3, max_features=3)
        return f"<details open><summary>{title}</summary><pre>{escape(text)}</pre></details>"
