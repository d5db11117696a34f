"""Fits that go on with further rows (``partial_fit``)."""

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.parameters import ParameterError
from bayestree._utils.progress import fitting
from bayestree._utils.seed import draw_seed
from bayestree._utils.threads import threads_for
from bayestree.estimators._at_once import at_once
from bayestree.estimators._base import TrainingRows
from bayestree.estimators._columns import with_unused_columns
from bayestree.estimators._diagnostics import measure_nodes
from bayestree.estimators._modes import Modes
from bayestree.inference import Data, Map, Posterior, Svi
from bayestree.inference.harden import harden_sums
from bayestree.inference.warm_start import Memory
from bayestree.models.leaves import Leaf

SAMPLE = 2_000  # rows of the stream that are kept for the diagnostics
MEMORY = tuple(one.name for one in fields(Memory))


def _can_go_on(estimator: "Streaming") -> bool:
    try:
        reason = estimator._why_not()
    except ParameterError:
        return True  # the fit explains it
    if reason:
        raise AttributeError(f"partial_fit {reason}.")
    return True


class Streaming(Modes):
    """A convex polytope tree that is updated with further rows.

    The first batch grows the tree. A later one moves its splits and leaves: the posterior given the
    rows so far is the prior (see ``bayestree.inference.warm_start``), and the memory does not grow.
    """

    refine: Any
    classes_: AnyArray
    _stream: Mapping[str, AnyArray] = MappingProxyType({})  # what is known of the rows so far

    def _why_not(self) -> str:
        """Why batches cannot be combined with these parameters, and the remedy; or empty."""
        last = self._stages()[-1]
        if not isinstance(last, Map | Svi):
            return f"needs inference='map' or 'svi', got {self.inference!r}"
        if self._number() > 1:
            return f"updates a single tree, got n_modes={self.n_modes}: set n_modes=1"
        if self.refine is not None or self.extend:
            return "updates the splits of the posterior: set refine=None and extend=False"
        if isinstance(last, Svi) and not (last.own_guide and last.kl_weight == 1.0):
            return "needs one of the package's own guides and kl_weight=1"
        if isinstance(last, Svi) and (last.search_facets or last.reset_idle or last.learn_prior):
            return (
                "cannot use search_facets, reset_idle or learn_prior, which need all rows at once: "
                "leave them at False"
            )
        return ""

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        self._stream = {}
        return super()._fit(rows, leaf)

    def _add_rows(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        """Fit the first batch, or update the tree with another one."""
        if not hasattr(self, "tree_"):
            return self._start(X, y, sample_weight)
        if not self._stream:
            raise ValueError(
                "partial_fit cannot continue a tree of fit, which keeps nothing of its rows: use "
                "partial_fit from the first batch on, with a clone of the estimator."
            )
        data = self.training_data(X, y, sample_weight)
        if self.posterior_.model.topology.n_nodes == 0:  # nothing for another tree to continue
            return self._start(X, y, sample_weight)
        model, memory = self.posterior_.model, self._memory()
        sites = self.posterior_.point_sites(data.X)
        start = Posterior.from_point(model, sites | model.leaf.estimate(memory.sums), "map")
        common: dict[str, Any] = {"random_state": self._seed(), "progress": bool(self.verbose)}
        with threads_for(self._work(*data.X.shape)), fitting(self.verbose):
            found = self._last_stage().fit(model, data, init=start, memory=memory, **common)
        self.posterior_ = with_unused_columns(found, self._used, reduced=False)
        self._remember(data)
        self._show()
        return self

    def _start(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        self.fit(X, y, sample_weight)
        self._remember(self.training_data(X, y, sample_weight))
        return self

    def _seed(self) -> int:
        """A seed that depends on the number of rows so far, for an integer ``random_state``."""
        seen = int(self._stream["n_rows"]) if self._stream else 0
        return int(np.random.default_rng([draw_seed(self.random_state), seen]).integers(2**31))

    def _last_stage(self) -> Any:
        """The stage that is repeated, at the steepness that the first batch reached."""
        stage: Any = self._stages()[-1]
        reached = self.posterior_.model.steepness
        return replace(stage, steepness=(reached, reached) if isinstance(stage, Map) else None)

    def _memory(self) -> Memory:
        return Memory(**{name: torch.as_tensor(self._stream[name]) for name in MEMORY})

    def _remember(self, data: Data) -> None:
        """Add what a batch says to the memory, and its rows to the sample."""
        model, seed = self.posterior_.model, self._seed()
        new = Memory.of(model, self.posterior_.point_sites(data.X), data, seed=seed)
        # the rows of the smallest random numbers are a sample of all rows
        X, key = data.X.numpy(), np.random.default_rng(seed).random(len(data.X))
        n_rows = len(X)
        if self._stream:
            new = self._memory().updated(new)
            n_rows += int(self._stream["n_rows"])
            X = np.concatenate((self._stream["sample"], X))
            key = np.concatenate((self._stream["key"], key))
        kept = np.argsort(key, kind="stable")[:SAMPLE]
        arrays = {name: getattr(new, name).numpy() for name in MEMORY}
        self._stream = arrays | {"n_rows": np.array(n_rows), "sample": X[kept], "key": key[kept]}

    def _show(self) -> None:
        """Derive ``tree_`` from the sums of all rows, and its diagnostics from the sample."""
        standardised = self._stream["sample"]
        X = self._units.center + standardised * np.where(self._used, self._units.scale, 1.0)
        memory = self._memory()
        hard, leaf = harden_sums(
            self.posterior_, memory.hard_sums, memory.rows, limits=self._limits()
        )
        n_leaves = hard.posterior.model.topology.n_leaves
        sums, mass = (
            each.new_zeros(n_leaves, *each.shape[1:]).index_add_(0, leaf, each)
            for each in (memory.hard_sums, memory.rows)
        )
        names = tuple(str(label) for label in getattr(self, "classes_", ()))
        tree: Any = self._splits(hard.posterior, names)
        tree = tree._with(**self._filled(sums, mass.numpy())).drop_experts(X)
        self.tree_ = tree.rescaled(self._units.y_scale, self._units.y_center)
        self._reach = measure_nodes(
            self.posterior_, self.tree_, X, standardised, hard.sources, hard.levels
        )

    def _filled(self, sums: torch.Tensor, mass: FloatArray) -> dict[str, AnyArray]:
        """Leaves of the deterministic tree from the sums of the statistics of their rows."""
        family, each = self.posterior_.model.leaf, sums.numpy()
        found: dict[str, AnyArray] = family.tree_values(sums)
        if family.averages and family.n_classes:
            overall = each.sum(axis=0) / mass.sum()
            found["value"] = (each + self.smoothing * overall) / (mass + self.smoothing)[:, None]
        elif family.averages:
            found["value"] = each[:, 1] / mass
        if "slope" in found:
            found["slope"] = found["slope"] / self._units.scale
        return found | {"leaf_rows": mass}


class StreamingRegressor(Streaming):
    """Adds ``partial_fit`` to a regressor."""

    @available_if(_can_go_on)
    @at_once
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the first batch of rows, or update the tree with another one.

        The first batch is fitted as by ``fit``: it decides about the units, the columns in use, and
        the topology, which stays. Each further one moves the splits and the leaves, with the
        posterior given the rows so far as the prior (Broderick et al., "Streaming variational
        Bayes", 2013). The estimator keeps sums over the rows, whose size does not depend on their
        number, and 2,000 rows for the diagnostics. Until a batch gives a split, each starts a new
        tree.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
        y : array, shape (n,)
            For ``leaf="poisson"``, with an exposure as second column.
        sample_weight : array, shape (n,), optional

        Raises
        ------
        ValueError
            For rows that ``fit`` would refuse, other features than those of the first batch, or a
            tree of ``fit``.
        AttributeError
            For parameters that need all rows at once.
        """
        if self._y_checks(self._separate(y)[0]):
            raise ValueError(
                "partial_fit takes one output, y of shape (n,); use fit, or a regressor for each "
                f"of the {np.shape(y)[1]} columns of y."
            )
        return self._add_rows(X, y, sample_weight)


class StreamingClassifier(Streaming):
    """Adds ``partial_fit`` to a classifier."""

    class_weight: Any
    _to_come: ArrayLike | None = None  # classes of later batches, during the fit of the first

    def _why_not(self) -> str:
        if self.class_weight == "balanced":
            return "needs the same weights in all batches, got class_weight='balanced': give a dict"
        return super()._why_not()

    def _check_several(self, classes: list[Any]) -> None:
        announced = classes if self._to_come is None else np.unique(self._to_come).tolist()
        super()._check_several(announced)

    def _numbered(self, labels: AnyArray) -> tuple[AnyArray, AnyArray]:
        if self._to_come is None:
            return super()._numbered(labels)
        classes = np.unique(self._to_come)
        unknown = sorted(set(labels.tolist()) - set(classes.tolist()))[:5]
        if unknown:
            raise ValueError(
                f"y holds {unknown}, which are not among classes={classes.tolist()}; add them."
            )
        return classes, np.searchsorted(classes, labels)

    @available_if(_can_go_on)
    @at_once
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the first batch of rows, or update the tree with another one.

        The first batch is fitted as by ``fit``: it decides about the units, the columns in use, and
        the topology, which stays. Each further one moves the splits and the leaves, with the
        posterior given the rows so far as the prior (Broderick et al., "Streaming variational
        Bayes", 2013). The estimator keeps sums over the rows, whose size does not depend on their
        number, and 2,000 rows for the diagnostics. Until a batch gives a split, each starts a new
        tree.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
        y : array, shape (n,)
        classes : array, shape (C,), optional
            All classes that y may have, for the first batch; by default those that it has. With
            them, it may have a single one.
        sample_weight : array, shape (n,), optional

        Raises
        ------
        ValueError
            For rows that ``fit`` would refuse, classes or features that the first batch did not
            announce, or a tree of ``fit``.
        AttributeError
            For parameters that need all rows at once.
        """
        seen = self.classes_ if self._stream else None
        if (
            seen is not None
            and classes is not None
            and not np.array_equal(np.unique(classes), seen)
        ):
            raise ValueError(
                f"classes={np.unique(classes).tolist()} are not those of the first batch, "
                f"{seen.tolist()}: give these or none, or start with a clone."
            )
        self._to_come = classes if seen is None else seen  # of a tree that starts anew
        self._add_rows(X, y, sample_weight)
        self._to_come = None
        return self
