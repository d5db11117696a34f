"""Polytopes of the splits: their facets inside a box, and the training rows that reach each node.

A :class:`Reach` is enough to measure polytopes, and too little to recover a row.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree.diagnostics.draws import SHARE, Draws, split_of, spread, weight_of
from bayestree.routed_tree import RowSource, chunks
from bayestree.topology import Topology
from bayestree.tree import Tree, facet_threshold

TOLERANCE = 1e-7  # tolerance of the linear programs, in units of the box
TINY = float(np.finfo(np.float64).tiny)
ROUNDS, STEP = 5, 0.3  # of rays, and of their aims, in units of the half-spaces
MOVES, MARGIN = 20, 0.01  # of a point that is moved into a polytope, in units of the box
VOTES = 2**18  # in memory
MAX_VOTE = 1e25  # votes are clipped here: improper priors can exceed single precision


def needed(
    weight: FloatArray,
    hyperplane: FloatArray,
    intercept: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> IntArray:
    """Find the experts that form a node's enclosing polytope inside a box, in ascending order.

    An irredundant subset of the half-spaces beta_k . x + b_k <= softplus^-1(log 2 / r_k) with the
    same intersection with the box as all of them. If a single half-space excludes the whole box,
    only the one farthest from the box.
    """
    # Substitute x = low + u (high - low), 0 <= u <= 1; min and max of plane . u over the box are
    # the sums of its negative and positive coefficients.
    plane = hyperplane * (high - low)
    bound = thresholds(weight) - intercept - hyperplane @ low
    norm = np.maximum(np.abs(plane).max(axis=1, initial=0.0), TINY)
    with np.errstate(over="ignore"):  # an infinite bound is satisfied everywhere or nowhere
        plane, bound = plane / norm[:, None], bound / norm
    beyond = np.minimum(plane, 0.0).sum(axis=1) - bound
    if (beyond > TOLERANCE).any():
        return np.array([beyond.argmax()])
    cuts = np.flatnonzero(np.maximum(plane, 0.0).sum(axis=1) > bound + TOLERANCE)
    return cuts[_irredundant(plane[cuts], bound[cuts])]


def cuts_off(share: AnyArray, least: float = SHARE) -> BoolArray:
    """Tell whether shares of a node's rows, in half precision, are ``least`` or more."""
    return share >= np.asarray(least, dtype=share.dtype)


def thresholds(weight: FloatArray) -> FloatArray:
    """Compute softplus^-1(log 2 / r) of weights r; infinite where a weight underflowed."""
    with np.errstate(divide="ignore", over="ignore"):
        return facet_threshold(weight)


def _irredundant(plane: FloatArray, bound: FloatArray) -> IntArray:
    """Remove redundant half-spaces one by one."""
    kept = np.arange(len(bound))
    if len(bound) < 2:
        return kept
    for k in np.flatnonzero(~_hit_first(plane, bound)):
        others = kept[kept != k]
        found = _maximise(plane[k], plane[others], bound[others])
        # k is redundant if the others imply it; they do if they already exclude the whole box.
        if found is None or plane[k] @ found <= bound[k] + TOLERANCE:
            kept = others
    return kept


def _hit_first(plane: FloatArray, bound: FloatArray) -> BoolArray:
    """Find half-spaces whose border a ray from inside hits before all others and the box.

    These are irredundant. Rays along the normals, and to the corners of the box that are farthest
    along them, find most of them without a linear program. A ray that hits another border first
    aims next at the corner that is farthest along the normal less a part of that border's: a
    step towards the multipliers of the linear program.
    """
    inside = _inside(plane, bound)
    irredundant = np.zeros(len(bound), dtype=bool)
    if inside is None:
        return irredundant
    aim, every = plane.copy(), np.arange(2 * len(bound))
    for _ in range(ROUNDS):
        rays = np.vstack([plane, (aim > 0) - inside])
        # The ray inside + t rays[j] hits border i at t = (bound_i - plane_i . inside) / slope_ij.
        slope = plane @ rays.T
        with np.errstate(divide="ignore", invalid="ignore"):  # a ray of length 0
            walls = np.where(rays > 0, 1 - inside, inside) / np.abs(rays)
            hit = np.where(slope > 0, (bound - plane @ inside)[:, None] / slope, np.inf)
        hit = np.vstack([hit, np.where(rays == 0, np.inf, walls).min(axis=1)])  # and the box
        first = hit[:-1].argmin(axis=0)
        nearest, steep = hit[first, every], slope[first, every]
        hit[first, every] = np.inf
        # A point between this border and the next is beyond this one alone, by at most:
        excess = (hit.min(axis=0) - nearest) * steep
        irredundant[first[(steep > 0) & (excess > TOLERANCE)]] = True
        if irredundant.all():
            break
        aim -= STEP * plane[first[len(bound) :]]
    return irredundant


