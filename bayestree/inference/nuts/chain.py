"""The state of a Markov chain of NUTS, where it starts, and how it is resumed."""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.nuts.density import TreeDensity
from bayestree.inference.nuts.hamiltonian import (
    GradientMoments,
    Information,
    Move,
    StepSize,
    expert_blocks,
    gradient_of_data,
)
from bayestree.inference.posterior import Posterior

METRIC_DRAWS = 20  # maximum number of initial draws that determine the first mass matrix
NEAR = 0.1  # standard deviation of the starts about a point estimate


@dataclass
class Chain:
    """The state and records of a chain: everything needed to resume it."""

    position: FloatArray
    information: GradientMoments
    rng: np.random.Generator
    done: int = 0
    n_steps: int = 0  # gradients of all transitions
    diverged: bool = False  # whether a transition since the last draw did
    energy: float = math.nan  # of the last transition
    squared_changes: float = 0.0  # of the energy, summed over the transitions since the last draw
    step: StepSize | None = None
    running: Information | None = None
    vectors: list[FloatArray] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    refreshed: list[float] = field(default_factory=list)
    energy_changes: list[float] = field(default_factory=list)  # root mean squares by draw

    def state_dict(self) -> dict[str, Any]:
        running = self.running
        return {
            "position": self.position,
            "information": tuple(self.information),
            "rng": self.rng.bit_generator.state,
            "done": self.done,
            "n_steps": self.n_steps,
            "diverged": self.diverged,
            "energy": (self.energy, self.squared_changes),
            "step": None if self.step is None else astuple(self.step),
            "running": None if running is None else running.state_dict(),
            "vectors": np.array(self.vectors),
            "values": np.array(self.values),
            "moves": [np.array(column) for column in zip(*self.moves, strict=True)],
            "refreshed": np.array(self.refreshed),
            "energy_changes": np.array(self.energy_changes),
        }

    def load_state_dict(self, state: Mapping[str, Any], blocks: IntArray) -> None:
        """Restore a state; ``blocks`` are those of the density."""
        self.position, self.information = state["position"], GradientMoments(*state["information"])
        self.rng.bit_generator.state = state["rng"]
        self.done, self.n_steps = state["done"], state["n_steps"]
        self.diverged = state["diverged"]
        self.energy, self.squared_changes = state["energy"]
        self.step = None if state["step"] is None else StepSize(*state["step"])
        running = state["running"]
        self.running = None if running is None else Information.restored(blocks, running)
        self.vectors, self.values = list(state["vectors"]), state["values"].tolist()
        columns = [column.tolist() for column in state["moves"]]
        self.moves = [Move(*values) for values in zip(*columns, strict=True)]
        self.refreshed = state["refreshed"].tolist()
        self.energy_changes = state["energy_changes"].tolist()


@dataclass
class RunningChains:
    """Chains under way, as a part of a loop."""

    chains: list[Chain]
    blocks: IntArray

    def state_dict(self) -> dict[str, Any]:
        return {"chains": [chain.state_dict() for chain in self.chains]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for chain, one in zip(self.chains, state["chains"], strict=True):
            chain.load_state_dict(one, self.blocks)


def starts(
    density: TreeDensity, init: Posterior, n_chains: int, rng: np.random.Generator
) -> list[Chain]:
    """Chains at draws of a posterior, or near a point estimate."""
    weight = density.model.priors.weight  # whose hyperparameters a point estimate lacks
    hyper = {name: np.array(getattr(weight, name)) for name in weight.hyper_priors}
    draws = [
        density.layout.vector(hyper | {n: value[chain, draw] for n, value in init.draws.items()})
        for chain in range(init.n_chains)
        for draw in range(init.n_draws)
    ]
    chosen = rng.choice(len(draws), n_chains, replace=len(draws) < n_chains)
    near = NEAR if len(draws) == 1 else 0.0
    some = draws[:: -(-len(draws) // METRIC_DRAWS)]
    gradients = np.array([gradient_of_data(density, draw) for draw in some])
    information = Information.of(gradients, expert_blocks(density.layout))
    return [
        Chain(draws[draw] + near * own.standard_normal(density.layout.length), information, own)
        for draw, own in zip(chosen, rng.spawn(n_chains), strict=True)
    ]
