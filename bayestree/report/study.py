"""The subject of a report: a fitted estimator, its rows, diagnostics, and a linear baseline.

Numbers are written here as all of the report has them.
"""

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.wording import counted, isolated
from bayestree.description import (
    TreeDescription,
    features_of,
    has_evidence,
    kind_of,
    modes_of,
    trees_of,
)
from bayestree.diagnostics import (
    Calibration,
    Convergence,
    PolytopeSize,
    Shrinkage,
    SplitUncertainty,
    calibration,
)
from bayestree.diagnostics.draws import spread
from bayestree.diagnostics.printed import TreeIntervals
from bayestree.diagnostics.sample import check_fitted_rows
from bayestree.diagnostics.sparsity import NearOptimalTrees
from bayestree.estimators._estimator import Estimator
from bayestree.estimators._tree import StagedTree
from bayestree.inference import Posterior
from bayestree.models.leaves import Survival
from bayestree.report.rows import (
    Effect,
    LabelledRows,
    PermutationImportance,
    evaluation_rows,
    measured_effects,
    permutation_importance,
    rows_of,
    split_uncertainty,
)
from bayestree.routed_tree import RoutedTree
from bayestree.tables import Encoding
from bayestree.tree import Tree

SIZE_WORK = 6000  # maximum number of measured polytopes, over all nodes and draws
PRIOR_NODES = 8  # maximum number of nodes for which the prior, which takes longer, is measured too
MIN_DRAWS = 10  # minimum number of draws of each node
# Maximum of rows x features x classes of a linear model, to bound time (a few seconds) and memory.
LINEAR_WORK = 20_000_000
LINEAR_ROWS = 500  # minimum number of rows in any case
LINEAR_STEPS = 300
SPACE = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
LEVELS = np.linspace(0.1, 0.9, 9)  # of the intervals whose coverage is measured
LARGE = 1e7  # numbers from here on have an exponent


#: A section: its heading, and the variables of its macro; None if there is nothing to show.
Shown = tuple[str, dict[str, Any]] | None


class Baseline(NamedTuple):
    """A fitted linear model, and the number of training rows that it used."""

    name: str
    model: Any  # a Pipeline
    n_rows: int


