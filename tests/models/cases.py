"""Small soft trees of every combination of parts, and data for them."""

from typing import Any

import torch
from pyro import poutine

from bayestree.models import (
    Categorical,
    Flat,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    LinearGaussian,
    LiteralGammaProcess,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.topology import Topology

TOPOLOGIES = {
    "stump": Topology.stump(),
    "complete": Topology.complete(2),
    # Leaves at depths 1, 2 and 3, numbered out of order.
    "incomplete": Topology([[~2, 1], [2, ~0], [~3, ~1]]),
}
WEIGHTS: dict[str, Any] = {
    "gamma": GammaProcess(2.0, 0.5),
    "gamma-hyper": GammaProcess(concentration_prior=(2.0, 1.0), rate_prior=(3.0, 2.0)),
    "gamma-rate-hyper": GammaProcess(rate_prior=(3.0, 2.0)),
    "literal": LiteralGammaProcess(),
}
HYPERPLANES: dict[str, Any] = {
    "collapsed": InverseGammaScale(0.7, 2.0, 0.5),
    "explicit": InverseGammaScale(0.7, 2.0, 0.5, form="explicit"),
    "flat": Flat(),
}
# Leaf family and a likelihood that goes with it.
FITS = {
    "categorical-mixture": (Categorical(3, 0.8), "mixture"),
    "gaussian-mixture": (Gaussian(0.1, 0.5, 3.0, 0.7), "mixture"),
    "linear-mixture": (LinearGaussian(0.5, 0.7, 3.0, 0.7), "mixture"),
    "mutual-information": (Categorical(3), "mutual-information"),
    "variance": (Gaussian(), "variance"),
}


def make(topology="incomplete", split=None, weight="gamma", hyperplane="collapsed", **others):
    """A soft tree by the names of its parts."""
    leaf, likelihood = FITS[others.pop("fit", "categorical-mixture")]
    return SoftTree(
        TOPOLOGIES[topology],
        split=split or Polytope(3),
        priors=Priors(WEIGHTS[weight], HYPERPLANES[hyperplane]),
        leaf=leaf,
        likelihood=likelihood,
        **others,
    )


def rows(model, n=12, n_features=2, seed=0, *, weighted=False):
    """X, y and row weights (or None)."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, n_features, generator=generator, dtype=torch.float64)
    if isinstance(model.leaf, Categorical):
        y = torch.randint(model.leaf.n_classes, (n,), generator=generator)
    else:
        y = torch.randn(n, generator=generator, dtype=torch.float64)
    weights = 3 * torch.rand(n, generator=generator, dtype=torch.float64)
    return X, y, weights if weighted else None


def traced(model, *arguments, seed=0, **named):
    """A trace of the model, and its sampled sites."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        trace = poutine.trace(model).get_trace(*arguments, **named)
    return trace, {
        name: node["value"]
        for name, node in trace.nodes.items()
        if node["type"] == "sample"
        and not node["is_observed"]
        and not poutine.util.site_is_subsample(node)
    }


__all__ = ["FITS", "HYPERPLANES", "TOPOLOGIES", "WEIGHTS", "Oblique", "make", "rows", "traced"]
