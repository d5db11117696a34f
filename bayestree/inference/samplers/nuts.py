"""The No-U-Turn sampler for soft trees: chains that start from a fit, in parallel processes."""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parameters import Count, Inference, Positive, Probability, Size, declare
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, draw_seed
from bayestree.inference.convergence import coefficient_balance, warn_of_undetermined
from bayestree.inference.data import Data
from bayestree.inference.posterior import Arrays, Posterior, at_medoid
from bayestree.inference.samplers import ChainSampler, Runs, keeps, recorded, segments, started
from bayestree.inference.samplers.density import NumpyDensity, TorchDensity, TreeDensity, density_of
from bayestree.inference.samplers.expert_moves import ExpertMoves
from bayestree.inference.samplers.hamiltonian import (
    GradientMoments,
    Information,
    Move,
    StepSize,
    WhitenedDensity,
    expert_blocks,
    first_step_size,
    gradient_of_data,
    transition,
)
from bayestree.inference.stage import as_function
from bayestree.models.soft_tree import SoftTree

METRIC_DRAWS = 20  # maximum number of initial draws that determine the first mass matrix
#: State of a chain that is kept as it is, and its lists of arrays or numbers.
PLAIN = ("position", "done", "n_steps", "diverged", "energy", "squared_changes")
RECORDS = ("vectors", "values", "refreshed", "energy_changes")
NEAR = 0.1  # standard deviation of the starts about a point estimate
MIN_SECONDS = 20.0  # minimum CPU time of a run in processes; each imports torch for five seconds
SEGMENTS = 20  # parts of a run, between which progress is shown
FORECAST = 50  # transitions after which the time of a run is forecast
#: Windows of the warm-up, as in Stan: length of the first; where they start and end, as shares.
FIRST_WINDOW, OPENING, CLOSING = 25, 0.15, 0.9


@dataclass
class Chain:
    """The state and records of a chain: everything needed to resume it."""

    position: FloatArray
    information: GradientMoments
    blocks: IntArray  # see ``expert_blocks``
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
            **{name: getattr(self, name) for name in PLAIN},
            **{name: np.array(getattr(self, name)) for name in RECORDS},
            "information": tuple(self.information),
            "rng": self.rng.bit_generator.state,
            "step": None if self.step is None else astuple(self.step),
            "running": None if running is None else running.state_dict(),
            "moves": [np.array(column) for column in zip(*self.moves, strict=True)],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in PLAIN:
            setattr(self, name, state[name])
        for name in RECORDS:
            setattr(self, name, list(state[name]))
        self.information = GradientMoments(*state["information"])
        self.rng.bit_generator.state = state["rng"]
        self.step = None if state["step"] is None else StepSize(*state["step"])
        running = state["running"]
        self.running = None if running is None else Information.restored(self.blocks, running)
        columns = [column.tolist() for column in state["moves"]]
        self.moves = [Move(*values) for values in zip(*columns, strict=True)]


def starts(
    density: TreeDensity, init: Posterior, n_chains: int, rng: np.random.Generator
) -> list[Chain]:
    """Start chains at draws of a posterior, or near a point estimate."""
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
    blocks, length = expert_blocks(density.layout), density.layout.length
    information = Information.of(gradients, blocks)
    return [
        Chain(draws[draw] + near * own.standard_normal(length), information, blocks, own)
        for draw, own in zip(chosen, rng.spawn(n_chains), strict=True)
    ]


@declare
class Chains:
    """Settings of samplers that estimators pass on."""

    n_chains: Annotated[
        Count, Inference("Chains of NUTS and MCMC, or independent runs of SMC.")
    ] = 4
    n_warmup: Annotated[
        Size, Inference("Adaptation steps of each chain of NUTS; sweeps of MCMC that are left out.")
    ] = 500
    target_acceptance: Annotated[
        Probability,
        Inference(
            "Mean acceptance probability to which NUTS adapts its step size; values nearer to 1 "
            "give smaller steps and fewer divergences."
        ),
    ] = 0.9
    max_tree_depth: Annotated[
        Count, Inference("Maximum number of doublings of a trajectory of NUTS.")
    ] = 8
    n_jobs: Annotated[
        int | None,
        Inference(
            "Processes for the chains of NUTS, as in joblib, unless the run takes a few seconds, "
            "and for the runs of SMC; they do not affect the results."
        ),
    ] = None


