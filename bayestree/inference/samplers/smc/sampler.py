"""One run of sequential Monte Carlo: particles move from the prior to the posterior.

Between two temperatures the particles are weighted by the ratio of the tempered likelihoods, whose
mean estimates the ratio of the normalising constants (Del Moral, Doucet and Jasra 2006). The
temperatures follow from the effective number of particles. A share of the particles is resampled
and moved in several rounds, and the states after every round are the particles of the new
temperature (waste-free, Dau and Chopin 2022). The estimate of the evidence is consistent; it would
be unbiased if temperatures, step sizes and masses did not adapt to the particles.

Between draws of the scales, all particles take Hamiltonian trajectories at once. Given the scales
of the coefficients the prior is normal, and its precision, which spans many orders of magnitude,
enters the mass of each coefficient. The curvature of the likelihood is estimated from the gradients
of all particles.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.inference.samplers.smc.moves import MOVES, ParticleMoves, births_and_deaths
from bayestree.inference.samplers.smc.particles import ParticleLikelihood, ParticlePrior, Particles

STEPS = 8  # leapfrog steps of a trajectory
TARGET = 0.75  # mean acceptance probability
SPREAD = 4.0  # ratio of the largest step size to the smallest
RATE = 0.3  # of the adaptation of the logarithm of the step size
PRECISION = 1e-3  # of the steps of the temperature
REPRESENTATIVES = 250  # particles that stand for all where each has to be evaluated, at least
MIN_SPREAD = 1e-3  # of a parameter under the prior
CURVATURE_RATE = 0.5  # weight of new gradients in the running estimate of the curvature
N_FRESH, N_SLIDES = 2, 4  # in each round of moves


class Moved(NamedTuple):
    """Result of a trajectory of each particle."""

    particles: Particles
    acceptance: float
    second_moment: FloatArray  # of the gradients of the log-likelihood, (D,)


class Trajectories:
    """Trajectories at a temperature, given scales drawn for each particle."""

    def __init__(
        self,
        rows: ParticleLikelihood,
        prior: ParticlePrior,
        curvature: FloatArray,
        spread: FloatArray,
    ) -> None:
        self.rows, self.prior, self.power = rows, prior, rows.power
        self.curvature, self.spread = curvature, spread
        self.moving = prior.layout.n_moving

    def move(self, particles: Particles, step_size: float, rng: np.random.Generator) -> Moved:
        """Follow one trajectory of each particle, accepted by its energy."""
        layout, hyperplane = self.prior.layout, self.prior.model.priors.hyperplane
        self.used = self._in_use(particles)
        free = layout.free(particles.vectors)
        hyperplane.redraw(free, rng)
        self.precision = np.zeros_like(particles.vectors)
        into, drawn = layout.free(self.precision), hyperplane.draw_precision(free, rng)
        into["hyperplane"][...], into["intercept"][...] = drawn[..., :-1], drawn[..., -1]
        self.law_precision = self.precision.copy()
        coefficients = self.precision > 0
        self.precision += np.where(coefficients, 0.0, 1.0 / self.spread**2) + self.curvature
        count = len(particles.vectors)
        step = step_size * SPREAD ** -rng.random((count, 1)) / np.sqrt(self.precision) * self.used
        momentum = rng.standard_normal(particles.vectors.shape) * self.used
        value, slope, data = self._value_and_gradient(particles)
        start = value - 0.5 * (momentum**2).sum(1)
        moved = Particles(particles.vectors.copy(), particles.splits)
        second = (data**2 * self.used).sum(0) / np.maximum(self.used.sum(0), 1)
        lost = np.zeros(count, dtype=bool)
        for _ in range(STEPS):
            momentum += 0.5 * step * slope
            moved.vectors += step * momentum
            lost |= ~self.prior.possible(moved.vectors)
            moved.vectors[lost] = particles.vectors[lost]
            value, slope, data = self._value_and_gradient(moved)
            momentum += 0.5 * step * slope
        gain = value - 0.5 * (momentum**2).sum(1) - start
        gain = np.where(np.isfinite(gain) & ~lost, gain, -np.inf)
        accept = -rng.standard_exponential(count) < gain
        moved.vectors[~accept] = particles.vectors[~accept]
        return Moved(moved, float(np.exp(np.minimum(gain, 0.0)).mean()), second)

    def _in_use(self, particles: Particles) -> BoolArray:
        """Mark coordinates that move: of nodes that split, and of leaves in use, (P, D)."""
        used = np.zeros(particles.vectors.shape, dtype=bool)
        free = self.prior.layout.free(used)
        for name in ("log_weight", "hyperplane", "intercept"):
            if name in free:
                free[name][particles.splits] = True
        leaves = particles.leaves_in_use(self.prior.model)
        for name in self.prior.model.leaf.sites:
            free[name][leaves] = True
        used[:, self.moving :] = False
        return used

    def _value_and_gradient(
        self, particles: Particles
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compute the tempered log-density (P,), its gradient, and the likelihood's."""
        value, gradient = self.rows.value_and_gradient(particles)
        value, gradient = self.power * value, self.power * gradient
        prior_value, prior_gradient = self.prior.moving(particles.vectors, self.used)
        pull = self.law_precision * particles.vectors * self.used
        value = value + prior_value - 0.5 * (pull * particles.vectors).sum(1)
        return value, (gradient + prior_gradient - pull) * self.used, gradient


