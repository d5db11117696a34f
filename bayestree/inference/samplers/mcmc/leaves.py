"""Moves of the leaves of all chains, by way of the leaves that rows fall into.

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
from bayestree.inference.core.experts import LEAF
from bayestree.inference.core.paths import TINY
from bayestree.inference.samplers.density import prior_excess, unconstrained
from bayestree.inference.samplers.mcmc.chains import Chains

#: Shares of the rows on which a proposal is based, where the posterior is an approximation: with
#: fewer rows it is wider than the true one, and no value is left too seldom.
SHARES = (0.2, 0.7, 1.0)


class LeafMoves:
    """The leaves of all chains."""

    def __init__(self, chains: Chains, rng: np.random.Generator) -> None:
        self.chains, self.rng = chains, rng
        self.leaf = chains.model.leaf
        weights = chains.weights
        self.copies = np.ceil(weights)
        self.part = weights / np.maximum(self.copies, 1.0)  # of the weight, for each copy
        self.gibbs = self.leaf.exact and bool((self.copies == weights).all())
        ones = torch.ones(len(chains.y), dtype=torch.float64)
        self.statistics = self.leaf.statistics(chains.y, ones).double().numpy()

    def update(self) -> None:
        """Draw the leaves of the rows, then new parameters of all leaves."""
        chains = self.chains
        counts = chains.paths(self.copies)
        part = self.part[:, None]
        if not self.leaf.exact:
            part = part * self.rng.choice(SHARES)
        member = counts * part
        law = self.leaf.posterior(torch.from_numpy(member @ self.statistics).flatten(0, 1))
        law = self.leaf.refined(law, chains.y, torch.from_numpy(member).flatten(0, 1))
        with seeded(draw_seed(self.rng)):
            drawn = law.sample()
        new = self._free(drawn)
        if self.gibbs:
            for name, value in new.items():
                chains.free[name][...] = value
            chains.set_leaves()
            chains.tally[:, :, LEAF] += 1
            return
        now = chains.leaf_sites(chains.free)
        excess = prior_excess(law, drawn) - prior_excess(law, now)
        self._choose(new, excess.view(chains.n_chains, -1).numpy(), counts)

    def _free(self, sites: dict[str, torch.Tensor]) -> dict[str, FloatArray]:
        """Return coordinates (C, L, ...) of the sites of leaves (C L, ...)."""
        layout = self.chains.layout
        found = {}
        for name, value in sites.items():
            free = unconstrained(value.numpy(), layout.supports[name])
            found[name] = free.reshape(self.chains.n_chains, *layout.free_shapes[name])
        return found

    def _choose(self, new: dict[str, FloatArray], gain: FloatArray, counts: FloatArray) -> None:
        """Accept or refuse the new parameters of one leaf after the other."""
        chains = self.chains
        density, reach = chains.leaf_density(new), chains.reach()
        current = chains.log_density.copy()
        spare = chains.weights - self.copies
        before = self._mixture(reach, current, spare)
        for leaf in range(chains.n_leaves):
            tried = current.copy()
            tried[:, leaf] = density[:, leaf]
            after = self._mixture(reach, tried, spare)
            own = (counts[:, leaf] * (tried[:, leaf] - current[:, leaf])).sum(axis=1)
            accepted: BoolArray = (
                -self.rng.standard_exponential(chains.n_chains)
                < gain[:, leaf] + after - before + own
            )
            current[accepted] = tried[accepted]
            before = np.where(accepted, after, before)
            for name, value in new.items():
                chains.free[name][accepted, leaf] = value[accepted, leaf]
            chains.tally[:, 0, LEAF] += accepted
            chains.tally[:, 1, LEAF] += 1
        chains.set_leaves()

    def _mixture(self, reach: FloatArray, density: FloatArray, spare: FloatArray) -> FloatArray:
        """Return the sum of spare log f_n of each chain, (C,)."""
        best = density.max(axis=1)
        row = (reach * np.exp(density - best[:, None])).sum(axis=1)
        total: FloatArray = (spare * (np.log(np.maximum(row, TINY)) + best)).sum(axis=1)
        return total