@declare
class Nuts(Chains, ChainSampler):
    """Settings of the No-U-Turn sampler.

    {parameters}
    """

    n_draws: Annotated[Count, Inference("Draws from each chain after the warm-up.")] = 500
    thinning: Annotated[
        Count, Inference("Transitions for each draw that is kept; 4 by default in estimators.")
    ] = 1
    n_refreshes: Annotated[
        Size,
        Inference(
            "Experts redrawn from the prior as proposals in each transition; only with "
            "InverseGammaScale priors on hyperplanes and without hyper-priors."
        ),
    ] = 10
    n_slides: Annotated[
        Size,
        Inference(
            "Proposals in each transition to change the weight and size of an expert, or the "
            "weights of two, without moving the boundary; where experts are redrawn "
            "(see n_refreshes)."
        ),
    ] = 40
    mirror: Annotated[
        bool,
        Inference(
            "Also propose, half as often, to flip a facet and to swap the branches below. A node "
            "of one facet has two modes, with inside and outside exchanged; chains then move "
            "between them, predictions cover both, and the sides of a node have no fixed meaning. "
            "Ignored where no experts are redrawn (see n_refreshes)."
        ),
    ] = False
    drop_idle: Annotated[
        bool,
        Inference(
            "Sample without the nodes that the deterministic tree of the start would not keep, and "
            "with twice as many experts in each node as the largest number of facets in use (at "
            "least 4). The default of estimators."
        ),
    ] = False
    time_limit: Annotated[
        Positive | None,
        Inference(
            "Maximum CPU time in seconds, of all chains. A run whose first transitions forecast "
            "more ends there with a RuntimeError. None: no limit."
        ),
    ] = 7200.0
    keep_warmup: Annotated[
        bool, Inference("Keep the warm-up in warmup_draws and warmup_stats.")
    ] = False

    in_estimators = {"n_draws": 250, "thinning": 4, "drop_idle": True}

    @property
    def windows(self) -> list[int]:
        """Transitions after which the mass matrix is updated; each window is twice the last."""
        first, last = int(OPENING * self.n_warmup), int(CLOSING * self.n_warmup)
        ends, end, width = [], first, FIRST_WINDOW
        while end < last:
            end = last if end + 3 * width > last else end + width
            width *= 2
            ends.append(end)
        return ends

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        init: Posterior,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> Posterior:
        """Sample the posterior of a soft tree of given topology.

        Each transition has four parts that leave the posterior invariant: the No-U-Turn sampler
        (Hoffman and Gelman 2014, as in Stan) given the shrinkages b; the shrinkages given the
        rest, through their scales, whose conditionals are conjugate; single experts, proposed
        from the prior; and slides along the boundaries of experts. The second keeps the sampler
        out of the funnel where b and its coefficients vanish together; the third moves idle
        experts in one step and creates facets, where the weights of a gamma process alone would
        mix slowly; the fourth changes how the weight of an expert and the size of its
        coefficients share the same boundary.

        Parameters
        ----------
        model : SoftTree
            With likelihood ``mixture``, finite steepness and proper priors on the weights; scales
            of hyperplanes are integrated out.
        data : Data
            n rows.
        init : Posterior
            A posterior of the same topology. Chains start at its draws, and the gradients there
            give the first mass matrix.
        {parameters}

        Returns
        -------
        Posterior
            ``stats`` holds, each (chain, draw): ``lp`` (the log joint density of the sites),
            ``energy``, ``diverging``, ``tree_depth``, ``reached_max_treedepth``, ``n_steps``,
            ``acceptance_rate``, ``step_size`` and ``refreshed`` (share of proposed experts that
            were accepted), of the last transition of each draw; but ``diverging`` says whether any
            of its transitions did, and ``energy_change`` is the root mean square change of the
            energy from one transition to the next. Under an improper prior also
            ``coefficient_balance`` and its error, by node. ``point`` is the draw whose predictions
            are nearest to the posterior mean.

        Raises
        ------
        ValueError
            For invalid settings, a start of another topology or with other sites, a tree without
            a split, plug-in leaves, or improper weights.
        RuntimeError
            If the forecast of the CPU time exceeds ``time_limit``.

        Warns
        -----
        ConvergenceWarning
            Under an improper prior, for nodes whose coefficients the rows do not determine.

        Notes
        -----
        The likelihood of a soft tree does not vanish as coefficients go to infinity, so that its
        posterior is improper under ``Flat``, ``Spatial`` and ``Laplace`` without
        ``intercept_scale``. Where the rows are informative enough about a split, the mode near the
        start is separated from infinity by many nats, and chains stay in it.
        """
        self.check(model)
        init = self._checked(model, init, data)
        model = init.model
        density = density_of(model, data)
        plain = data._replace(X=data.X.cpu(), y=data.y.cpu(), weights=data.weights.cpu())
        rng = np.random.default_rng(draw_seed(random_state))
        runs = Runs(starts(density, init, self.n_chains, rng))
        most = self.n_chains * self.total * 2**self.max_tree_depth * density.seconds
        with Parallel(n_jobs=self.n_jobs if most > MIN_SECONDS else 1) as pool:
            track = Track(
                segments(self.total, SEGMENTS), "nuts", show=progress, parts={"chains": runs}
            )
            for length in track:
                runs.each = pool(
                    delayed(_advance)(model, plain, chain, self, length) for chain in runs.each
                )
                self._check_time(runs.each, length, density.seconds)
                warm = runs.each[0].done <= self.n_warmup
                diverging = sum(move.diverging for chain in runs.each for move in chain.moves)
                track.note("warm-up" if warm else f"{diverging} divergences")
        found = started(_posterior(density, plain, runs.each, self), init)
        warn_of_undetermined(found)
        return found

    def _check_time(self, chains: list[Chain], length: int, seconds: float) -> None:
        """Stop a run after its first 50 transitions if they show that it is hopeless.

        The forecast counts gradients of a nominal time, so that it does not depend on the load of
        the machine: the same run always has the same result.
        """
        done, total = chains[0].done, self.total
        if self.time_limit is None or not done - length < FORECAST <= done:
            return
        forecast = sum(chain.n_steps for chain in chains) * seconds * total / done
        if forecast > self.time_limit:
            raise RuntimeError(
                f"NUTS would take about {forecast / 60:,.0f} minutes of CPU time, as its first "
                f"{done} transitions show ({forecast / total / seconds / len(chains):,.0f} "
                f"gradients each), more than time_limit={self.time_limit:g} seconds. Use "
                "inference='svi', a smaller tree (max_depth, n_experts), fewer rows, a smaller "
                "max_tree_depth, fewer draws or chains, or a larger time_limit."
            )


