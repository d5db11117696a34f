"""What a report is about: a fitted estimator and its rows, and what is measured of them once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import isolated
from bayestree.diagnostics import (
    Calibration,
    Convergence,
    PolytopeSize,
    Shrinkage,
    SplitUncertainty,
    calibration,
)
from bayestree.report import splits
from bayestree.report.baseline import Baseline, fit_baseline
from bayestree.report.rows import Rows
from bayestree.routed_tree import RoutedTree

SIZE_WORK = 6000  # polytopes that are measured, of all nodes and draws, at most
PRIOR_NODES = 8  # of which the prior is counted as well, which takes longer
PRIOR_DRAWS = 250  # of it, where it is not at hand
FEWEST_DRAWS = 10  # of a node, however many nodes there are


@dataclass(frozen=True, eq=False)
class Study:
    """A fitted estimator, its rows, and what is to be said of them.

    Parameters
    ----------
    estimator : fitted estimator
    train, held : Rows, optional
    title, question, command, run_file : str
        May be empty.
    data, metrics, manifest : mapping
        What a run knows of its table, its scores and itself; may be empty.
    measured : PolytopeSize, optional
        Sizes of the polytopes, where they have been measured before.
    """

    estimator: Any
    train: Rows | None = None
    held: Rows | None = None
    title: str = ""
    question: str = ""
    command: str = ""
    run_file: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    measured: PolytopeSize | None = None

    @cached_property
    def trees(self) -> tuple[RoutedTree, ...]:
        """The deterministic tree, or those of a forest."""
        members = getattr(self.estimator, "estimators_", None)
        return (
            tuple(one.tree_ for one in members) if members is not None else (self.estimator.tree_,)
        )

    @property
    def tree(self) -> RoutedTree:
        """The deterministic tree; of a forest the first."""
        return self.trees[0]

    @property
    def is_forest(self) -> bool:
        """Whether there are several trees."""
        return hasattr(self.estimator, "estimators_")

    @property
    def classifies(self) -> bool:
        """Whether y is a class."""
        return self.tree.value.ndim == 2

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        if not self.classifies:
            return ()
        names = self.tree.class_names or map(str, range(self.tree.value.shape[1]))
        return tuple(map(isolated, names))

    @property
    def target(self) -> str:
        """What is predicted."""
        return isolated(str(self.data.get("target") or "y"))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features; x0, x1, ... where the tree has none."""
        names = self.tree.feature_names or (f"x{j}" for j in range(self.tree.n_features))
        return tuple(map(isolated, names))

    @cached_property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width of the images that the rows are, where they are known to be images."""
        network = getattr(getattr(self.tree, "network", None), "build", None)
        shapes = (getattr(one, "image_shape", None) for one in (self.estimator, network))
        *_, height, width = next((shape for shape in shapes if shape is not None), (0, 0))
        return (int(height), int(width)) if height * width == self.tree.n_features else None

    @property
    def inference(self) -> str:
        """Which inference fitted the tree; empty for a forest."""
        return "" if self.is_forest else str(self.estimator.posterior_.inference)

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the inference ran with, and found on its way."""
        return {} if self.is_forest else self.estimator.posterior_.settings

    @property
    def n_draws(self) -> int:
        """Draws of all chains; 1 for a point estimate."""
        if self.is_forest:
            return 1
        posterior = self.estimator.posterior_
        return int(posterior.n_chains * posterior.n_draws)

    @property
    def drawn(self) -> bool:
        """Whether there is a posterior of several draws."""
        return self.n_draws > 1

    @property
    def splits_drawn(self) -> bool:
        """Whether there is a posterior of several draws of a tree with a split."""
        return self.drawn and self.tree.n_nodes > 0

    @property
    def scored(self) -> Rows | None:
        """Rows to score by: those held out, or else those of the fit."""
        own = self.held if self.held is not None and len(self.held) else self.train
        return own if own is not None and own.y is not None else None

    @cached_property
    def training_rows(self) -> float:
        """Weighted rows of the fit."""
        return float(self.tree.leaf_rows.sum())

    @cached_property
    def sizes(self) -> PolytopeSize | None:
        """Posterior of the sizes of the polytopes, of fewer draws where nodes are many."""
        if not self.splits_drawn:
            return None
        if self.measured is not None:
            return self.measured
        most = max(FEWEST_DRAWS, min(100, SIZE_WORK // self.tree.n_nodes))
        found: PolytopeSize = self.estimator.polytope_size(max_draws=most)
        if found.prior is None:
            return found
        some = {site: draws[:PRIOR_DRAWS] for site, draws in found.prior.draws.items()}
        return replace(found, prior=replace(found.prior, draws=some))

    @cached_property
    def size_table(self) -> FloatArray:
        """Posterior probability of each number of facets of each node."""
        assert self.sizes is not None
        return self.sizes.probabilities()

    @cached_property
    def prior_table(self) -> FloatArray | None:
        """The same under the prior, where it is proper and nodes are few."""
        if self.sizes is None or self.sizes.prior is None:
            return None
        known = "facets" in vars(self.sizes.prior)  # it has been counted before
        few = len(self.sizes.labels) <= PRIOR_NODES
        return self.sizes.prior_probabilities() if known or few else None

    @cached_property
    def shrinkage(self) -> Shrinkage | None:
        """What the priors shrank, where there are several draws."""
        if not self.splits_drawn:
            return None
        found: Shrinkage = self.estimator.shrinkage()
        return found

    @cached_property
    def convergence(self) -> Convergence | None:
        """Verdicts on the inference, where there is a posterior to judge."""
        if not self.drawn or not hasattr(self.estimator, "check_convergence"):
            return None
        found: Convergence = self.estimator.check_convergence()
        return found

    @cached_property
    def asked(self) -> Rows | None:
        """Rows of which the splits are asked how sure they are."""
        return splits.asked_of(self.train, self.held)

    @cached_property
    def uncertainty(self) -> SplitUncertainty | None:
        """How sure the splits are of ``asked``, where that is known."""
        return None if self.asked is None else splits.doubt(self.estimator, self.asked)

    @cached_property
    def importance(self) -> splits.Importance | None:
        """How much the splits depend on each feature, by ``asked``."""
        if self.asked is None or not len(self.asked):
            return None
        found = splits.importance(self.trees, self.asked)
        return found if found.total.any() else None

    @cached_property
    def doubt_table(self) -> pd.DataFrame:
        """How sure the split of each node is of the rows that reach it."""
        assert self.uncertainty is not None
        return self.uncertainty.to_frame("node")

    @cached_property
    def probability(self) -> FloatArray | None:
        """Class probabilities of ``scored``, shape (n, C)."""
        if self.scored is None or not self.classifies:
            return None
        found: FloatArray = self.estimator.predict_proba(self.scored.X)
        return found

    @cached_property
    def predicted(self) -> NDArray[Any] | None:
        """Class or value that is predicted of ``scored``, shape (n,)."""
        if self.scored is None:
            return None
        if self.probability is not None:
            labels: NDArray[Any] = self.estimator.classes_[self.probability.argmax(axis=1)]
            return labels
        found: NDArray[Any] = self.estimator.predict(self.scored.X)
        return found

    @cached_property
    def baseline(self) -> Baseline | None:
        """A linear model of the training rows."""
        rows = self.train
        if rows is None or rows.y is None or self.scored is None:
            return None
        return fit_baseline(rows.X, rows.y, rows.weights, classifies=self.classifies)

    @cached_property
    def calibration(self) -> Calibration | None:
        """Whether the probabilities of ``scored`` come true."""
        if self.scored is None or self.scored.y is None or self.probability is None:
            return None
        known = np.isin(self.scored.y, self.estimator.classes_) & (self.scored.weights > 0)
        if not known.any():
            return None
        return calibration(
            self.scored.y[known], self.probability[known], classes=self.estimator.classes_
        )
