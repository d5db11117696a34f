"""Trees of several topologies as particles of equal dimension: their prior and likelihood.

A particle has the parameters of every node and leaf of the complete tree, and says which nodes
split. A node that does not split sends all rows to the left: the leaf that its rows reach is the
left-most one below it. Parameters that are not in use follow their priors (Carlin and Chib 1995),
so that a birth or a death of a split changes no dimension.

The likelihood has the particle as first and the row as last dimension. Below each node,

    U_v = log p(y_n | row n is at node v) = log(P(left) exp U_left + P(right) exp U_right),

so that only a node that changes is evaluated again.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayestree import routing
from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree._utils.state import draw_seed, seeded
from bayestree.inference.data import Data
from bayestree.inference.samplers.density import Layout, Sites, constrained, unconstrained
from bayestree.inference.samplers.expert_moves import draw_nodes, expert_sites
from bayestree.models.soft_tree import SoftTree

MAX_LOG = 300.0  # of a positive parameter of a leaf: its square is a finite number
BLOCK = 2**19  # values of experts at rows that are evaluated together, so that they fit in a cache


@dataclass(frozen=True)
class TreePrior:
    """Prior on topologies: a node at depth d splits with probability base (1 + d)^-power.

    Chipman, George and McCulloch (1998). Nodes below ``max_depth`` do not split.
    """

    base: float
    power: float

    def probability(self, depth: Any) -> FloatArray:
        """Return P(split) of nodes at given depths, if their parents split."""
        return self.base * (1.0 + np.asarray(depth)) ** -self.power


@dataclass
class Particles:
    """P particles: ``vectors`` (P, D) of all parameters, and whether each node splits, (P, V)."""

    vectors: FloatArray
    splits: BoolArray

    def take(self, chosen: Any) -> "Particles":
        return Particles(self.vectors[chosen], self.splits[chosen])

    def leaves_in_use(self, model: SoftTree) -> BoolArray:
        """Return which leaves of the complete tree rows can reach, shape (P, L)."""
        used = np.ones((len(self.splits), model.topology.n_leaves), dtype=bool)
        for node in range(model.topology.n_nodes):
            used[:, model.topology.turns[1, node]] &= self.splits[:, node, None]
        return used


class ParticlePrior:
    """Draws of nodes, experts and leaves from the priors of a model with collapsed scales."""

    def __init__(self, model: SoftTree, layout: Layout, trees: TreePrior) -> None:
        self.model, self.layout, self.trees = model, layout, trees
        self.n_experts = model.split.n_experts
        self.width = layout.shapes["hyperplane"][-1]
        self.sites = tuple(expert_sites(layout, model))

    def topologies(self, count: int, rng: np.random.Generator) -> BoolArray:
        """Draw whether each node splits, shape (count, V)."""
        topology = self.model.topology
        chance = self.trees.probability(topology.node_depth)
        splits = rng.random((count, topology.n_nodes)) < chance
        for node in range(1, topology.n_nodes):
            splits[:, node] &= splits[:, topology.node_parent[node]]
        return splits

    def particles(self, count: int, rng: np.random.Generator) -> Particles:
        """Draw trees independently."""
        vectors = np.empty((count, self.layout.length))
        found = Particles(vectors, np.ones((count, self.model.topology.n_nodes), dtype=bool))
        nobody = np.zeros_like(found.splits), np.zeros_like(found.leaves_in_use(self.model))
        self.refresh(vectors, *nobody, rng)
        found.splits = self.topologies(count, rng)
        return found

    def refresh(
        self, vectors: FloatArray, splits: BoolArray, leaves: BoolArray, rng: np.random.Generator
    ) -> None:
        """Draw the parameters of nodes that do not split, and of leaves not in use, in place."""
        free = self.layout.free(vectors)
        idle = ~splits
        for name, value in self.nodes(int(idle.sum()), rng).items():
            free[name][idle] = value
        idle = ~leaves
        drawn = self.leaf_free(self.leaf_sites(int(idle.sum()), rng))
        for name, value in drawn.items():
            free[name][idle] = value

    def nodes(self, count: int, rng: np.random.Generator) -> Sites:
        """Draw free sites of the experts of nodes, each (count, K, ...)."""
        return draw_nodes(self.layout, self.model, count, rng)

    def experts(self, count: int, rng: np.random.Generator) -> Sites:
        """Draw free sites of single experts, each (count, ...)."""
        drawn = self.nodes(-(-count // self.n_experts), rng)
        return {n: v.reshape(-1, *v.shape[2:])[:count] for n, v in drawn.items()}

    def leaf_sites(self, count: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Draw sites of leaves, each (count, ...)."""
        leaf = self.model.leaf
        none = torch.empty(0, dtype=torch.float64)
        y = none.long() if leaf.n_classes else none
        empty = leaf.statistics(leaf.response(none.view(0, self.width), y), none)
        sums = empty.new_zeros(count, empty.shape[1])
        with seeded(draw_seed(rng)):
            return leaf.posterior(sums).sample()

    def log_density(self, sites: dict[str, torch.Tensor], splits: BoolArray) -> float:
        """Compute the log prior density of a topology, as V indicators, and of its parameters."""
        topology = self.model.topology
        chance = self.trees.probability(topology.node_depth)
        parent = topology.node_parent
        free = np.array([v == 0 or splits[parent[v]] for v in range(topology.n_nodes)])
        own = float(np.log(np.where(splits, chance, 1.0 - chance))[free].sum())
        smaller, nodes, leaves = topology.collapse(np.where(splits, -1, 0))
        kept = {"node": nodes, "leaf": leaves}
        used = {
            name: value[kept[dims[0]]] if (dims := self.model.dimensions[name]) else value
            for name, value in sites.items()
        }
        return own + float(self.model.with_(topology=smaller).log_prior(used))

    def possible(self, vectors: FloatArray) -> BoolArray:
        """Return whether all parameters (P, D) are finite, and the leaves distributions, (P,)."""
        found: BoolArray = np.asarray(np.isfinite(vectors).all(axis=1))
        for name, value in self.layout.free(vectors).items():
            if self.layout.supports[name] == "positive" and name in self.model.leaf.sites:
                found &= (np.abs(value) < MAX_LOG).all(axis=1)
        return found

    def moving(self, vectors: FloatArray, used: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Compute the log prior (P,) of weights and leaves in use, and its gradient (P, D)."""
        gradient = np.zeros_like(vectors)
        value = np.zeros(len(vectors))
        free, into = self.layout.free(vectors), self.layout.free(gradient)
        on: dict[str, Any] = self.layout.free(used)  # type: ignore[arg-type]
        if "log_weight" in free:
            weight = self.model.priors.weight
            weight.set_gradient(free, into)
            each = weight.expert_log_density(free, self.n_experts)
            value += np.where(on["log_weight"], each, 0.0).sum(axis=(1, 2))
        names = self.model.leaf.sites
        first = next(iter(names))
        raw = {name: torch.from_numpy(free[name].copy()).requires_grad_() for name in names}
        sites, volume = self.leaf_sites_of(raw)
        density = volume
        for name, law in self.model.leaf.prior(sites[first]).conditionals(sites):
            density = density + law.log_prob(sites[name])
        leaves = on[first].reshape(*density.shape, -1)[..., 0]
        total = torch.where(torch.from_numpy(leaves), density, 0.0)
        value += total.detach().numpy().sum(axis=1)
        for name, slope in zip(raw, torch.autograd.grad(total.sum(), [*raw.values()]), strict=True):
            into[name][...] = slope.numpy()
        return value, gradient

    def leaf_sites_of(
        self, free: dict[str, torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Constrain coordinates of leaves to sites; also return the log-Jacobian of each leaf."""
        sites, volume = {}, torch.zeros(())
        for name in self.model.leaf.sites:
            support = self.layout.supports[name]
            sites[name], terms = constrained(free[name], support)
            if support == "simplex":
                tiny = torch.finfo(terms.dtype).tiny
                sites[name], terms = sites[name].clamp_min(tiny), terms.sum(-1)
            volume = volume + terms
        return sites, volume

    def leaf_free(self, sites: dict[str, torch.Tensor]) -> Sites:
        """Free the sites of leaves: their unconstrained coordinates."""
        supports = self.layout.supports
        return {n: unconstrained(value.numpy(), supports[n]) for n, value in sites.items()}


class Routed(NamedTuple):
    """Log-probabilities of the branches, without meaning in nodes that do not split, and leaves."""

    left: Tensor  # (P, V, n)
    right: Tensor
    density: Tensor  # of y in the leaves, (P, L, n)


class NodeVotes(NamedTuple):
    """Scores (A, n) of nodes, log P(no vote) of their experts (A, K, n), and weights (A, K)."""

    score: Tensor
    silent: Tensor
    weight: Tensor


class ParticleLikelihood:
    """The rows, and the likelihood of particles on them (see :meth:`at`)."""

    def __init__(self, prior: ParticlePrior, data: Data) -> None:
        self.prior, self.model, self.layout = prior, prior.model, prior.layout
        model = prior.model
        plain = data.to(torch.empty(0, dtype=torch.float64))
        self.X = plain.with_ones().X
        self.y, self.weights = plain.y, plain.weights
        self.y_single = self.y.float() if self.y.is_floating_point() else self.y
        self.statistics = model.leaf.statistics(self.y, self.weights)
        self.children = model.topology.children
        self.power, self.steepness = 1.0, model.steepness
        #: temperatures at which the next part of the path begins, or the path ends
        self.ends = (0.5, 1.0) if model.steepness > 1 else (1.0,)
        per_particle = model.topology.n_nodes * model.split.n_experts * len(self.X)
        self.block = max(1, BLOCK // per_particle)

    def at(self, temperature: float) -> "ParticleLikelihood":
        """Return the rows at a temperature from 0, the prior, to 1, the posterior.

        First the power of the likelihood rises to 1, at a steepness of at most 1, where particles
        still find other splits. Then the steepness rises to the model's.
        """
        found, steepness = copy(self), self.model.steepness
        if steepness > 1:
            found.power = min(2 * temperature, 1.0)
            found.steepness = steepness ** max(2 * temperature - 1, 0.0)
        else:
            found.power = temperature
        return found

    def branches(self, free: Sites) -> tuple[Tensor, Tensor]:
        """Compute log-probabilities of left and right, (A, n), of A nodes with K experts each."""
        return routing.branch_log_probs(self._votes(free).score, self.steepness)

    def _votes(self, free: Sites) -> NodeVotes:
        plane, offset = (torch.from_numpy(free[name]) for name in ("hyperplane", "intercept"))
        coefficient = torch.cat((plane, offset.unsqueeze(-1)), -1)
        activation = coefficient.view(-1, coefficient.shape[-1]) @ self.X.T
        weighted = "log_weight" in free
        weight = torch.from_numpy(free["log_weight"]).exp() if weighted else torch.ones_like(offset)
        score, silent = routing.rates(activation.view(*offset.shape, len(self.y)), weight)
        return NodeVotes(score, silent, weight)

    def density(self, free: dict[str, Tensor]) -> Tensor:
        """Compute log p(y_n | leaf), (A, n), of A leaves."""
        return self.model.leaf.log_density(self.prior.leaf_sites_of(free)[0], self.y).T

    def routed(self, particles: Particles) -> Routed:
        """Evaluate all branches and leaves."""
        count, n_rows = len(particles.splits), len(self.y)
        topology = self.model.topology
        wide = self.X.new_zeros(2, count, topology.n_nodes, n_rows)
        found = Routed(wide[0], wide[1], self.X.new_zeros(count, topology.n_leaves, n_rows))
        with torch.no_grad():
            for part in self.blocks(count):
                block = particles.take(part)
                free = self.layout.free(block.vectors)
                left, right = self.branches(self._nodes(free, block.splits))
                splits = torch.from_numpy(block.splits)
                found.left[part][splits], found.right[part][splits] = left, right
                found.density[part] = self._leaves(free)
        return found

    def blocks(self, count: int) -> Iterator[slice]:
        return (slice(i, min(i + self.block, count)) for i in range(0, count, self.block))

    def _nodes(self, free: Sites, splits: BoolArray) -> Sites:
        names = ("log_weight", "hyperplane", "intercept")
        return {name: free[name][splits] for name in names if name in free}

    def _leaves(self, free: Sites | dict[str, Tensor]) -> Tensor:
        shapes = {name: free[name].shape for name in self.model.leaf.sites}
        flat = {n: torch.as_tensor(free[n]).reshape(-1, *shape[2:]) for n, shape in shapes.items()}
        count = next(iter(shapes.values()))[0]
        return self.density(flat).view(count, -1, len(self.y))

    def below(self, routed: Routed, splits: Tensor) -> list[Tensor]:
        """Compute U_v of every node, V arrays (P, n)."""
        found: list[Tensor] = [routed.density[:, 0]] * len(self.children)
        for node in range(len(self.children) - 1, -1, -1):
            left, right = (self.child(routed, found, child) for child in self.children[node])
            both = torch.logaddexp(routed.left[:, node] + left, routed.right[:, node] + right)
            found[node] = torch.where(splits[:, node, None], both, left)
        return found

    def child(self, routed: Routed, below: list[Tensor], child: int) -> Tensor:
        """Return U of a node or leaf, (P, n)."""
        return below[child] if child >= 0 else routed.density[:, ~child]

    def above(self, routed: Routed, below: list[Tensor], node: int) -> tuple[Tensor, Tensor]:
        """Compute log P(a node is reached), all above splitting, and log p(y_n, not), (P, n)."""
        path, last = [], node
        topology = self.model.topology
        while last:
            parent = int(topology.node_parent[last])
            path.append((parent, int(topology.children[parent, 1] == last)))
            last = parent
        reach = torch.zeros_like(routed.density[:, 0])
        rest = torch.full_like(reach, -torch.inf)
        for parent, right in reversed(path):
            branch = routed.left[:, parent], routed.right[:, parent]
            other = self.child(routed, below, topology.children[parent, 1 - right])
            rest = torch.logaddexp(rest, reach + branch[1 - right] + other)
            reach = reach + branch[right]
        return reach, rest

    def total(self, row: Tensor) -> FloatArray:
        """Weigh and sum log-likelihoods of the rows (..., n), shape (...)."""
        value: FloatArray = (row @ self.weights).numpy()
        return value

    def log_likelihood(self, particles: Particles) -> FloatArray:
        """Compute the log-likelihood of each particle, shape (P,)."""
        splits = torch.from_numpy(particles.splits)
        return self.total(self.root(self.routed(particles), splits))

    def root(self, routed: Routed, splits: Tensor) -> Tensor:
        """Compute log p(y_n), shape (P, n)."""
        return self.below(routed, splits)[0]

    def value_and_gradient(self, particles: Particles) -> tuple[FloatArray, FloatArray]:
        """Compute log-likelihoods (P,), and their gradients (P, D)."""
        value = np.empty(len(particles.splits))
        gradient = np.zeros_like(particles.vectors)
        for part in self.blocks(len(value)):
            value[part] = self._add_gradient(particles.take(part), gradient[part])
        return value, gradient

    def _add_gradient(self, particles: Particles, gradient: FloatArray) -> FloatArray:
        free, into = self.layout.free(particles.vectors), self.layout.free(gradient)
        nodes = self._nodes(free, particles.splits)
        splits = torch.from_numpy(particles.splits)
        raw = {n: torch.from_numpy(free[n].copy()).requires_grad_() for n in self.model.leaf.sites}
        density = self._leaves(raw)
        with torch.no_grad():
            votes = self._votes(nodes)
            left, right = routing.branch_log_probs(votes.score, self.steepness)
            wide = self._scattered(left, splits), self._scattered(right, splits)
            routed = Routed(*wide, density.detach())
            below = self.below(routed, splits)
            member, pull = self._masses(routed, below, splits)
            # d log-odds / d score = 1 / P(right) at a steepness of 1
            slope = self.steepness * pull[splits] / -torch.expm1(-votes.score)
            back = -torch.bmm(votes.silent, slope.unsqueeze(-1)).squeeze(-1)
            # the slope of softplus(z) = -silent is 1 - exp(silent)
            step = torch.expm1(votes.silent).neg_().mul_(slope.unsqueeze(1))
            plane = step.view(-1, len(self.y)) @ self.X
            plane = plane.view(*step.shape[:2], self.X.shape[1]) * votes.weight.unsqueeze(-1)
        if "log_weight" in into:
            into["log_weight"][particles.splits] = (back * votes.weight).numpy()
        into["hyperplane"][particles.splits] = plane[..., :-1].numpy()
        into["intercept"][particles.splits] = plane[..., -1].numpy()
        for name, slope in zip(
            raw, torch.autograd.grad(density, [*raw.values()], member), strict=True
        ):
            into[name][...] = slope.numpy()
        return self.total(below[0])

    def _scattered(self, branch: Tensor, splits: Tensor) -> Tensor:
        """Place values (A, n) of the nodes that split in (P, V, n)."""
        wide = branch.new_zeros(*splits.shape, branch.shape[-1])
        wide[splits] = branch
        return wide

    def _masses(self, routed: Routed, below: list[Tensor], splits: Tensor) -> tuple[Tensor, Tensor]:
        """Compute weighted posterior memberships of the rows in the leaves, (P, L, n).

        Also, of each node (P, V, n), the rows that turn right, less the number expected by its
        probability of turning right.
        """
        member, pull = torch.zeros_like(routed.density), torch.zeros_like(routed.left)
        mass = {0: self.weights.expand_as(below[0])}
        for node, (left, right) in enumerate(self.children):
            split, own = splits[:, node, None], mass[node]
            on_left = (routed.left[:, node] + self.child(routed, below, left) - below[node]).exp()
            on_left = torch.where(split, own * on_left, own)
            on_right = own - on_left
            pull[:, node] = on_right - routed.right[:, node].exp() * own
            for child, rows in ((left, on_left), (right, on_right)):
                if child >= 0:
                    mass[int(child)] = rows
                else:
                    member[:, ~child] = rows
        return member, pull
