"""Trees that are optimised as a whole, from an initial tree."""

import warnings
from dataclasses import replace
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import InstanceOf
from sklearn.utils import check_random_state

from bayestree import baselines
from bayestree._utils.parameters import Count, Inference, Model, declare, takes
from bayestree._utils.state import draw_seed
from bayestree.estimators._parameters import Depth, RandomRun
from bayestree.estimators._tree import BaseTree
from bayestree.fitted.training_rows import Scaling, UnitRule
from bayestree.fitting.rules import Rule
from bayestree.fitting.stages import KEPT_LEAF
from bayestree.inference import Data, Posterior, grow
from bayestree.inference.growth.single_leaf import SingleLeafWarning, why_not_grown, why_not_parted
from bayestree.literature.bivariate import BivariateSplitter, LineSearch
from bayestree.models import named
from bayestree.models.leaves import Leaf
from bayestree.tree import Tree

MIN_GAIN = 5.0  # nats, as for the greedy trees
MAX_RANDOM_DEPTH = 16  # of a complete tree: 65,536 leaves


@runtime_checkable
class FittedEstimator(Protocol):
    """A fitted estimator, in the interface of scikit-learn."""

    def fit(self, X: Any, y: Any) -> Any: ...
    def predict(self, X: Any) -> Any: ...


@declare
@takes(RandomRun, Depth)
class InitialTree(BaseTree):
    """Choose the initial tree; a subclass optimises it."""

    init: Annotated[
        Literal["cart", "random"] | InstanceOf[Tree] | InstanceOf[FittedEstimator],
        Inference(
            "Initial tree: CART (for numbers without splits that gain less than 5 nats), a "
            "complete tree of random hyperplanes through medians, or any "
            "tree with such splits (a Tree or a fitted estimator), whatever its units. In a "
            "parameter search, pass the tree_ of a fitted estimator, because copies of the "
            "estimator are not fitted."
        ),
    ] = "cart"
    min_leaf: Annotated[
        Count, Model("Minimum number of rows in a leaf of the initial tree from CART.")
    ] = 1
    scaling: Annotated[
        UnitRule,
        Model(
            "Units of the features in the fit: the standard deviation of each (but at least a "
            "sixth of its range), one unit for all, the range of each, exactly the standard "
            "deviation of each, or the units of the data. 'common' is for features that share a "
            "unit, such as pixels or indicators."
        ),
    ] = "standard"

    _rules = (
        Rule(
            "init and max_depth",
            lambda case: case.given.init == "random" and case.given.max_depth > MAX_RANDOM_DEPTH,
            "init='random' creates a complete tree: max_depth must be "
            f"{MAX_RANDOM_DEPTH} or less, got {{given.max_depth}}.",
        ),
        Rule(
            "scaling and leaf",
            lambda case: case.model.leaf.regresses and case.given.scaling == "none",
            "scaling='none' leaves features as they are, but the priors of the slopes in the "
            "leaves are for centred features of unit size; set scaling='standard'.",
        ),
    )

    def _unit_rule(self) -> UnitRule:
        return self.scaling

    def _max_features(self) -> int | None:
        """Return the maximum number of features in a split; None for all."""
        return None

    def _start(self, data: Data, leaf: Leaf, scaling: Scaling) -> Tree | Posterior:
        """Return the initial tree, on the scaled features of ``data``."""
        if self._continues():
            return _on_scaled(self.tree_, scaling)
        if not isinstance(self.init, str):
            return self._given_tree(scaling)
        if self.init == "cart" and (leaf.regresses or data.y.is_floating_point()):
            return self._grown(leaf, data)
        X, seeds = data.X.numpy(force=True), check_random_state(draw_seed(self.random_state))
        y, weights = data.y.numpy(force=True), data.weights.numpy(force=True)
        if self.init == "random":
            return baselines.random_oblique(
                X,
                self.max_depth,
                weights,
                max_features=self._max_features(),
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

    def _grown(self, leaf: Leaf, data: Data) -> Posterior:
        """Grow CART by splits that gain ``MIN_GAIN``: its size must suit the noise of numbers.

        With leaves that regress on the features, each stands for many others.
        """
        search = LineSearch(min_leaf=self.min_leaf)
        splitter = BivariateSplitter(leaf, max_features=1, search=search)
        limits = replace(self._limits(), min_gain=MIN_GAIN)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SingleLeafWarning)  # the fit warns of its own tree
            return grow(
                named.bivariate(leaf), data, limits=limits, splitter=splitter, random_state=0
            )

    def _why_no_split(self, data: Data) -> str:
        """Say why the initial tree is a single leaf, and the remedy."""
        if self._continues():
            return KEPT_LEAF
        if data.y.is_floating_point() and self.init == "cart" and len(data.X) >= 2 * self.min_leaf:
            reason = f"no split of one column gains {MIN_GAIN:g} nats of log-likelihood"
            return why_not_parted(data, f"{reason}; set init='random' or start from another tree")
        if isinstance(self.init, str):
            return why_not_grown(data, self._limits())
        return "init has a single leaf; start from a tree with splits"

    def _given_tree(self, scaling: Scaling) -> Tree:
        """Return the tree of ``init``, on the scaled features."""
        given: Any = getattr(self.init, "tree_", self.init)
        if not isinstance(given, Tree):
            raise TypeError(
                "init must be 'cart', 'random', a Tree, or a fitted estimator of this package with "
                f"linear splits; got {type(self.init).__name__}. Fit it first; convert a tree of "
                "scikit-learn by bayestree.baselines.from_sklearn."
            )
        n_features = len(scaling.source)
        if given.n_features != n_features:
            raise ValueError(
                f"init is a tree on {given.n_features} features, but X has {n_features}."
            )
        return _on_scaled(given, scaling)


def _on_scaled(given: Tree, scaling: Scaling) -> Tree:
    """Convert a tree in the units of the data to the scaled features."""
    # Constant columns are at their means, and duplicates in the units of their originals.
    source, units = scaling.source, scaling.units
    scale = np.where(source < 0, 1.0, units.scale[source])
    return given.on_scaled(units.center, scale).with_columns(source)
