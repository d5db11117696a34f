"""Moves of all chains at once: of the experts of one node given the rest, and of the leaves.

Of the experts, the paths of the rows are integrated out. Each move is a Metropolis-Hastings step:
the change of the log joint density, plus what its proposal asks for, decides whether a chain
accepts.

Leaves move by way of the leaves that rows fall into. A row of weight w counts as the power w of its
likelihood. It is given M = ceil(w) copies, each of which falls into a leaf with the probabilities
given x and y, independently. With m_nl copies of row n in leaf l, new parameters t of a leaf are
drawn from its conjugate posterior q, in which each copy has the weight w / M. Parameters and copies
together have the density

    p(t) prod_n f_n(t)^w prod_l (share_nl f_nl(t) / f_n(t))^m_nl,

with the likelihood f_n of a row, that in a leaf f_nl, and P(leaf | x) = share_nl. So t is accepted
by the change of

    log p(t) / q(t) + sum_n (w - M) log f_n(t) + m_nl log f_nl(t).

With whole weights, and if q is exact, this does not change, and every draw is accepted: then these
are two Gibbs steps, of paths and of leaves.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.state import draw_seed, seeded
from bayestree.inference.samplers.density import Sites, prior_excess, unconstrained
from bayestree.inference.samplers.expert_moves import (
    SHORTEST,
    BorderMoves,
    border,
    draw_nodes,
    expert_sites,
    matching,
)
from bayestree.inference.samplers.mcmc.trees import TINY, ChainTrees, branches, left_slope

PERSISTENCE = (0.3, 0.7, 0.95)  # of Newton proposals: 0 jumps to the mode, 1 stays
JITTER = 1e-10  # relative to the diagonal of a curvature, which rounding may leave indefinite
WEIGHT_STEPS = (0.2, 0.7, 2.5)  # standard deviations of steps of the log-weight
TRADE = 3.0  # exchanges of weight are longer than slides by this factor
MOVES = ("newton", "slide", "weight", "fresh", "mirror", "leaf")
#: Shares of the rows on which a proposal is based, where the posterior is an approximation: with
#: fewer rows it is wider than the true one, and no value is left too seldom.
SHARES = (0.2, 0.7, 1.0)

Tensors = dict[str, torch.Tensor]


class Tally:
    """Numbers of accepted and of proposed moves of each chain, by kind, shape (2, moves, C)."""

    def __init__(self, n_chains: int) -> None:
        self.counts = np.zeros((2, len(MOVES), n_chains))

    def add(self, move: str, accepted: BoolArray) -> None:
        number = MOVES.index(move)
        self.counts[0, number] += accepted
        self.counts[1, number] += 1


class Normal(NamedTuple):
    """A normal proposal of coefficients: mean + scale * inverse.T @ noise, and the log-density."""

    mean: FloatArray  # (C, p)
    scale: FloatArray  # (C, p)
    root: FloatArray  # (C, p, p), lower: the precision in units of scale is root @ root.T
    spread: float  # variance in units of the inverse precision
    usable: BoolArray  # (C,)

    def draw(self, rng: np.random.Generator) -> FloatArray:
        noise = rng.standard_normal((*self.mean.shape, 1))
        step = np.linalg.solve(self.root.swapaxes(1, 2), noise)[..., 0]
        value: FloatArray = self.mean + np.sqrt(self.spread) * self.scale * step
        return value

    def log_density(self, value: FloatArray) -> FloatArray:
        """Return the log-density (C,), up to a constant."""
        away = ((value - self.mean) / self.scale)[..., None]
        unit = np.matmul(self.root.swapaxes(1, 2), away)[..., 0]
        size = np.log(np.diagonal(self.root, axis1=1, axis2=2) / self.scale).sum(axis=1)
        density: FloatArray = size - (unit * unit).sum(axis=1) / (2 * self.spread)
        return density


class NodeExperts:
    """The experts of a node, of all chains."""

    def __init__(
        self, trees: ChainTrees, node: int, rng: np.random.Generator, tally: Tally
    ) -> None:
        self.trees, self.node, self.rng, self.tally = trees, node, rng, tally
        self.model, self.layout = trees.model, trees.layout
        self.own = {
            name: trees.free[name][:, node] for name in expert_sites(self.layout, self.model)
        }
        self.n_experts = self.model.split.n_experts
        self.slides = BorderMoves(self.model, self.n_experts)
        self.votes = trees.votes[:, node]
        self.weight = None if trees.weight is None else trees.weight[:, node]
        self.score = trees.scores[:, node].copy()
        self.rows = trees.of_node(node)
        self.value = self.log_likelihood(self.score)

    def log_likelihood(self, score: FloatArray) -> FloatArray:
        """Return the log-likelihoods (C,) of scores (C, n) of this node."""
        sides = branches(score, self.trees.steepness)
        return self.trees.total(self.rows.mixture(sides))

    def update(self) -> None:
        """Move each expert by all kinds of moves, then tell the tree."""
        kinds = self.slides.slides
        for expert in self.rng.permutation(self.n_experts):
            for slide in kinds:
                self.slide(slide.__name__, int(expert))
            self.redraw(int(expert))
            self.newton(int(expert))
            self.redraw(int(expert))
            if self.weight is not None:
                self.change_weight(int(expert))
            self.fresh(int(expert))
        self.finish()

    def finish(self) -> None:
        self.trees.set_score(self.node, self.score)

    # Parts of moves.

    def expert(self, number: int) -> Sites:
        """Return copies of the sites of one expert, each (C, 1, ...)."""
        return {name: value[:, number : number + 1].copy() for name, value in self.own.items()}

    def others(self, number: int) -> FloatArray:
        """Return the score (C, n) without one expert.

        The sum is taken again: to subtract one that votes heavily would leave rounding errors.
        """
        if self.weight is None:
            return np.zeros_like(self.score)
        weight = self.weight.copy()
        weight[:, number] = 0.0
        total: FloatArray = np.matmul(weight[:, None], self.votes)[:, 0]
        return total

    def log_prior(self, sites: Sites) -> FloatArray:
        """Return the log prior density (C,) of experts (C, k, ...), with Jacobians."""
        each = [
            prior.expert_log_density(sites, self.n_experts) for prior in self.model.split_priors
        ]
        total: FloatArray = np.sum(each, axis=0).sum(axis=1)
        return total

    def propose(self, move: str, number: int, new: Sites, log_ratio: FloatArray) -> BoolArray:
        """Accept new sites of an expert, or keep the current ones.

        ``log_ratio`` (C,) is the gain in log prior density and volume, plus the log ratio of the
        densities of the backward and the forward proposal.
        """
        votes = self.trees.expert_votes(new)[:, 0]
        weight = np.exp(new["log_weight"]) if "log_weight" in new else np.ones((1, 1))
        score = self.others(number) + weight * votes
        value = self.log_likelihood(score)
        accepted = self.accept(move, value - self.value + log_ratio)
        if accepted.any():
            for name, site in new.items():
                self.own[name][accepted, number] = site[accepted, 0]
            self.votes[accepted, number] = votes[accepted]
            if self.weight is not None:
                self.weight[accepted, number] = weight[accepted, 0]
            self.keep(accepted, score, value)
        return accepted

    def accept(self, move: str, gain: FloatArray) -> BoolArray:
        accepted: BoolArray = -self.rng.standard_exponential(len(gain)) < gain  # not if NaN
        self.tally.add(move, accepted)
        return accepted

    def keep(self, accepted: BoolArray, score: FloatArray, value: FloatArray) -> None:
        self.score[accepted] = score[accepted]
        self.value[accepted] = value[accepted]

    # Moves.

    def redraw(self, number: int) -> None:
        """Draw the shrinkage of an expert given its coefficients, by way of their scales."""
        sites = self.expert(number)
        self.model.priors.hyperplane.redraw(sites, self.rng)
        for name in self.model.priors.hyperplane.sites:
            self.own[name][:, number] = sites[name][:, 0]

    def slide(self, kind: str, number: int) -> None:
        """Propose to move an expert along a curve on which its boundary stays (see BorderMoves)."""
        length = SHORTEST ** self.rng.random(self.trees.n_chains)
        length *= self.rng.standard_normal(self.trees.n_chains)
        if kind == "trade":
            self.trade(number, TRADE * length)
            return
        old = self.expert(number)
        new = {name: value.copy() for name, value in old.items()}
        volume = getattr(self.slides, kind)(new, (slice(None), 0), length)
        self.propose("slide", number, new, self.log_prior(new) - self.log_prior(old) + volume)

    def trade(self, number: int, length: FloatArray) -> None:
        """Propose to exchange weight with another expert."""
        assert self.weight is not None
        other = int((number + 1 + self.rng.integers(self.n_experts - 1)) % self.n_experts)
        pair = np.array([number, other])
        old = {name: value[:, pair] for name, value in self.own.items()}
        new = {**old, "log_weight": old["log_weight"].copy()}
        BorderMoves(self.model, 2).trade(new, (slice(None), 0), length)
        weight = self.weight.copy()
        weight[:, pair] = np.exp(new["log_weight"])
        score = np.matmul(weight[:, None], self.votes)[:, 0]
        value = self.log_likelihood(score)
        gain = value - self.value + self.weight_prior(new) - self.weight_prior(old)
        accepted = self.accept("slide", gain)
        for place, one in enumerate(pair):
            self.own["log_weight"][accepted, one] = new["log_weight"][accepted, place]
        self.weight[accepted] = weight[accepted]
        self.keep(accepted, score, value)

    def weight_prior(self, sites: Sites) -> FloatArray:
        """Return the log prior density of the weights of experts (C, k), shape (C,)."""
        total: FloatArray = self.model.priors.weight.expert_log_density(sites, self.n_experts).sum(
            axis=1
        )
        return total

    def change_weight(self, number: int) -> None:
        """Propose a step of the log-weight of an expert."""
        assert self.weight is not None
        step = self.rng.choice(WEIGHT_STEPS) * self.rng.standard_normal(self.trees.n_chains)
        old = {"log_weight": self.own["log_weight"][:, number : number + 1]}
        new = {"log_weight": old["log_weight"] + step[:, None]}
        weight = np.exp(new["log_weight"])
        score = self.others(number) + weight * self.votes[:, number]
        value = self.log_likelihood(score)
        gain = value - self.value + self.weight_prior(new) - self.weight_prior(old)
        accepted = self.accept("weight", gain)
        self.own["log_weight"][accepted, number] = new["log_weight"][accepted, 0]
        self.weight[accepted, number] = weight[accepted, 0]
        self.keep(accepted, score, value)

    def fresh(self, number: int) -> None:
        """Propose a draw from the prior: the ratio of the likelihoods decides."""
        chains = self.trees.n_chains
        drawn = draw_nodes(self.layout, self.model, -(-chains // self.n_experts), self.rng)
        new = {
            name: value.reshape(-1, 1, *value.shape[2:])[:chains] for name, value in drawn.items()
        }
        # without shrinkages that vanish in floating point, of which nothing could be computed
        possible = np.isfinite(self.log_prior(new))
        self.propose("fresh", number, new, np.where(possible, 0.0, -np.inf))

    def newton(self, number: int) -> None:
        """Propose coefficients near the end of a Newton step, given their scales.

        The curvature is the empirical Fisher information, plus the precision of the prior. The
        scales are drawn before, and forgotten afterwards.
        """
        old = self.expert(number)
        precision = self.model.priors.hyperplane.draw_precision(old, self.rng)[:, 0]
        coefficient = _coefficients(old)
        persistence = float(self.rng.choice(PERSISTENCE))
        weight = 1.0 if self.weight is None else self.weight[:, number, None]
        rest = self.others(number)
        forward = self.normal(
            coefficient, precision, self.score, self.votes[:, number], weight, persistence
        )
        new_coefficient = forward.draw(self.rng)
        new = {
            **old,
            "hyperplane": new_coefficient[:, None, :-1],
            "intercept": new_coefficient[:, None, -1],
        }
        votes = self.trees.expert_votes(new)[:, 0]
        score = rest + weight * votes
        value = self.log_likelihood(score)
        backward = self.normal(new_coefficient, precision, score, votes, weight, persistence)
        prior = ((coefficient**2 - new_coefficient**2) * precision).sum(axis=1) / 2
        gain = value - self.value + prior
        gain += backward.log_density(coefficient) - forward.log_density(new_coefficient)
        usable = forward.usable & backward.usable
        accepted = self.accept("newton", np.where(usable, gain, -np.inf))
        for name in ("hyperplane", "intercept"):
            self.own[name][accepted, number] = new[name][accepted, 0]
        self.votes[accepted, number] = votes[accepted]
        self.keep(accepted, score, value)

    def normal(
        self,
        coefficient: FloatArray,
        precision: FloatArray,
        score: FloatArray,
        votes: FloatArray,
        weight: FloatArray | float,
        persistence: float,
    ) -> Normal:
        """Return the proposal from coefficients (C, p) of an expert."""
        trees = self.trees
        sides = branches(score, trees.steepness)
        pull = (self.rows.if_left - self.rows.if_right) / self.rows.mixture(sides)
        pull *= left_slope(score, sides, trees.steepness)
        pull *= -np.expm1(-votes)  # the slope of softplus
        pull *= weight
        slope = (pull * trees.weights) @ trees.rows - coefficient * precision
        pull *= np.sqrt(trees.weights)
        curvature = trees.rows.T * pull[:, None]
        curvature = curvature @ curvature.swapaxes(1, 2)
        diagonal = np.arange(curvature.shape[1])
        curvature[:, diagonal, diagonal] += precision
        scale = np.asarray(1.0 / np.sqrt(curvature[:, diagonal, diagonal]), dtype=np.float64)
        curvature *= scale[:, :, None]
        curvature *= scale[:, None]
        curvature[:, diagonal, diagonal] += JITTER
        usable: BoolArray = np.isfinite(curvature).all(axis=(1, 2)) & np.isfinite(slope).all(axis=1)
        if not usable.all():
            curvature[~usable] = np.eye(len(diagonal))
            scale[~usable], slope[~usable] = 1.0, 0.0
        root: FloatArray = np.asarray(np.linalg.cholesky(curvature), dtype=np.float64)
        step = np.linalg.solve(curvature, (scale * slope)[..., None])[..., 0]
        mean = coefficient + (1 - persistence) * scale * step
        return Normal(mean, scale, root, 1 - persistence**2, usable)


def _coefficients(sites: Sites) -> FloatArray:
    """Join the coefficients (C, p) of one expert, with its intercept last."""
    return np.concatenate((sites["hyperplane"][:, 0], sites["intercept"]), axis=1)


def mirror(
    trees: ChainTrees, node: int, expert: int, rng: np.random.Generator, tally: Tally
) -> None:
    """Propose to flip one facet of a node in place and to swap the node's branches.

    See ``ExpertMoves.mirror``. Nodes with branches of different shapes are skipped.
    """
    pairs = matching(trees.model.topology, *map(int, trees.model.topology.children[node]))
    if pairs is None:
        return
    here = NodeExperts(trees, node, rng, tally)
    old = here.expert(expert)
    level = np.reshape(border(old, (slice(None), 0)), (-1, 1))
    new = {**old, "hyperplane": -old["hyperplane"]}
    new["intercept"] = 2 * level - old["intercept"]
    here.rows = here.rows._replace(if_left=here.rows.if_right, if_right=here.rows.if_left)
    accepted = here.propose("mirror", expert, new, here.log_prior(new) - here.log_prior(old))
    _swap(trees, pairs, np.flatnonzero(accepted))


def _swap(trees: ChainTrees, pairs: Sequence[tuple[str, int, int]], chains: IntArray) -> None:
    """Swap the branches of some chains."""
    if not len(chains):
        return
    dimensions = trees.model.dimensions
    for dimension, first, second in pairs:
        for name, value in trees.free.items():
            if dimension in dimensions[name]:
                pair = np.array([first, second])
                value[np.ix_(chains, pair)] = value[np.ix_(chains, pair[::-1])]
    trees.refresh()


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
        excess = prior_excess(law, drawn) - prior_excess(law, now)
        gain = excess.view(self.trees.n_chains, -1).numpy()
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
