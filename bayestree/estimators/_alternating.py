"""What the faces of alternating optimisation share: its parameters, its start, its model."""

from numbers import Integral, Real
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from bayestree import baselines, inference
from bayestree._utils.seed import draw_seed
from bayestree.estimators._base import DTYPES, BaseTree
from bayestree.estimators._units import UnitRule
from bayestree.inference import Data, Posterior
from bayestree.inference.unsplit import warn_single_leaf, why_not_grown
from bayestree.models import FeatureCount, Flat, Laplace, Oblique, SoftTree, named
from bayestree.models.leaves import Leaf
from bayestree.models.priors import HyperplanePrior
from bayestree.tree import Tree

MOST_FEATURES = {"oblique": None, "bivariate": 2, "axis": 1}
LARGEST_RANDOM = 16  # depth of a complete tree: 65,536 leaves


@runtime_checkable
class HasTree(Protocol):
    """A fitted estimator of this package."""

    tree_: Tree


class BaseAlternatingTree(BaseTree):
    """Start from a tree and optimise its nodes in turn; classifier and regressor add y."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "split": [StrOptions(set(MOST_FEATURES))],
        "l1": [Interval(Real, 0, None, closed="left")],
        "pair_cost": [Interval(Real, 0, None, closed="neither")],
        "max_depth": [Interval(Integral, 0, None, closed="left")],
        "init": [StrOptions({"cart", "random"}), Tree, HasMethods(["fit", "predict"])],
        "min_leaf": [Interval(Integral, 1, None, closed="left")],
        "sweeps": [Interval(Integral, 1, None, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left")],
        "strict": ["boolean"],
        "ridge": [Interval(Real, 0, None, closed="neither")],
        "scaling": [StrOptions({"standard", "common", "range", "variance", "none"})],
        "dtype": [StrOptions(set(DTYPES))],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["boolean", StrOptions({"auto"})],
    }

    split: str
    l1: float
    pair_cost: float
    init: Any
    sweeps: int
    patience: int
    strict: bool
    ridge: float
    scaling: UnitRule
    n_jobs: int | None

    def _prior(self) -> HyperplanePrior:
        if self.l1 == 0:
            return Flat()
        if self.split == "oblique":
            return Laplace(self.l1)
        return FeatureCount(self.l1, self.pair_cost)

    def _model(self, leaf: Leaf) -> SoftTree:
        split = Oblique(MOST_FEATURES[self.split])
        return named.alternating(leaf, split=split, prior=self._prior())

    def _unit_rule(self) -> UnitRule:
        return self.scaling

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        start = self._start(data)
        found = inference.tao(
            model,
            data,
            init=start,
            sweeps=self.sweeps,
            patience=self.patience,
            strict=self.strict,
            ridge=self.ridge,
            leaf_ridge=self._leaf_ridge(),
            n_jobs=self.n_jobs,
            progress=bool(self.verbose),
        )
        if found.model.topology.n_nodes == 0:
            reason = "no split lowers the loss of the training rows"
            if start.n_nodes == 0 and isinstance(self.init, str):
                reason = why_not_grown(data, self._limits())
            elif start.n_nodes == 0:
                reason = "init has a single leaf; start from a tree with splits"
            elif self.l1 > 0:
                reason += f" by more than its penalty l1={self.l1:g}; lower l1"
            warn_single_leaf(data.y, self._limits(), reason)
        return found

    def _leaf_ridge(self) -> float | None:
        """Penalty of linear leaves, or none for constant ones."""
        return None

    def _start(self, data: Data) -> Tree:
        """The tree to begin with, on the scaled features of ``data``."""
        if not isinstance(self.init, str):
            return self._given()
        X, seeds = data.X.numpy(force=True), check_random_state(draw_seed(self.random_state))
        y, weights = data.y.numpy(force=True), data.weights.numpy(force=True)
        if self.init == "random":
            return baselines.random_oblique(
                X,
                self.max_depth,
                weights,
                max_features=MOST_FEATURES[self.split],
                random_state=seeds,
            )
        return baselines.cart(
            X,
            y,
            weights,
            max_depth=self.max_depth,
            min_samples_leaf=self.min_leaf,
            random_state=seeds,
        )

    def _given(self) -> Tree:
        """The tree of ``init``, brought from the units of the data to the scaled features."""
        given = self.init.tree_ if isinstance(self.init, HasTree) else self.init
        if not isinstance(given, Tree):
            raise TypeError(
                "init must be 'cart', 'random', a Tree, or a fitted estimator of this package with "
                f"linear splits; got {type(self.init).__name__}. Fit it first; of a tree of "
                "scikit-learn bayestree.baselines.from_sklearn makes a Tree."
            )
        if given.n_features != len(self._center):
            raise ValueError(
                f"init is a tree on {given.n_features} features, and X has {len(self._center)}."
            )
        # it sees constant columns at their means, and duplicates in the units of their originals
        scale = np.where(self._source < 0, 1.0, self._scale[self._source])
        return given.on_scaled(self._center, scale).with_columns(self._source)

    def _check_combination(self) -> None:
        super()._check_combination()
        if self.init == "random" and self.max_depth > LARGEST_RANDOM:
            raise ValueError(
                f"init='random' makes a complete tree: max_depth must be {LARGEST_RANDOM} or less, "
                f"got {self.max_depth}."
            )
