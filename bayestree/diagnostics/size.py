"""How many facets a polytope has: three measures of each draw of each node.

Arrays only: draws by site name, as in ``Posterior.draws``, on the scale of ``X``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import linprog

from bayestree.topology import BoolArray, IntArray
from bayestree.tree import LOG2, FloatArray, facet_threshold

Measure = Literal["facets", "weights", "effective"]
Draws = Mapping[str, NDArray[Any]]

SHARE = 0.01  # of log 2: the least largest vote of an expert that counts
TOLERANCE = 1e-7  # that of the linear programs, in units of the box


class Reach(NamedTuple):
    """What the sizes need to know of the rows: enough to measure, too little to recover them.

    Attributes
    ----------
    nodes : array of int, shape (V,)
        Which nodes of the draws are described.
    rows : array, shape (V,)
        Rows that reach each.
    low, high : arrays, shape (V, d)
        Bounding box of these rows.
    largest : array, shape (chain, draw, V, K)
        Largest vote r * softplus(beta . x + b) of each expert over these rows.
    """

    nodes: IntArray
    rows: FloatArray
    low: FloatArray
    high: FloatArray
    largest: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PolytopeSize:
    """Posterior of the number of facets of each node.

    Attributes
    ----------
    weights : array of int, shape (chain, draw, V)
        Experts whose largest vote over the node's rows is 1 % of log 2 or more.
    facets : array of int, shape (chain, draw, V)
        Half-spaces of the enclosing polytope that are not redundant inside the bounding box of
        the node's rows. Two experts that share a hyperplane count once: the headline.
    effective : array, shape (chain, draw, V)
        (sum of c)^2 / sum of c^2 of the largest votes c.
    labels : tuple of str
        Path of each node from the root.
    rows : array, shape (V,)
        Rows that reach each node.
    """

    weights: IntArray
    facets: IntArray
    effective: FloatArray
    labels: tuple[str, ...]
    rows: FloatArray

    def probabilities(self, measure: Measure = "facets") -> FloatArray:
        """Posterior probability of each size, shape (V, largest size + 1).

        ``effective`` is rounded to whole numbers.
        """
        sizes = np.rint(self._flat(measure)).astype(np.int64)
        table = np.zeros((sizes.shape[1], sizes.max(initial=0) + 1))
        for node, column in enumerate(sizes.T):
            table[node] = np.bincount(column, minlength=table.shape[1]) / len(column)
        return table

    def mode(self, measure: Measure = "facets") -> IntArray:
        """Most probable size of each node, shape (V,); the smaller of two equals."""
        return self.probabilities(measure).argmax(axis=1)

    def interval(self, level: float = 0.9, measure: Measure = "facets") -> FloatArray:
        """Central interval that holds the size with probability ``level``, shape (V, 2).

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}.")
        tails = [(1 - level) / 2, (1 + level) / 2]
        whole = measure != "effective"
        method: Any = "inverted_cdf" if whole else "linear"
        return np.quantile(self._flat(measure), tails, axis=0, method=method).T.astype(np.float64)

    def to_frame(self, level: float = 0.9) -> pd.DataFrame:
        """One row for each node: mode, mean and interval of the facets, means of the others."""
        facets = self._flat("facets")
        interval = self.interval(level)
        return pd.DataFrame(
            {
                "rows": self.rows,
                "facets": self.mode(),
                "facets_mean": facets.mean(axis=0),
                "facets_low": interval[:, 0].astype(np.int64),
                "facets_high": interval[:, 1].astype(np.int64),
                "weights_mean": self._flat("weights").mean(axis=0),
                "effective_mean": self._flat("effective").mean(axis=0),
            },
            index=pd.Index(self.labels, name="node", dtype=object),
        )

    def __str__(self) -> str:
        n_chains, n_draws, n_nodes = self.facets.shape
        if n_nodes == 0:
            return "Polytope size: a tree without a split"
        head = f"Polytope size: {n_chains} x {n_draws} draws (chain x draw), intervals of 90 %"
        return f"{head}\n{self.to_frame().to_string(float_format='{:.1f}'.format)}"

    def _flat(self, measure: Measure) -> NDArray[Any]:
        """Sizes of all draws of all chains, shape (draws, V)."""
        sizes: NDArray[Any] = getattr(self, measure)
        n_chains, n_draws, n_nodes = sizes.shape
        return sizes.reshape(n_chains * n_draws, n_nodes)


