"""Removal of nodes and experts that a fit does not use, before they are sampled at great cost."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayestree import routing
from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.data import Data
from bayestree.inference.draws import Arrays
from bayestree.inference.growing import GrowthLimits
from bayestree.inference.harden import needed_nodes
from bayestree.inference.posterior import Posterior
from bayestree.models.splits import joined

MIN_EXPERTS, SPARE = 4, 2.0  # experts that remain: at least, and in units of the facets in use


def without_idle(posterior: Posterior, data: Data) -> Posterior:
    """The posterior without the nodes and experts that its point estimate does not use.

    A node that the deterministic tree would not keep is replaced by the child that receives more
    rows. The number of experts in a node falls to twice the largest number of facets in use, but
    at least 4, with the same gamma process truncated there; those of the largest votes remain.
    The posterior is returned unchanged if its tree needs no node.
    """
    model = posterior.model
    limits = GrowthLimits(max_depth=model.topology.depth, min_leaf=1)
    needed = needed_nodes(posterior, data, limits)
    if not needed.any():
        return posterior
    sites = posterior.point_sites(data.X)
    with torch.no_grad():
        parts = [part.weights @ model.leaf_log_probs(sites, part.X).exp() for part in data.parts()]
    sides = model.topology.turns @ torch.stack(parts).sum(0).numpy(force=True)
    topology, nodes, leaves = model.topology.collapse(np.where(needed, -1, sides.argmax(0)))
    votes = _largest_votes(posterior, data)[nodes]
    in_use = int((votes > routing.LOG2).sum(1).max())
    n_experts = min(model.split.n_experts, max(MIN_EXPERTS, int(SPARE * in_use)))
    experts = np.sort(np.argsort(-votes, axis=1, kind="stable")[:, :n_experts], axis=1)
    split: Any = model.split  # a split of one expert has no such field
    if n_experts < split.n_experts:
        split = replace(split, n_experts=n_experts)

    def selected(arrays: Arrays, lead: int) -> dict[str, NDArray[Any]]:
        known = model.dimensions.items()
        return {
            name: _selected(arrays[name], dimensions, lead, nodes, experts, leaves)
            for name, dimensions in known
            if name in arrays
        }

    return replace(
        posterior,
        model=model.with_(topology=topology, split=split),
        draws=selected(posterior.draws, 2),
        point=selected(posterior.point, 0),
    )


def _largest_votes(posterior: Posterior, data: Data) -> FloatArray:
    """Largest vote r softplus(beta . x + b) of each expert over the rows, shape (V, K)."""
    sites = posterior.point_sites(data.X)
    coefficient = joined(sites)
    tops = [coefficient.flatten(0, 1) @ part.X.T for part in data.parts(ones=True)]
    top = torch.stack([each.amax(1) for each in tops]).amax(0).view(coefficient.shape[:2])
    weight = torch.as_tensor(posterior.weight()).to(top)
    return (weight * torch.nn.functional.softplus(top)).numpy(force=True).astype(np.float64)


def _selected(
    values: NDArray[Any],
    dimensions: Sequence[str],
    lead: int,
    nodes: IntArray,
    experts: IntArray,
    leaves: IntArray,
) -> NDArray[Any]:
    """Entries of a site of these dimensions, after ``lead`` others."""
    if "node" in dimensions:
        values = values.take(nodes, axis=lead)
    if "leaf" in dimensions:
        values = values.take(leaves, axis=lead)
    if "expert" in dimensions:
        after = values.ndim - lead - 2
        places = experts.reshape((1,) * lead + experts.shape + (1,) * after)
        values = np.take_along_axis(values, places, axis=lead + 1)
    return values
