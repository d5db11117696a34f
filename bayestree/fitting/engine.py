"""The engine of a fit: rows become fitted trees by recipes.

A recipe is data: the model, the method that fits it, and how its result becomes a deterministic
tree. Estimators write recipes, and keep what the engine returns.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bayestree import inference
from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.parallel import Call, in_order, one_thread, threads_for
from bayestree._utils.progress import Track, Verbose, fitting
from bayestree.diagnostics.polytopes import Reach
from bayestree.fitted.assessment import UnconvergedWarning
from bayestree.fitted.diagnostics import measure_nodes
from bayestree.fitted.serialization import describe_tree, tree_arrays, tree_from
from bayestree.fitted.training_rows import (
    FileRows,
    Scaling,
    TrainingRows,
    UnitRule,
    units,
    with_unused_columns,
)
from bayestree.fitted.tree import FittedTree
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.data import UNUSED
from bayestree.inference.growth.single_leaf import ONE_WAY, SingleLeafWarning, warn_single_leaf
from bayestree.inference.pointwise import leaf_sums
from bayestree.inference.samplers.smc.method import fingerprint
from bayestree.models import Network, SoftTree
from bayestree.models.soft_tree import isotonic, leaf_order
from bayestree.routed_tree import Frame, RoutedTree, weight_unit
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
    order = leaf_order(tree.topology, risen)
    return tree.with_value(_in_order(tree.value, tree.leaf_rows, order, classes))


def with_ordered_draws(found: Posterior, data: Data) -> Posterior:
    """Order the leaves of a posterior as its splits demand, in every draw."""
    model, point = found.model, found.point
    if not model.monotone or model.topology.n_nodes == 0:
        return found
    sums = leaf_sums(model, found.point_sites(data.X), data)
    mass = model.leaf.level(sums)[0].numpy(force=True).astype(np.float64)
    risen = (point["hyperplane"] * np.array(model.monotone)).sum(axis=(1, 2))
    order, site = leaf_order(model.topology, risen), str(model.leaf.level_site)
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


ALL = slice(None)
DTYPES = {"float32": torch.float32, "float64": torch.float64}
#: Fits a model to rows in the units of a scaling.
Method = Callable[[SoftTree, Data, Scaling], Posterior]


@dataclass(frozen=True, eq=False)
class Recipe:
    """What the fit of a tree needs beside its rows."""

    model: SoftTree  # before its topology is known, and before its leaves are informed by y
    method: Any
    form: HardForm  # how the posterior becomes a deterministic tree
    #: The columns in use and the units of y; those of the features, if the fit continues another.
    scaling: Scaling
    units: UnitRule = "standard"  # the rule for the units of the features
    continues: bool = False  # whether the fit continues another one, whose units it keeps
    #: Whether the fit sees all columns, which keep their positions like the pixels of an image.
    whole: bool = False
    #: Whether weights are numbers of rows, as for a posterior; otherwise only their ratios matter.
    counts: bool = False
    #: Whether leaves that regress are fitted again, with a prior that is learned from the tree.
    recalibrates: bool = True
    dtype: str = "float64"
    device: str = "cpu"
    work: int = 0  # number of values that a step of the fit processes, which determines the threads
    verbose: Verbose = False
    #: Those of the estimator that fits this tree alone.
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Prepared(NamedTuple):
    """The rows and the model of a fit."""

    rows: TrainingRows  # of positive weight
    model: SoftTree
    data: Data  # the rows in the units of the fit
    given: Data  # their columns in use: ``data`` itself, if all are used
    scaling: Scaling


def prepare(recipe: Recipe, rows: TrainingRows) -> Prepared:
    """Put rows into the units of the fit, and inform the leaves of the model by their y."""
    scaling, leaf = recipe.scaling, recipe.model.leaf
    center, scale = units(rows.X, rows.weights, recipe.units)
    if not recipe.continues:
        scale = np.where(scaling.used, scale, UNUSED)
        scaling = replace(scaling, units=scaling.units._replace(center=center, scale=scale))
    unit = 1.0 if recipe.counts else weight_unit(rows.weights)
    precision: dict[str, Any] = {"dtype": recipe.dtype, "device": recipe.device}
    data = given = as_data(rows, scaling, unit, **precision).for_leaf(leaf)
    if not (scaling.used.all() or recipe.whole):
        leaf = leaf.among(scaling.used)
        given = as_data(rows, scaling, unit, scaling.used, **precision).for_leaf(leaf)
    model = recipe.model.with_(leaf=leaf.informed(given.y, given.weights))
    return Prepared(rows, model, data, given, scaling)


def as_data(
    rows: TrainingRows,
    scaling: Scaling,
    unit: float = 1.0,
    columns: slice | BoolArray = ALL,
    *,
    dtype: str,
    device: str,
) -> Data:
    """Return columns of rows in the units of a fit, with weights in units of ``unit``."""
    kind = DTYPES[dtype]
    X: Any = scaling.standardise(rows.X)
    X = X.tensor(kind, device, columns) if isinstance(X, FileRows) else X[:, columns]
    return Data.of(X, rows.response, rows.weights / unit, dtype=kind, device=device)


def fit_prepared(recipe: Recipe, prepared: Prepared) -> FittedTree:
    """Fit the model to prepared rows, and derive the deterministic tree."""
    with threads_for(recipe.work), fitting(recipe.verbose):
        found = recipe.method(prepared.model, prepared.given, prepared.scaling)
        if recipe.recalibrates and prepared.model.leaf.regresses:
            found = inference.recalibrated(found, prepared.given)
    return complete(recipe, found, prepared)


def complete(recipe: Recipe, found: Posterior, prepared: Prepared) -> FittedTree:
    """Complete the result of the inference by the deterministic tree."""
    rows, scaling = prepared.rows, prepared.scaling
    of_y = scaling.units
    if "log_evidence" in found.stats:  # to that of y in its own units
        shift = rows.weights.sum() * np.log(of_y.y_scale).sum()
        own = fingerprint(of_y.decode(rows.response), rows.weights)
        stats = {"log_evidence": found.stats["log_evidence"] - shift, "rows": np.array(own)}
        found = replace(found, stats={**found.stats, **stats})
    reduced = prepared.given is not prepared.data
    posterior = with_unused_columns(found, scaling.used, reduced=reduced)
    tree, reach = recipe.form.of(posterior, rows, prepared.data, scaling)
    return FittedTree(
        tree=tree.rescaled(of_y.y_scale, of_y.y_center),
        posterior=posterior,
        scaling=scaling,
        reach=reach,
        parameters=recipe.parameters,
        with_extra=rows.extra is not None and bool((rows.extra != 1).any()),
    )


def fit_each(
    recipes: Sequence[Recipe],
    prepared: Prepared,
    *,
    label: str,
    n_jobs: int | None,
    verbose: Verbose,
) -> list[FittedTree]:
    """Fit a tree by each recipe to the rows that were prepared by the first of them.

    An interrupted fit continues with the first tree that was not complete.
    """
    calls: list[Call[FittedTree]] = [(_fit_quietly, (one, prepared), {}) for one in recipes]
    if n_jobs and prepared.data.mapped:  # workers map what is in memory, and read a file themselves
        calls = [(_fit_anew, (one, prepared.rows), {}) for one in recipes]
    grown = _Grown(recipes, prepared)

    def remaining() -> Iterator[FittedTree]:
        yield from in_order(calls[len(grown.trees) :], n_jobs=n_jobs)

    found = remaining()
    with fitting(verbose):
        for _ in Track(recipes, label, show=bool(verbose), parts={"grown": grown}):
            grown.trees.append(next(found))
    return grown.trees


class _Grown:
    """The trees fitted so far; their state is what model files hold of them."""

    def __init__(self, recipes: Sequence[Recipe], prepared: Prepared) -> None:
        self.recipes = recipes
        self.prepared = prepared
        self.trees: list[FittedTree] = []

    def state_dict(self) -> dict[str, Any]:
        return {
            "trees": [(describe_tree(one), tree_arrays(one, numbers=True)) for one in self.trees]
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.trees = []
        for recipe, (described, arrays) in zip(self.recipes, state["trees"], strict=False):
            names, split = recipe.form.feature_names, recipe.model.split
            network = split if isinstance(split, Network) else None
            one = tree_from(described, arrays, names, network)
            scaling, given = self.prepared.scaling, recipe.parameters
            self.trees.append(replace(one, scaling=scaling, parameters=given))


def _fit_quietly(recipe: Recipe, prepared: Prepared) -> FittedTree:
    # trees that are continued may have splits of their own
    model = recipe.model.with_(leaf=prepared.model.leaf)
    with one_thread(), warnings.catch_warnings():
        for of_all in (SingleLeafWarning, UnconvergedWarning):  # which the whole gives
            warnings.simplefilter("ignore", of_all)
        return fit_prepared(recipe, prepared._replace(model=model))


def _fit_anew(recipe: Recipe, rows: TrainingRows) -> FittedTree:
    with one_thread():
        prepared = prepare(recipe, rows)
    return _fit_quietly(recipe, prepared)
