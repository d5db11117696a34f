"""What the scikit-learn faces share: checked input, the fit in stages, the fitted results."""

from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from bayestree import inference
from bayestree._seed import RandomState, draw_seed
from bayestree._threads import threads_for
from bayestree.estimators._checks import TreeChecks
from bayestree.estimators._diagnostics import TreeDiagnostics, measure_nodes
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.svi import check_guide
from bayestree.models import GammaProcess, InverseGammaScale, Oblique, Polytope, Priors, SoftTree
from bayestree.models.leaves import Leaf
from bayestree.topology import Topology
from bayestree.tree import Tree

STEEPNESS = {
    "map": 20.0,
    "svi": 6.0,
    "nuts": 6.0,
}  # a point may be steep; draws are to differ smoothly
RANGE = 6.0  # deviations that a column spans at most
TOO_LARGE = "holds values too large to be squared (beyond some 1e150); rescale them."
SAMPLED = ("svi", "nuts")  # inferences that give draws
DRAWS = {"svi": 50, "nuts": 250}  # of each chain
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class BasePolytopeTree(TreeDiagnostics, TreeChecks, BaseEstimator):
    """Fit, route and describe a convex polytope tree; classifier and regressor add y."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_depth": [Interval(Integral, 0, None, closed="left")],
        "n_experts": [Interval(Integral, 1, None, closed="left")],
        "inference": [StrOptions({"grow", "map", "svi", "nuts"})],
        "max_leaves": [Interval(Integral, 1, None, closed="left"), None],
        "min_rows": [Interval(Real, 0, None, closed="left")],
        "min_leaf": [Interval(Integral, 1, None, closed="left")],
        "min_gain": [Interval(Real, 0, None, closed="left")],
        "extend": ["boolean"],
        "concentration": [Interval(Real, 0, None, closed="neither")],
        "rate": [Interval(Real, 0, None, closed="neither")],
        "scale_shape": [Interval(Real, 0, None, closed="neither")],
        "shrinkage_shape": [Interval(Real, 0, None, closed="neither")],
        "shrinkage_rate": [Interval(Real, 0, None, closed="neither")],
        "scaling": [StrOptions({"standard", "common"})],
        "growth_rate": [Interval(Real, 0, None, closed="neither")],
        "search_facets": ["boolean"],
        "steepness": [Interval(Real, 0, None, closed="neither"), None],
        "epochs": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "kl_weight": [Interval(Real, 0, None, closed="neither")],
        "guide": [str],
        "covariance": [StrOptions({"diagonal", "expert"})],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "n_draws": [Interval(Integral, 1, None, closed="left"), None],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "n_warmup": [Interval(Integral, 0, None, closed="left")],
        "target_acceptance": [Interval(Real, 0, 1, closed="neither")],
        "n_jobs": [Integral, None],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "prediction": [StrOptions({"auto", "tree", "posterior"})],
        "dtype": [StrOptions(set(DTYPES))],
        "device": [str],
        "random_state": ["random_state"],
        "verbose": ["boolean"],
    }

    def __init__(
        self,
        *,
        max_depth: int = 4,
        n_experts: int = 8,
        inference: str = "svi",
        max_leaves: int | None = None,
        min_rows: float = 20,
        min_leaf: int = 10,
        min_gain: float = 10.0,
        extend: bool = False,
        concentration: float = 1.0,
        rate: float = 1.0,
        scale_shape: float = 2.0,
        shrinkage_shape: float = 1.0,
        shrinkage_rate: float = 1.0,
        scaling: str = "standard",
        growth_rate: float = 0.15,
        search_facets: bool = False,
        steepness: float | None = None,
        epochs: int | None = None,
        batch_size: int = 500,
        learning_rate: float = 0.03,
        kl_weight: float = 1.0,
        guide: str = "polytope",
        covariance: Literal["diagonal", "expert"] = "diagonal",
        n_restarts: int = 1,
        n_draws: int | None = None,
        n_chains: int = 4,
        n_warmup: int = 500,
        target_acceptance: float = 0.9,
        n_jobs: int | None = None,
        validation_fraction: float = 0.0,
        prediction: str = "auto",
        dtype: str = "float64",
        device: str = "cpu",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.max_depth = max_depth
        self.n_experts = n_experts
        self.inference = inference
        self.max_leaves = max_leaves
        self.min_rows = min_rows
        self.min_leaf = min_leaf
        self.min_gain = min_gain
        self.extend = extend
        self.concentration = concentration
        self.rate = rate
        self.scale_shape = scale_shape
        self.shrinkage_shape = shrinkage_shape
        self.shrinkage_rate = shrinkage_rate
        self.scaling = scaling
        self.growth_rate = growth_rate
        self.search_facets = search_facets
        self.steepness = steepness
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.kl_weight = kl_weight
        self.guide = guide
        self.covariance = covariance
        self.n_restarts = n_restarts
        self.n_draws = n_draws
        self.n_chains = n_chains
        self.n_warmup = n_warmup
        self.target_acceptance = target_acceptance
        self.n_jobs = n_jobs
        self.validation_fraction = validation_fraction
        self.prediction = prediction
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # Fitting.

    def _fit(
        self,
        X: NDArray[np.float64],
        y: NDArray[Any],
        weights: NDArray[np.float64],
        leaf: Leaf,
        class_names: tuple[str, ...] = (),
    ) -> Self:
        """Standardise, infer, and read off the deterministic tree. y is encoded."""
        self._check_combination()
        counted = weights > 0  # a row of weight 0 is no row
        X, y, weights = X[counted], y[counted], weights[counted]
        self._center, self._scale = _units(X, weights, common=self.scaling == "common")
        rows = self._standardise(X)
        data = Data.of(rows, y, weights, dtype=DTYPES[self.dtype], device=self.device)
        most_nodes = min(2**self.max_depth, self.max_leaves or len(X), len(X) // self.min_leaf + 1)
        with threads_for(min(len(X), self.batch_size) * self.n_experts * most_nodes):
            self.posterior_ = self._infer(self._model(leaf), data)
        hard = inference.harden(self.posterior_, data, limits=self._limits(), extend=self.extend)
        splits = hard.posterior
        tree = Tree.from_standardised(
            splits.model.topology,
            splits.weight(),
            splits.point["hyperplane"],
            splits.point["intercept"],
            center=self._center,
            scale=self._scale,
            feature_names=tuple(getattr(self, "feature_names_in_", ())),
            class_names=class_names,
        )
        tree = tree.drop_experts(X)
        bypass = tree.one_way(X)
        self.tree_ = tree.collapse(bypass).fill(X, y, weights, len(class_names))
        _, kept, _ = tree.topology.collapse(bypass)
        self._reach = measure_nodes(
            self.posterior_, self.tree_, X, rows, hard.sources[kept], hard.levels[kept]
        )
        return self

    def _check_combination(self) -> None:
        """Refuse, before any work is done, what the last stage of the fit would refuse."""
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"device {self.device!r} cannot be used here: {reason}") from error
        if self.inference not in SAMPLED:
            return
        check_guide(self.guide)
        needed = {"guide": "polytope", "kl_weight": 1, "steepness": 1}
        given = {"steepness": 1} | {
            name: value for name in needed if (value := getattr(self, name)) is not None
        }
        if self.search_facets and (self.n_experts == 1 or given != needed):
            raise ValueError(
                "search_facets needs guide='polytope', kl_weight=1, steepness 1 or None, and "
                f"n_experts of 2 or more, got {self.guide!r}, {self.kl_weight}, {self.steepness} "
                f"and {self.n_experts}."
            )

    def _model(self, leaf: Leaf) -> SoftTree:
        """What is believed, before its topology is known."""
        return SoftTree(
            Topology.leaf(),
            split=Oblique() if self.n_experts == 1 else Polytope(self.n_experts),
            priors=Priors(
                GammaProcess(self.concentration, self.rate),
                InverseGammaScale(self.scale_shape, self.shrinkage_shape, self.shrinkage_rate),
            ),
            leaf=leaf,
        )

    def _limits(self) -> GrowthLimits:
        return GrowthLimits(
            self.max_depth, self.max_leaves, self.min_rows, self.min_leaf, self.min_gain
        )

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        """Grow, and refine as far as ``inference`` says."""
        seeds = check_random_state(draw_seed(self.random_state))
        common: dict[str, Any] = {"random_state": seeds, "progress": self.verbose}
        training, validation = self._hold_out(data, seeds)
        found = inference.grow(
            model,
            training,
            limits=self._limits(),
            validation=validation,
            learning_rate=self.growth_rate,
            **common,
        )
        if found.model.topology.n_nodes == 0:
            return self._of_leaf(inference.recalibrated(found, training), training, seeds)
        if self.inference == "grow":
            return inference.recalibrated(found, training)
        return self._refine(found, training, validation, common)

    def _of_leaf(self, found: Posterior, training: Data, seeds: np.random.RandomState) -> Posterior:
        """The posterior of a tree that did not split."""
        if self.inference not in SAMPLED:
            return found
        return inference.single_leaf(
            found,
            training,
            n_chains=self.n_chains if self.inference == "nuts" else 1,
            n_draws=self.n_draws or DRAWS[self.inference],
            random_state=seeds,
        )

    def _refine(
        self, found: Posterior, training: Data, validation: Data | None, common: dict[str, Any]
    ) -> Posterior:
        """From a grown tree to its MAP and, as ``inference`` says, its posterior."""
        searches = self.search_facets and self.inference in SAMPLED
        last = 1.0 if searches else float(self.steepness or STEEPNESS[self.inference])
        rates: dict[str, Any] = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
        }
        found = inference.map(
            inference.calibrated(found, training),
            training,
            init=found,
            steepness=(1.0, last),
            validation=validation,
            **rates,
            **common,
        )
        if self.inference == "map":
            return found
        sampled = inference.svi(
            inference.calibrated(found, training),
            training,
            init=found,
            guide=self.guide,
            search_facets=searches,
            covariance="expert" if searches else self.covariance,
            kl_weight=self.kl_weight,
            n_restarts=self.n_restarts,
            n_draws=(self.inference == "svi" and self.n_draws) or DRAWS["svi"],
            **rates,
            **common,
        )
        if self.inference == "svi" or sampled.model.topology.n_nodes == 0:
            return sampled
        return inference.nuts(
            sampled.model,
            training,
            init=sampled,
            n_chains=self.n_chains,
            n_warmup=self.n_warmup,
            n_draws=self.n_draws or DRAWS["nuts"],
            target_acceptance=self.target_acceptance,
            n_jobs=self.n_jobs,
            **common,
        )

    def _hold_out(self, data: Data, seeds: np.random.RandomState) -> tuple[Data, Data | None]:
        """Training and validation rows; a stratified draw for classes."""
        if self.validation_fraction == 0:
            return data, None
        classes = None if data.y.is_floating_point() else data.y.numpy(force=True)
        parts = train_test_split(
            np.arange(len(data.X)),
            test_size=self.validation_fraction,
            stratify=classes,
            random_state=seeds,
        )
        kept, held = (torch.as_tensor(np.sort(part), device=data.X.device) for part in parts)
        return data.take(kept), data.take(held)

    # Fitted.

    def apply(self, X: ArrayLike) -> NDArray[np.int64]:
        """Number of the leaf of ``tree_`` that each row reaches, shape (n,)."""
        return self.tree_.apply(self._check_rows(X))

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
        from bayestree.estimators.files import save  # noqa: PLC0415 - it knows all estimators

        save(self, path)

    def _averages(self) -> bool:
        """Whether predictions average over draws."""
        if self.prediction == "auto":
            return self.posterior_.n_chains * self.posterior_.n_draws > 1
        return self.prediction == "posterior"


def _units(
    X: NDArray[np.float64], weights: NDArray[np.float64], *, common: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weighted mean of each column, and the unit in which it is measured.

    The unit is the standard deviation, but no less than a sixth of the range (about which it is
    for normal columns), so that a feature that is seldom on does not outweigh all others where
    it is; 1 for a constant column. ``common`` gives all columns the root mean square deviation.
    """
    center = np.average(X, axis=0, weights=weights)
    with np.errstate(over="ignore"):
        deviation = np.sqrt(np.average((X - center) ** 2, axis=0, weights=weights))
    if not np.isfinite(deviation).all():
        raise ValueError(f"X {TOO_LARGE}")
    if common:
        varies = np.ptp(X, axis=0) > 0
        together = np.sqrt((deviation[varies] ** 2).mean()) if varies.any() else 1.0
        return center, np.where(varies, together, 1.0)
    unit = np.maximum(deviation, np.ptp(X, axis=0) / RANGE)
    # Rounding leaves a constant column of large values a spread far below its last digit.
    tiny = np.finfo(np.float64).eps * np.abs(center)
    return center, np.where(unit > 10 * tiny, unit, 1.0)
