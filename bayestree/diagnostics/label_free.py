"""Quantities on which chains can be compared: those that are invariant to the order of experts.

Experts of a node are exchangeable, so their individual parameters may differ between chains that
agree on everything else. Invariant are the log joint density, P(right) of rows at each node,
predictions, sorted weights and the effective number of weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit

from bayestree._utils import arviz_compat
from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.diagnostics.draws import (
    Draws,
    classifies,
    effective_number,
    leaf_log_probs,
    leaf_means,
    leaf_shares,
    log_odds,
    scores,
    spread,
)
from bayestree.topology import Topology

if TYPE_CHECKING:
    import xarray as xr

TYPICAL_RANGE = 2.0  # most scaled features lie within two units of 0
MAX_ROWS = 5000  # rows from which the principal direction is computed


def label_free(
    draws: Mapping[str, Any],
    topology: Topology,
    rows: ArrayLike,
    *,
    row_labels: ArrayLike | None = None,
    node_rows: Sequence[ArrayLike] | None = None,
    steepness: float = 1.0,
    lp: ArrayLike | None = None,
    log_likelihood: ArrayLike | None = None,
    facets: ArrayLike | None = None,
    class_names: Sequence[str] = (),
    fixed_sides: bool = True,
) -> xr.Dataset:
    """Compute quantities of each draw that do not depend on the order of the experts.

    Parameters
    ----------
    draws : mapping of arrays
        Sites by name, each (chain, draw, ...), as in ``Posterior.draws`` or ArviZ's ``posterior``
        group.
    topology : Topology
        Topology of the soft tree, with V nodes.
    rows : array, shape (m, d)
        Rows, on the scale of the draws, at which predictions are compared.
    row_labels : array of int, shape (m,), optional
        Coordinates of these rows; by default 0 to m - 1.
    node_rows : sequence of V arrays (p, d), optional
        Rows at which P(right) of each node is compared; ``rows`` by default.
    steepness : float
        Factor of the log-odds of the splits.
    lp, log_likelihood : array, shape (chain, draw), optional
        Log joint density of each draw, whose variation is mostly that of parameters without an
        effect, and log-likelihood, by which it is replaced if both are given.
    facets : array of int, shape (chain, draw, V), optional
        Number of facets of each node.
    class_names : sequence of str, optional
        Coordinates of the classes.
    fixed_sides : bool
        False for a sampler that flips nodes (``nuts(mirror=True)``): left and right, and so the
        nodes below, then differ in meaning between draws, and per-node quantities are omitted.

    Returns
    -------
    xarray.Dataset
        ``p_right`` [chain, draw, node, point]; ``prediction`` [chain, draw, row(, class)], the
        class probabilities or the mean, if the draws include leaves; ``log_weight``
        [chain, draw, node, rank] in descending order, and ``effective`` [chain, draw, node],
        (sum r)^2 / sum r^2, if nodes have several weights; ``facets``, and ``log_likelihood`` or
        ``lp``, if given. All of them can be plotted by ``arviz.plot_trace`` and similar functions.

    Raises
    ------
    ValueError
        If numbers of features, nodes or draws disagree.
    """
    draws = {name: np.asarray(values) for name, values in draws.items()}
    n_nodes, n_experts, n_features = draws["hyperplane"].shape[2:]
    shared = _rows_of(rows, n_features, "rows")
    if n_nodes != topology.n_nodes:
        raise ValueError(f"draws have {n_nodes} nodes, but topology has {topology.n_nodes}.")
    if node_rows is not None and len(node_rows) != n_nodes:
        raise ValueError(f"node_rows must hold {n_nodes} arrays, got {len(node_rows)}.")
    per_node = [_rows_of(r, n_features, "node_rows") for r in node_rows or [shared] * n_nodes]
    if len({len(some) for some in per_node}) > 1:
        raise ValueError("node_rows must hold equally many rows for each node.")
    odds = []  # one (chain, draw, row) array per node
    for node, some in enumerate(per_node):
        score = scores(draws, (slice(None), slice(None), node), np.vstack([shared, some]))
        odds.append(np.moveaxis(log_odds(score, steepness), 0, -1))
    variables = _density(lp, log_likelihood)
    if n_nodes and fixed_sides:
        p_right = np.stack([expit(one[..., len(shared) :]) for one in odds], axis=2)
        variables["p_right"] = (("chain", "draw", "node", "point"), p_right)
        if facets is not None:
            variables["facets"] = (("chain", "draw", "node"), np.asarray(facets))
    shared_odds = [one[..., : len(shared)] for one in odds]
    prediction = _prediction(draws, topology, shared_odds, shared)
    if prediction is not None:
        dims = ("chain", "draw", "row", "class")[: prediction.ndim]
        variables["prediction"] = (dims, prediction)
    if "log_weight" in draws and n_experts > 1 and n_nodes and fixed_sides:
        weight = -np.sort(-draws["log_weight"].astype(np.float64), axis=-1)
        variables["log_weight"] = (("chain", "draw", "node", "rank"), weight)
        relative = np.exp(weight - weight[..., :1])  # relative to the largest: no underflow
        variables["effective"] = (("chain", "draw", "node"), effective_number(relative))
    return _labelled(variables, topology, class_names, row_labels)


def _density(lp: ArrayLike | None, log_likelihood: ArrayLike | None) -> dict[str, Any]:
    """Return the log-likelihood or, where it is not known, the log joint density."""
    name, values = ("lp", lp) if log_likelihood is None else ("log_likelihood", log_likelihood)
    if values is None:
        return {}
    return {name: (("chain", "draw"), np.asarray(values, dtype=np.float64))}


def spread_rows(X: FloatArray, n: int) -> IntArray:
    """Select up to ``n`` rows, evenly spaced in rank along the first principal component."""
    if n < 1:
        raise ValueError(f"n must be 1 or more, got {n}.")
    numbers = spread(len(X), MAX_ROWS)
    some = X[numbers]
    if len(some) <= n:
        return numbers
    centred = some - some.mean(axis=0)
    direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    order = np.argsort(centred @ direction, kind="stable")
    return numbers[order[spread(len(some), n)]]


def typical_rows(n_features: int, n: int) -> FloatArray:
    """Generate ``n`` reproducible rows (n, n_features) in the usual range of scaled features."""
    # Means of three uniforms, since the corners of a high-dimensional box are far from any data.
    share = np.random.default_rng(0).uniform(size=(n, 3, n_features)).mean(axis=1)
    return TYPICAL_RANGE * (2 * share - 1)


def _rows_of(rows: ArrayLike, n_features: int, name: str) -> FloatArray:
    found = np.asarray(rows, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != n_features or len(found) == 0:
        raise ValueError(f"{name} must have shape (m, {n_features}) with m > 0, got {found.shape}.")
    return found


def _prediction(
    draws: Draws, topology: Topology, odds: list[FloatArray], X: FloatArray
) -> FloatArray | None:
    """Compute E(y | x) of each draw, (chain, draw, row(, class)); None for plug-in leaves."""
    classes = classifies(draws)
    if not classes and "leaf_mean" not in draws:
        return None
    shape = (*draws["hyperplane"].shape[:2], len(X))
    stacked = np.stack(odds, axis=-1) if odds else np.empty((*shape, 0))
    probs = np.exp(leaf_log_probs(log_expit(-stacked), log_expit(stacked), topology))
    if classes:
        every = leaf_shares(draws, (slice(None), slice(None)), X)
        return np.asarray((probs[..., None] * every).sum(axis=-2))
    return (probs * leaf_means(draws, (slice(None), slice(None)), X)).sum(axis=-1)


def _labelled(
    variables: dict[str, Any],
    topology: Topology,
    class_names: Sequence[str],
    row_labels: ArrayLike | None,
) -> xr.Dataset:
    import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and importing an estimator imports this module

    dataset = xr.Dataset(variables)
    coordinates: dict[str, Any] = {str(name): np.arange(n) for name, n in dataset.sizes.items()}
    if "node" in coordinates:
        coordinates["node"] = list(topology.node_labels)
    if "class" in coordinates and len(class_names):
        coordinates["class"] = list(class_names)
    if "row" in coordinates and row_labels is not None:
        coordinates["row"] = np.asarray(row_labels)
    return dataset.assign_coords(coordinates)


def label_free_of(container: Any, X: ArrayLike | None = None, *, n_rows: int = 20) -> xr.Dataset:
    """Compute :func:`label_free` of a stored posterior.

    The result is that of :func:`label_free`.

    Parameters
    ----------
    container : arviz.InferenceData or xarray.DataTree
        As returned by ``to_arviz``, with the groups ``posterior`` and ``constant_data``, and
        ``sample_stats`` where the inference recorded something.
    X : array, shape (n, d), optional
        Rows in the units of the data, from which the rows to compare are chosen. By default the
        rows of ``constant_data``, or simulated ones if it has none.
    n_rows : int
        Number of rows to compare.

    Raises
    ------
    ValueError
        If a group is missing, X has a different number of features, or the container holds a
        mixture of several modes.
    """
    if "mode_weights" in container.attrs:
        raise ValueError(
            "the container is that of a mixture of several modes. Its posterior has such "
            "quantities, which check_convergence() of the estimator judges; for the parameters of "
            "one mode, pass modes_[m].to_arviz(X, y)."
        )
    posterior, constant = (
        arviz_compat.group(container, name) for name in ("posterior", "constant_data")
    )
    center, scale = constant["center"].to_numpy(), constant["scale"].to_numpy()
    if X is None and "X" in constant:
        X = constant["X"].to_numpy()
    if X is None:
        rows, numbers = typical_rows(len(center), n_rows), None
    else:
        given = np.asarray(X, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != len(center):
            raise ValueError(f"X must have shape (n, {len(center)}), got {given.shape}.")
        standard = (given - center) / scale
        numbers = spread_rows(standard, n_rows)
        rows = standard[numbers]
    settings = json.loads(container.attrs.get("settings", "{}"))
    return label_free(
        {str(name): values.to_numpy() for name, values in posterior.items()},
        Topology(constant["children"].to_numpy()),
        rows,
        row_labels=numbers,
        steepness=float(container.attrs["steepness"]),
        lp=recorded(container).get("lp"),
        log_likelihood=recorded(container).get("log_likelihood"),
        class_names=[str(name) for name in posterior["class"].to_numpy()]
        if "class" in posterior.coords
        else (),
        fixed_sides=not settings.get("mirror", False),
    )


def recorded(container: Any) -> xr.Dataset:
    """Return ``sample_stats``; empty where nothing was recorded."""
    if "sample_stats" not in arviz_compat.names(container):
        import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and this module is imported by estimators

        return xr.Dataset()
    return arviz_compat.group(container, "sample_stats")
