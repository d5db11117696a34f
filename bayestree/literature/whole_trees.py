"""Trees and forests that are fitted as a whole, and the non-greedy tree.

A method of these trees is a :class:`WholeFit`. Those that are optimised from an initial tree choose
it as :class:`InitialTree` does.

In the non-greedy tree (Norouzi, Collins, Johnson, Fleet and Kohli, 2015) all nodes are evaluated
for a row, with scores s_v = w_v . x, although its path depends on a few of them. A leaf has the
loss l(leaf) = -log p(y | leaf). The leaf that the row reaches has at most the loss

max_g (sum_v g_v s_v + l(leaf of g)) - sum_v abs(s_v).

The maximum is over all sides g_v = +-1. The bound is convex minus convex in w, and tight for large
scores. A best g differs from the signs of the scores only on the path to its own leaf, at a price
of 2 abs(s_v) for each node. Stochastic gradient descent with momentum under abs(w_v)^2 <= nu lowers
the bound; the leaves follow the rows that a best g sends to them.

The paper also searches only the leaves that differ in one node, in a time quadratic in the depth
of a row's path. Here the maximum over all leaves takes one pass up the tree, for all rows together.
"""

import math
import warnings
from dataclasses import replace
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import InstanceOf
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from torch import Tensor

from bayestree import baselines
from bayestree._utils.parameters import (
    Count,
    Inference,
    Model,
    Positive,
    declare,
    parameters_of,
    takes,
)
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._parameters import Depth, MeanFamily, Precision, RandomRun, ShareFamily
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators._tree import BaseTree
from bayestree.fitted.training_rows import Scaling, UnitRule
from bayestree.fitting.modes import KEPT_LEAF
from bayestree.fitting.rules import Rule
from bayestree.inference import Data, Posterior, Stage, grow
from bayestree.inference.data import PART
from bayestree.inference.growth.single_leaf import (
    SingleLeafWarning,
    warn_single_leaf,
    why_not_grown,
    why_not_parted,
)
from bayestree.inference.stage import Settings
from bayestree.inference.training import RunningSums
from bayestree.literature.bivariate import BivariateSplitter, LineSearch
from bayestree.literature.tao_solvers import sites_of, splits_of
from bayestree.models import SoftTree, named
from bayestree.models.leaves import Leaf
from bayestree.routing import levels
from bayestree.topology import Topology
from bayestree.tree import Tree

Method = TypeVar("Method", bound=Settings)
Result = TypeVar("Result", Posterior, list[Posterior])


class WholeFit(Settings, Generic[Result]):
    """A method that fits a whole tree or forest; a subclass states its settings, and ``_fit``."""

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        random_state: RandomState = None,
        progress: bool = False,
        **given: Any,
    ) -> Result:
        """Check the settings and the rows, and fit; for ``given`` see ``_fit``."""
        self.check(model)
        data = data.for_leaf(model.leaf)
        model.leaf.check(data.y)
        with seeded(draw_seed(random_state)):
            return self._fit(model, data, progress=progress, **given)

    def _fit(self, *args: Any, **given: Any) -> Result:
        """Fit the model to responses of its leaves, with torch's random numbers."""
        raise NotImplementedError


def method_of(kind: type[Method], estimator: BaseTree, **others: Any) -> Method:
    """Return a method with the parameters of an estimator as settings, and ``others``."""
    names = parameters_of(kind).keys() - others.keys()
    return kind(**{name: getattr(estimator, name) for name in names}, **others)


def fitted_by(
    kind: type[WholeFit[Result]], estimator: BaseTree, model: SoftTree, data: Data, **given: Any
) -> Result:
    """Return the result of a method with the parameters and the seed of an estimator."""
    return method_of(kind, estimator).fit(
        model, data, random_state=estimator.random_state, progress=bool(estimator.verbose), **given
    )


MIN_GAIN = 5.0  # nats, as for the greedy trees
MAX_RANDOM_DEPTH = 16  # of a complete tree: 65,536 leaves


