"""Alternating decision forests (Schulter et al., 2013): all trees grow together, depth after depth.

Before each depth but the first, the rows are weighted by the slope of a loss of the forest's
margin: P(y | x) less the greatest probability of another class, averaged over the trees grown so
far. With the logistic loss, the one that is used here, a row of margin m has the weight

1 / (1 + exp(3 m)),

where 3 is the factor of the authors' program. Each node is split by the best cut of one of a few
random features. Weights only choose the splits: leaves hold the shares of the classes among all of
their rows.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Count, Inference, declare
from bayestree._utils.progress import Track
from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree._utils.wording import counted
from bayestree.inference.data import Data
from bayestree.inference.grow import fitted_splits
from bayestree.inference.growing import GrowingTree, GrowthLimits
from bayestree.inference.posterior import Posterior
from bayestree.inference.splitters.planes import NodeRows, PlaneSearch, PlaneSplitter
from bayestree.models.soft_tree import SoftTree

STEEPNESS = 3.0  # of the loss of margins, which lie between -1 and 1


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
class _Growth:
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
        """Shares of the classes in the present leaf of each row, shape (n, C)."""
        statistics = self.tree.statistics()
        counts = statistics.new_zeros(len(self.tree.nodes), statistics.shape[1])
        counts.index_add_(0, self.place, statistics)
        return (counts / counts.sum(1, keepdim=True))[self.place]


def margin_weights(probabilities: Tensor, y: Tensor) -> Tensor:
    """Slopes (n,) of the logistic loss of the margins, from P(class | x) (n, C)."""
    own = torch.nn.functional.one_hot(y, probabilities.shape[1]).bool()
    best_other = probabilities.masked_fill(own, 0.0).amax(1)
    return torch.sigmoid(-STEEPNESS * (probabilities[own] - best_other))


def alternating_forest(
    model: SoftTree,
    data: Data,
    *,
    n_trees: int,
    n_features: int,
    limits: GrowthLimits,
    random_state: RandomState = None,
    progress: bool = False,
) -> list[Posterior]:
    """Grow the trees of a forest together; each is a posterior of one draw.

    Parameters
    ----------
    n_trees : int
    n_features : int
        Number of random features that compete for each node.
    limits : GrowthLimits
        ``min_gain`` refers to weighted rows.
    """
    data = data.for_leaf(model.leaf)
    model.leaf.check(data.y)
    splitter = PlaneSplitter(
        RandomAxes(n_features=n_features), model.leaf, min_leaf=limits.min_leaf
    )
    with seeded(draw_seed(random_state)):
        forest = [_Growth(GrowingTree(model, data)) for _ in range(n_trees)]
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
        one.tree.assemble(one.tree.cut(limits.max_leaves), "alternating forest") for one in forest
    ]