@dataclass(frozen=True, eq=False)
class Study:
    """A fitted estimator, its rows, and their diagnostics, each computed at most once.

    ``data``, ``metrics`` and ``manifest`` are the records of a run about its table, scores and
    environment; ``known_sizes`` are the sizes of the polytopes if they have been measured before;
    ``example_rows`` states whether the page may carry some of the rows.
    """

    estimator: Estimator
    train: LabelledRows | None = None
    held: LabelledRows | None = None
    title: str = ""
    question: str = ""
    command: str = ""
    run_file: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    known_sizes: PolytopeSize | None = None
    example_rows: bool = True

    @property
    def encoding(self) -> Encoding:
        """How the columns of the table become features."""
        return self.estimator.encoding_

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the table; x0, x1, ... if they have none."""
        return tuple(map(isolated, self.encoding.names))

    @property
    def width(self) -> str:
        """Number of columns of the table, and of their features if these are others."""
        features = counted(len(self.features), "feature")
        if self.encoding.is_plain:
            return features
        return f"{counted(len(self.columns), 'column')} ({features})"

    @cached_property
    def trees(self) -> tuple[RoutedTree, ...]:
        return tuple(tree for _, tree in self.estimator.fitted_.hard_trees)

    @property
    def tree(self) -> RoutedTree:
        """The deterministic tree; the first of a forest."""
        return self.trees[0]

    @cached_property
    def is_sparse(self) -> bool:
        """Whether the tree that is shown has sparse facets."""
        return not self.is_forest and TreeDescription(self.tree).is_sparse

    @cached_property
    def near_optimal(self) -> NearOptimalTrees | None:
        """Sparse trees of several modes or topologies, if the rows of the fit are known."""
        rows, several = self.train, len(modes_of(self.estimator)) > 1
        if rows is None or rows.y is None or not self.is_sparse or self.tree.n_nodes == 0:
            return None
        if not (several or has_evidence(self.estimator)):
            return None
        return self.soft.near_optimal_trees(rows.X, rows.response, rows.weights)

    @property
    def is_forest(self) -> bool:
        return self.estimator.fitted_.forest

    @property
    def soft(self) -> StagedTree:
        """The estimator as a soft tree, for what needs posterior draws."""
        assert isinstance(self.estimator, StagedTree)
        return self.estimator

    @property
    def classifies(self) -> bool:
        return self.tree.value.ndim == 2

    @property
    def survives(self) -> bool:
        """Whether y are survival times, for which predictions are risk scores."""
        return isinstance(self.estimator.fitted_.response.leaf, Survival)

    @property
    def labels(self) -> AnyArray:
        return self.estimator.classes_

    @property
    def classes(self) -> tuple[str, ...]:
        if not self.classifies:
            return ()
        names = self.tree.class_names or map(str, range(self.tree.value.shape[1]))
        return tuple(map(isolated, names))

    @property
    def target(self) -> str:
        return isolated(str(self.data.get("target") or "y"))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features; x0, x1, ... if the tree has none."""
        return tuple(map(isolated, self.tree.feature_labels))

    @cached_property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width of the rows if they are known to be images."""
        network = getattr(getattr(self.tree, "network", None), "build", None)
        shapes = (getattr(one, "image_shape", None) for one in (self.estimator, network))
        *_, height, width = next((shape for shape in shapes if shape is not None), (0, 0))
        return (int(height), int(width)) if height * width == self.tree.n_features else None

    @property
    def posterior(self) -> Posterior | None:
        """The result of the inference; None for a forest."""
        return None if self.is_forest else self.estimator.fitted_.shown.posterior

    @property
    def inference(self) -> str:
        return "" if self.posterior is None else str(self.posterior.inference)

    @property
    def n_draws(self) -> int:
        """Draws of all chains; 1 for a point estimate."""
        return 1 if self.is_forest else self.estimator.fitted_.shown.n_draws

    @property
    def has_draws(self) -> bool:
        return self.n_draws > 1

    @property
    def has_split_draws(self) -> bool:
        """Whether there is a posterior of several draws, for a tree with a split."""
        return self.has_draws and self.tree.n_nodes > 0

    @property
    def n_experts(self) -> int:
        """Experts of each node in the posterior; 1 without several draws."""
        if not self.has_split_draws or self.posterior is None:
            return 1
        return int(self.posterior.model.split.n_experts)

    @property
    def scored(self) -> LabelledRows | None:
        """Rows with y to score by: held out if there are any, else the rows of the fit."""
        rows = self.held if self.held is not None and len(self.held) else self.train
        return rows if rows is not None and rows.y is not None else None

    @cached_property
    def training_rows(self) -> float:
        """Weighted rows of the fit."""
        return float(self.tree.leaf_rows.sum())

    @cached_property
    def sizes(self) -> PolytopeSize | None:
        """Posterior of the sizes of the polytopes, from fewer draws if there are many nodes."""
        if not self.has_split_draws:
            return None
        if self.known_sizes is not None:
            return self.known_sizes
        max_draws = max(MIN_DRAWS, min(100, SIZE_WORK // self.tree.n_nodes))
        return self.soft.polytope_size(max_draws=max_draws)

    @cached_property
    def size_posterior(self) -> FloatArray:
        """Posterior probability of each number of facets of each node."""
        assert self.sizes is not None
        return self.sizes.probabilities()

    @cached_property
    def size_prior(self) -> FloatArray | None:
        """Prior probability of each number of facets, if it is proper and nodes are few."""
        if self.sizes is None or not self.sizes.has_prior:
            return None
        known = "counts" in vars(self.sizes.prior)  # it has been counted before
        few = len(self.sizes.labels) <= PRIOR_NODES
        return self.sizes.prior_probabilities() if known or few else None

    def size_text(self, node: int) -> str:
        """Write the posterior median of the facets of a node, with its 90 % interval."""
        assert self.sizes is not None
        low, high = self.sizes.interval()[node].astype(int)
        return f"{int(self.sizes.median()[node])} ({low} to {high})"

    def has_one_size(self, node: int) -> bool:
        """Whether the interval of the number of facets of a node is a single number."""
        assert self.sizes is not None
        low, high = self.sizes.interval()[node]
        return bool(low == high)

    def prior_size(self, node: int) -> str:
        """Write the prior mean of the number of facets of a node, if it is known."""
        prior = self.size_prior
        return "" if prior is None else f"{prior[node] @ np.arange(prior.shape[1]):.1f}"

    @cached_property
    def shrinkage(self) -> Shrinkage | None:
        return self.soft.shrinkage() if self.has_split_draws else None

    @cached_property
    def convergence(self) -> Convergence | None:
        judged = self.has_draws and isinstance(self.estimator, StagedTree)
        return self.soft.check_convergence() if judged else None

    @cached_property
    def evaluated(self) -> LabelledRows | None:
        """Rows on which the splits are judged."""
        return evaluation_rows(self.train, self.held)

    @cached_property
    def uncertainty(self) -> SplitUncertainty | None:
        """Uncertainty of the splits about ``evaluated``, if it is defined."""
        rows = self.evaluated
        return None if rows is None else split_uncertainty(self.estimator, rows)

    @cached_property
    def intervals(self) -> TreeIntervals | None:
        """Intervals of the numbers of the tree, if its form has them."""
        tree, rows = self.tree, self.train or self.evaluated
        if not self.has_split_draws or rows is None or not isinstance(tree, Tree):
            return None
        logistic = tree.slope is not None and tree.slope.ndim > 2
        fitting = tree.is_conjunction.all() and not logistic
        return self.soft.tree_intervals(rows.X) if fitting else None

    @cached_property
    def uncertainty_table(self) -> pd.DataFrame:
        """Uncertainty of the split of each node about the rows that reach it."""
        assert self.uncertainty is not None
        return self.uncertainty.to_frame("node")

    @cached_property
    def importance(self) -> PermutationImportance | None:
        """Importance of each column for the splits, on ``evaluated``."""
        if self.evaluated is None or not len(self.evaluated):
            return None
        found = permutation_importance(self.trees, self.evaluated, self.encoding)
        return found if found.total.any() else None

    @cached_property
    def effects(self) -> list[Effect]:
        """Effects of the columns that matter most on ``evaluated``; none of images, of pixels."""
        if self.importance is None or self.evaluated is None or self.image_shape is not None:
            return []
        return measured_effects(self.estimator, self.trees, self.evaluated, self.importance)

    @cached_property
    def probability(self) -> FloatArray | None:
        """Class probabilities of ``scored``, shape (n, C)."""
        if self.scored is None or not self.classifies:
            return None
        return self.estimator.predict_proba(self.scored.X)

    @cached_property
    def predicted(self) -> AnyArray:
        """Predicted class or value of ``scored``, shape (n,)."""
        if self.scored is None:
            raise AttributeError("there are no rows to score.")
        if self.probability is not None:
            return self.labels[self.probability.argmax(axis=1)]
        return self.expected(self.scored)

    def expected(self, rows: LabelledRows) -> AnyArray:
        """Predict the values of some rows: of counts, for their exposures."""
        return self.estimator.predict(rows.X, **self._known(rows))

    def interval(self, rows: LabelledRows, level: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the predictive intervals of some rows, for a regression with draws."""
        return self.estimator.predict_interval(rows.X, level, **self._known(rows))

    @cached_property
    def coverage(self) -> tuple[FloatArray, int] | None:
        """Shares of values of ``scored`` in their intervals of ``LEVELS``, and number of values."""
        if self.scored is None or self.classifies or not self.has_draws:
            return None
        rows = self.scored.taken(np.flatnonzero(self.scored.weights > 0)).sample()
        if not len(rows):
            return None
        inside = self.soft.in_interval(rows.X, rows.response, LEVELS)
        return np.average(inside, axis=1, weights=rows.weights), len(rows)

    def _known(self, rows: LabelledRows) -> dict[str, Any]:
        return {} if rows.extra is None or self.survives else {"exposure": rows.extra}

    @cached_property
    def baseline(self) -> Baseline | None:
        rows = self.train
        if rows is None or rows.y is None or self.scored is None:
            return None
        if self.survives or rows.extra is not None:  # it knows neither events nor exposures
            return None
        return fit_baseline(
            rows.X, rows.y, rows.weights, classifies=self.classifies, estimator=self.estimator
        )

    @cached_property
    def calibration(self) -> Calibration | None:
        """Calibration of the probabilities of ``scored``."""
        if self.scored is None or self.probability is None:
            return None
        rows = self.scored.taken(np.flatnonzero(np.isin(self.scored.target, self.labels)))
        if not rows.weights.any():
            return None
        probability = self.probability[np.isin(self.scored.target, self.labels)]
        return calibration(rows.target, probability, classes=self.labels, weights=rows.weights)


