"""Chains of trees of one topology: parameters, what these say of rows, and moves of leaves."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.random import Generator

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree._utils.parallel import loop_threads
from bayestree._utils.state import draw_seed, seeded
from bayestree.inference.core.experts import LEAF, sweep
from bayestree.inference.core.paths import (
    TINY,
    Chain,
    Rows,
    draw_paths,
    priors_of,
    refresh,
    rows_of,
    workspace,
)
from bayestree.inference.data import Data
from bayestree.inference.samplers.density import (
    Layout,
    Sites,
    constrained,
    prior_excess,
    unconstrained,
)
from bayestree.models.soft_tree import SoftTree

CODE = "experts.sweep-*.nbi"  # numba's index of the compiled sweep


def compiled() -> bool:
    """Whether numba has compiled the sweep, or has kept its code of an earlier process."""
    kept = sweep.stats.cache_path
    return bool(sweep.signatures) or (kept is not None and any(Path(kept).glob(CODE)))


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage, which takes a fifth of the time of a compilation and finds little."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Chains:
    """C trees of one topology.

    Parameters
    ----------
    model : SoftTree
        With collapsed scales.
    data : Data
        n rows.
    vectors : array, shape (C, D)
        Parameters in the order of a ``Layout``; moves change them in place.
    rngs : sequence of Generator
        One for each chain.

    Attributes
    ----------
    free : dict of arrays
        The parameters by site, as views of the vectors, each (C, ...).
    weights : array, shape (C, n)
        Weights of the rows.
    log_density : array, shape (C, L, n)
        log p(y_n | leaf).
    tally : array, shape (C, 2, moves)
        Numbers of accepted and of proposed moves, by kind.
    """

    def __init__(
        self, model: SoftTree, data: Data, vectors: FloatArray, rngs: list[Generator]
    ) -> None:
        self.model, self.vectors, self.rngs = model, vectors, rngs
        self.layout = Layout(model, data.X.shape[1])
        self.free = self.layout.free(vectors)
        own = data.to(torch.empty(0, dtype=torch.float64)).for_leaf(model.leaf)
        self.y, weights = own.y, own.weights.numpy()
        n_nodes, n_experts, d = self.layout.shapes["hyperplane"]
        weight = model.priors.weight if model.split.weighted else None
        self.rows = rows_of(own.X.numpy(), weights, model.topology, model.steepness)
        self.priors = priors_of(weight, model.priors.hyperplane, n_experts, d)
        count, n = len(vectors), len(own.X)
        n_threads = min(count, loop_threads.get())
        self.works = [workspace(self.rows, self.priors, n_experts) for _ in range(n_threads)]
        self.weights = np.broadcast_to(weights, (count, n))
        self.n_nodes, self.n_leaves = n_nodes, model.topology.n_leaves
        self.tally = np.zeros((count, 2, LEAF + 1))
        self._branches = np.zeros((count, 2, n_nodes, n))
        self._values = np.zeros((count, n_nodes + self.n_leaves, n))
        self._order = np.tile(np.arange(self.n_leaves), (count, 1))
        ones = np.zeros((count, n_nodes, n_experts))  # log-weights of splits without weights
        sites = {"log_weight": ones, **self.free}
        names = ("log_weight", "hyperplane", "intercept", "shrinkage")
        caches = (self._order, self._branches, self._values)
        self.each = [
            Chain(*(sites[name][c] for name in names), *(one[c] for one in caches))
            for c in range(count)
        ]
        self.set_leaves()
        self.refresh()

    @property
    def n_chains(self) -> int:
        return len(self.vectors)

    @uncollected()
    def refresh(self) -> None:
        """Compute the branches from the vectors."""
        for c, chain in enumerate(self.each):
            refresh(self.rows_of(c), chain, self.works[0])

    def rows_of(self, chain: int) -> Rows:
        """Return the rows with the weights that they have for a chain."""
        return self.rows._replace(weights=self.weights[chain])

    @uncollected()
    def sweep(self, *, mirrors: bool) -> None:
        """Move the experts of all nodes of each chain, several chains at a time in threads."""
        n_threads = len(self.works)

        def move(thread: int) -> None:
            for c in range(thread, self.n_chains, n_threads):
                own = self.rows_of(c), self.priors, self.each[c], self.works[thread]
                sweep(*own, mirrors, self.rngs[c], self.tally[c])

        with ThreadPoolExecutor(n_threads) as pool:
            list((map if n_threads == 1 else pool.map)(move, range(n_threads)))
        if mirrors:
            self._arrange_leaves()

    def _arrange_leaves(self) -> None:
        """Give leaves the places to which exchanges of branches have carried them."""
        rest = np.arange(self.n_leaves)
        for c in np.flatnonzero((self._order != rest).any(axis=1)):
            order = self._order[c].copy()
            for name in self.model.leaf.sites:
                self.free[name][c] = self.free[name][c][order]
            self.log_density[c] = self.log_density[c][order]
            self._order[c] = rest

    # Leaves.

    def leaf_sites(self, free: Sites) -> dict[str, torch.Tensor]:
        """Return the sites of leaves (...), one after another, from their coordinates."""
        found = {}
        for name in self.model.leaf.sites:
            own = self.layout.free_shapes[name][1:]
            value = torch.from_numpy(np.ascontiguousarray(free[name]).reshape(-1, *own))
            support = self.layout.supports[name]
            found[name] = constrained(value, support)[0]
            if support == "simplex":
                found[name].clamp_min_(torch.finfo(value.dtype).tiny)
        return found

    def leaf_density(self, free: Sites) -> FloatArray:
        """Compute log p(y_n | leaf), (..., n), of leaves (...) given their coordinates."""
        first = next(iter(self.model.leaf.sites))
        shape = free[first].shape[: free[first].ndim - len(self.layout.free_shapes[first]) + 1]
        found = self.model.leaf.log_density(self.leaf_sites(free), self.y)
        density: FloatArray = found.numpy().T.reshape(*shape, -1)
        return density

    def set_leaves(self) -> None:
        """Compute the densities of the rows in the leaves from the vectors."""
        found = self.leaf_density(self.free)
        self.log_density, self._best = found, found.max(axis=1)
        np.exp(found - self._best[:, None], out=self._values[:, self.n_nodes :])
        for node in range(self.n_nodes - 1, -1, -1):
            sides = self._branches[:, :, node] * self._values[:, self.rows.children[node]]
            self._values[:, node] = sides.sum(axis=1)

    def reach(self) -> FloatArray:
        """Compute P(leaf | x) of all rows, (C, L, n)."""
        found = np.ones_like(self._values)
        for node, (left, right) in enumerate(self.rows.children):
            found[:, left] = found[:, node] * self._branches[:, 0, node]
            found[:, right] = found[:, node] * self._branches[:, 1, node]
        return found[:, self.n_nodes :]

    @uncollected()
    def paths(self, copies: FloatArray) -> FloatArray:
        """Draw the numbers of copies (C, n) of each row in each leaf given y, (C, L, n)."""
        found = np.empty((self.n_chains, self.n_leaves, copies.shape[-1]))
        for c, (chain, rng) in enumerate(zip(self.each, self.rngs, strict=True)):
            draw_paths(self.rows, chain, copies[c], rng, found[c])
        return found

    def log_likelihood(self) -> FloatArray:
        """Return the log-likelihood of each chain, shape (C,)."""
        row = np.log(np.maximum(self._values[:, 0], TINY)) + self._best
        total: FloatArray = (row * self.weights).sum(axis=-1)
        return total


#: Shares of the rows on which a proposal is based, where the posterior is an approximation: with
#: fewer rows it is wider than the true one, and no value is left too seldom.
SHARES = (0.2, 0.7, 1.0)


class LeafMoves:
    """Moves of the leaves of all chains, by way of the leaves that rows fall into.

    A row of weight w counts as the power w of its likelihood. It is given M = ceil(w) copies, each
    of which falls into a leaf with the probabilities given x and y, independently. With m_nl copies
    of row n in leaf l, new parameters t of a leaf are drawn from its conjugate posterior q, in
    which each copy has the weight w / M. Parameters and copies together have the density

        p(t) prod_n f_n(t)^w prod_l (share_nl f_nl(t) / f_n(t))^m_nl,

    with the likelihood f_n of a row, that in a leaf f_nl, and P(leaf | x) = share_nl. So t is
    accepted by the change of

        log p(t) / q(t) + sum_n (w - M) log f_n(t) + m_nl log f_nl(t).

    With whole weights, and if q is exact, this does not change, and every draw is accepted: then
    these are two Gibbs steps, of paths and of leaves.
    """

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
