"""Forests whose trees grow together, or are soft trees of a fixed size.

Alternating decision forests (Schulter et al., 2013) grow all trees together, depth after depth.
Before each depth but the first, the rows are weighted by the slope of a loss of the forest's
margin: P(y | x) less the greatest probability of another class, averaged over the trees grown so
far. Here the loss is logistic, and a row of margin m has the weight 1 / (1 + exp(3 m)), with the
factor 3 of the authors' program. A few random features compete for each node, and the best cut
splits it. Weights only choose the splits: leaves hold the shares of the classes among all of their
rows.

Neural decision forests (Kontschieder et al., 2015) have soft trees of a fixed size. A complete tree
has random logistic splits. Between two updates of its leaves, the splits climb the log-likelihood
of minibatches. With fixed splits the leaves have the update (eq. 11 there)

pi_l <- sum_n P(leaf l | x_n, y_n) [y_n] / sum_n P(leaf l | x_n, y_n),

an M-step of EM, to which this package adds the rows of the leaves' prior. The tree is not made
deterministic: its splits have steepness 1 from first to last.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Count, Inference, Model, Positive, declare, takes
from bayestree._utils.progress import Track
from bayestree._utils.wording import counted
from bayestree.estimators import _forests
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._parameters import Depth, Limits, MaxFeatures, Precision, RandomRun
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators._tree import BaseTree
from bayestree.fitted.training_rows import Scaling
from bayestree.fitting.plan import Task
from bayestree.inference import Data, GrowthLimits, Posterior, Stage
from bayestree.inference.em import Climb
from bayestree.inference.growth.grow import GrowingTree, fitted_splits
from bayestree.inference.growth.single_leaf import ONE_WAY, why_not_parted
from bayestree.inference.pointwise import leaf_sums, summed
from bayestree.inference.splitters.planes import NodeRows, PlaneSearch, PlaneSplitter
from bayestree.inference.training import recalibrated
from bayestree.literature._em_stumps import feature_count
from bayestree.literature.whole_trees import WholeFit, fitted_by
from bayestree.models import SoftTree, named
from bayestree.models.splits import StumpSplit
from bayestree.topology import Topology

STEEPNESS = 3.0  # of the loss of margins, which lie between -1 and 1


@declare
class AlternatingForest(WholeFit[list[Posterior]]):
    """Settings of the growth of all trees together.

    {parameters}
    """

    max_features: Annotated[
        MaxFeatures,
        Model(
            "Random features that compete to split a node: the square root of their number, a "
            "number, a share of them, or all."
        ),
    ] = "sqrt"

    def _fit(
        self, model: SoftTree, data: Data, *, n_trees: int, limits: GrowthLimits, progress: bool
    ) -> list[Posterior]:
        """Grow the trees of a forest together; each is a posterior of one draw.

        The ``min_gain`` of ``limits`` refers to weighted rows.
        """
        search = RandomAxes(n_features=feature_count(data.X.shape[1], self.max_features))
        splitter = PlaneSplitter(search, model.leaf, min_leaf=limits.min_leaf)
        forest = [_WeightedGrowth(GrowingTree(model, data)) for _ in range(n_trees)]
        parts = {f"tree {t}": one for t, one in enumerate(forest)}
        track = Track(range(limits.max_depth), "alternating forest", show=progress, parts=parts)
        weights = data.weights  # of the roots
        for depth in track:
            if depth:
                total = data.X.new_zeros(())
                for one in forest:
                    total = total + one.probabilities()
                weights = data.weights * margin_weights(total / n_trees, data.y)
            for one in forest:
                one.deepen(splitter, limits, weights)
            track.note(counted(sum(len(one.tree.nodes) // 2 + 1 for one in forest), "leaf"))
            if not any(one.frontier for one in forest):
                track.finish()
                break
        return [
            one.tree.assemble(one.tree.cut(limits.max_leaves), "alternating forest")
            for one in forest
        ]


@declare
class RandomAxes(PlaneSearch):
    """The best cut of a few features, drawn at random for each node.

    {parameters}
    """

    n_features: Annotated[Count, Inference("Number of features that are drawn.")] = 1

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        varying = np.flatnonzero((node.X[0] != node.X).any(axis=0))
        drawn = np.sort(rng.permutation(varying)[: self.n_features])
        return node.best(np.eye(node.n_features)[drawn])


@dataclass
class _WeightedGrowth:
    """A growing tree, its nodes of the greatest depth, and the node of each row so far."""

    tree: GrowingTree
    frontier: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.place = torch.zeros(len(self.tree.data.X), dtype=torch.long)

    def state_dict(self) -> dict[str, Any]:
        return {"tree": self.tree.state_dict(), "frontier": self.frontier, "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tree.load_state_dict(state["tree"])
        self.frontier, self.place = state["frontier"], state["place"]

    def deepen(self, splitter: PlaneSplitter, limits: GrowthLimits, weights: Tensor) -> None:
        """Split the nodes of the greatest depth, for rows of these weights (n,)."""
        tree = self.tree
        below: list[int] = []
        weighted = tree.data._replace(weights=weights)
        for i, split in fitted_splits(tree, splitter, self.frontier, limits, weighted).items():
            below += tree.branch(i, split)
        for child in below:
            self.place[tree.nodes[child].rows] = child
        self.frontier = below

    def probabilities(self) -> Tensor:
        """Compute shares of the classes in the present leaf of each row, shape (n, C)."""
        statistics = self.tree.statistics()
        counts = statistics.new_zeros(len(self.tree.nodes), statistics.shape[1])
        counts.index_add_(0, self.place, statistics)
        return (counts / counts.sum(1, keepdim=True))[self.place]


def margin_weights(probabilities: Tensor, y: Tensor) -> Tensor:
    """Compute slopes (n,) of the logistic loss of the margins, from P(class | x) (n, C)."""
    own = torch.nn.functional.one_hot(y, probabilities.shape[1]).bool()
    best_other = probabilities.masked_fill(own, 0.0).amax(1)
    return torch.sigmoid(-STEEPNESS * (probabilities[own] - best_other))


@declare
@takes(RandomRun, Limits, Depth)
class AlternatingForestTree(TreeClassifier):
    """A tree of :class:`AlternatingDecisionForestClassifier`."""


@declare
@takes(Limits, Depth)
class BaseAlternatingForest(_forests.JointForest):
    """Grow the trees together, depth after depth."""

    n_estimators = field(default=50, kw_only=False)
    max_depth = 20
    min_rows = 2.0
    min_leaf = 1
    min_gain = 0.0

    _tree: ClassVar[type[BaseTree]] = AlternatingForestTree

    def _infer(self, model: SoftTree, data: Data, limits: GrowthLimits) -> list[Posterior]:
        trees = self.n_estimators
        return fitted_by(AlternatingForest, self, model, data, n_trees=trees, limits=limits)


@declare
@takes(AlternatingForest)
class AlternatingDecisionForestClassifier(_forests.ForestClassifier, BaseAlternatingForest):
    """Forest of axis-aligned trees that grow together, weighting rows by their margin (ADF).

    Schulter, Wohlhart, Leistner, Saffari, Roth and Bischof, "Alternating Decision Forests" (CVPR,
    2013). After each depth of all trees, rows that the forest predicts with a small margin gain
    weight: the slope of the logistic loss, as in boosting. The forest averages its trees. It has
    nothing to do with alternating optimisation (:class:`AlternatingTreeClassifier`).

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import AlternatingDecisionForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AlternatingDecisionForestClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.95)
    True
    """


MAX_DEPTH = 12  # of a complete tree: 4,096 leaves


@declare
class NeuralTree(WholeFit[Posterior], Stage):
    """Settings of the fit of a complete soft tree.

    {parameters}
    """

    max_depth: Annotated[
        Annotated[int, Field(ge=0, le=MAX_DEPTH)],
        Model("Number of splits on each path: a tree has 2^max_depth leaves."),
    ] = 8
    epochs: Annotated[
        Count, Inference("Passes of gradient steps over the rows; the leaves follow after each.")
    ] = 50
    leaf_steps: Annotated[
        Count,
        Inference(
            "Updates of the leaves after each pass (eq. 11); each starts from the last. The paper "
            "starts afresh from uniform leaves and takes 20."
        ),
    ] = 3
    batch_size: Annotated[Count, Inference("Rows in a step of Adam.")] = 250
    learning_rate: Annotated[
        Positive, Inference("Learning rate of Adam. The initial hyperplanes have norm 1.")
    ] = 0.05

    refines = False  # of soft trees

    def _fit(self, model: SoftTree, data: Data, *, progress: bool) -> Posterior:
        """Train a complete soft tree of ``max_depth`` levels.

        ``stats["log_likelihood"]`` holds the log-likelihood of the rows after each epoch, before
        the last update of the leaves.
        """
        model = model.with_(topology=Topology.complete(self.max_depth))
        trace: list[float] = []
        descent = _LeafwiseClimb(model, _start(model, data), data, self.learning_rate)
        parts = {"tree": descent, "optimiser": descent.optimiser, "trace": trace}
        track = Track(range(self.epochs), "neural tree", show=progress, parts=parts)
        for _ in track:
            descent.descend(self.batch_size)
            for _ in range(self.leaf_steps):
                value = descent.update_leaves(self.batch_size)
            trace.append(value)
            track.note(f"log-likelihood {value:,.0f}")
        stats = {"log_likelihood": np.array(trace)}
        return Posterior.from_point(descent.model, descent.sites(), "neural tree", stats=stats)


class _LeafwiseClimb(Climb):
    """Gradient steps at fixed leaves, and updates of the leaves at fixed splits."""

    def descend(self, batch_size: int) -> None:
        """Take one pass of gradient steps on the log-likelihood.

        At the parameters that also weigh the paths, EM's bound and the log-likelihood have the
        same gradient.
        """
        for batch in self.data.batches(batch_size):
            self.step(batch, self.sites(), 1.0)

    def update_leaves(self, batch_size: int) -> float:
        """Take one step of eq. 11 on all rows; the log-likelihood before it."""
        held, values, sums = self.sites(), [], []
        for part in self.data.parts(batch_size):
            value, found = self.sums(part, self.members(part, held, 1.0))
            values.append(float(value))
            sums.append(found)
        self.leaves = self.model.leaf.estimate(summed(sums))
        return sum(values)


def _start(model: SoftTree, data: Data) -> Posterior:
    """Draw random splits, with leaves of the rows that reach them."""
    split: StumpSplit = model.split  # type: ignore[assignment]
    sites = split.start(model.topology.n_nodes, data.X.shape[1], data.X)
    sites |= model.leaf.estimate(leaf_sums(model, sites, data))
    return recalibrated(Posterior.from_point(model, sites, "start"), data)


@declare
@takes(NeuralTree, Precision, RandomRun)
class BaseNeuralTree(BaseTree):
    """Train a complete soft tree; subclasses add y."""

    prediction = "posterior"  # of the soft tree, which has one draw

    def _model(self, task: Task) -> SoftTree:
        return named.end_to_end(task.leaf)

    def _infer(self, model: SoftTree, data: Data, scaling: Scaling) -> Posterior:
        return fitted_by(NeuralTree, self, model, data)


@declare
class NeuralTreeClassifier(TreeClassifier, BaseNeuralTree):
    """A tree of :class:`NeuralDecisionForestClassifier`."""


@declare
class NeuralTreeRegressor(TreeRegressor, BaseNeuralTree):
    """A tree of :class:`NeuralDecisionForestRegressor`."""


@declare
@takes(NeuralTree, Precision)
class BaseNeuralForest(_forests.IndependentForest):
    """Fit soft trees from different random starts; classifier and regressor add y.

    Attributes
    ----------
    estimators_ : list
        The trees; ``estimators_[t].posterior_`` is the soft tree, ``estimators_[t].tree_`` its
        deterministic form.
    """

    prediction = "posterior"
    _tree: ClassVar[type[BaseNeuralTree]]
    _combined: ClassVar[str] = (
        "a prediction is the mean over all leaves of the soft trees, whose deterministic forms are "
        "shown"
    )

    def _why_single_leaves(self, data: Data, limits: GrowthLimits) -> str:
        return why_not_parted(data, ONE_WAY)


@declare
class NeuralDecisionForestClassifier(_forests.ForestClassifier, BaseNeuralForest):
    """Forest of soft trees with linear splits: the shallow neural decision forest.

    Kontschieder, Fiterau, Criminisi and Rota Bulo, "Deep Neural Decision Forests" (ICCV, 2015),
    without a network below the trees (sNDF). Each tree is complete, and all of its splits are
    trained together: gradient steps on the log-likelihood alternate with closed-form updates of
    the leaves (eq. 11). A row goes to all leaves, with probabilities, in predictions too, and the
    forest averages its trees. With one tree it is a soft (fuzzy) neural tree.

    Text, plots and ONNX show the deterministic form of each tree, ``estimators_[t].tree_``, which
    predicts differently.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import NeuralDecisionForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = NeuralDecisionForestClassifier(
    ...     n_estimators=2, max_depth=3, epochs=20, learning_rate=0.1, random_state=0
    ... ).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    _tree = NeuralTreeClassifier


@declare
class NeuralDecisionForestRegressor(_forests.ForestRegressor, BaseNeuralForest):
    """Forest of soft regression trees with linear splits and normal leaves.

    Like :class:`NeuralDecisionForestClassifier`, with the likelihood of y as a mixture of normal
    leaves, whose closed-form update has their means and variances; the paper treats classes only.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import NeuralDecisionForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NeuralDecisionForestRegressor(n_estimators=2, max_depth=3, epochs=20, random_state=0)
    >>> low, high = reg.fit(X, y).predict_interval(X, 0.9)
    """

    _tree = NeuralTreeRegressor