@declare
@takes(RandomRun, Depth)
class InitialTree(BaseTree):
    """Choose the initial tree; a subclass optimises it."""

    init: Annotated[
        Literal["cart", "random"] | InstanceOf[Tree] | InstanceOf[BaseEstimator],
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
                X, self.max_depth, weights, max_features=self._max_features(), random_state=seeds
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


MEMORY = 0.9  # of the momentum


@declare
class NonGreedy(WholeFit[Posterior], Stage):
    """Settings of the descent on the bound of a whole tree.

    {parameters}
    """

    nu: Annotated[
        Positive,
        Model(
            "Maximum square of the norm of a hyperplane on the scaled features, intercept "
            "included; small values smooth the bound."
        ),
    ] = 16.0
    epochs: Annotated[Count, Inference("Passes over the rows.")] = 50
    batch_size: Annotated[Count, Inference("Rows in a step.")] = 100
    learning_rate: Annotated[
        Positive, Inference("First step size over sqrt(nu); it falls to 0 along a cosine.")
    ] = 0.1

    refines = False  # of soft trees

    def _fit(
        self, model: SoftTree, data: Data, *, init: Tree | Posterior, progress: bool
    ) -> Posterior:
        """Optimise all splits and leaves of a tree together, starting from ``init``.

        The draw is, of the initial tree and those after each epoch, the one of the least -log p(y)
        of the training rows; ``stats["loss"]`` has them all.
        """
        topology, splits = splits_of(init, model)
        model = model.with_(topology=topology)
        start = sites_of(splits, data.X.shape[1])
        planes = torch.cat((start["hyperplane"][:, 0], start["intercept"]), dim=1).to(data.X)
        descent = _BoundDescent(model, data, planes, self.nu)
        track = Track(range(self.epochs), "non-greedy", show=progress, parts={"descent": descent})
        for epoch in track:
            falling = (1.0 + math.cos(math.pi * epoch / self.epochs)) / 2.0
            descent.epoch(self.batch_size, self.learning_rate * falling)
            track.note(f"loss {descent.trace[-1]:,.0f}")
        descent.planes = descent.best
        _, sums = descent.measure()
        sites = {"hyperplane": descent.best[:, None, :-1], "intercept": descent.best[:, -1:]}
        return Posterior.from_point(
            model,
            sites | model.leaf.estimate(sums),
            "non-greedy",
            stats={"loss": np.array(descent.trace)},
        )


class BestSides(NamedTuple):
    """The best sides of the nodes, V nodes and L leaves, for n rows."""

    bound: Tensor  # (n,), at least the loss of each row
    right: Tensor  # (V, n): whether g goes right
    passed: Tensor  # (V + L, n): whether the path of g passes a node, then a leaf


def augmented(scores: Tensor, loss: Tensor, topology: Topology) -> BestSides:
    """Find the sides that maximise scores (V, n) plus losses of leaves (L, n).

    In a tie a row goes where its score sends it.
    """
    plan = levels(topology, scores.device)
    value = torch.cat((torch.empty_like(scores), loss))
    right = scores > 0
    for level in reversed(plan):
        score = scores[level.nodes]
        to_left = value[level.left] - 2.0 * score.clamp_min(0.0)
        to_right = value[level.right] + 2.0 * score.clamp_max(0.0)
        right[level.nodes] = torch.where(score > 0, to_right >= to_left, to_right > to_left)
        value[level.nodes] = torch.maximum(to_left, to_right)
    return BestSides(value[0].clone(), right, _passed(right, topology))


def _passed(right: Tensor, topology: Topology) -> Tensor:
    """Mark the nodes and leaves (V + L, n) on the path of each row, from all sides (V, n)."""
    passed = right.new_zeros(topology.n_nodes + topology.n_leaves, right.shape[1])
    passed[0] = True
    for level in levels(topology, right.device):
        here, side = passed[level.nodes], right[level.nodes]
        passed[level.right] = here & side
        passed[level.left] = here & ~side
    return passed


class _BoundDescent:
    """The hyperplanes (V, d + 1) of a tree, their momentum and leaves, and the best so far."""

    def __init__(self, model: SoftTree, data: Data, planes: Tensor, nu: float) -> None:
        self.model, self.data, self.radius = model, data, math.sqrt(nu)
        size = torch.linalg.vector_norm(planes, dim=1, keepdim=True)
        self.planes = planes * (self.radius / size.clamp_min(torch.finfo(size.dtype).tiny))
        self.momentum = torch.zeros_like(self.planes)
        self.loss, sums = self.measure()
        self.sums, self.best = sums, self.planes.clone()
        self.trace = [self.loss]

    def state_dict(self) -> dict[str, Any]:
        names = ("planes", "momentum", "loss", "sums", "best", "trace")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def scores(self, X: Tensor) -> Tensor:
        """Compute scores (V, n) of rows (n, d)."""
        return torch.addmm(self.planes[:, -1:], self.planes[:, :-1], X.T)

    def measure(self) -> tuple[float, Tensor]:
        """Compute -log p(y) of the deterministic tree with leaves of its rows, and sums (L, c)."""
        model, n_nodes = self.model, self.model.topology.n_nodes
        reached = (
            _passed(self.scores(part.X) > 0, model.topology)[n_nodes:].byte().argmax(0)
            for part in self.data.parts()
        )
        leaf = torch.cat(list(reached))
        statistics = model.leaf.statistics(self.data.y, self.data.weights)
        sums = statistics.new_zeros(model.topology.n_leaves, statistics.shape[1])
        sums.index_add_(0, leaf, statistics)
        leaves, loss = model.leaf.estimate(sums), 0.0
        for part, own in zip(self.data.parts(), leaf.split(PART), strict=True):
            density = model.leaf.log_density(leaves, part.y).gather(1, own.unsqueeze(1))
            loss -= float(part.weights @ density[:, 0])
        return loss, sums

    def epoch(self, batch_size: int, rate: float) -> None:
        """Descend on minibatches; keep the tree if its loss is the least so far."""
        running = RunningSums(self.sums, -(-len(self.data.X) // batch_size))
        for batch in self.data.batches(batch_size):
            self.step(batch, rate, running)
        loss, _ = self.measure()
        self.trace.append(loss)
        if loss < self.loss:
            self.loss, self.best = loss, self.planes.clone()

    def step(self, batch: Data, rate: float, running: RunningSums) -> None:
        """Take one step on the bound; each node's is relative to the rows that reach it."""
        leaf, topology = self.model.leaf, self.model.topology
        scores = self.scores(batch.X)
        loss = -leaf.log_density(leaf.estimate(running.sums), batch.y).T
        found = augmented(scores, loss, topology)
        on = found.passed[: len(scores)].to(scores)
        weighted = on * batch.weights
        change = 2.0 * weighted * (found.right.to(scores) - (scores > 0).to(scores))
        slope = torch.cat((change @ batch.X, change.sum(1, keepdim=True)), dim=1)
        slope /= weighted.sum(1, keepdim=True) + float(batch.weights.mean())
        self.momentum.mul_(MEMORY).add_(slope, alpha=1.0 - MEMORY)
        self.planes = self.planes - rate * self.radius * self.momentum
        size = torch.linalg.vector_norm(self.planes, dim=1, keepdim=True)
        self.planes *= self.radius / size.clamp_min(self.radius)
        reached = found.passed[len(scores) :].to(scores)
        sums = reached @ leaf.statistics(batch.y, batch.weights)
        running.update(sums, len(batch.X) / len(self.data.X))


@declare
@takes(NonGreedy, Precision)
class BaseNonGreedyTree(InitialTree):
    """Start from a tree and descend on a bound of its loss; subclasses add y.

    Attributes
    ----------
    posterior_ : Posterior
        Its splits as one draw, on the scaled features; ``posterior_.stats["loss"]`` is -log p(y) of
        the training rows, of the initial tree and after each epoch.
    """

    max_depth = 8

    def _infer(self, model: SoftTree, data: Data, scaling: Scaling) -> Posterior:
        start = self._start(data, model.leaf, scaling)
        found = fitted_by(NonGreedy, self, model, data, init=start)
        if found.model.topology.n_nodes == 0:
            warn_single_leaf(data.y, model.leaf, self._limits(), self._why_no_split(data))
        return found


@declare
class NonGreedyTreeClassifier(TreeClassifier, BaseNonGreedyTree):
    """Oblique decision tree whose splits are optimised together, on a bound of the tree's loss.

    Norouzi, Collins, Johnson, Fleet and Kohli, "Efficient non-greedy optimization of decision
    trees" (NIPS, 2015). Starting from an initial tree, stochastic gradient descent lowers a
    convex-concave upper bound on -log P(y) of the deterministic tree, in all splits and leaves. The
    greedy form for single splits is ``ObliqueTreeClassifier(splitter="co2")``.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import NonGreedyTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = NonGreedyTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.95)
    True
    """

    leaf: ShareFamily = "constant"


@declare
class NonGreedyTreeRegressor(TreeRegressor, BaseNonGreedyTree):
    """Oblique regression tree whose splits are optimised together, on a bound of the tree's loss.

    Like :class:`NonGreedyTreeClassifier`, with normal leaves: the loss is -log p(y).

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import NonGreedyTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NonGreedyTreeRegressor(max_depth=2, random_state=0).fit(X, y)
    >>> reg.get_n_leaves()
    4
    """

    max_depth = 5
    min_leaf = 10

    leaf: MeanFamily = "constant"