nuts = as_function(Nuts, "nuts")


def _advance(model: SoftTree, data: Data, chain: Chain, settings: Nuts, length: int) -> Chain:
    """Run some transitions of a chain, in a worker process."""
    # there are too few rows for threads to help, and the other chains use the cores
    with threadpool_limits(limits=1), np.errstate(over="ignore", invalid="ignore"):
        density = density_of(model, data)
        moves = None
        if isinstance(density, NumpyDensity) and ExpertMoves.covers(density.model):
            moves = ExpertMoves(density.model, density.layout, density.value)
        for _ in range(length):
            _transition(density, moves, chain, settings)
    return chain


def _transition(
    density: TreeDensity, moves: ExpertMoves | None, chain: Chain, settings: Nuts
) -> None:
    warm = chain.done < settings.n_warmup
    given = WhitenedDensity(density, chain.position, chain.information)
    place = given.place()
    if chain.step is None:
        start = first_step_size(given, place, chain.rng)
        chain.step = StepSize.of(start, settings.target_acceptance)
    place, move = transition(
        given,
        place,
        step_size=chain.step.during if warm else chain.step.after,
        max_depth=settings.max_tree_depth,
        generator=chain.rng,
    )
    chain.done += 1
    chain.n_steps += move.n_steps
    chain.diverged |= move.diverging
    chain.squared_changes += np.nan_to_num(move.energy - chain.energy) ** 2  # the first has none
    chain.energy = move.energy
    if warm:
        chain.step.update(move.acceptance_rate)
        _adapt(density, chain, given.vector(place.position), settings)
    vector = given.vector(place.position)
    if density.layout.n_moving < density.layout.length:
        density.model.priors.hyperplane.redraw(density.layout.free(vector), chain.rng)
    value, accepted = density.value(vector), 0
    if moves is not None:
        for _ in range(settings.n_refreshes):
            moved, value = moves.refresh(vector, value, chain.rng)
            accepted += moved is not vector
            vector = moved
        for _ in range(-(-settings.n_refreshes // 2) if settings.mirror else 0):
            vector, value = moves.mirror(vector, value, chain.rng)
        for _ in range(settings.n_slides):
            vector, value = moves.slide(vector, value, chain.rng)
    chain.position = vector
    kept = keeps(settings, chain.done)
    if kept:
        chain.vectors.append(vector)
        chain.values.append(value)
        chain.moves.append(move._replace(diverging=chain.diverged))
        chain.refreshed.append(accepted / max(settings.n_refreshes, 1))
        length = 1 if warm else settings.thinning
        chain.energy_changes.append(math.sqrt(chain.squared_changes / length))
    if kept or warm:
        chain.diverged, chain.squared_changes = False, 0.0


def _adapt(density: TreeDensity, chain: Chain, vector: FloatArray, settings: Nuts) -> None:
    """Estimate the mass matrix in windows, and restart the tuning of the step size after each."""
    windows = settings.windows
    if not windows or not int(OPENING * settings.n_warmup) < chain.done <= windows[-1]:
        return
    if chain.running is None:
        chain.running = Information(chain.blocks, chain.information)
    chain.running.add(gradient_of_data(density, vector))
    if chain.done in windows:
        chain.information, chain.running = chain.running.estimate, None
        chain.step = None


def _posterior(density: TreeDensity, data: Data, chains: list[Chain], settings: Nuts) -> Posterior:
    vectors = np.array([chain.vectors for chain in chains])
    stats = _stats(density, data, chains, vectors)
    draws = density.layout.sites(vectors)
    found = recorded(settings, density.model, draws, stats, "nuts")
    balance = coefficient_balance(found, data)
    return at_medoid(replace(found, stats={**found.stats, **balance}), data)


def _stats(density: TreeDensity, data: Data, chains: list[Chain], vectors: FloatArray) -> Arrays:
    stats: dict[str, Any] = {
        name: np.array([[getattr(move, name) for move in chain.moves] for chain in chains])
        for name in Move._fields
    }
    stats["refreshed"] = np.array([chain.refreshed for chain in chains])
    stats["energy_change"] = np.array([chain.energy_changes for chain in chains])
    # the samplers' log-density includes the Jacobian and omits constants
    free = np.array([chain.values for chain in chains]) - density.layout.log_jacobian(vectors)
    first = vectors[0, 0]
    exact = TorchDensity(density.model, data).value(first) - density.layout.log_jacobian(first)
    return {"lp": free + (exact - free[0, 0])} | stats
