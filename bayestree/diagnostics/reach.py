"""What is kept of the training rows: enough to measure polytopes, too little to recover a row."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.diagnostics.draws import Draws, spread, weight_of
from bayestree.routed_tree import RowSource, chunks
from bayestree.topology import Topology
from bayestree.tree import LOG2, Tree

LARGEST = 1e25  # of a vote that is told from larger ones


class Reach(NamedTuple):
    """What the diagnostics need to know of the rows of each node.

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
    level : array, shape (V,), optional
        The score at which each node splits. Log 2 by default, and for every split that was fitted;
        leaves that are split further by a polytope above them have levels of their own.
    prior_largest : array, shape (prior draw, V, K), optional
        The same as ``largest`` under the prior.
    leaves : array of int, shape (chain, draw), optional
        Leaves of each draw that rows reach when every split is taken at 1/2.
    """

    nodes: IntArray
    rows: FloatArray
    low: FloatArray
    high: FloatArray
    largest: NDArray[np.float32]
    level: FloatArray | None = None
    prior_largest: NDArray[np.float32] | None = None
    leaves: IntArray | None = None

    @property
    def factor(self) -> FloatArray:
        """Of the weights, with which every node splits at log 2, shape (V,)."""
        return np.ones(len(self.nodes)) if self.level is None else LOG2 / self.level


def node_reach(
    draws: Draws,
    X: RowSource,
    rows: Iterable[IntArray],
    nodes: IntArray,
    *,
    level: FloatArray | None = None,
    prior: Draws | None = None,
    max_rows: int | None = None,
) -> Reach:
    """Boxes and largest votes of some nodes.

    Parameters
    ----------
    draws : mapping of arrays
        Sites ``hyperplane`` (chain, draw, V, K, d), ``intercept`` and, unless every weight is 1,
        ``log_weight`` (chain, draw, V, K).
    X : array, or other rows that are read by their numbers, shape (n, d)
        Rows on the scale of the draws.
    rows : iterable of arrays of int
        Rows of ``X`` that reach each of ``nodes``.
    nodes : array of int
        Numbers of these nodes in the draws.
    level : array, optional
        The score at which each of ``nodes`` splits; log 2 by default.
    prior : mapping of arrays, optional
        Prior draws of one node: the same sites, (prior draw, K, ...).
    max_rows : int, optional
        Most rows of each node on which votes are measured, evenly spread; boxes are exact.

    Raises
    ------
    ValueError
        If a node has no rows, or ``X`` another number of features than the draws.
    """
    n_chains, n_draws, _, n_experts, n_features = draws["hyperplane"].shape
    if X.shape[1:] != (n_features,):
        raise ValueError(f"X must have shape (n, {n_features}), as the draws, got {X.shape}.")
    n_prior = 0 if prior is None else len(prior["intercept"])
    low = np.empty((len(nodes), n_features))
    high = np.empty_like(low)
    largest = np.empty((n_chains, n_draws, len(nodes), n_experts), dtype=np.float32)
    expected = np.empty((n_prior, len(nodes), n_experts), dtype=np.float32)
    counts = np.empty(len(nodes))
    for place, (node, own) in enumerate(zip(nodes, rows, strict=True)):
        if len(own) == 0:
            raise ValueError(f"rows holds none for the node {int(node)}; leave it out.")
        counts[place] = len(own)
        low[place], high[place] = _box(X, own)
        some = X[own if max_rows is None else own[spread(len(own), max_rows)]]
        at = {site: values[:, :, node] for site, values in _splits(draws).items()}
        largest[:, :, place] = _largest_votes(at, some)
        if prior is not None:
            expected[:, place] = _largest_votes(_splits(prior), some)
    found = Reach(
        nodes,
        counts,
        low,
        high,
        largest,
        level,
        None if prior is None else expected,
    )
    factor = found.factor[:, None].astype(np.float32)
    return found._replace(
        largest=largest * factor, prior_largest=None if prior is None else expected * factor
    )


def leaves_in_use(
    draws: Draws, topology: Topology, X: RowSource, *, max_rows: int = 10_000
) -> IntArray:
    """Leaves that rows reach in each draw when every split is taken at 1/2.

    Parameters
    ----------
    draws : mapping of arrays
        As for :func:`node_reach`.
    topology : Topology
        Of the draws.
    X : array, shape (n, d)
        Rows on the scale of the draws.
    max_rows : int
        Most rows that are routed, evenly spread.

    Returns
    -------
    array of int, shape (chain, draw)
    """
    some = X[spread(X.shape[0], max_rows)]
    n_chains, n_draws = draws["intercept"].shape[:2]
    counts = np.empty((n_chains, n_draws), dtype=np.int64)
    for one in np.ndindex(n_chains, n_draws):
        tree = Tree.from_standardised(
            topology,
            weight_of(draws, one),
            draws["hyperplane"][one].astype(np.float64),
            draws["intercept"][one].astype(np.float64),
            center=np.zeros(X.shape[1]),
            scale=np.ones(X.shape[1]),
        )
        counts[one] = len(np.unique(tree.apply(some)))
    return counts


def _box(X: RowSource, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Least and greatest values of some rows, few of which are read at a time."""
    parts = (X[rows[chunk]] for chunk in chunks(len(rows), X.shape[1]))
    low, high = zip(*((part.min(axis=0), part.max(axis=0)) for part in parts), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)


def _splits(draws: Draws) -> Draws:
    """The sites of the splits alone."""
    return {
        name: draws[name] for name in ("hyperplane", "intercept", "log_weight") if name in draws
    }


def _largest_votes(draws: Draws, X: FloatArray) -> FloatArray:
    """Largest vote of each expert over rows, shape (..., K), of draws (..., K, d)."""
    plane = draws["hyperplane"]
    top = np.empty(plane.shape[:-1])
    for one in np.ndindex(plane.shape[:-2]):
        activation = X @ plane[one].T.astype(np.float64)
        top[one] = activation.max(axis=0)
    votes = np.logaddexp(0.0, top + draws["intercept"]) * weight_of(draws, ...)
    # Priors without any moments reach beyond single precision, in which votes are kept.
    return np.minimum(votes, LARGEST)
