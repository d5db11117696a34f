"""Sequential Monte Carlo for small trees, their topology included."""

import hashlib
from dataclasses import replace
from typing import Annotated, Any, Self

import numpy as np
import torch
from joblib import Parallel, delayed
from pydantic import Field
from threadpoolctl import threadpool_limits

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.parallel import threads_for
from bayestree._utils.parameters import Count, Inference, Model, NonNegative, Positive, declare
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, draw_seed
from bayestree.inference.data import Data
from bayestree.inference.posterior import Arrays, Posterior, at_medoid
from bayestree.inference.samplers import Runs
from bayestree.inference.samplers.density import Layout
from bayestree.inference.samplers.expert_moves import ExpertMoves
from bayestree.inference.samplers.smc.moves import MOVES
from bayestree.inference.samplers.smc.particles import ParticleLikelihood, ParticlePrior, TreePrior
from bayestree.inference.samplers.smc.sampler import SmcRun, advance
from bayestree.inference.stage import Stage, as_function
from bayestree.inference.training import check_soft
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology

MAX_DEPTH, MAX_ROWS = 3, 2_000
LEAST_RESAMPLED = 10  # particles of a run, at each temperature
RESAMPLED = 250  # by default, where the rounds of moves are not fewer or more than
LEAST_ROUNDS, MOST_ROUNDS = 4, 12
SEGMENTS = 40  # steps of the progress
SILENT = -1e3  # log-weight (or intercept) of a node that does not split: exp gives 0
# The log-odds of such a node are about -700 times the steepness, whose exp must be negligible.
LEAST_STEEPNESS = 0.05


