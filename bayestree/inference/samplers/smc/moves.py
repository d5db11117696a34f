"""Moves of experts, leaves and splits: fresh ones from the prior, slides, births and deaths.

All leave the tempered posterior, prior x likelihood^t, invariant. A choice between several
candidates is iterated sampling importance resampling (Andrieu, Doucet and Holenstein 2010): the
current value is a candidate, M - 1 others are drawn from a proposal q, and one is chosen with
probabilities proportional to target / q. With q the prior these are likelihood^t.

Births and deaths of splits are a choice between M splits of a node, and none. Parameters that are
not in use follow their priors, so that two trees compare by the probabilities of their topologies
and their tempered likelihoods. Leaves are proposed together with the split (see
``ParticleMoves.propose_leaves``).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.state import draw_seed, seeded
from bayestree.inference.samplers.density import Sites, prior_excess
from bayestree.inference.samplers.expert_moves import SHORTEST, BorderMoves
from bayestree.inference.samplers.smc.particles import ParticleLikelihood, ParticlePrior, Particles
from bayestree.models.leaves import LeafDistribution

CANDIDATES = 8  # values among which a move chooses, the current one included
EM_STEPS = 6  # from the probabilities of the leaves given x to those given x and y
# Weight of the rows in the posterior from which leaves are proposed. The true posterior is wider
# than one whose rows have known leaves, and a proposal must be as wide as its target.
ROW_WEIGHT = 0.7
MOVES = ("trajectory", "birth", "death", "split", "expert", "slide", "leaf")
NamedTensors = dict[str, Tensor]


class ParticleMoves:
    """Moves of particles at a temperature, with the branches and leaves of all of them."""

    def __init__(
        self,
        rows: ParticleLikelihood,
        prior: ParticlePrior,
        particles: Particles,
        rng: np.random.Generator,
    ) -> None:
        self.rows, self.prior, self.power, self.rng = rows, prior, rows.power, rng
        self.particles, self.model = particles, prior.model
        self.free = prior.layout.free(particles.vectors)
        self.slides = BorderMoves(self.model, prior.n_experts)
        self.routed = rows.routed(particles)
        self.counts = {name: np.zeros(2) for name in MOVES}  # changes and attempts

    @property
    def splits(self) -> Tensor:
        return torch.from_numpy(self.particles.splits)

    def below(self) -> list[Tensor]:
        return self.rows.below(self.routed, self.splits)

    def log_likelihood(self) -> FloatArray:
        """Compute the log-likelihood of each particle, shape (P,)."""
        return self.rows.total(self.rows.root(self.routed, self.splits))

    def propose_leaves(
        self, log_share: Tensor, rest: Tensor, who: IntArray, leaves: Sequence[int], keep: BoolArray
    ) -> tuple[dict[str, Tensor], FloatArray]:
        """Propose leaves (count, M, S, ...) for shares of the rows (count, M, S, n); log prior / q.

        The proposal q is the conjugate posterior given the expected leaves of the rows, which EM
        finds without using the current values; ``rest`` (count, n) is log p(y_n, the row is in
        another leaf).
        Slot 0 of the particles to ``keep`` has their current values.
        """
        family, shape = self.model.leaf, log_share.shape[:-1]
        # EM only shapes the proposal: single precision is enough, and twice as fast.
        log_share, y = log_share.float(), self.rows.y_single
        law = self._leaf_law(log_share.exp())
        elsewhere = rest.float()[:, None, None].expand_as(log_share[:, :, :1])
        joint = torch.cat((log_share, elsewhere), -2)
        for _ in range(EM_STEPS):
            means = {name: value.float() for name, value in law.mean().items()}
            density = family.log_density(means, y).T.view(log_share.shape)
            torch.add(log_share, density, out=joint[..., :-1, :])
            law = self._leaf_law(joint.softmax(-2)[..., :-1, :])
        with seeded(draw_seed(self.rng)):
            sites = {n: v.view(*shape, *v.shape[1:]) for n, v in law.sample().items()}
        now = self.prior.leaf_sites_of(
            {n: torch.from_numpy(self.free[n][who][:, list(leaves)]) for n in family.sites}
        )[0]
        for name, value in sites.items():
            value[torch.from_numpy(keep), 0] = now[name][torch.from_numpy(keep)]
        flat = {
            name: value.reshape(-1, *value.shape[len(shape) :]) for name, value in sites.items()
        }
        return sites, prior_excess(law, flat).view(shape).numpy()

    def _leaf_law(self, member: Tensor) -> LeafDistribution:
        """Return the posterior of leaves (...) that rows are in with probabilities (..., n)."""
        sums = ROW_WEIGHT * self.power * (member.double() @ self.rows.statistics)
        return self.model.leaf.posterior(sums.view(-1, sums.shape[-1]))

    def density(self, sites: dict[str, Tensor], shape: tuple[int, ...]) -> Tensor:
        """Compute log p(y_n | leaf), (*shape, n), of leaves of that shape."""
        flat = {n: v.reshape(-1, *v.shape[len(shape) :]) for n, v in sites.items()}
        return self.model.leaf.log_density(flat, self.rows.y).T.view(*shape, len(self.rows.y))

    def choose(self, log_weight: FloatArray) -> IntArray:
        """Choose a column for each row, with probabilities proportional to exp(log_weight)."""
        gumbel = -np.log(self.rng.standard_exponential(log_weight.shape))
        chosen: IntArray = (log_weight + gumbel).argmax(axis=1)
        return chosen

    def record(self, move: str, changed: BoolArray) -> None:
        """Count the particles that a move has changed."""
        self.counts[move] += changed.sum(), changed.size

    def fresh_experts(self) -> None:
        """Choose between M values of one expert of each particle, from the prior."""

        def draw(own: Sites, rng: np.random.Generator) -> tuple[Sites, FloatArray]:
            count, expert = len(own["intercept"]), int(rng.integers(self.prior.n_experts))
            values = {n: np.repeat(v[:, None], CANDIDATES, axis=1) for n, v in own.items()}
            drawn = self.prior.experts(count * CANDIDATES, rng)
            for name, value in values.items():
                new = drawn[name].reshape(count, CANDIDATES, *drawn[name].shape[1:])
                value[:, 1:, expert] = new[:, 1:]
            return values, np.zeros((count, CANDIDATES))

        self._change_experts("expert", draw)

    def slide(self) -> None:
        """Propose to slide an expert of each particle; accept as Barker (1965)."""

        def draw(own: Sites, rng: np.random.Generator) -> tuple[Sites, FloatArray]:
            count, n_experts = own["intercept"].shape
            expert = int(rng.integers(n_experts))
            length = SHORTEST ** rng.random(count) * rng.standard_normal(count)
            new = {name: value.copy() for name, value in own.items()}
            slides = self.slides.slides
            slide = slides[int(rng.integers(len(slides)))]
            volume = slide(new, (slice(None), expert), length)
            gain = self._expert_prior(new) - self._expert_prior(own) + volume
            unmoved = np.isnan(gain)
            values = {name: np.stack((own[name], new[name]), 1) for name in own}
            for value in values.values():
                value[unmoved, 1] = value[unmoved, 0]
            gain = np.where(unmoved, -np.inf, gain)
            return values, np.column_stack((np.zeros(count), gain))

        self._change_experts("slide", draw)

    def _expert_prior(self, free: Sites) -> FloatArray:
        """Compute the log prior density of the experts of nodes, shape (count,)."""
        priors, n_experts = self.model.split_priors, self.prior.n_experts
        each = [prior.expert_log_density(free, n_experts).sum(axis=-1) for prior in priors]
        total: FloatArray = np.sum(each, axis=0)
        return total

    def _change_experts(
        self, move: str, draw: Callable[[Sites, np.random.Generator], tuple[Sites, FloatArray]]
    ) -> None:
        """Choose between values of the experts of a random node of each particle.

        ``draw`` returns values (count, M, K, ...), the current ones first, and their log
        prior / q, (count, M).
        """
        score = np.where(self.particles.splits, self.rng.random(self.particles.splits.shape), -1.0)
        node_of, below = np.where(score.max(axis=1) < 0, -1, score.argmax(axis=1)), self.below()
        for node in range(self.particles.splits.shape[1]):
            who = np.flatnonzero(node_of == node)
            if not len(who):
                continue
            own = {name: self.free[name][who, node] for name in self.prior.sites}
            values, log_weight = draw(own, self.rng)
            count, m = log_weight.shape
            flat = {n: v.reshape(count * m, *v.shape[2:]) for n, v in values.items()}
            with torch.no_grad():
                left, right = (b.view(count, m, -1) for b in self.rows.branches(flat))
                reach, rest = (v[who, None] for v in self.rows.above(self.routed, below, node))
                below_left, below_right = (
                    self.rows.child(self.routed, below, child)[who, None]
                    for child in self.model.topology.children[node]
                )
                inner = torch.logaddexp(left + below_left, right + below_right)
                row = torch.logaddexp(rest, reach + inner)
            chosen = self.choose(log_weight + self.power * self.rows.total(row))
            self.record(move, chosen > 0)
            each = np.arange(count)
            for name, value in values.items():
                self.free[name][who, node] = value[each, chosen]
            self.routed.left[who, node] = left[each, chosen]
            self.routed.right[who, node] = right[each, chosen]

    def leaves(self) -> None:
        """Propose each leaf from a conjugate posterior (see :meth:`propose_leaves`)."""
        used = self.particles.leaves_in_use(self.model)
        for leaf in range(used.shape[1]):
            who = np.flatnonzero(used[:, leaf])
            if not len(who):
                continue
            share = self._share(leaf)[who]
            before = self.rows.root(self.routed, self.splits)[who]
            current = self.routed.density[who, leaf]
            keep = np.ones(len(who), dtype=bool)
            both = torch.stack((share, share), 1)[:, :, None]
            self.routed.density[who, leaf] = -torch.inf
            rest = self.rows.root(self.routed, self.splits)[who]
            sites, excess = self.propose_leaves(both, rest, who, [leaf], keep)
            density = self.density(sites, (len(who), 2, 1))[:, 1, 0]
            self.routed.density[who, leaf] = density
            after = self.rows.root(self.routed, self.splits)[who]
            gain = self.power * (self.rows.total(after) - self.rows.total(before))
            gain += excess[:, 1, 0] - excess[:, 0, 0]
            fits = -self.rng.standard_exponential(len(who)) < gain
            self.record("leaf", fits)
            self.routed.density[who[~fits], leaf] = current[~fits]
            new = self.prior.leaf_free({n: v[fits, 1, 0] for n, v in sites.items()})
            for name, value in new.items():
                self.free[name][who[fits], leaf] = value

    def _share(self, leaf: int) -> Tensor:
        """Compute log P(a row reaches a leaf), (P, n)."""
        total = torch.zeros_like(self.routed.density[:, 0])
        turns, splits = self.model.topology.turns, self.splits
        for node in range(turns.shape[1]):
            for side, branch in enumerate((self.routed.left, self.routed.right)):
                if turns[side, node, leaf]:
                    total = total + branch[:, node] * splits[:, node, None]
        return total


class SplittableNode(NamedTuple):
    """A node of the particles ``who`` in which it can split and its children do not."""

    node: int
    who: IntArray
    split: BoolArray  # whether it splits now
    leaves: tuple[int, int]  # the left-most leaves below its two sides
    reach: Tensor  # log P(a row reaches the node), (count, n)
    rest: Tensor  # log p(y_n, it does not)


class SplitCandidates(NamedTuple):
    """M candidates for the split of a node, (count, M, ...)."""

    sites: Sites
    left: Tensor
    right: Tensor
    leaves: NamedTensors  # (count, M, 2, ...)
    density: Tensor
    log_weight: FloatArray


class Wholes(NamedTuple):
    """The node as a leaf, (count, ...)."""

    leaf: NamedTensors
    density: Tensor
    log_weight: FloatArray


def births_and_deaths(moves: ParticleMoves, node: int) -> None:
    """Choose between M splits of a node and none."""
    who = np.flatnonzero(_free_to_split(moves, node))
    if not len(who):
        return
    reach, rest = moves.rows.above(moves.routed, moves.below(), node)
    now = moves.particles.splits[who, node]
    place = SplittableNode(node, who, now, _leaf_pair(moves, node), reach[who], rest[who])
    with torch.no_grad():
        splits, wholes = _splits(moves, place), _wholes(moves, place)
    topology, trees = moves.model.topology, moves.prior.trees
    chance = trees.probability(topology.node_depth[node])
    children = topology.children[node]
    below = np.log1p(-trees.probability(topology.node_depth[children[children >= 0]])).sum()
    split_weight = splits.log_weight + np.log(chance) + below - np.log(CANDIDATES)
    whole_weight = wholes.log_weight + np.log1p(-chance)
    chosen = moves.choose(np.column_stack((whole_weight, split_weight)))
    moves.record("birth", chosen[~now] > 0)
    moves.record("death", chosen[now] == 0)
    moves.record("split", chosen[now] > 1)
    _set(moves, place, splits, wholes, chosen)


def _splits(moves: ParticleMoves, place: SplittableNode) -> SplitCandidates:
    count, m = len(place.who), CANDIDATES
    drawn = moves.prior.nodes(count * m, moves.rng)
    sites = {name: value.reshape(count, m, *value.shape[1:]) for name, value in drawn.items()}
    for name, value in sites.items():
        value[place.split, 0] = moves.free[name][place.who[place.split], place.node]
    flat = {name: value.reshape(count * m, *value.shape[2:]) for name, value in sites.items()}
    left, right = (branch.view(count, m, -1) for branch in moves.rows.branches(flat))
    pairs = torch.stack((left, right), 2) + place.reach[:, None, None]  # (count, M, 2, n)
    leaves, excess = moves.propose_leaves(pairs, place.rest, place.who, place.leaves, place.split)
    density = moves.density(leaves, (count, m, 2))
    joint = pairs + density
    inner = torch.logaddexp(joint[:, :, 0], joint[:, :, 1])
    row = torch.logaddexp(place.rest[:, None], inner)
    log_weight = moves.power * moves.rows.total(row) + excess.sum(axis=-1)
    return SplitCandidates(sites, left, right, leaves, density, log_weight)


def _wholes(moves: ParticleMoves, place: SplittableNode) -> Wholes:
    share = place.reach[:, None, None]
    leaf, excess = moves.propose_leaves(
        share, place.rest, place.who, place.leaves[:1], ~place.split
    )
    density = moves.density(leaf, (len(place.who), 1, 1))[:, 0, 0]
    row = torch.logaddexp(place.rest, place.reach + density)
    log_weight = moves.power * moves.rows.total(row) + excess[:, 0, 0]
    return Wholes(leaf, density, log_weight)


def _set(
    moves: ParticleMoves,
    place: SplittableNode,
    splits: SplitCandidates,
    wholes: Wholes,
    chosen: IntArray,
) -> None:
    """Give each particle what was chosen: 0 for a leaf, m for split m - 1."""
    split, node, (first, second) = chosen > 0, place.node, place.leaves
    rank, slot = np.flatnonzero(split), chosen[split] - 1
    born, gone = place.who[split], place.who[~split]
    free, routed = moves.free, moves.routed
    for name, value in splits.sites.items():
        free[name][born, node] = value[rank, slot]
    pair = moves.prior.leaf_free({n: v[rank, slot] for n, v in splits.leaves.items()})
    single = moves.prior.leaf_free({n: v[~split, 0, 0] for n, v in wholes.leaf.items()})
    for name, value in pair.items():
        free[name][born[:, None], [first, second]] = value
        free[name][gone, first] = single[name]
    routed.left[born, node] = splits.left[rank, slot]
    routed.right[born, node] = splits.right[rank, slot]
    routed.density[born[:, None], [first, second]] = splits.density[rank, slot]
    routed.density[gone, first] = wholes.density[~split]
    moves.particles.splits[place.who, node] = split


def _free_to_split(moves: ParticleMoves, node: int) -> BoolArray:
    """Find particles in which a node can split, and its children do not."""
    topology, splits = moves.model.topology, moves.particles.splits
    children = topology.children[node]
    able = ~splits[:, children[children >= 0]].any(axis=1)
    return np.asarray(able & splits[:, topology.node_parent[node]] if node else able)


def _leaf_pair(moves: ParticleMoves, node: int) -> tuple[int, int]:
    children, found = moves.model.topology.children, []
    for side in children[node]:
        child = int(side)
        while child >= 0:
            child = int(children[child, 0])
        found.append(~child)
    return found[0], found[1]
