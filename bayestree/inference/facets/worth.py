"""What a split is worth: its ELBO against that of the rows sent one way."""

from functools import lru_cache

import torch

from bayestree.inference.facets.bound import FacetPrior, climb
from bayestree.inference.facets.draws import even_draws
from bayestree.inference.facets.fits import SIDE_STEPS, Problem
from bayestree.inference.facets.rows import Rows
from bayestree.inference.facets.sides import SideState
from bayestree.inference.facets.starts import pool_slot

CLIMBS = 5  # to the guide of an idle expert


def worth(elbo: float, problem: Problem) -> float:
    """Nats by which a node of that ELBO beats the better of its two sides alone.

    The divergence of experts that no row touches is not held against it: in truth they cost
    nothing, but the guide's family does not hold the prior.
    """
    idle = idle_cost(problem.prior, problem.rows.design.shape[1])
    return elbo + idle - max(_one_way(problem, side) for side in (0, 1))


def _one_way(problem: Problem, side: int) -> float:
    """Bound of the rows where all go left (0) or right (1), the sides at their best."""
    rows, value = problem.rows, -torch.inf
    share = torch.ones_like(rows.weights)[None]
    for _ in range(SIDE_STEPS):
        nothing = torch.zeros_like(share)
        left, right = (share, nothing) if side == 0 else (nothing, share)
        state = problem.sides.update(left, right, rows.weights)
        says = state[side]
        whole = says if rows.log_else is None else torch.logaddexp(says, rows.log_else)
        share = torch.exp(says - whole)
        value = float(whole[0] @ rows.weights + state.value[0])
    return value


@lru_cache(maxsize=32)
def idle_cost(prior: FacetPrior, width: int) -> float:
    """Least divergence from the prior of all experts of a node that no row touches."""
    nothing = torch.zeros(1, width, dtype=torch.float64)
    rows = Rows(nothing, nothing[:, 0])
    flat = torch.zeros(1, 1, dtype=torch.float64)
    state = SideState(flat, flat, flat[0])
    guide = pool_slot(rows, prior)
    draws = even_draws(8, 1, torch.Generator().manual_seed(0))
    elbo = torch.zeros(1)
    for _ in range(CLIMBS):
        guide, elbo, _ = climb(guide, draws, rows, state, prior, iterations=60, tolerance=1e-4)
    return -float(elbo)