def _inside(plane: FloatArray, bound: FloatArray) -> FloatArray | None:
    """Find a point inside the half-spaces and the box; None if they have no interior.

    The middle of the box is moved across the border that it violates most, twice as far as needed.
    """
    size, point = (plane**2).sum(axis=1), np.full(plane.shape[1], 0.5)
    for _ in range(MOVES):
        slack = (bound - plane @ point) / np.sqrt(size)
        worst = slack.argmin()
        if slack[worst] > MARGIN:
            return point
        beyond = plane[worst] @ point - bound[worst] + MARGIN * np.sqrt(size[worst])
        point = np.clip(point - 2 * beyond / size[worst] * plane[worst], MARGIN, 1 - MARGIN)
    return _center(plane, bound)


def _center(plane: FloatArray, bound: FloatArray) -> FloatArray | None:
    """Find the Chebyshev centre of the half-spaces and the box; None if it has no interior."""
    d = plane.shape[1]
    sides = np.vstack([plane, np.eye(d), -np.eye(d)])
    radius = np.linalg.norm(sides, axis=1)[:, None]
    limits = np.concatenate([bound, np.ones(d), np.zeros(d)])
    found = _maximise(np.append(np.zeros(d), 1.0), np.hstack([sides, radius]), limits)
    return None if found is None or found[-1] <= TOLERANCE else found[:-1]


def _maximise(objective: FloatArray, plane: FloatArray, bound: FloatArray) -> FloatArray | None:
    """Maximize a linear function on plane @ u <= bound, 0 <= u <= 1; None if infeasible."""
    for presolve in (False, True):  # presolve costs more than it saves here, but is more robust
        found = linprog(
            -objective,
            A_ub=plane,
            b_ub=bound,
            bounds=(0.0, 1.0),
            method="highs",
            options={"presolve": presolve},
        )
        if found.status in (0, 2):
            return found.x
    raise RuntimeError(f"HiGHS could not solve a linear program: {found.message}")


class Reach(NamedTuple):
    """Summary of the rows that reach each of V nodes, sufficient for the diagnostics."""

    nodes: IntArray  # numbers of the nodes in the draws, (V,)
    rows: FloatArray  # number of rows, (V,)
    low: FloatArray  # bounding box of the rows, (V, d)
    high: FloatArray
    largest: NDArray[np.float32]  # largest vote r softplus(beta . x + b), (chain, draw, V, K)
    prior_largest: NDArray[np.float32] | None = None  # under the prior, (prior draw, V, K)
    leaves: IntArray | None = None  # leaves that rows reach under hard splits, (chain, draw)
    # Share of the node's rows that each expert alone sends right: that its removal would move. In
    # half precision, whose spacing at 1 % is one row in 100,000. Models of version 0.2.0 also count
    # rows that other experts send right as well; None in models of earlier versions.
    cut: NDArray[np.float16] | None = None  # (chain, draw, V, K)
    prior_cut: NDArray[np.float16] | None = None  # under the prior, (prior draw, V, K)
    # Intercepts of the prior draws, by which they are recognised when drawn again.
    prior_intercept: NDArray[np.float32] | None = None  # (prior draw, K)
    # Some of the rows, at which predictions are compared, in the units of the data. None in models
    # of earlier versions.
    sample: FloatArray | None = None  # (m, d)