@dataclass
class SmcRun:
    """The particles of a run at a temperature: all that is needed to resume it."""

    particles: Particles
    log_likelihood: FloatArray
    curvature: FloatArray
    spread: FloatArray  # standard deviations of the parameters under the prior
    rng: np.random.Generator
    step_size: float = 0.2
    temperature: float = 0.0
    log_evidence: float = 0.0
    #: of each temperature: itself, and the shares of attempts that changed a particle, by MOVES
    changes: list[list[float]] = field(default_factory=list)

    @classmethod
    def of(
        cls, prior: ParticlePrior, rows: ParticleLikelihood, count: int, rng: np.random.Generator
    ) -> "SmcRun":
        """Draw particles from the prior."""
        particles = prior.particles(count, rng)
        spread = np.maximum(particles.vectors.std(axis=0), MIN_SPREAD)
        value = rows.at(0.0).log_likelihood(particles)
        return cls(particles, value, np.zeros_like(spread), spread, rng)

    def thinned(self, count: int) -> "SmcRun":
        """Keep ``count`` of the particles, evenly spaced among the ancestors: their last states."""
        chosen = np.arange(1, count + 1) * len(self.log_likelihood) // count - 1
        return replace(
            self, particles=self.particles.take(chosen), log_likelihood=self.log_likelihood[chosen]
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "vectors": self.particles.vectors,
            "splits": self.particles.splits,
            "log_likelihood": self.log_likelihood,
            "curvature": self.curvature,
            "spread": self.spread,
            "rng": self.rng.bit_generator.state,
            "numbers": (self.step_size, self.temperature, self.log_evidence),
            "changes": self.changes,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.particles = Particles(state["vectors"], state["splits"])
        self.log_likelihood = state["log_likelihood"]
        self.curvature, self.spread = state["curvature"], state["spread"]
        self.rng.bit_generator.state = state["rng"]
        self.step_size, self.temperature, self.log_evidence = state["numbers"]
        self.changes = state["changes"]


def advance(
    run: SmcRun, prior: ParticlePrior, rows: ParticleLikelihood, efficiency: float, rounds: int
) -> None:
    """Move a run to its next temperature, where a share ``efficiency`` of it is effective."""
    new = next_temperature(run, rows, efficiency)
    before, rows = rows.at(run.temperature), rows.at(new)
    log_weight = log_ratio(run.particles, run.log_likelihood, before, rows)
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    run.log_evidence += float(top + np.log(weight.mean()))
    if before.power > 0:
        # the curvature of likelihood^t grows with t
        run.curvature = run.curvature * (rows.power / before.power)
    count, run.temperature = len(weight), new
    moving = run.particles.take(systematic(weight, -(-count // rounds), run.rng))
    states, counts = [], np.zeros((len(MOVES), 2))
    for _ in range(rounds):
        moving, value, made = move_once(run, moving, prior, rows)
        counts += made
        states.append((moving.vectors.copy(), moving.splits.copy(), value))
    # the states of one ancestor follow each other; the first ones fill up an incomplete round
    vectors, splits, value = (
        np.stack(part, axis=1).reshape(-1, *part[0].shape[1:])[-count:]
        for part in zip(*states, strict=True)
    )
    run.particles, run.log_likelihood = Particles(vectors, splits), value
    with np.errstate(invalid="ignore"):  # a move without attempts
        run.changes.append([new, *(counts[:, 0] / counts[:, 1]).tolist()])


def move_once(
    run: SmcRun, particles: Particles, prior: ParticlePrior, rows: ParticleLikelihood
) -> tuple[Particles, FloatArray, FloatArray]:
    """Make a round of all moves; return log-likelihoods, and changes and attempts by MOVES."""
    rng = run.rng
    prior.refresh(particles.vectors, particles.splits, particles.leaves_in_use(prior.model), rng)
    with np.errstate(over="ignore", invalid="ignore"):
        path = Trajectories(rows, prior, run.curvature, run.spread)
        moved = path.move(particles, run.step_size, rng)
    particles = moved.particles
    run.curvature += CURVATURE_RATE * (moved.second_moment - run.curvature)
    run.step_size *= float(np.exp(RATE * (moved.acceptance - TARGET)))
    value, made = np.empty(len(particles.splits)), np.zeros((len(MOVES), 2))
    for part in rows.blocks(len(value)):
        value[part], counts = _move_block(particles.take(part), prior, rows, rng)
        made += counts
    made[MOVES.index("trajectory")] = moved.acceptance, 1.0
    return particles, value, made


def _move_block(
    particles: Particles, prior: ParticlePrior, rows: ParticleLikelihood, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Make moves other than trajectories, in place, of as many particles as fit in a cache."""
    moves = ParticleMoves(rows, prior, particles, rng)
    for node in range(prior.model.topology.n_nodes - 1, -1, -1):
        births_and_deaths(moves, node)
    for _ in range(N_FRESH):
        moves.fresh_experts()
    for _ in range(N_SLIDES):
        moves.slide()
    moves.leaves()
    return moves.log_likelihood(), np.array([moves.counts[name] for name in MOVES])


def log_ratio(
    particles: Particles,
    log_likelihood: FloatArray,
    before: ParticleLikelihood,
    after: ParticleLikelihood,
) -> FloatArray:
    """Compute the log ratio of the tempered likelihoods at two temperatures, shape (P,)."""
    same = before.steepness == after.steepness
    new = log_likelihood if same else after.log_likelihood(particles)
    # a draw of the prior may have the likelihood 0, and 0 * -inf is not a number
    old = before.power * log_likelihood if before.power else 0.0
    return after.power * new - old


def next_temperature(run: SmcRun, rows: ParticleLikelihood, efficiency: float) -> float:
    """Find the largest temperature at which the effective share of particles is ``efficiency``.

    At most the end of a part of the path. Where the steepness changes, some of the particles stand
    for all.
    """
    end, before = next(end for end in rows.ends if end > run.temperature), rows.at(run.temperature)
    changes = rows.at(end).steepness != before.steepness
    some = slice(None, None, max(len(run.log_likelihood) // REPRESENTATIVES, 1) if changes else 1)
    particles, value = run.particles.take(some), run.log_likelihood[some]

    def enough(temperature: float) -> bool:
        ratio = log_ratio(particles, value, before, rows.at(temperature))
        weight = np.exp(ratio - ratio.max())
        return bool(weight.sum() ** 2 >= efficiency * len(weight) * (weight @ weight))

    if enough(end):
        return end
    low, high = run.temperature, end
    while high - low > PRECISION * (high - run.temperature):
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return high


def systematic(weight: FloatArray, count: int, rng: np.random.Generator) -> IntArray:
    """Draw numbers of particles in proportion to their weights, with one random offset."""
    shares = np.cumsum(weight) / weight.sum()
    points = (np.arange(count) / count + rng.random()) % 1.0
    chosen: IntArray = np.minimum(np.searchsorted(shares, points), len(weight) - 1)
    return chosen