def polytope_size(
    draws: Draws,
    X: FloatArray,
    rows: Sequence[IntArray],
    *,
    labels: Sequence[str] | None = None,
    max_draws: int = 50,
) -> PolytopeSize:
    """Posterior of the number of facets of each node.

    Parameters
    ----------
    draws : mapping of arrays
        Sites ``hyperplane`` (chain, draw, V, K, d), ``intercept`` and, unless every weight is 1,
        ``log_weight`` (chain, draw, V, K).
    X : array, shape (n, d)
        Rows on the scale of the draws.
    rows : sequence of V arrays of int
        Rows of ``X`` that reach each node, one or more.
    labels : sequence of V str, optional
        Names of the nodes; their numbers by default.
    max_draws : int
        Most draws that are measured, spread evenly over each chain: each draw of each node needs
        a linear program of some 2 ms, and a few more for facets that are nearly redundant.

    Returns
    -------
    PolytopeSize

    Raises
    ------
    ValueError
        If a node has no rows, or numbers of nodes, features or labels disagree.
    """
    n_nodes = draws["intercept"].shape[2]
    if len(rows) != n_nodes:
        raise ValueError(f"rows must hold one array for each of {n_nodes} nodes, got {len(rows)}.")
    names = [str(node) for node in range(n_nodes)] if labels is None else labels
    reach = node_reach(draws, X, rows, np.arange(n_nodes))
    return size_of(draws, reach, names, max_draws=max_draws)


def node_reach(
    draws: Draws,
    X: FloatArray,
    rows: Sequence[IntArray],
    nodes: IntArray,
    *,
    max_rows: int | None = None,
) -> Reach:
    """Boxes and largest votes of some nodes, for :func:`size_of`.

    Parameters
    ----------
    draws, X
        As for :func:`polytope_size`.
    rows : sequence of arrays of int
        Rows of ``X`` that reach each of ``nodes``.
    nodes : array of int
        Numbers of these nodes in the draws.
    max_rows : int, optional
        Most rows of each node on which votes are measured, evenly spread; boxes are exact.

    Raises
    ------
    ValueError
        If a node has no rows, or ``X`` another number of features than the draws.
    """
    n_chains, n_draws, _, n_experts, n_features = draws["hyperplane"].shape
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X must have shape (n, {n_features}), as the draws, got {X.shape}.")
    empty = [int(node) for node, own in zip(nodes, rows, strict=True) if len(own) == 0]
    if empty:
        raise ValueError(f"rows holds none for the nodes {empty}; leave these out.")
    low = np.empty((len(nodes), n_features))
    high = np.empty_like(low)
    largest = np.empty((n_chains, n_draws, len(nodes), n_experts), dtype=np.float32)
    for place, (node, own) in enumerate(zip(nodes, rows, strict=True)):
        part = X[own]
        low[place], high[place] = part.min(axis=0), part.max(axis=0)
        some = part if max_rows is None else part[_spread(len(part), max_rows)]
        largest[:, :, place] = _largest_votes(draws, int(node), some)
    return Reach(nodes, np.array([float(len(own)) for own in rows]), low, high, largest)


