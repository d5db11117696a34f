"""Borders, facets and credible bands of a tree with two features."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import logit

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree.routed_tree import RoutedTree
from bayestree.tree import LOG2, Tree, facet_threshold

STEPS = 600  # points per facet at which reachability of its node is tested
CERTAIN = 1e-12  # probabilities are clipped to [CERTAIN, 1 - CERTAIN]


class Window(NamedTuple):
    """The rectangle shown, and a grid over it."""

    low: FloatArray
    high: FloatArray
    x: FloatArray
    y: FloatArray

    @property
    def rows(self) -> FloatArray:
        """Points of the grid, shape (r * r, 2)."""
        return np.stack([side.ravel() for side in np.meshgrid(self.x, self.y)], axis=1)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the grid."""
        return len(self.y), len(self.x)


def border_fields(tree: RoutedTree, rows: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Each reached node with its scores: log 2 on the border, NaN where it is not reached."""
    for node, reached, _ in tree.walk(rows):
        score = np.full(len(rows), np.nan)
        score[reached] = tree.score(node, rows[reached])
        yield node, score


def band_fields(tree: RoutedTree, interval: FloatArray, rows: FloatArray) -> Iterator[FloatArray]:
    """A field (n,) for each node, negative in its band and continuous across the edge.

    In the band, the credible interval (n, V, 2) of P(right) at ``rows`` contains 1/2; the band
    ends where the deterministic tree does not reach the node.
    """
    low, high = np.moveaxis(logit(interval.clip(CERTAIN, 1 - CERTAIN)), -1, 0)
    # beyond[v] is negative where the path to v is taken; a maximum intersects such regions.
    beyond = np.full((tree.n_nodes, len(rows)), -np.inf)
    for node, pair in enumerate(tree.topology.children):
        yield np.maximum(np.maximum(low[:, node], -high[:, node]), beyond[node])
        outside = np.log(np.maximum(tree.score(node, rows), np.finfo(np.float64).tiny) / LOG2)
        for child, side in zip(pair, (outside, -outside), strict=True):
            if child >= 0:
                beyond[child] = np.maximum(beyond[node], side)


def facets(tree: Tree, node: int, window: Window) -> Iterator[FloatArray]:
    """The segments on which each facet of a node bounds its polytope; gaps are NaN."""
    experts = tree.experts(node)
    normal = tree.hyperplane[experts]
    bound = facet_threshold(tree.weight[experts]) - tree.intercept[experts]
    # The sides of the window act as further half-spaces.
    normals = np.concatenate([normal, np.eye(2), -np.eye(2)])
    bounds = np.concatenate([bound, window.high, -window.low])
    for k in range(len(normal)):
        ends = _clip(normals, bounds, k)
        if ends is None:
            continue
        segment = np.linspace(*ends, STEPS)
        segment[~_reaches(tree, node, segment)] = np.nan
        if np.isfinite(segment).any():
            yield segment


def _clip(normals: FloatArray, bounds: FloatArray, k: int) -> tuple[FloatArray, FloatArray] | None:
    """Ends of the part of the line normal_k . x = bound_k on which all other bounds hold.

    On the line x = foot + t along, another half-space reads t slope <= room.
    """
    squared = float(normals[k] @ normals[k])
    if squared == 0:
        return None
    foot = normals[k] * (bounds[k] / squared)
    along = np.array([-normals[k, 1], normals[k, 0]]) / np.sqrt(squared)
    others = np.arange(len(normals)) != k
    slope = normals[others] @ along
    room = bounds[others] - normals[others] @ foot
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = room / slope
    low = cut[slope < 0].max(initial=-np.inf)
    high = cut[slope > 0].min(initial=np.inf)
    if (room[slope == 0] < 0).any() or not low < high:
        return None
    return foot + low * along, foot + high * along


def _reaches(tree: RoutedTree, node: int, rows: FloatArray) -> BoolArray:
    member = np.zeros(len(rows), dtype=bool)
    for found, reached, _ in tree.walk(rows):
        if found == node:
            member[reached] = True
    return member
