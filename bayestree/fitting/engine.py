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

from bayestree import inference
from bayestree._utils.arrays import BoolArray
from bayestree._utils.parallel import Call, in_order, one_thread, threads_for
from bayestree._utils.progress import Track, Verbose, fitting
from bayestree.fitted.assessment import UnconvergedWarning
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
from bayestree.fitting.hard import HardForm
from bayestree.inference import Data, Posterior
from bayestree.inference.data import UNUSED
from bayestree.inference.growth.single_leaf import SingleLeafWarning
from bayestree.inference.samplers.smc.method import fingerprint
from bayestree.models import Network, SoftTree
from bayestree.routed_tree import weight_unit

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


def fit_tree(recipe: Recipe, rows: TrainingRows) -> FittedTree:
    """Fit a tree to rows of positive weight."""
    return fit_prepared(recipe, prepare(recipe, rows))


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
