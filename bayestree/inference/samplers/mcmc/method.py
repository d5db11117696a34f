"""Metropolis-within-Gibbs sampling of soft trees: chains that start from a fit."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Count, Inference, Size, declare
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, draw_seed
from bayestree.inference.data import Data
from bayestree.inference.growth.harden import without_idle
from bayestree.inference.posterior import Arrays, Posterior, at_medoid
from bayestree.inference.samplers import ChainSampler, keeps, recorded, segments, started
from bayestree.inference.samplers.density import Layout, TorchDensity, density_of
from bayestree.inference.stage import as_function
from bayestree.models.soft_tree import SoftTree

if TYPE_CHECKING:
    from bayestree.inference.samplers.mcmc.chains import Chains, LeafMoves

MOVES = ("newton", "slide", "weight", "fresh", "mirror", "leaf")
NEAR = 0.1  # standard deviation of the starts about a point estimate
SEGMENTS = 50  # parts of a run, between which progress is shown and kept
SWEPT_CHAINS, SWEPT_SHARE = 10, 0.6  # chains that move draws, and share of their sweeps for draws
OF_FACTORS = ("log_p", "log_q")  # what is recorded of draws of variational factors


@dataclass
class Run:
    """The state and records of all chains: everything needed to resume them."""

    chains: "Chains"
    rng: np.random.Generator
    done: int = 0
    draws: list[FloatArray] = field(default_factory=list)
    log_likelihoods: list[FloatArray] = field(default_factory=list)
    shares: list[FloatArray] = field(default_factory=list)  # accepted by move, (C, moves)

    def record(self) -> None:
        """Keep the state as a draw, and what was accepted since the last."""
        self.draws.append(self.chains.vectors.copy())
        self.log_likelihoods.append(self.chains.log_likelihood())
        accepted, proposed = self.chains.tally.swapaxes(0, 1)
        self.shares.append(accepted / np.maximum(proposed, 1.0))
        self.chains.tally[...] = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {
            "vectors": self.chains.vectors,
            "rngs": [one.bit_generator.state for one in (self.rng, *self.chains.rngs)],
            "done": self.done,
            "tally": self.chains.tally,
            "draws": np.array(self.draws),
            "log_likelihoods": np.array(self.log_likelihoods),
            "shares": np.array(self.shares),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for rng, own in zip((self.rng, *self.chains.rngs), state["rngs"], strict=True):
            rng.bit_generator.state = own
        self.chains.vectors[...], self.chains.tally[...] = state["vectors"], state["tally"]
        self.chains.refresh()
        self.chains.set_leaves()
        self.done, self.draws, self.shares = state["done"], [*state["draws"]], [*state["shares"]]
        self.log_likelihoods = [*state["log_likelihoods"]]


def starts(layout: Layout, init: Posterior, n_chains: int, rng: np.random.Generator) -> FloatArray:
    """Return vectors (C, D) to start from: draws of a posterior, or near a point estimate.

    Chain c starts in chain c modulo their number, whose draws are spread evenly.
    """
    found = []
    for chain in range(n_chains):
        own = range(chain % init.n_chains, n_chains, init.n_chains)
        draw = int((own.index(chain) + 0.5) / len(own) * init.n_draws)
        found.append(layout.vector({n: v[own[0], draw] for n, v in init.draws.items()}))
    vectors = np.array(found)
    if init.n_chains * init.n_draws == 1:
        vectors += NEAR * rng.standard_normal(vectors.shape)
    return vectors


@declare
class Mcmc(ChainSampler):
    """Settings of Metropolis-within-Gibbs sampling.

    {parameters}
    """

    n_chains: Annotated[Count, Inference("Chains.")] = 4
    n_warmup: Annotated[Size, Inference("Sweeps of each chain that are left out.")] = 500
    n_draws: Annotated[Count, Inference("Draws from each chain after the warm-up.")] = 500
    thinning: Annotated[
        Count, Inference("Sweeps for each draw that is kept; 6 by default in estimators.")
    ] = 1
    leaf_rounds: Annotated[
        Count, Inference("Draws of the paths of the rows and of the leaves in each sweep.")
    ] = 2
    mirror: Annotated[
        bool,
        Inference(
            "Also propose to flip a facet and to swap the branches below, once for each node in a "
            "sweep. A node of one facet has two modes, with inside and outside exchanged; chains "
            "then move between them, predictions cover both, and the sides of a node have no "
            "fixed meaning."
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
    keep_warmup: Annotated[
        bool, Inference("Keep the warm-up in warmup_draws and warmup_stats.")
    ] = False

    in_estimators = {"n_draws": 250, "thinning": 6, "drop_idle": True}

    def check(self, model: SoftTree) -> None:
        super().check(model)
        model.likelihood.check_mixture("A sampler")
        weight, hyperplane = model.priors.weight, model.priors.hyperplane
        known = hyperplane.implements("scale_of") and not weight.sites
        if not (known and (weight.implements("law") or not model.split.weighted)):
            raise ValueError(
                "inference='mcmc' is compiled for some priors alone: use InverseGammaScale on "
                "hyperplanes and GammaProcess without hyper-priors on weights, got "
                f"{model.priors}; inference='nuts' samples under other priors too."
            )

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

        A sweep goes through the experts of all nodes, with the paths of the rows integrated out.
        For each it proposes slides along its boundary; coefficients near the end of a Newton step
        given their scales (iteratively reweighted least squares: Gamerman, 1997); another weight;
        and a fresh expert from the prior. The scales, and the leaves given sampled paths, follow
        from their conditionals. One chain moves after the other, by compiled loops over the rows.

        Parameters
        ----------
        model : SoftTree
            With likelihood ``mixture``, finite steepness, GammaProcess weights without
            hyper-priors, and InverseGammaScale hyperplanes, whose scales are integrated out.
        data : Data
            n rows.
        init : Posterior
            A posterior of the same topology. Chains start at its draws: chain c of the sampler in
            its chain c, from the first again if there are fewer, and near a point estimate.
        {parameters}

        Returns
        -------
        Posterior
            ``stats`` holds, each (chain, draw): ``lp``, the log joint density of the sites,
            ``log_likelihood``, and the shares of proposals since the last draw that were accepted,
            by move: ``accepted_newton``, ``accepted_slide``, ``accepted_weight``,
            ``accepted_fresh``, ``accepted_mirror`` (0 without ``mirror``) and ``accepted_leaf``.
            ``point`` is the draw whose predictions are nearest to the posterior mean.

        Raises
        ------
        ValueError
            For invalid settings, a start of another topology or with other sites, a tree without
            a split, plug-in leaves, or other priors.
        """
        # numba takes half a second to import
        from bayestree.inference.samplers.mcmc.chains import (  # noqa: PLC0415
            Chains,
            LeafMoves,
            compiled,
        )

        self.check(model)
        init = self._checked(model, init, data)
        model = init.model.collapsed()
        plain = data._replace(X=data.X.cpu(), y=data.y.cpu(), weights=data.weights.cpu())
        rng = np.random.default_rng(draw_seed(random_state))
        vectors = starts(Layout(model, data.X.shape[1]), init, self.n_chains, rng)
        run = Run(Chains(model, plain, vectors, rng.spawn(self.n_chains)), rng)
        leaves = LeafMoves(run.chains, rng)
        track = Track(segments(self.total, SEGMENTS), "mcmc", show=progress, parts={"chains": run})
        # there are too few rows for threads to help
        with threadpool_limits(limits=1), np.errstate(all="ignore"):
            for length in track:
                if not compiled():
                    track.note("compiling, once for an installation")
                for _ in range(length):
                    self._sweep(leaves, run)
                track.note("warm-up" if run.done <= self.n_warmup else "")
        return started(self._posterior(model, plain, run), init)

    def _sweep(self, leaves: "LeafMoves", run: Run) -> None:
        """Move all parameters once."""
        run.chains.sweep(mirrors=self.mirror)
        for _ in range(self.leaf_rounds):
            leaves.update()
        run.done += 1
        if keeps(self, run.done):
            run.record()
        elif run.done <= self.n_warmup:
            run.chains.tally[...] = 0.0

    def _posterior(self, model: SoftTree, data: Data, run: Run) -> Posterior:
        vectors = np.array(run.draws).swapaxes(0, 1)
        shares = np.array(run.shares).transpose(2, 1, 0)  # (moves, C, draws)
        stats = {"lp": log_joint(model, data, vectors)}
        stats["log_likelihood"] = np.array(run.log_likelihoods).T
        stats |= {f"accepted_{move}": share for move, share in zip(MOVES, shares, strict=True)}
        draws = Layout(model, data.X.shape[1]).sites(vectors)
        return at_medoid(recorded(self, model, draws, stats, "mcmc"), data)