def study_of(
    estimator: Estimator,
    *,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    X_held: ArrayLike | None = None,
    y_held: ArrayLike | None = None,
    weights_held: ArrayLike | None = None,
    **told: Any,
) -> Study:
    """Check an estimator and its rows, which are those of ``html_report``; ``told`` are fields."""
    if not hasattr(estimator, "tree_") and not hasattr(estimator, "estimators_"):
        raise TypeError(f"estimator must be a fitted tree or forest, got {kind_of(estimator)}.")
    trees_of(estimator)  # of one output
    train = rows_of(estimator, X, y, weights, held_out=False)
    target = getattr(y if y is not None else y_held, "name", None)  # of a Series
    if target is not None and not told.get("data"):
        told["data"] = {"target": str(target)}
    weighted = y is not None or not getattr(estimator, "class_weight", None)  # as in the fit
    if train is not None and weighted and not told.get("metrics"):  # a run reads its own rows
        total = train.weights if train.y is None else estimator._row_weights(train.weights, train.y)
        remedy = "Give new rows as X_held, y_held and weights_held."
        kept = np.flatnonzero(total > 0)[: None if train.X.size <= LINEAR_WORK else 0]
        check_fitted_rows(estimator, train.taken(kept).matrix, float(total.sum()), remedy)
    held = rows_of(estimator, X_held, y_held, weights_held, held_out=True)
    return Study(estimator, train, held, **told)