def size_of(
    draws: Draws, reach: Reach, labels: Sequence[str], *, max_draws: int = 50
) -> PolytopeSize:
    """The three measures, from draws and what is known of the rows.

    Parameters
    ----------
    draws, max_draws
        As for :func:`polytope_size`.
    reach : Reach
    labels : sequence of str
        Names of ``reach.nodes``.
    """
    if max_draws < 1:
        raise ValueError(f"max_draws must be 1 or more, got {max_draws}.")
    if len(labels) != len(reach.nodes):
        raise ValueError(f"labels must name {len(reach.nodes)} nodes, got {len(labels)}.")
    n_chains, n_draws = draws["intercept"].shape[:2]
    kept = _spread(n_draws, max(1, max_draws // n_chains))
    votes = reach.largest[:, kept].astype(np.float64)
    facets = np.zeros(votes.shape[:3], dtype=np.int64)
    for chain, place, node in np.ndindex(facets.shape):
        one = (chain, kept[place], reach.nodes[node])
        facets[chain, place, node] = n_facets(
            _weight(draws, one),
            draws["hyperplane"][one].astype(np.float64),
            draws["intercept"][one].astype(np.float64),
            reach.low[node],
            reach.high[node],
        )
    square = np.maximum((votes**2).sum(axis=-1), np.finfo(np.float64).tiny)
    return PolytopeSize(
        weights=(votes >= SHARE * LOG2).sum(axis=-1),
        facets=facets,
        effective=votes.sum(axis=-1) ** 2 / square,
        labels=tuple(labels),
        rows=reach.rows,
    )


def n_facets(
    weight: FloatArray,
    hyperplane: FloatArray,
    intercept: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> int:
    """Facets of a node's enclosing polytope inside a box.

    The fewest half-spaces beta_k . x + b_k <= softplus^-1(log 2 / r_k) that cut out the same part
    of the box as all of them do. 1 if one of them alone leaves nothing of it.

    Parameters
    ----------
    weight, intercept : arrays, shape (K,)
    hyperplane : array, shape (K, d)
    low, high : arrays, shape (d,)

    Returns
    -------
    int
    """
    with np.errstate(divide="ignore"):  # a weight that underflowed: no threshold is too high
        threshold = facet_threshold(weight)
    # in units of the box: 0 <= u <= 1
    plane = hyperplane * (high - low)
    bound = threshold - intercept - hyperplane @ low
    norm = np.maximum(np.abs(plane).max(axis=1, initial=0.0), np.finfo(np.float64).tiny)
    plane, bound = plane / norm[:, None], bound / norm
    if (np.minimum(plane, 0.0).sum(axis=1) > bound + TOLERANCE).any():
        return 1
    cuts = np.maximum(plane, 0.0).sum(axis=1) > bound + TOLERANCE
    return _irredundant(plane[cuts], bound[cuts])


def _irredundant(plane: FloatArray, bound: FloatArray) -> int:
    """Half-spaces left when redundant ones are taken out one after the other."""
    if len(bound) < 2:
        return len(bound)
    kept = np.arange(len(bound))
    for k in np.flatnonzero(~_met_first(plane, bound)):
        others = kept[kept != k]
        found = _maximise(plane[k], plane[others], bound[others])
        # Where the others leave nothing of the box, k takes nothing away.
        if found is None or plane[k] @ found <= bound[k] + TOLERANCE:
            kept = others
    return len(kept)


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


def _largest_votes(draws: Draws, node: int, X: FloatArray) -> NDArray[np.float64]:
    """Largest vote of each expert of a node over rows, shape (chain, draw, K)."""
    plane = draws["hyperplane"][:, :, node]
    top = np.empty(plane.shape[:3])
    for chain, draw in np.ndindex(plane.shape[:2]):
        activation = X @ plane[chain, draw].T.astype(np.float64)
        top[chain, draw] = activation.max(axis=0)
    one = (slice(None), slice(None), node)
    return np.logaddexp(0.0, top + draws["intercept"][one]) * _weight(draws, one)


def _weight(draws: Draws, one: Any) -> FloatArray:
    """Weights of the experts of some draws; 1 for splits without."""
    if "log_weight" not in draws:
        return np.ones(draws["intercept"][one].shape)
    return np.exp(draws["log_weight"][one].astype(np.float64))


def _spread(length: int, most: int) -> IntArray:
    """At most so many of 0..length - 1, evenly spread."""
    return np.unique(np.linspace(0, length - 1, min(most, length)).round().astype(np.int64))
