"""Alternating decision forests (Schulter et al., 2013): all trees grow together, depth after depth.

Before each depth but the first, the rows are weighted by the slope of a loss of the forest's
margin: P(y | x) less the greatest probability of another class, averaged over the trees grown so
far. Here the loss is logistic, and a row of margin m has the weight 1 / (1 + exp(3 m)), with the
factor 3 of the authors' program. A few random features compete for each node, and the best cut
splits it. Weights only choose the splits: leaves hold the shares of the classes among all of their
rows.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Count, Inference, Model, declare, takes
from bayestree._utils.progress import Track
from bayestree._utils.wording import counted
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._forests import ForestClassifier, JointForest
from bayestree.estimators._parameters import Depth, Limits, MaxFeatures, RandomRun
from bayestree.estimators._tree import BaseTree
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.growth.grow import GrowingTree, fitted_splits
from bayestree.inference.splitters.planes import NodeRows, PlaneSearch, PlaneSplitter
from bayestree.literature._em_stumps import feature_count
from bayestree.literature._method import WholeFit, fitted_by
from bayestree.models import SoftTree

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
class BaseAlternatingForest(JointForest):
    """Grow the trees together, depth after depth."""

    n_estimators = field(default=50, kw_only=False)
    max_depth = 20
    min_rows = 2.0
    min_leaf = 1
    min_gain = 0.0

    _tree: ClassVar[type[BaseTree]] = AlternatingForestTree

    def _infer(self, model: SoftTree, data: Data, limits: GrowthLimits) -> list[Posterior]:
        return fitted_by(
            AlternatingForest,
            self,
            model,
            data,
            n_trees=self.n_estimators,
            limits=limits,
        )


@declare
@takes(AlternatingForest)
class AlternatingDecisionForestClassifier(ForestClassifier, BaseAlternatingForest):
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