def node_reach(
    draws: Draws,
    X: RowSource,
    rows: Iterable[IntArray],
    nodes: IntArray,
    *,
    prior: Draws | None = None,
    max_rows: int | None = None,
    weights: FloatArray | None = None,
) -> Reach:
    """Measure bounding boxes, largest votes and cuts of nodes on the ``rows`` of X at each.

    ``prior`` has draws of one node, (prior draw, K, ...). Votes and cuts are measured on at most
    ``max_rows`` evenly spaced rows of a node, while boxes always use all rows. ``weights`` (n,)
    are those of the rows in cuts.
    """
    n_chains, n_draws, _, n_experts, n_features = draws["hyperplane"].shape
    if X.shape[1:] != (n_features,):
        raise ValueError(f"X must have shape (n, {n_features}) like the draws, got {X.shape}.")
    low = np.empty((len(nodes), n_features))
    high = np.empty_like(low)
    largest = np.empty((n_chains, n_draws, len(nodes), n_experts), dtype=np.float32)
    cut = np.empty(largest.shape, dtype=np.float16)
    prior_shape = (0 if prior is None else len(prior["intercept"]), len(nodes), n_experts)
    expected = np.empty(prior_shape, dtype=np.float32)
    expected_cut = np.empty(prior_shape, dtype=np.float16)
    counts = np.empty(len(nodes))
    for place, (node, members) in enumerate(zip(nodes, rows, strict=True)):
        if len(members) == 0:
            raise ValueError(f"rows must not be empty for node {int(node)}; leave the node out.")
        counts[place] = len(members)
        parts = (X[members[chunk]] for chunk in chunks(len(members), n_features))
        ends = [(part.min(axis=0), part.max(axis=0)) for part in parts]
        low[place] = np.min([least for least, _ in ends], axis=0)
        high[place] = np.max([most for _, most in ends], axis=0)
        kept = members if max_rows is None else members[spread(len(members), max_rows)]
        some, share = X[kept], None if weights is None else weights[kept]
        at = {site: values[:, :, node] for site, values in _splits(draws).items()}
        largest[:, :, place], cut[:, :, place] = votes_and_cuts(at, some, share)
        if prior is not None:
            own = votes_and_cuts(_splits(prior), some, share)
            expected[:, place], expected_cut[:, place] = own
    found = Reach(nodes, counts, low, high, largest, cut=cut)
    if prior is None:
        return found
    intercept = np.asarray(prior["intercept"], dtype=np.float32)
    return found._replace(prior_largest=expected, prior_cut=expected_cut, prior_intercept=intercept)


def leaves_in_use(
    draws: Draws, topology: Topology, X: RowSource, *, max_rows: int = 10_000
) -> IntArray:
    """Number of leaves that rows reach in each draw under hard splits, shape (chain, draw).

    Up to ``max_rows`` evenly spaced rows of X, on the scale of the draws, are routed.
    """
    some = X[spread(X.shape[0], max_rows)]
    center, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
    counts = np.empty(draws["intercept"].shape[:2], dtype=np.int64)
    for one in np.ndindex(counts.shape):
        split = split_of(draws, one)
        tree = Tree.from_standardised(topology, *split, center=center, scale=scale)
        counts[one] = len(np.unique(tree.apply(some)))
    return counts


def _splits(draws: Draws) -> Draws:
    return {
        name: draws[name] for name in ("hyperplane", "intercept", "log_weight") if name in draws
    }


def votes_and_cuts(
    draws: Draws, X: FloatArray, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Find each expert's largest vote over rows, and the share of rows that it alone sends right.

    Both have shape (..., K), from draws (..., K, d).
    """
    plane, intercept = draws["hyperplane"], draws["intercept"].astype(np.float64)
    weight = weight_of(draws, ...)
    n_experts = plane.shape[-2]
    # r softplus(beta . x + b) increases with beta . x: both have their maximum at the same row.
    every = plane.reshape(-1, *plane.shape[-2:])
    limit = (thresholds(weight) - intercept).reshape(-1, n_experts, 1)
    top, cut = np.empty((2, len(every), n_experts))
    size = max(1, VOTES // (len(X) * n_experts))
    for some in (slice(start, start + size) for start in range(0, len(every), size)):
        activation = every[some].astype(np.float64) @ X.T
        top[some] = activation.max(axis=-1)
        beyond = activation > limit[some]
        alone = beyond & (beyond.sum(axis=1, keepdims=True) == 1)
        cut[some] = np.average(alone, axis=-1, weights=weights)
    top, cut = top.reshape(intercept.shape), cut.reshape(intercept.shape)
    votes = np.logaddexp(0.0, top + intercept) * weight
    return np.minimum(votes, MAX_VOTE), cut