def fit_baseline(
    X: Any, y: AnyArray, weights: ArrayLike, *, classifies: bool, estimator: Estimator | None = None
) -> Baseline | None:
    """Fit a logistic or ridge regression to the standardised features of ``estimator``.

    Of a large table only an evenly spaced subset is used, and only these rows are read. Weights
    are relative. Returns None if no row has a positive weight, or for fewer than two classes.
    """
    positive = np.flatnonzero(np.asarray(weights) > 0)
    n_classes = len(np.unique(y[positive])) if classifies else 1
    if len(positive) == 0 or (classifies and n_classes < 2):
        return None
    max_rows = max(LINEAR_WORK // (X.shape[1] * n_classes), LINEAR_ROWS)
    kept = positive[spread(len(positive), max_rows)]
    if classifies and len(np.unique(y[kept])) < 2:
        return None
    from sklearn.linear_model import LogisticRegression, Ridge  # noqa: PLC0415 - slow
    from sklearn.pipeline import Pipeline  # noqa: PLC0415
    from sklearn.preprocessing import FunctionTransformer, StandardScaler  # noqa: PLC0415

    name = "logistic regression" if classifies else "ridge regression"
    linear = LogisticRegression(max_iter=LINEAR_STEPS) if classifies else Ridge()
    # Convert to double precision first, so that names or single precision on disk change nothing.
    steps = [
        ("numbers", FunctionTransformer(partial(features_of, estimator))),
        ("units", StandardScaler()),
    ]
    model = Pipeline([*steps, ("linear", linear)])
    relative = np.asarray(weights, dtype=np.float64)[kept]
    relative /= relative.mean()  # else weights of 1/n would make the penalty n times as strong
    given = {"units__sample_weight": relative, "linear__sample_weight": relative}
    rows = X.iloc[kept] if hasattr(X, "iloc") else np.asarray(X)[kept]
    target = y[kept] if classifies else y[kept].astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a rough fit is good enough
        model.fit(rows, target, **given)
    return Baseline(name, model, len(kept))


def training_rows_phrase(n_rows: int | None) -> str:
    """Describe the training rows that a baseline used; None means all."""
    return f"fitted to {'the same' if n_rows is None else f'{n_rows:,} of the'} training rows"


def percent(share: float) -> str:
    """Write a share with one decimal, or none if it is 0 or 100 %."""
    if not math.isfinite(share):
        return "not known"
    value = 100 * share
    return f"{value:.0f}{SPACE}%" if value in (0.0, 100.0) else f"{value:.1f}{SPACE}%"


def number(value: float, digits: int = 4) -> str:
    """Write a value to some significant digits, with a true minus sign."""
    if not math.isfinite(value):
        return "not finite" if not math.isnan(value) else "not known"
    size = abs(value)
    if not 1 <= size < LARGE:
        return with_minus(f"{value:.{digits}g}")
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    text = f"{round(value, places):,.{places}f}"
    return with_minus(text.rstrip("0").rstrip(".") if places else text)


def with_minus(text: str) -> str:
    """Write a number with a true minus sign."""
    return re.sub(r"(?<!\d)-", MINUS, text)  # but not in a date
