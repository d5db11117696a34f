"""Soft trees of fixed size by gradient steps and closed-form leaves (Kontschieder et al., 2015).

A complete tree with random logistic splits. Between two updates of its leaves, the splits climb
the log-likelihood of minibatches. With fixed splits the leaves have the update (eq. 11 there)

pi_l <- sum_n P(leaf l | x_n, y_n) [y_n] / sum_n P(leaf l | x_n, y_n),

an M-step of EM, in which this package adds the rows of the leaves' prior. The tree is not made
deterministic: its splits have steepness 1 from first to last.
"""

import numpy as np

from bayestree._utils.progress import Track
from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree.inference.data import Data
from bayestree.inference.em import Climb
from bayestree.inference.posterior import Posterior
from bayestree.inference.training import leaf_sums, recalibrated, summed
from bayestree.models.soft_tree import SoftTree
from bayestree.models.splits import StumpSplit
from bayestree.topology import Topology


class Descent(Climb):
    """Gradient steps at fixed leaves, and updates of the leaves at fixed splits."""

    def descend(self, batch_size: int) -> None:
        """One pass of gradient steps on the log-likelihood.

        At the parameters that also weigh the paths, the gradient of EM's bound is that of the
        log-likelihood.
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


def neural_tree(
    model: SoftTree,
    data: Data,
    *,
    max_depth: int,
    epochs: int,
    leaf_steps: int,
    batch_size: int,
    learning_rate: float,
    random_state: RandomState = None,
    progress: bool = False,
) -> Posterior:
    """Train a complete soft tree of ``max_depth`` levels.

    Returns
    -------
    Posterior
        One draw. ``stats["log_likelihood"]`` holds that of the rows after each epoch, before the
        last update of the leaves.
    """
    data = data.for_leaf(model.leaf)
    model.leaf.check(data.y)
    model = model.with_(topology=Topology.complete(max_depth))
    trace: list[float] = []
    with seeded(draw_seed(random_state)):
        descent = Descent(model, _start(model, data), data, learning_rate)
        parts = {"tree": descent, "optimiser": descent.optimiser, "trace": trace}
        track = Track(range(epochs), "neural tree", show=progress, parts=parts)
        for _ in track:
            descent.descend(batch_size)
            for _ in range(leaf_steps):
                value = descent.update_leaves(batch_size)
            trace.append(value)
            track.note(f"log-likelihood {value:,.0f}")
    stats = {"log_likelihood": np.array(trace)}
    return Posterior.from_point(descent.model, descent.sites(), "neural tree", stats=stats)


def _start(model: SoftTree, data: Data) -> Posterior:
    """Random splits, and leaves of the rows that reach them."""
    split: StumpSplit = model.split  # type: ignore[assignment]
    sites = split.start(model.topology.n_nodes, data.X.shape[1], data.X)
    sites |= model.leaf.estimate(leaf_sums(model, sites, data))
    return recalibrated(Posterior.from_point(model, sites, "start"), data)
