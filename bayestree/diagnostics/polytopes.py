"""Which half-spaces of a polytope are needed inside a box, by linear programs."""

import numpy as np
from scipy.optimize import linprog

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.tree import facet_threshold

TOLERANCE = 1e-7  # that of the linear programs, in units of the box
TINY = float(np.finfo(np.float64).tiny)


def n_facets(
    weight: FloatArray,
    hyperplane: FloatArray,
    intercept: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> int:
    """Facets of a node's enclosing polytope inside a box: how many :func:`needed` names."""
    return len(needed(weight, hyperplane, intercept, low, high))


def needed(
    weight: FloatArray,
    hyperplane: FloatArray,
    intercept: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> IntArray:
    """Experts that make the facets of a node's enclosing polytope inside a box.

    The fewest half-spaces beta_k . x + b_k <= softplus^-1(log 2 / r_k) that cut out the same part
    of the box as all of them do. One if one of them alone leaves nothing of it: the one that lies
    farthest from the box.

    Parameters
    ----------
    weight, intercept : arrays, shape (K,)
    hyperplane : array, shape (K, d)
    low, high : arrays, shape (d,)

    Returns
    -------
    array of int
        Numbers of these experts, rising.
    """
    # in units of the box: 0 <= u <= 1
    plane = hyperplane * (high - low)
    bound = thresholds(weight) - intercept - hyperplane @ low
    norm = np.maximum(np.abs(plane).max(axis=1, initial=0.0), TINY)
    with np.errstate(over="ignore"):  # a bound beyond all numbers is met everywhere, or nowhere
        plane, bound = plane / norm[:, None], bound / norm
    beyond = np.minimum(plane, 0.0).sum(axis=1) - bound
    if (beyond > TOLERANCE).any():
        return np.array([beyond.argmax()])
    cuts = np.flatnonzero(np.maximum(plane, 0.0).sum(axis=1) > bound + TOLERANCE)
    return cuts[_irredundant(plane[cuts], bound[cuts])]


def thresholds(weight: FloatArray) -> FloatArray:
    """Bounds softplus^-1(log 2 / r) of the activations; infinite for a weight of 0."""
    with np.errstate(divide="ignore", over="ignore"):
        # A weight that underflowed, or nearly: no threshold is too high.
        return facet_threshold(weight)


def _irredundant(plane: FloatArray, bound: FloatArray) -> IntArray:
    """Half-spaces left when redundant ones are taken out one after the other."""
    kept = np.arange(len(bound))
    if len(bound) < 2:
        return kept
    for k in np.flatnonzero(~_met_first(plane, bound)):
        others = kept[kept != k]
        found = _maximise(plane[k], plane[others], bound[others])
        # Where the others leave nothing of the box, k takes nothing away.
        if found is None or plane[k] @ found <= bound[k] + TOLERANCE:
            kept = others
    return kept


def _met_first(plane: FloatArray, bound: FloatArray) -> BoolArray:
    """Half-spaces that a ray from inside leaves before all others, and before the box.

    These are not redundant. The rays along the normals settle most half-spaces at the price of
    one linear program.
    """
    inside = _center(plane, bound)
    settled = np.zeros(len(bound), dtype=bool)
    if inside is None:
        return settled
    slope = plane @ plane.T
    with np.errstate(divide="ignore"):
        walls = np.where(plane > 0, 1 - inside, inside) / np.abs(plane)
        way = np.where(slope > 0, (bound - plane @ inside)[:, None] / slope, np.inf)
    way = np.vstack([way, walls.min(axis=1)])  # (half-spaces and box, rays)
    nearest, next_one = np.partition(way, 1, axis=0)[:2]
    first = way.argmin(axis=0)[next_one > nearest + TOLERANCE]
    settled[first[first < len(bound)]] = True
    return settled


def _center(plane: FloatArray, bound: FloatArray) -> FloatArray | None:
    """Centre of the largest ball inside the half-spaces and the box; None if there is none."""
    d = plane.shape[1]
    sides = np.vstack([plane, np.eye(d), -np.eye(d)])
    radius = np.linalg.norm(sides, axis=1)[:, None]
    limits = np.concatenate([bound, np.ones(d), np.zeros(d)])
    found = _maximise(np.append(np.zeros(d), 1.0), np.hstack([sides, radius]), limits)
    return None if found is None or found[-1] <= TOLERANCE else found[:-1]


def _maximise(objective: FloatArray, plane: FloatArray, bound: FloatArray) -> FloatArray | None:
    """Where a linear function is largest in plane @ u <= bound, 0 <= u <= 1; None if nowhere."""
    for presolve in (False, True):  # presolving costs more than it saves, but is more robust
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
    raise RuntimeError(f"HiGHS did not solve a linear program: {found.message}")
