"""Problems, guides and rows for the tests of the facet search."""

import math
from functools import cache

import torch

from bayestree.inference import Data
from bayestree.inference.variational.facets.bound import (
    FacetPrior,
    NodeGuide,
    Problem,
    SearchOptions,
)
from bayestree.inference.variational.facets.likelihood import LeafSides, SideState, SplitRows
from bayestree.inference.variational.facets.moves import Points
from bayestree.inference.variational.facets.search import search_facets
from bayestree.models import (
    Categorical,
    GammaProcess,
    InverseGammaScale,
    Polytope,
    SoftTree,
)
from bayestree.topology import Topology
from tests.inference.problems import normal

N_EXPERTS = 20
SMALL = SearchOptions(restarts=2, start_facets=6, keep_starts=1, final_draws=8, rounds=3)
PRIOR = FacetPrior(GammaProcess(1.5, 0.8), InverseGammaScale(1.5, 2.0, 0.7), N_EXPERTS)


def seed(number=0):
    return torch.Generator().manual_seed(number)


def regular(facets, steep=10.0, distance=1.0):
    """Experts of a regular polygon."""
    angle = 2 * math.pi * torch.arange(facets).double() / facets + 0.3
    direction = torch.stack([angle.cos(), angle.sin()], 1)
    offset = torch.full((facets, 1), -distance).double()
    return Points(steep * torch.cat([direction, offset], 1), torch.zeros(facets).double())


def polygon(facets, n=600, noise=0.0, number=0):
    """Class 1 outside of it."""
    X = 1.7 * (2 * torch.rand(n, 2, generator=seed(number)).double() - 1)
    plane = regular(facets).coefficient
    y = (X @ plane[:, :-1].T + plane[:, -1] > 0).any(1)
    flipped = torch.rand(n, generator=seed(number + 1)) < noise
    return Data.of(X, (y ^ flipped).long())


def problem(data, leaf=None, *, prior=None, steepness=1.0, number=0, options=None):
    rows = SplitRows(data.with_ones().X, data.weights, None, steepness)
    leaf = leaf or Categorical(2)
    options = options or SearchOptions()
    return Problem.of(rows, LeafSides(leaf, data.y), prior or FacetPrior(), seed(number), options)


@cache
def found_in(facets):
    return search_facets(problem(polygon(facets)))


def random_guide(fits=2, facets=2, width=3):
    """Somewhere, with a pool; the second fit has an empty slot."""
    slots = facets + 1
    guide = NodeGuide(
        mean=normal(fits, slots, width),
        tilt=0.3 * normal(fits, slots, width, seed=1),
        factor=(0.3 * normal(fits, slots, width, width, seed=2)).tril(-1) + 0.8 * torch.eye(width),
        loc=normal(fits, slots, seed=3),
        log_concentration=0.3 * normal(fits, slots, seed=4) + 0.5,
        log_rate=normal(fits, slots, seed=5),
        experts=torch.tensor([[1.0, 1.0, 18.0], [1.0, 0.0, 19.0]]).double()[:fits],
    )
    guide.tilt[:, -1] = 0.0
    return guide


def random_rows(n=50, fits=2, *, elsewhere=True, steepness=1.0):
    design = torch.cat([normal(n, 2, seed=6), torch.ones(n, 1).double()], 1)
    log_else = normal(n, seed=7) - 3 if elsewhere else None
    rows = SplitRows(design, torch.rand(n, generator=seed()).double(), log_else, steepness)
    sides = normal(fits, n, seed=8) - 1, normal(fits, n, seed=9) - 1
    return rows, SideState(*sides, torch.zeros(fits).double())


def stump(n_experts=N_EXPERTS, leaf=None, steepness=1.0):
    return SoftTree(
        Topology.stump(),
        split=Polytope(n_experts),
        leaf=leaf or Categorical(2),
        steepness=steepness,
    )
