"""The deterministic tree of a fit: its splits, the pruning, and the values of its leaves."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayestree import inference
from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree.diagnostics.polytopes import Reach
from bayestree.fitted.diagnostics import measure_nodes
from bayestree.fitted.training_rows import Scaling, TrainingRows, with_unused_columns
from bayestree.fitted.tree import FittedTree
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.growth.single_leaf import ONE_WAY, SingleLeafWarning, warn_single_leaf
from bayestree.inference.pointwise import leaf_sums
from bayestree.models import Network
from bayestree.models.soft_tree import isotonic, larger_side, leaf_order
from bayestree.routed_tree import Frame, RoutedTree
from bayestree.tree import Tree

#: Values of leaves that a method estimates itself, by the names of the fields of a tree.
LeafValues = Callable[[Any, Posterior, TrainingRows, Scaling], Mapping[str, FloatArray]]


@dataclass(frozen=True, eq=False)
class HardForm:
    """How a posterior becomes a deterministic tree."""

    limits: GrowthLimits
    feature_names: tuple[str, ...]  # empty for features without names
    smoothing: float = 0.0  # weight of the shares of all rows in the shares of a leaf, in rows
    #: Whether splits are polytopes, with a posterior that must support them; otherwise they are
    #: those of the point estimate, whatever they are.
    polytopes: bool = False
    #: Whether the draws have topologies of their own, which no other limit than the depth binds.
    sampled: bool = False
    values: LeafValues | None = None  # the values of the leaves; by default those of their family

    def of(
        self, posterior: Posterior, rows: TrainingRows, data: Data, scaling: Scaling
    ) -> tuple[Any, Reach | None]:
        """Derive the deterministic tree from the point estimate and the training rows.

        Also the statistics of these rows, if splits are polytopes.
        """
        if self.polytopes:
            found, nodes = self.of_polytopes(posterior, rows, data, scaling)
            standardised = scaling.standardise(rows.X)
            return found, measure_nodes(posterior, found, rows.X, standardised, nodes, rows.weights)
        tree = self.splits(posterior, scaling, rows.class_names).prune(rows.X, self.limits.min_leaf)
        if posterior.model.topology.n_nodes and tree.topology.n_nodes == 0:
            warn_single_leaf(data.y, posterior.model.leaf, self.limits, ONE_WAY)
        return self.filled(tree, posterior, rows, data, scaling), None

    def of_polytopes(
        self, posterior: Posterior, rows: TrainingRows, data: Data, scaling: Scaling
    ) -> tuple[Tree, IntArray]:
        """Derive the tree whose splits are polytopes, and its nodes in the posterior."""
        limits = self.limits
        if self.sampled:
            limits = replace(limits, min_gain=0.0, min_rows=0.0, min_leaf=1)
        with warnings.catch_warnings():
            if self.sampled:
                warnings.simplefilter("ignore", SingleLeafWarning)
            hard = inference.harden(posterior, data, limits=limits)
        found = self.splits(hard.posterior, scaling, rows.class_names)
        if not isinstance(found, Tree):
            raise TypeError(
                "the diagnostics of a posterior need linear experts, got the split "
                f"{posterior.model.split!r}."
            )
        tree, kept = found.drop_experts(rows.X).pruned(rows.X, limits.min_leaf)
        return self.filled(tree, posterior, rows, data, scaling), hard.sources[kept]

    def splits(
        self, posterior: Posterior, scaling: Scaling, class_names: tuple[str, ...]
    ) -> RoutedTree:
        """Return the splits of a point estimate at 1/2, in the units of the data."""
        model, used, own = posterior.model, scaling.used, scaling.units
        point = with_unused_columns(posterior, used, reduced=False).point
        # networks receive the unused columns as well, in a unit that makes them vanish
        scale = own.scale if isinstance(model.split, Network) else np.where(used, own.scale, 1.0)
        frame: Frame = {
            "center": own.center,
            "scale": scale,
            "feature_names": self.feature_names,
            "class_names": class_names,
            "quantity": model.leaf.quantity,
        }
        return model.split.tree(model.topology, point, frame)

    def filled(
        self, tree: Any, posterior: Posterior, rows: TrainingRows, data: Data, scaling: Scaling
    ) -> Any:
        """Fill the leaves of a deterministic tree from the training rows."""
        filled = tree.fill(rows.X, rows.y, rows.weights, len(rows.class_names), self.smoothing)
        if self.values is not None:
            return filled._with(**self.values(filled, posterior, rows, scaling))
        filled = filled._with(**_of_family(filled, posterior, rows, data, scaling))
        return with_ordered_leaves(filled, posterior.model.monotone)


def _of_family(
    tree: Any, posterior: Posterior, rows: TrainingRows, data: Data, scaling: Scaling
) -> dict[str, FloatArray]:
    """Return the fields of a tree that the family of leaves estimates itself."""
    family = posterior.model.leaf
    if family.averages:
        return {}
    each = family.statistics(data.for_leaf(family).y, data.weights)
    sums = each.new_zeros(tree.n_leaves, each.shape[1])
    sums.index_add_(0, torch.as_tensor(tree.apply(rows.X), device=each.device), each)
    found = family.tree_values(sums.cpu())
    if "slope" in found:
        found["slope"] = found["slope"] / scaling.units.scale
    return found


def tree_leaves(
    fitted: FittedTree, sums: torch.Tensor, mass: FloatArray, smoothing: float
) -> dict[str, AnyArray]:
    """Compute the leaves of the deterministic tree from sums of statistics."""
    family, each = fitted.posterior.model.leaf, sums.numpy()
    found: dict[str, AnyArray] = family.tree_values(sums)
    if family.averages and family.n_classes:
        overall = each.sum(axis=0) / mass.sum()
        found["value"] = (each + smoothing * overall) / (mass + smoothing)[:, None]
    elif family.averages:
        found["value"] = each[:, 1] / mass
    if "slope" in found:
        found["slope"] = found["slope"] / fitted.scaling.units.scale
    return found | {"leaf_rows": mass}


def with_ordered_leaves(tree: Any, directions: tuple[int, ...]) -> Any:
    """Order the leaves of the deterministic tree as its splits demand.

    A sparse split may have lost its monotone features; its leaves then keep their own order.
    """
    if not directions or tree.n_nodes == 0:
        return tree
    classes = len(tree.class_names) > 0
    level, mass = tree.value[:, -1] if classes else tree.value, tree.leaf_rows
    both = np.column_stack((level * mass, mass))
    each = np.concatenate((tree.topology.sum_below(both), both[::-1]))[tree.topology.children]
    total, count = each[..., 0], each[..., 1]
    risen = tree.hyperplane @ np.array(directions, dtype=np.float64)
    risen = np.add.reduceat(risen, tree.expert_start[:-1])
    risen = np.where(risen, risen, total[:, 1] * count[:, 0] - total[:, 0] * count[:, 1])
    order = leaf_order(tree.topology, larger_side(risen))
    return tree.with_value(_in_order(tree.value, tree.leaf_rows, order, classes))


def with_ordered_draws(found: Posterior, data: Data) -> Posterior:
    """Order the leaves of a posterior as its splits demand, in every draw."""
    model, point = found.model, found.point
    if not model.monotone or model.topology.n_nodes == 0:
        return found
    sums = leaf_sums(model, found.point_sites(data.X), data)
    mass = model.leaf.level(sums)[0].numpy(force=True).astype(np.float64)
    risen = (point["hyperplane"] * np.array(model.monotone)).sum(axis=(1, 2))
    order, site = leaf_order(model.topology, larger_side(risen)), str(model.leaf.level_site)
    classes = model.leaf.n_classes > 0
    changed = [
        {**sites, site: _in_order(sites[site], mass, order, classes)}
        for sites in (found.draws, point)
    ]
    return replace(found, draws=changed[0], point=changed[1])


def _in_order(
    values: NDArray[Any], mass: FloatArray, order: NDArray[np.int64], classes: bool
) -> NDArray[Any]:
    """Order predictions (..., L), or probabilities of two classes (..., L, 2)."""
    if not classes:
        return isotonic(values, mass, order)
    second = isotonic(values[..., 1], mass, order)
    moved = second != values[..., 1]
    return np.where(moved[..., None], np.stack((1 - second, second), axis=-1), values)
