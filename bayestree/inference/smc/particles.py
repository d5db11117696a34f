"""Trees of several topologies as particles of equal dimension.

A particle has the parameters of every node and leaf of the complete tree, and says which nodes
split. A node that does not split sends all rows to the left: the leaf that its rows reach is the
left-most one below it. Parameters that are not in use follow their priors (Carlin and Chib 1995),
so that a birth or a death of a split changes no dimension.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree._utils.seed import draw_seed, seeded
from bayestree.inference.nuts.density import Layout, Sites
from bayestree.models.soft_tree import SoftTree

MAX_LOG = 300.0  # of a positive parameter of a leaf: its square is a finite number
EXPERT = ("log_weight", "hyperplane", "intercept", "shrinkage")  # sites of experts


@dataclass(frozen=True)
class TreePrior:
    """Prior on topologies: a node at depth d splits with probability base (1 + d)^-power.

    Chipman, George and McCulloch (1998). Nodes below ``max_depth`` do not split.
    """

    base: float
    power: float

    def probability(self, depth: Any) -> FloatArray:
        """P(split) of nodes at given depths, if their parents split."""
        return self.base * (1.0 + np.asarray(depth)) ** -self.power


@dataclass
class Particles:
    """P particles: ``vectors`` (P, D) of all parameters, and whether each node splits, (P, V)."""

    vectors: FloatArray
    splits: BoolArray

    def take(self, chosen: Any) -> "Particles":
        return Particles(self.vectors[chosen], self.splits[chosen])

    def leaves_in_use(self, model: SoftTree) -> BoolArray:
        """Which leaves of the complete tree rows can reach, shape (P, L)."""
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
        self.sites = tuple(name for name in EXPERT if name in layout.shapes)

    def topologies(self, count: int, rng: np.random.Generator) -> BoolArray:
        """Whether each node splits, shape (count, V)."""
        topology = self.model.topology
        chance = self.trees.probability(topology.node_depth)
        splits = rng.random((count, topology.n_nodes)) < chance
        for node in range(1, topology.n_nodes):
            splits[:, node] &= splits[:, topology.node_parent[node]]
        return splits

    def particles(self, count: int, rng: np.random.Generator) -> Particles:
        """Independent draws of trees."""
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
        """Free sites of the experts of nodes, each (count, K, ...)."""
        shape = (count, self.n_experts)
        free = {
            name: np.empty((*shape, self.width) if name == "hyperplane" else shape)
            for name in self.sites
        }
        for prior in self.model.split_priors:
            prior.draw_expert(free, ..., rng)
        return free

    def experts(self, count: int, rng: np.random.Generator) -> Sites:
        """Free sites of single experts, each (count, ...)."""
        drawn = self.nodes(-(-count // self.n_experts), rng)
        return {n: v.reshape(-1, *v.shape[2:])[:count] for n, v in drawn.items()}

    def leaf_sites(self, count: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Sites of leaves, each (count, ...)."""
        leaf = self.model.leaf
        none = torch.empty(0, dtype=torch.float64)
        y = none.long() if leaf.n_classes else none
        empty = leaf.statistics(leaf.response(none.view(0, self.width), y), none)
        sums = empty.new_zeros(count, empty.shape[1])
        with seeded(draw_seed(rng)):
            return leaf.posterior(sums).sample()

    def log_density(self, sites: dict[str, torch.Tensor], splits: BoolArray) -> float:
        """Log prior density of a topology, as V indicators, and of its parameters."""
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
        """Whether all parameters (P, D) are finite, and the leaves distributions, shape (P,)."""
        found: BoolArray = np.asarray(np.isfinite(vectors).all(axis=1))
        for name, value in self.layout.free(vectors).items():
            if self.layout.supports[name] == "positive" and name in self.model.leaf.sites:
                found &= (np.abs(value) < MAX_LOG).all(axis=1)
        return found

    def moving(self, vectors: FloatArray, used: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Log prior density (P,) of the weights and leaves in use, and its gradient (P, D)."""
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
        """Sites of leaves from unconstrained coordinates, and the log-Jacobian of each leaf."""
        sites, volume = {}, torch.zeros(())
        for name in self.model.leaf.sites:
            value, support = free[name], self.layout.supports[name]
            if support == "simplex":
                logs = torch.log_softmax(torch.nn.functional.pad(value, (0, 1)), -1)
                volume = volume + logs.sum(-1)
                sites[name] = logs.exp().clamp_min(torch.finfo(logs.dtype).tiny)
            elif support == "positive":
                volume = volume + value
                sites[name] = value.exp()
            else:
                sites[name] = value
        return sites, volume

    def leaf_free(self, sites: dict[str, torch.Tensor]) -> Sites:
        """Unconstrained coordinates of sites of leaves."""
        free = {}
        for name, value in sites.items():
            support, number = self.layout.supports[name], value.numpy()
            if support == "simplex":
                number = np.log(number)
                number = number[..., :-1] - number[..., -1:]
            free[name] = np.log(number) if support == "positive" else number
        return free
