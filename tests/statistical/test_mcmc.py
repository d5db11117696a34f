"""The sampler ``mcmc`` leaves the joint distribution of parameters and data as it is.

Geweke, "Getting it right", JASA 99 (2004), with independent pairs instead of one chain: parameters
are drawn from the prior, then data given these, then the sampler moves the parameters. Before and
after, parameters and data have the same joint distribution, however slowly the chain mixes.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numba import njit
from scipy import stats

from bayestree._utils.monte_carlo import ess
from bayestree.inference import Data, mcmc, nuts
from bayestree.inference.core import experts
from bayestree.inference.core.paths import OLD, PRECISION, load, refresh
from bayestree.inference.samplers.density import Layout
from bayestree.inference.samplers.mcmc.chains import Chains, LeafMoves
from bayestree.models import (
    Categorical,
    Gaussian,
    InverseGammaScale,
    LinearGaussian,
    Logistic,
    Ordinal,
    Poisson,
    Student,
    Survival,
)
from bayestree.models.soft_tree import sample_prior
from bayestree.topology import Topology
from tests.inference.core.chains import (
    FRESH,
    MIRROR,
    NEWTON,
    SHARPEN,
    SHIFT,
    TRADE,
    WEIGHT,
    move,
)
from tests.statistical.joint import N_FEATURES, from_prior, tree

long = pytest.mark.statistical
BLOCK = 25  # chains in a batch, each with data of its own
LEAVES = {
    "categorical": Categorical(3, 2.0),
    "gaussian": Gaussian(0.1, 0.5, 3.0, 0.7),
    "poisson": Poisson(2.0, 1.5),
    "survival": Survival(2.0, 1.5, power=1.3, learned=False),
    "linear": LinearGaussian(0.5, 0.7, 3.0, 0.7),
    "student": Student(df=5.0, shape=3.0),
    "logistic": Logistic(2, 1.0, 0.7),
    "ordinal": Ordinal(3, 3.0),
}
INCOMPLETE = Topology([[~2, 1], [2, ~0], [~3, ~1]])
HEAVY = InverseGammaScale(0.5, 0.4, 0.3, coefficient_scale=0.6)  # as of classifiers, but less so


def model_of(leaf="categorical", topology=None, prior=None, **parts):
    model = tree(**parts).with_(leaf=LEAVES[leaf])
    if prior is not None:
        model = model.with_(priors=replace(model.priors, hyperplane=prior))
    return model if topology is None else model.with_(topology=topology)


MODELS = {
    "stump": {},
    "tree": {"depth": 2},
    "steep": {"depth": 2, "steepness": 6.0},
    "gradual": {"steepness": 0.5},
    "incomplete": {"topology": INCOMPLETE, "steepness": 6.0},
    "oblique": {"split": "oblique", "steepness": 3.0},
    "heavy tails": {"prior": HEAVY},
    "steep heavy tails": {"prior": HEAVY, "steepness": 6.0, "depth": 2},
    **{name: {"leaf": name, "steepness": 2.0} for name in LEAVES if name != "categorical"},
}


def simulated(model, X, count, seed):
    """Sites of ``count`` draws of the prior, and y (count, ...) given each."""
    sites = sample_prior(model, N_FEATURES, count, random_state=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        ys = []
        for i in range(count):
            one = {name: value[i] for name, value in sites.items()}
            law = model.leaf_log_probs(one, X).exp()
            y = model.leaf.draw(one, torch.multinomial(law, 1)[:, 0], X)
            ys.append(y if model.leaf.n_classes else y.double())
    return {name: value.numpy() for name, value in sites.items()}, ys


def moved(model, X, sites, ys, kernel, *, weight=1.0, seed=0):
    """Sites after a kernel, each draw given its own y; rows count with a weight."""
    layout, count, n = Layout(model, N_FEATURES), len(ys), len(X)
    vectors = np.array(
        [layout.vector({name: v[i] for name, v in sites.items()}) for i in range(count)]
    )
    rng = np.random.default_rng(seed)
    for start in range(0, count, BLOCK):
        part = vectors[start : start + BLOCK]
        # the rows of all data sets, of which each chain sees one
        data = Data.of(X.repeat(len(part), 1), torch.cat(ys[start : start + BLOCK]))
        chains = Chains(model, data, part, rng.spawn(len(part)))
        chains.weights = weight * np.repeat(np.eye(len(part)), n, axis=1)
        with np.errstate(all="ignore"):
            kernel(chains, rng)
    return layout.sites(vectors)


def sweep(chains, rng):
    moves = LeafMoves(chains, rng)
    for _ in range(2):
        chains.sweep(mirrors=True)
        moves.update()


def leaves(chains, rng):
    moves = LeafMoves(chains, rng)
    for _ in range(3):
        moves.update()


def redraw(chains, rng):
    for chain, own in zip(chains.each, chains.rngs, strict=True):
        for place in np.ndindex(chain.shrinkage.shape):
            redraw_one(chains.priors, chain, chains.works[0], *place, own)


@njit
def redraw_one(priors, chain, work, node, k, rng):
    load(chain, node, k, work.small[OLD])
    b, at = work.small[OLD], chain.shrinkage[node, k]
    chain.shrinkage[node, k] = experts.draw_shrinkage(
        priors, rng, b, at, work.scales, work.small[PRECISION]
    )


def moves(*kinds):
    """A kernel of some moves of all experts."""

    def kernel(chains, rng):
        for c, (chain, own) in enumerate(zip(chains.each, chains.rngs, strict=True)):
            rows = chains.rows_of(c)
            refresh(rows, chain, chains.works[0])
            for node in [*range(chains.n_nodes)] * 3:
                for kind in kinds:
                    for k in range(chain.log_weight.shape[1]):
                        given = rows, chains.priors, chain, chains.works[0]
                        move(kind, *given, node, k, own, chains.tally[c])
        chains._arrange_leaves()

    return kernel


KERNELS = {
    "newton": moves(NEWTON),
    "redraw": redraw,
    "slides": moves(SHARPEN, SHIFT, TRADE),
    "weight": moves(WEIGHT),
    "fresh": moves(FRESH),
    "leaves": leaves,
    "mirrors": moves(MIRROR),
}


def bounded(model, X, sites, ys):
    """Bounded functions (draw, q) of parameters and data together."""
    found = []
    for i, y in enumerate(ys):
        one = {name: torch.as_tensor(value[i]) for name, value in sites.items()}
        share = model.leaf_log_probs(one, X).exp().numpy()
        log_row = model.log_likelihood_rows(one, X, y).numpy()
        density = np.exp(log_row)
        density = density if model.leaf.n_classes else density / (1 + density)
        target = model.leaf.target(model.leaf.response(X, y)).double().numpy()
        up = np.tanh(target - target.mean())
        total = 0.5 + np.arctan((log_row.sum() + len(X)) / 5) / np.pi
        scales = [1 / (1 + value[i]).ravel() for name, value in sites.items() if "shr" in name]
        size = np.tanh(np.abs(sites["intercept"][i]).ravel())
        weight = [np.exp(-np.exp(sites["log_weight"][i])).ravel()] if "log_weight" in sites else []
        first = next(iter(model.leaf.sites))
        leaf = np.tanh(np.asarray(sites[first][i]).reshape(model.topology.n_leaves, -1)[:, 0])
        parts = [share[:3, 0], share[:, 0] @ up, up @ density, total, density[:3], size, leaf]
        found.append(np.concatenate([np.ravel(p) for p in [*parts, *scales, *weight]]))
    return np.array(found)


def check(model, kernel, count, *, n_rows=15, seed=0):
    X = torch.from_numpy(np.random.default_rng(seed + 100).normal(size=(n_rows, N_FEATURES)))
    sites, ys = simulated(model, X, count, seed)
    after = moved(model, X, sites, ys, kernel, seed=seed)
    change = bounded(model, X, after, ys) - bounded(model, X, sites, ys)
    assert np.abs(change).max() > 0
    moving = change.std(0) > 1e-9
    scores = change[:, moving].mean(0) / (change[:, moving].std(0) / np.sqrt(count))
    # the largest of many, of which one in a thousand test runs would have a larger
    assert np.abs(scores).max() < stats.norm.isf(0.001 / 2 / len(scores)), scores


@pytest.mark.parametrize("parts", [{}])
def test_short(parts):
    check(model_of(**parts), sweep, 250)


@long
@pytest.mark.parametrize("name", MODELS)
def test_sweeps(name):
    check(model_of(**MODELS[name]), sweep, 4000)


@long
@pytest.mark.parametrize("steepness", [1.0, 6.0])
@pytest.mark.parametrize("name", KERNELS)
def test_moves(name, steepness):
    check(model_of(depth=2, steepness=steepness), KERNELS[name], 4000)


@long
@pytest.mark.parametrize("leaf", ["categorical", "gaussian"])
def test_same_posterior_as_nuts(leaf):
    """Means of the log joint and of predictions, with row weights that are not whole numbers."""
    model = model_of(leaf, steepness=3.0)
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(40, N_FEATURES)))
    y = rng.integers(3, size=40) * (X[:, 0] > 0).numpy() if leaf == "categorical" else X[:, 0]
    data = Data.of(X, y, rng.uniform(0.5, 1.5, 40))
    settings = {"init": from_prior(model, 200, 1), "n_chains": 4, "mirror": True, "random_state": 0}
    mine = mcmc(model, data, n_warmup=300, n_draws=1500, **settings)
    theirs = nuts(model, data, n_warmup=200, n_draws=400, max_tree_depth=6, **settings)
    values = []
    for found in (mine, theirs):
        flat = np.concatenate([*found.expectations(X[:5].numpy())])
        flat = flat.reshape(found.n_chains, found.n_draws, -1)
        values.append(np.concatenate((found.stats["lp"][..., None], flat), axis=2))
    error = np.hypot(*(v.std((0, 1)) / np.sqrt(ess(v, "mean")) for v in values))
    gap = np.abs(values[0].mean((0, 1)) - values[1].mean((0, 1)))
    # some sixteen values of 4 errors each: wrong once in a thousand test runs
    assert (gap < 4 * error).all(), gap / error
