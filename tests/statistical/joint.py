"""Draws of parameters and data from their joint distribution, and transitions of the sampler."""

import numpy as np
import torch
from scipy import special, stats

from bayestree._utils.monte_carlo import ess
from bayestree.inference import Data, Posterior
from bayestree.inference.samplers.density import NumpyDensity, density_of
from bayestree.inference.samplers.expert_moves import ExpertMoves
from bayestree.inference.samplers.hamiltonian import (
    GradientMoments,
    StepSize,
    WhitenedDensity,
    expert_blocks,
    transition,
)
from bayestree.inference.samplers.nuts import Chain, Nuts, _transition
from bayestree.models import (
    Categorical,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.models.soft_tree import sample_prior
from bayestree.topology import Topology

N_FEATURES = 2
HYPER = GammaProcess(concentration_prior=(3.0, 2.0), rate_prior=(4.0, 3.0))
SPLITS = {"polytope": Polytope(2), "oblique": Oblique()}
LEAVES = {"categorical": Categorical(3, 2.0), "gaussian": Gaussian(0.1, 0.5, 3.0, 0.7)}


def tree(depth=1, split="polytope", leaf="categorical", *, process=None, steepness=1.0):
    """A small model with proper priors of modest spread."""
    priors = Priors(process or GammaProcess(2.0, 1.5), InverseGammaScale(1.5, 2.0, 0.7))
    return SoftTree(
        Topology.complete(depth), SPLITS[split], priors, LEAVES[leaf], steepness=steepness
    )


def from_prior(model, n_draws, seed):
    """Draws of the prior as a posterior, in one chain."""
    drawn = sample_prior(model, N_FEATURES, n_draws, random_state=seed)
    draws = {name: value.numpy()[None] for name, value in drawn.items()}
    return Posterior(model, draws, {name: v[0, 0] for name, v in draws.items()}, "prior")


def responses(model, sites, X, rng):
    """Data given parameters: y (n,) by the leaf that each row falls into."""
    sites = {name: torch.as_tensor(value) for name, value in sites.items()}
    share = model.leaf_log_probs(sites, X).exp().numpy()
    leaf = (share.cumsum(1) < rng.random((len(X), 1)) * share.sum(1, keepdims=True)).sum(1)
    if isinstance(model.leaf, Gaussian):
        noise = rng.standard_normal(len(X))
        return sites["leaf_mean"].numpy()[leaf] + sites["leaf_scale"].numpy()[leaf] * noise
    probs = sites["leaf_probs"].numpy()[leaf]
    # rounding can leave the last sum below the number drawn
    return np.minimum((probs.cumsum(1) < rng.random((len(X), 1))).sum(1), probs.shape[1] - 1)


def places(model, draws):
    """Places of draws (..., site) in their prior laws, given the parents: uniform in the prior."""
    scales, process, leaf = model.priors.hyperplane, model.priors.weight, model.leaf
    b = draws["shrinkage"]
    student = stats.t(2 * scales.shape)
    unit = np.sqrt(b / scales.shape)
    found = {
        "shrinkage": special.gammainc(scales.shrinkage_shape, scales.shrinkage_rate * b),
        "hyperplane": student.cdf(draws["hyperplane"] / unit[..., None]),
        "intercept": student.cdf(draws["intercept"] / unit),
    }
    if model.split.weighted:
        given = {"concentration": process.concentration, "rate": process.rate}
        for name, (shape, rate) in process.hyper_priors.items():
            found[name] = special.gammainc(shape, rate * draws[name])[..., None]
            given[name] = draws[name][..., None, None]
        atom = given["concentration"] / model.split.n_experts
        found["log_weight"] = special.gammainc(atom, given["rate"] * np.exp(draws["log_weight"]))
    if isinstance(leaf, Categorical):
        others = leaf.concentration - leaf.pseudo_count
        found["leaf_probs"] = special.betainc(leaf.pseudo_count, others, draws["leaf_probs"])
    else:
        scale = draws["leaf_scale"]
        found["leaf_scale"] = special.gammaincc(leaf.shape, leaf.rate / scale**2)
        shift = (draws["leaf_mean"] - leaf.mean) * np.sqrt(leaf.strength) / scale
        found["leaf_mean"] = special.ndtr(shift)
    return found


def thinned(values):
    """Draws of one quantity (chain, draw), as many as the effective sample size."""
    while True:
        effective = min(ess(values), ess((values - 0.5) ** 2))
        step = int(np.ceil(0.9 * values.size / effective))
        # thinning an oscillating chain can lower its effective sample size: check again, while
        # there are draws enough to estimate it
        if step <= 1 or values.shape[1] < 100:
            return values.ravel()
        values = values[:, ::step]


def z_scores(values, expected, error=0.0):
    """Means of one chain (draw, q) against what is expected, in Monte Carlo errors."""
    own = values.std(0) / np.sqrt(ess(values[None], "mean"))
    return (values.mean(0) - expected) / np.hypot(own, error)


class Walker:
    """The sampler with a fixed step size and mass, forward and backward, on any data.

    ``forward`` is a transition of the package; ``backward`` takes its parts, each of which is
    reversible, in the opposite order: the chain in reversed time.
    """

    def __init__(self, model, rng, *, step_size=0.25, n_refreshes=2):
        self.model, self.rng, self.step_size = model, rng, step_size
        self.settings = Nuts(
            n_warmup=0,
            n_draws=1,
            target_acceptance=0.8,
            max_tree_depth=4,
            n_refreshes=n_refreshes,
            n_slides=6,
            mirror=True,
            keep_warmup=False,
        )

    def on(self, data):
        """Take data to condition on."""
        self.density = density_of(self.model, data)
        self.jumps = None
        if isinstance(self.density, NumpyDensity) and ExpertMoves.covers(self.density.model):
            self.jumps = ExpertMoves(self.density.model, self.density.layout, self.density.value)
        moving = self.density.layout.places["shrinkage"].start
        n_blocks, width = expert_blocks(self.density.layout).shape
        within = 1.5 * np.eye(width) + 0.5  # coefficients turned together
        self.information = GradientMoments(np.full(moving, 2.0), np.tile(within, (n_blocks, 1, 1)))
        return self

    def forward(self, vector):
        """One transition."""
        blocks, step = expert_blocks(self.density.layout), StepSize.of(self.step_size, 0.8)
        chain = Chain(vector, self.information, blocks, self.rng, step=step)
        with np.errstate(over="ignore", invalid="ignore"):
            _transition(self.density, self.jumps, chain, self.settings)
        return chain.position

    def backward(self, vector):
        """One transition in reversed time."""
        value = self.density.value(vector)
        n_refreshes = self.settings.n_refreshes if self.jumps else 0
        for _ in range(self.settings.n_slides if self.jumps else 0):
            vector, value = self.jumps.slide(vector, value, self.rng)
        for _ in range(-(-n_refreshes // 2)):
            vector, value = self.jumps.mirror(vector, value, self.rng)
        for _ in range(n_refreshes):
            vector, value = self.jumps.refresh(vector, value, self.rng)
        vector = vector.copy()
        prior = self.model.priors.hyperplane
        prior.redraw(self.density.layout.free(vector), self.rng)
        given = WhitenedDensity(self.density, vector, self.information)
        with np.errstate(over="ignore", invalid="ignore"):
            place, _ = transition(
                given,
                given.place(),
                step_size=self.step_size,
                max_depth=self.settings.max_tree_depth,
                generator=self.rng,
            )
        return given.vector(place.position)


def successive(model, X, n, seed):
    """Sites and y of each step of Geweke's chain: parameters given data, data given parameters."""
    rng = np.random.default_rng(seed)
    walker = Walker(model, rng)
    drawn = sample_prior(model, N_FEATURES, 1, random_state=seed)
    sites = {name: value[0].numpy() for name, value in drawn.items()}
    vectors, ys = [], []
    for _ in range(n):
        y = responses(model, sites, X, rng)
        walker.on(Data.of(X, y))
        layout = walker.density.layout
        vector = walker.forward(vectors[-1] if vectors else layout.vector(sites))
        sites = layout.sites(vector)
        vectors.append(vector)
        ys.append(y)
    return layout.sites(np.array(vectors)), np.array(ys)


def independent(model, X, n, seed):
    """The same from the joint law itself, each draw afresh."""
    rng = np.random.default_rng(seed)
    drawn = sample_prior(model, N_FEATURES, n, random_state=seed)
    draws = {name: value.numpy() for name, value in drawn.items()}
    each = ({name: value[i] for name, value in draws.items()} for i in range(n))
    return draws, np.array([responses(model, sites, X, rng) for sites in each])