@declare
class Smc(Stage):
    """Settings of sequential Monte Carlo.

    {parameters}
    """

    n_chains: Annotated[
        Count, Inference("Independent runs; their agreement is the check of the result.")
    ] = 4
    n_draws: Annotated[
        Annotated[int, Field(ge=2)],
        Inference("Draws that are kept of each run, the draws of a chain."),
    ] = 1000
    n_particles: Annotated[
        Count | None,
        Inference(
            "Particles of each run, at least n_draws; None: n_draws. More of them bring the runs "
            "closer together at no cost in memory later."
        ),
    ] = None
    max_depth: Annotated[
        Count, Model("Maximum number of splits on a path from the root to a leaf, at most 3.")
    ] = 2
    max_experts: Annotated[
        Count | None,
        Model(
            "Maximum number of experts of a node, where the model has more: the gamma process is "
            "truncated further. 4 by default in estimators."
        ),
    ] = None
    split_base: Annotated[
        Annotated[float, Field(gt=0, lt=1)],
        Model(
            "Prior probability that the root splits. A node at depth d splits with probability "
            "split_base (1 + d)^-split_power, as in BART."
        ),
    ] = 0.95
    split_power: Annotated[
        NonNegative, Model("How fast the prior probability of a split falls with depth.")
    ] = 2.0
    steepness: Annotated[
        Positive | None, Inference("Factor of the log-odds of every split; None: the model's.")
    ] = None
    efficiency: Annotated[
        Annotated[float, Field(gt=0, lt=1)],
        Inference(
            "Effective share of the particles after each change of temperature; larger values "
            "give more temperatures."
        ),
    ] = 0.6
    n_rounds: Annotated[
        Count | None,
        Inference(
            "Rounds of moves at each temperature, but at most one for every ten particles. One in "
            "n_rounds of the particles is resampled and moved, and its states after every round "
            "are kept. By default one for every 250 particles, and from 4 to 12."
        ),
    ] = None
    n_jobs: Annotated[
        int | None,
        Inference("Processes for the runs, as in joblib; they do not affect the results."),
    ] = None

    in_estimators = {"max_experts": 4}
    needs_double = True
    samples_topology = True
    default_steepness = 1.0  # where independent runs agree

    def steepness_for(self, n_classes: int) -> float:
        # Numbers that jump by more than their noise have far more evidence under steep splits.
        return self.default_steepness if n_classes else 6.0

    @property
    def draws(self) -> tuple[int, int]:
        return self.n_chains, self.n_draws

    def default_depth(self, n_classes: int) -> int:
        return self.max_depth

    def check(self, model: SoftTree) -> None:
        super().check(model)
        if self.max_depth > MAX_DEPTH:
            raise ValueError(
                f"max_depth must be at most {MAX_DEPTH} for inference='smc', got {self.max_depth}: "
                "it samples the topology of small trees. Set max_depth=2, or use inference='svi'."
            )
        if self.n_particles is not None and self.n_particles < self.n_draws:
            raise ValueError(
                f"n_particles must be at least n_draws, {self.n_draws}, which are kept of them, "
                f"got {self.n_particles}. Raise n_particles or reduce n_draws."
            )
        steepness = model.steepness if self.steepness is None else self.steepness
        if steepness < LEAST_STEEPNESS:
            raise ValueError(
                f"steepness must be {LEAST_STEEPNESS} or more for inference='smc', got "
                f"{steepness:g}: with less, draws cannot have nodes that do not split."
            )
        model.likelihood.check_mixture("Sequential Monte Carlo")
        known = all(prior.implements("expert_log_density") for prior in model.split_priors)
        conditional = model.priors.hyperplane.implements("draw_precision")
        if not (known and conditional and ExpertMoves.covers(model)):
            raise ValueError(
                "inference='smc' starts from draws of the prior and needs the conditionals of its "
                "scales: use InverseGammaScale on hyperplanes and GammaProcess without "
                f"hyper-priors on weights, got {model.priors}; inference='nuts' and 'svi' fit "
                "other priors too."
            )

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> Posterior:
        """Sample the posterior of a soft tree and of its topology.

        Particles, each a tree, move from the prior to the posterior. First the likelihood is raised
        to powers from 0 to 1, then the steepness from 1 to the model's, if that is larger.
        After each such change some are resampled, and moved by Hamiltonian trajectories given the
        scales of the coefficients, births and deaths of splits, fresh experts and leaves, and
        slides (docs/posterior/smc.md); their states on the way are the next particles. The means
        of their weights give the evidence.

        Parameters
        ----------
        model : SoftTree
            With likelihood ``mixture``, finite steepness and proper priors. Its topology is
            ignored: trees have at most ``max_depth`` levels of splits.
        data : Data
            At most 2,000 rows.
        {parameters}

        Returns
        -------
        Posterior
            On the complete tree of depth ``max_depth``: a node that does not split in a draw has
            log-weights (an intercept, if experts have no weights) of -1000, and sends all rows to
            the left. ``stats`` holds, by (chain, draw), ``n_leaves``, ``depth``,
            ``log_likelihood`` and ``lp``, the log joint density of the parameters in use and the
            topology; ``log_evidence`` by chain; ``rows``, a fingerprint of y and weights; and
            ``changes`` (chain, number of temperatures, 8), each temperature and the shares of
            particles that moves changed there: trajectories, births, deaths, other splits of a
            node, other experts, slides, leaves; NaN after the last temperature of a run.
            ``point`` is a draw of the most probable topology.

        Raises
        ------
        ValueError
            For invalid settings, priors that cannot be drawn from or whose conditionals are not
            known, or too many rows.
        """
        if self.steepness is not None:
            model = model.with_(steepness=self.steepness)
        self.check(model)
        check_soft(model)
        if len(data.X) > MAX_ROWS:
            raise ValueError(
                f"Sequential Monte Carlo evaluates every particle on every row: it takes at most "
                f"{MAX_ROWS:,} rows, got {len(data.X):,}. Use inference='svi' or 'nuts', or a "
                "sample of the rows."
            )
        own: Any = self.sized()
        split = model.split
        if self.max_experts is not None and split.weighted and split.n_experts > self.max_experts:
            split = replace(split, n_experts=self.max_experts)  # type: ignore[type-var]
        topology = Topology.complete(self.max_depth)
        model = model.with_(topology=topology, split=split).collapsed()
        plain = data._replace(X=data.X.cpu(), y=data.y.cpu(), weights=data.weights.cpu())
        plain = plain.for_leaf(model.leaf)
        prior = self._prior(model, plain)
        rows = ParticleLikelihood(prior, plain)
        seeds = np.random.default_rng(draw_seed(random_state)).spawn(self.n_chains)
        runs = Runs([SmcRun.of(prior, rows, own.n_particles, rng) for rng in seeds])
        ends: list[float] = (np.linspace(0, 1, SEGMENTS + 1)[1:] ** 3).tolist()  # temperatures
        track = Track(ends, "smc", show=progress, parts={"runs": runs})
        with Parallel(n_jobs=self.n_jobs) as pool:
            for end in track:
                if all(run.temperature >= end for run in runs.each):
                    continue
                runs.each = pool(
                    delayed(_advance)(model, plain, run, own, end) for run in runs.each
                )
                track.note(f"temperature {min(run.temperature for run in runs.each):.3g}")
        return self._posterior(prior, plain, runs.each)

    def sized(self) -> Self:
        """Return the method with its numbers of particles, and of the rounds that these allow.

        By default the number of resampled particles stays the same. Modes that no move connects
        need many of them; beyond that, longer chains bring runs closer together.
        """
        count = self.n_particles or self.n_draws
        rounds = self.n_rounds or min(max(count // RESAMPLED, LEAST_ROUNDS), MOST_ROUNDS)
        rounds = max(1, min(rounds, count // LEAST_RESAMPLED))
        return replace(self, n_particles=count, n_rounds=rounds)

    def _prior(self, model: SoftTree, data: Data) -> ParticlePrior:
        layout = Layout(model, data.X.shape[1])
        return ParticlePrior(model, layout, TreePrior(self.split_base, self.split_power))

    def _posterior(self, prior: ParticlePrior, data: Data, runs: list[SmcRun]) -> Posterior:
        model = prior.model
        runs = [run.thinned(self.n_draws) for run in runs]
        splits = np.array([run.particles.splits for run in runs])
        draws = draws_of(prior, np.array([run.particles.vectors for run in runs]), splits)
        target = model.leaf.target(data.y)
        rows = (one.numpy(force=True) for one in (target, data.weights))
        found = Posterior(
            model=model,
            draws=draws,
            point={},
            inference="smc",
            stats=_stats(prior, runs, draws, splits) | {"rows": np.array(fingerprint(*rows))},
            # nodes have no fixed meaning where the topology varies
            settings=self.chosen() | {"mirror": True},
        )
        _, which, counts = _topologies(splits)
        return at_medoid(found, data, among=which == counts.argmax())


smc = as_function(Smc, "smc")


def _advance(model: SoftTree, data: Data, run: SmcRun, settings: Any, end: float) -> SmcRun:
    """Move a run up to a temperature, in a worker process."""
    with threadpool_limits(limits=1), threads_for(0):
        prior = settings._prior(model, data)
        rows = ParticleLikelihood(prior, data)
        while run.temperature < end:
            advance(run, prior, rows, settings.efficiency, settings.n_rounds)
    return run


def draws_of(prior: ParticlePrior, vectors: FloatArray, splits: BoolArray) -> dict[str, FloatArray]:
    """Return sites of particles (..., D); nodes that do not split send no row to the right."""
    draws = prior.layout.sites(vectors)
    if prior.model.split.weighted:
        draws["log_weight"] = np.where(splits[..., None], draws["log_weight"], SILENT)
    else:
        draws["hyperplane"] = np.where(splits[..., None, None], draws["hyperplane"], 0.0)
        draws["intercept"] = np.where(splits[..., None], draws["intercept"], SILENT)
    return draws


def _topologies(splits: BoolArray) -> tuple[BoolArray, IntArray, IntArray]:
    """Return the topologies (T, V) of draws, that of each (chain, draw), and their counts (T,)."""
    flat = splits.reshape(-1, splits.shape[-1])
    found, which, counts = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    return found, which.reshape(splits.shape[:-1]), counts


def fingerprint(y: AnyArray, weights: FloatArray) -> int:
    """Return a number that identifies y and weights, whatever the columns of X.

    It is taken in single precision, so that rounding errors of y in other units do not change it.
    """
    digest = hashlib.blake2b(digest_size=7)  # fits into an integer of 64 bits
    for column in (y, weights):
        digest.update(np.asarray(column, dtype=np.float32).tobytes())
    return int.from_bytes(digest.digest())


def by_topology(posterior: Posterior, data: Data, least: float) -> list[tuple[Posterior, float]]:
    """Return a posterior with its own point for each topology, and the share of its draws.

    The point is the draw of the topology that predicts most like all draws on average. Topologies
    with a share below ``least``, and that without a split, are left out. A posterior of a single
    topology remains as it is.
    """
    if "log_evidence" not in posterior.stats:
        return [(posterior, 1.0)]
    site = posterior.draws["log_weight" if posterior.model.split.weighted else "intercept"]
    patterns, which, counts = _topologies((site != SILENT).any(axis=-1))
    shares = counts / counts.sum()
    return [
        (at_medoid(posterior, data, among=which == place), float(shares[place]))
        for place in np.argsort(-counts, kind="stable")
        if shares[place] >= least and patterns[place].any()
    ]


def _stats(
    prior: ParticlePrior, runs: list[SmcRun], draws: Arrays, splits: BoolArray
) -> dict[str, Any]:
    depth = np.where(splits, prior.model.topology.node_depth + 1, 0).max(axis=-1)
    likelihood = np.array([run.log_likelihood for run in runs])
    density = np.empty_like(likelihood)
    for place in np.ndindex(density.shape):
        one = {name: torch.from_numpy(value[place]) for name, value in draws.items()}
        density[place] = prior.log_density(one, splits[place])
    changes = np.full((len(runs), max(len(run.changes) for run in runs), 1 + len(MOVES)), np.nan)
    for chain, run in enumerate(runs):
        changes[chain, : len(run.changes)] = run.changes
    return {
        "lp": likelihood + density,
        "log_likelihood": likelihood,
        "n_leaves": splits.sum(axis=-1) + 1,
        "depth": depth,
        "log_evidence": np.array([run.log_evidence for run in runs]),
        "changes": changes,
    }
