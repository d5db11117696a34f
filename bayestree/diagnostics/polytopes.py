"""Irredundant half-spaces of a polytope inside a box, by linear programming."""

import numpy as np
from scipy.optimize import linprog

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree.diagnostics.draws import SHARE
from bayestree.tree import facet_threshold

TOLERANCE = 1e-7  # tolerance of the linear programs, in units of the box
TINY = float(np.finfo(np.float64).tiny)


def n_facets(
    weight: FloatArray,
    hyperplane: FloatArray,
    intercept: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> int:
    """Number of facets of a node's enclosing polytope inside a box (see :func:`needed`)."""
    return len(needed(weight, hyperplane, intercept, low, high))


def needed(
    weight: FloatArray,
    hyperplane: FloatArray,
    intercept: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> IntArray:
    """Ascending numbers of the experts that form a node's enclosing polytope inside a box.

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
    """Whether shares of a node's rows, in half precision, are ``least`` or more."""
    return share >= np.asarray(least, dtype=share.dtype)


def thresholds(weight: FloatArray) -> FloatArray:
    """Bounds softplus^-1(log 2 / r) of the activations; infinite where the weight underflowed."""
    with np.errstate(divide="ignore", over="ignore"):
        return facet_threshold(weight)


def _irredundant(plane: FloatArray, bound: FloatArray) -> IntArray:
    """Half-spaces left after redundant ones are removed one by one."""
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
    """Half-spaces whose border a ray from inside hits before all others and the box.

    These are irredundant. Rays along the normals find most of them for one linear program.
    """
    inside = _center(plane, bound)
    irredundant = np.zeros(len(bound), dtype=bool)
    if inside is None:
        return irredundant
    # The ray inside + t plane[j] hits border i at t = (bound_i - plane_i . inside) / slope_ij.
    slope = plane @ plane.T
    with np.errstate(divide="ignore"):
        walls = np.where(plane > 0, 1 - inside, inside) / np.abs(plane)
        hit = np.where(slope > 0, (bound - plane @ inside)[:, None] / slope, np.inf)
    hit = np.vstack([hit, walls.min(axis=1)])  # (half-spaces and box, rays)
    nearest, second = np.partition(hit, 1, axis=0)[:2]
    first = hit.argmin(axis=0)[second > nearest + TOLERANCE]
    irredundant[first[first < len(bound)]] = True
    return irredundant


def _center(plane: FloatArray, bound: FloatArray) -> FloatArray | None:
    """Chebyshev centre of the half-spaces and the box; None if their interior is empty."""
    d = plane.shape[1]
    sides = np.vstack([plane, np.eye(d), -np.eye(d)])
    radius = np.linalg.norm(sides, axis=1)[:, None]
    limits = np.concatenate([bound, np.ones(d), np.zeros(d)])
    found = _maximise(np.append(np.zeros(d), 1.0), np.hstack([sides, radius]), limits)
    return None if found is None or found[-1] <= TOLERANCE else found[:-1]


def _maximise(objective: FloatArray, plane: FloatArray, bound: FloatArray) -> FloatArray | None:
    """Maximiser of a linear function on plane @ u <= bound, 0 <= u <= 1; None if infeasible."""
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