mcmc = as_function(Mcmc, "mcmc")


def swept(found: Posterior, data: Data, n_sweeps: int, progress: bool) -> Posterior:
    """Replace independent draws by states of chains that start at some of them, in one chain.

    Draws of variational factors do not cover both orientations of a split, nor the dependence
    between experts, nodes and leaves.
    """
    reduced = without_idle(found, data)
    most = max(1, int(SWEPT_SHARE * n_sweeps))  # draws of a chain
    n_chains = min(max(SWEPT_CHAINS, -(-found.n_draws // most)), found.n_draws)
    n_kept = -(-found.n_draws // n_chains)
    thinning = most // n_kept
    chains = Mcmc(
        n_chains=n_chains,
        n_warmup=n_sweeps - n_kept * thinning,
        n_draws=n_kept,
        thinning=thinning,
        leaf_rounds=1,
        mirror=True,
    )
    seed = int(torch.randint(2**31 - 1, ()))
    moved = chains.fit(reduced.model, data, init=reduced, random_state=seed, progress=progress)

    def joined(arrays: Arrays) -> Arrays:
        """Write the draws of all chains one after another, (1, n_draws, ...)."""
        rounds = {name: value.swapaxes(0, 1) for name, value in arrays.items()}
        parts = {name: value.reshape(-1, *value.shape[2:]) for name, value in rounds.items()}
        return {name: value[None, : found.n_draws] for name, value in parts.items()}

    own = joined({name: moved.stats[name] for name in ("lp", "log_likelihood")})
    return replace(
        reduced,
        model=moved.model,
        draws=joined(moved.draws),
        stats={**{n: v for n, v in found.stats.items() if n not in OF_FACTORS}, **own},
        settings={**found.settings, "mirror": True, "n_chains": n_chains},
    )


def log_joint(model: SoftTree, data: Data, vectors: FloatArray) -> FloatArray:
    """Return the log joint density of the sites of each vector (..., D), without Jacobians."""
    density = density_of(model, data)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.apply_along_axis(density.value, -1, vectors)
    first = vectors.reshape(-1, vectors.shape[-1])[0]
    # the density by NumPy omits constants
    constant = TorchDensity(model, data).value(first) - density.value(first)
    found: FloatArray = values + constant - density.layout.log_jacobian(vectors)
    return found
