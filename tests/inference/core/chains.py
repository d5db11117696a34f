"""Chains at draws of the prior, and what the model says of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numba import njit

from bayestree.inference import Data
from bayestree.inference.core import experts
from bayestree.inference.core.paths import OTHERS, add_votes
from bayestree.inference.samplers.density import Layout
from bayestree.inference.samplers.mcmc.chains import Chains
from bayestree.models import GroupedScale, Oblique
from bayestree.models.soft_tree import sample_prior
from tests.models.cases import TOPOLOGIES, make, rows

SHARPEN, SHIFT, TRADE, WEIGHT, FRESH, NEWTON, MIRROR = range(7)
MOVES = ("sharpen", "shift", "trade", "weight", "fresh", "newton", "mirror")
CASES: dict[str, Any] = {
    **{name: {"topology": name, "steepness": 6.0} for name in TOPOLOGIES},
    "steepness 1": {},
    "gradual": {"steepness": 0.4},
    "oblique": {"split": Oblique(), "steepness": 2.0},
    "gaussian": {"fit": "gaussian-mixture"},
    "linear": {"fit": "linear-mixture", "steepness": 3.0},
    "grouped": {"hyperplane": GroupedScale(2.0, groups=((0, 1),), coefficient_scale=0.5)},
}


def chains_of(parts, n_chains=3, n=20, seed=0):
    """Chains, and the rows."""
    parts = dict(parts)
    n = parts.pop("n", n)
    hyperplane = parts.pop("hyperplane", None)
    model = make(**parts)
    if hyperplane is not None:
        model = model.with_(priors=replace(model.priors, hyperplane=hyperplane))
    drawn = sample_prior(model, 2, n_chains, random_state=seed)
    each = [{name: value[i].numpy() for name, value in drawn.items()} for i in range(n_chains)]
    data = Data.of(*rows(model, n=n, weighted=True))
    vectors = np.array([Layout(model, 2).vector(one) for one in each])
    return Chains(model, data, vectors, np.random.default_rng(seed).spawn(n_chains)), data


def sites_of(chains, number):
    """The sites of a chain as tensors."""
    sites = chains.layout.sites(chains.vectors[number])
    return {name: torch.as_tensor(value) for name, value in sites.items()}


def log_joint(chains, data, number=0):
    """The log density of the vector of a chain by the model: log joint plus Jacobian."""
    found = float(chains.model.log_joint(sites_of(chains, number), *data))
    return found + float(chains.layout.log_jacobian(chains.vectors[number]))


@njit(cache=True)
def move(kind, rows, priors, chain, space, node, k, rng, tally):  # noqa: PLR0917
    """Make one move of an expert in a chain whose caches are fresh."""
    work, now = experts.enter(rows, chain, space, node)
    add_votes(chain.log_weight[node], work.votes, k, -1, work.rows[OTHERS])
    if kind <= SHIFT:
        experts.slide(rows.steepness, priors, chain, work, node, k, kind, now, rng, tally)
    elif kind == TRADE:
        experts.trade(rows.steepness, priors, chain, work, node, k, now, rng, tally)
    elif kind == WEIGHT:
        experts.change_weight(rows.steepness, priors, chain, work, node, k, now, rng, tally)
    elif kind == FRESH:
        experts.fresh(rows.steepness, priors, chain, work, node, k, now, rng, tally)
    elif kind == NEWTON:
        experts.newton(rows.steepness, priors, chain, work, node, k, now, rng, tally)
    else:
        experts.mirror(rows, priors, chain, work, node, k, now, rng, tally)
    experts.leave(rows, chain, space, node)
