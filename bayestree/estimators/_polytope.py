"""What the faces of the convex polytope tree share: its parameters, and the fit in stages."""

from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from bayestree import inference
from bayestree._utils.progress import Verbose
from bayestree._utils.seed import RandomState, draw_seed
from bayestree.estimators._base import DTYPES
from bayestree.estimators._bayesian import BayesianTree
from bayestree.estimators._priors import CONSTRAINTS as PRIORS
from bayestree.estimators._priors import Prior, hyperplane_prior
from bayestree.estimators._units import UnitRule
from bayestree.inference import Data, Posterior
from bayestree.inference.svi import check_guide
from bayestree.inference.unsplit import warn_single_leaf
from bayestree.models import GammaProcess, InverseGammaScale, Priors, SoftTree, named
from bayestree.models.leaves import Leaf
from bayestree.models.priors import HyperplanePrior

STEEPNESS = {
    "map": 20.0,
    "svi": 6.0,
    "nuts": 6.0,
}  # a point may be steep; draws are to differ smoothly
SAMPLED = ("svi", "nuts")  # inferences that give draws
DRAWS = {"svi": 50, "nuts": 250}  # of each chain


class BasePolytopeTree(BayesianTree):
    """Grow and refine a convex polytope tree; classifier and regressor add y."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_depth": [Interval(Integral, 0, None, closed="left")],
        "n_experts": [Interval(Integral, 1, None, closed="left")],
        "inference": [StrOptions({"grow", "map", "svi", "nuts"})],
        "max_leaves": [Interval(Integral, 1, None, closed="left"), None],
        "min_rows": [Interval(Real, 0, None, closed="left")],
        "min_leaf": [Interval(Integral, 1, None, closed="left")],
        "min_gain": [Interval(Real, 0, None, closed="left")],
        "extend": ["boolean"],
        "refine": [StrOptions({"tao"}), None],
        "concentration": [Interval(Real, 0, None, closed="neither")],
        "rate": [Interval(Real, 0, None, closed="neither")],
        **PRIORS,
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
        "verbose": ["boolean", StrOptions({"auto"})],
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
        refine: Literal["tao"] | None = None,
        concentration: float = 1.0,
        rate: float = 1.0,
        prior: Prior = "inverse-gamma",
        scale_shape: float = 2.0,
        shrinkage_shape: float = 1.0,
        shrinkage_rate: float = 1.0,
        l1: float = 1.0,
        spatial: float = 1.0,
        image_shape: tuple[int, int] | None = None,
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
        verbose: Verbose = "auto",
    ) -> None:
        self.max_depth = max_depth
        self.n_experts = n_experts
        self.inference = inference
        self.max_leaves = max_leaves
        self.min_rows = min_rows
        self.min_leaf = min_leaf
        self.min_gain = min_gain
        self.extend = extend
        self.refine = refine
        self.concentration = concentration
        self.rate = rate
        self.prior = prior
        self.scale_shape = scale_shape
        self.shrinkage_shape = shrinkage_shape
        self.shrinkage_rate = shrinkage_rate
        self.l1 = l1
        self.spatial = spatial
        self.image_shape = image_shape
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

    def _check_combination(self) -> None:
        super()._check_combination()
        self._hyperplane_prior()
        if self.inference not in SAMPLED:
            return
        check_guide(self.guide)
        needed = {
            "prior": "inverse-gamma",
            "guide": "polytope",
            "kl_weight": 1,
            "steepness": 1,
        }
        given = {"steepness": 1} | {
            name: value for name in needed if (value := getattr(self, name)) is not None
        }
        if self.search_facets and (self.n_experts == 1 or given != needed):
            raise ValueError(
                "search_facets needs prior='inverse-gamma', guide='polytope', kl_weight=1, "
                f"steepness 1 or None, and n_experts of 2 or more, got {self.prior!r}, "
                f"{self.guide!r}, {self.kl_weight}, {self.steepness} and {self.n_experts}."
            )

    def _model(self, leaf: Leaf) -> SoftTree:
        priors = Priors(GammaProcess(self.concentration, self.rate), self._hyperplane_prior())
        return named.convex_polytope(leaf, n_experts=self.n_experts, priors=priors)

    def _hyperplane_prior(self) -> HyperplanePrior:
        return hyperplane_prior(
            self.prior,
            InverseGammaScale(self.scale_shape, self.shrinkage_shape, self.shrinkage_rate),
            l1=self.l1,
            spatial=self.spatial,
            image_shape=self.image_shape,
            n_features=self.n_features_in_,
        )

    def _in_parts(self) -> bool:
        every = (self.inference == "nuts", self.search_facets, self.extend, self.refine == "tao")
        return self.guide == "polytope" and not any(every)

    def _in_place(self) -> bool:
        return self.image_shape is not None

    def _unit_rule(self) -> UnitRule:
        return "common" if self.scaling == "common" else "standard"

    def _work(self, n_rows: int, n_features: int) -> int:
        deepest = min(self.max_depth, 60)  # a power beyond has millions of digits
        most = min(2**deepest, self.max_leaves or n_rows, n_rows // self.min_leaf + 1)
        return min(n_rows, self.batch_size) * self.n_experts * most

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        """Grow, and refine as far as ``inference`` says."""
        seeds = check_random_state(draw_seed(self.random_state))
        common: dict[str, Any] = {"random_state": seeds, "progress": bool(self.verbose)}
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
        if sampled.model.topology.n_nodes == 0:
            reason = "the search for facets removed every split; fit without search_facets"
            warn_single_leaf(training.y, self._limits(), reason)
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
        return data.subset(kept), data.subset(held)
