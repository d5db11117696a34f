"""Moves of the leaves, by way of the leaves that rows fall into.

A row of weight w counts as the power w of its likelihood. It is given M = ceil(w) copies, each of
which falls into a leaf with the probabilities given x and y, independently. With m_nl copies of row
n in leaf l, new parameters t of a leaf are drawn from its conjugate posterior q, in which each copy
has the weight w / M. Parameters and copies together have the density

    p(t) prod_n f_n(t)^w prod_l (share_nl f_nl(t) / f_n(t))^m_nl,

with the likelihood f_n of a row, that in a leaf f_nl, and P(leaf | x) = share_nl. So t is accepted
by the change of

    log p(t) / q(t) + sum_n (w - M) log f_n(t) + m_nl log f_nl(t).

With whole weights, and if q is exact, this does not change, and every draw is accepted: then these
are two Gibbs steps, of paths and of leaves.
"""

import numpy as np
import torch

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree._utils.state import draw_seed, seeded
from bayestree.inference.samplers.density import unconstrained
from bayestree.inference.samplers.mcmc.experts import Tally
from bayestree.inference.samplers.mcmc.trees import TINY, ChainTrees
from bayestree.models.leaves.base import LeafDistribution

#: Shares of the rows on which a proposal is based, where the posterior is an approximation: with
#: fewer rows it is wider than the true one, and no value is left too seldom.
SHARES = (0.2, 0.7, 1.0)

Tensors = dict[str, torch.Tensor]


class LeafMoves:
    """The leaves of all chains."""

    def __init__(self, trees: ChainTrees, rng: np.random.Generator, tally: Tally) -> None:
        self.trees, self.rng, self.tally = trees, rng, tally
        self.leaf = trees.model.leaf
        weights = trees.weights
        self.copies = np.ceil(weights)
        self.part = weights / np.maximum(self.copies, 1.0)  # of the weight, for each copy
        self.gibbs = self.leaf.exact and bool((self.copies == weights).all())
        self.single = bool((self.copies <= 1).all())
        ones = torch.ones(len(trees.y), dtype=torch.float64)
        self.statistics = self.leaf.statistics(trees.y, ones).double().numpy()

    def update(self) -> None:
        """Draw the leaves of the rows, then new parameters of all leaves."""
        counts = self.paths()
        part = self.part[:, None]
        if not self.leaf.exact:
            part = part * self.rng.choice(SHARES)
        sums = torch.from_numpy((counts * part) @ self.statistics)
        law = self.leaf.posterior(sums.flatten(0, 1))
        with seeded(draw_seed(self.rng)):
            drawn = law.sample()
        new = self._free(drawn)
        if self.gibbs:
            for name, value in new.items():
                self.trees.free[name][...] = value
            self.trees.set_leaves()
            self.tally.add("leaf", np.ones(self.trees.n_chains, dtype=bool))
            return
        now = self.trees.leaf_sites(self.trees.free)
        gain = self._excess(law, drawn) - self._excess(law, now)
        self._choose(new, gain, counts)

    def paths(self) -> FloatArray:
        """Draw the numbers of copies of each row in each leaf, shape (C, L, n)."""
        trees = self.trees
        joint = np.stack(trees.reach()[trees.n_nodes :], axis=1)
        joint *= np.stack(trees.below[trees.n_nodes :], axis=1)
        np.maximum(joint, TINY, out=joint)
        below = np.cumsum(joint, axis=1)
        if self.single:
            drawn = self.rng.random(below[:, :1].shape) * below[:, -1:]
            number = (drawn > below).sum(axis=1, keepdims=True)
            one: FloatArray = number == np.arange(trees.n_leaves)[:, None]
            return one * self.copies[:, None]
        share = (joint / below[:, -1:]).swapaxes(1, 2)
        copies = np.broadcast_to(self.copies, below[:, 0].shape).astype(np.int64)
        counts: FloatArray = self.rng.multinomial(copies, share).swapaxes(1, 2).astype(np.float64)
        return counts

    def _free(self, sites: Tensors) -> dict[str, FloatArray]:
        """Return coordinates (C, L, ...) of the sites of leaves (C L, ...)."""
        layout = self.trees.layout
        found = {}
        for name, value in sites.items():
            free = unconstrained(value.numpy(), layout.supports[name])
            found[name] = free.reshape(self.trees.n_chains, *layout.free_shapes[name])
        return found

    def _excess(self, law: LeafDistribution, sites: Tensors) -> FloatArray:
        """Return the log prior density less that of the proposal, (C, L)."""
        prior = law.prior or law
        total = sum(
            own.log_prob(sites[name]) - mine.log_prob(sites[name])
            for (name, own), (_, mine) in zip(
                prior.conditionals(sites), law.conditionals(sites), strict=True
            )
        )
        return torch.as_tensor(total).view(self.trees.n_chains, -1).numpy()

    def _choose(self, new: dict[str, FloatArray], gain: FloatArray, counts: FloatArray) -> None:
        """Accept or refuse the new parameters of one leaf after the other."""
        trees = self.trees
        density = trees.leaf_density(new)
        reach = np.stack(trees.reach()[trees.n_nodes :], axis=1)
        current = trees.log_density.copy()
        spare = trees.weights - self.copies
        taken = np.zeros(trees.n_chains, dtype=bool)
        before = self._mixture(reach, current, spare)
        for leaf in range(trees.n_leaves):
            tried = current.copy()
            tried[:, leaf] = density[:, leaf]
            after = self._mixture(reach, tried, spare)
            own = (counts[:, leaf] * (tried[:, leaf] - current[:, leaf])).sum(axis=1)
            accepted: BoolArray = (
                -self.rng.standard_exponential(trees.n_chains)
                < gain[:, leaf] + after - before + own
            )
            current[accepted] = tried[accepted]
            before = np.where(accepted, after, before)
            for name, value in new.items():
                trees.free[name][accepted, leaf] = value[accepted, leaf]
            self.tally.add("leaf", accepted)
            taken |= accepted
        if taken.any():
            trees.set_leaves(current)

    def _mixture(self, reach: FloatArray, density: FloatArray, spare: FloatArray) -> FloatArray:
        """Return the sum of spare log f_n of each chain, (C,)."""
        best = density.max(axis=1)
        row = (reach * np.exp(density - best[:, None])).sum(axis=1)
        total: FloatArray = (spare * (np.log(np.maximum(row, TINY)) + best)).sum(axis=1)
        return total
