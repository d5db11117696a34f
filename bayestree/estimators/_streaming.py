"""Fits that go on with further rows (``partial_fit``).

The first batch grows the tree. A later one moves its splits and leaves: the posterior given the
rows so far is the prior (see ``bayestree.inference.memory``), and the memory does not grow. What is
known of the rows so far is the ``stream`` of the fitted tree.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from inspect import cleandoc
from types import MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from bayestree._utils.arrays import AnyArray
from bayestree._utils.parallel import threads_for
from bayestree._utils.parameters import ParameterError
from bayestree._utils.progress import fitting
from bayestree._utils.state import Function, at_once, draw_seed
from bayestree.estimators._tree import StagedTree
from bayestree.fitted.diagnostics import measure_nodes
from bayestree.fitted.response import separated
from bayestree.fitted.training_rows import with_unused_columns
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitting.hard import HardForm, tree_leaves
from bayestree.fitting.plan import FitPlan
from bayestree.fitting.rules import STREAMING, first_broken
from bayestree.inference import Data, Map, Posterior
from bayestree.inference.growth.harden import harden_sums
from bayestree.inference.streaming import Memory

SAMPLE = 2_000  # rows of the stream that are kept for the diagnostics
MEMORY = tuple(one.name for one in fields(Memory))
Stream = Mapping[str, AnyArray]


class _Streaming:
    """A method that estimators have unless their parameters need all rows at once."""

    def __init__(self, method: Any) -> None:
        self.method = method

    def __get__(self, estimator: StagedTree | None, owner: Any) -> Any:
        if estimator is None:
            return self.method
        with suppress(ParameterError):  # the fit explains it
            case = replace(estimator._case(), plan=estimator._before_rows(in_batches=True))
            if reason := first_broken(STREAMING, case):
                raise AttributeError(f"partial_fit {reason}.")
        return MethodType(self.method, estimator)


ABOUT = """
The first batch is fitted as by ``fit``: it decides about the units, the columns in use, and the
topology, which stays. Each further one moves the splits and the leaves, with the posterior given
the rows so far as the prior (Broderick et al., "Streaming variational Bayes", 2013). The estimator
keeps sums over the rows, whose size does not depend on their number, and 2,000 rows for the
diagnostics. Until a batch gives a split, each starts a new tree.
"""


def _documented(fit: Function) -> Function:
    """Complete the docstring by what both kinds of ``partial_fit`` do."""
    fit.__doc__ = cleandoc(str(fit.__doc__)).replace("{about}", ABOUT.strip())
    return fit


@_Streaming
@at_once
@_documented
def partial_fit_numbers(
    estimator: StagedTree,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    exposure: ArrayLike | None = None,
) -> Any:
    """Fit the first batch of rows, or update the tree with another one.

    {about}

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
    y : array, shape (n,)
        For ``leaf="poisson"``, it may have the exposure as its second column.
    sample_weight, exposure : arrays, shape (n,), optional

    Raises
    ------
    ValueError
        For rows that ``fit`` would refuse, other features than those of the first batch, or a
        tree of ``fit``.
    AttributeError
        For parameters that need all rows at once.
    """
    y = estimator._joined(y, exposure)
    if estimator._y_checks(separated(y, estimator._leaf_family().extra)[0]):
        raise ValueError(
            "partial_fit takes one output, y of shape (n,); use fit, or a regressor for each "
            f"of the {np.shape(y)[1]} columns of y."
        )
    return _add_rows(estimator, X, y, sample_weight)


@_Streaming
@at_once
@_documented
def partial_fit_classes(
    estimator: StagedTree,
    X: ArrayLike,
    y: ArrayLike,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Any:
    """Fit the first batch of rows, or update the tree with another one.

    {about}

    Parameters
    ----------
    X : array or DataFrame, shape (n, d)
    y : array, shape (n,)
    classes : array, shape (C,), optional
        All classes that y may have, for the first batch; by default those that it has. With
        them, it may have a single one.
    sample_weight : array, shape (n,), optional

    Raises
    ------
    ValueError
        For rows that ``fit`` would refuse, classes or features that the first batch did not
        announce, or a tree of ``fit``.
    AttributeError
        For parameters that need all rows at once.
    """
    seen = estimator.classes_ if _stream(estimator) else None
    if seen is not None and classes is not None and not np.array_equal(np.unique(classes), seen):
        raise ValueError(
            f"classes={np.unique(classes).tolist()} are not those of the first batch, "
            f"{seen.tolist()}: give these or none, or start with a clone."
        )
    known = classes if seen is None else seen  # of a tree that starts anew
    return _add_rows(estimator, X, y, sample_weight, announced=known)


def _stream(estimator: StagedTree) -> Stream:
    """Return what is known of the rows so far; empty before the first batch, and after ``fit``."""
    return estimator.fitted_.shown.stream if hasattr(estimator, "fitted_") else {}


def _add_rows(estimator: StagedTree, X: Any, y: Any, sample_weight: Any, **classes: Any) -> Any:
    """Fit the first batch, or update the tree with another one."""
    if not hasattr(estimator, "fitted_"):
        return _start(estimator, X, y, sample_weight, **classes)
    stream = _stream(estimator)
    if not stream:
        raise ValueError(
            "partial_fit cannot continue a tree of fit, which keeps nothing of its rows: use "
            "partial_fit from the first batch on, with a clone of the estimator."
        )
    data = estimator.training_data(X, y, sample_weight)
    before: FittedTree = estimator.fitted_.shown
    model = before.posterior.model
    if model.topology.n_nodes == 0:  # nothing for another tree to continue
        return _start(estimator, X, y, sample_weight, **classes)
    plan = estimator._before_rows(n_rows=len(data.X), in_batches=True)
    memory = _memory(stream)
    sites = before.posterior.point_sites(data.X)
    start = Posterior.from_point(model, sites | model.leaf.estimate(memory.sums), "map")
    seed = _seed(estimator, stream)
    common: dict[str, Any] = {"random_state": seed, "progress": bool(estimator.verbose)}
    stage = _last_stage(plan, model.steepness)
    with threads_for(plan.work(len(data.X))), fitting(estimator.verbose):
        found = stage.fit(model, data, init=start, memory=memory, **common)
    posterior = with_unused_columns(found, before.scaling.used, reduced=False)
    updated = replace(
        before, posterior=posterior, stream=_remembered(stream, posterior, data, seed)
    )
    form = estimator._form(replace(estimator._again(), plan=plan))
    mixture: Mixture = estimator.fitted_
    estimator.fitted_ = mixture.alone(_shown(form, updated))
    return estimator


def _start(estimator: StagedTree, X: Any, y: Any, sample_weight: Any, **classes: Any) -> Any:
    task = estimator._task_of(X, y, sample_weight, **classes)
    estimator._fit_task(estimator._with_plan(task, in_batches=True))
    first: FittedTree = estimator.fitted_.shown
    data = estimator.training_data(X, y, sample_weight)
    stream = _remembered({}, first.posterior, data, _seed(estimator, {}))
    estimator.fitted_ = estimator.fitted_.alone(replace(first, stream=stream))
    return estimator


def _seed(estimator: StagedTree, stream: Stream) -> int:
    """Draw a seed that depends on the number of rows so far, for an integer ``random_state``."""
    seen = int(stream["n_rows"]) if stream else 0
    return int(np.random.default_rng([draw_seed(estimator.random_state), seen]).integers(2**31))


def _last_stage(plan: FitPlan, reached: float) -> Any:
    """Return the stage that is repeated, at the steepness that the first batch reached."""
    stage: Any = plan.last
    return replace(stage, steepness=(reached, reached) if isinstance(stage, Map) else None)


def _memory(stream: Stream) -> Memory:
    return Memory(**{name: torch.as_tensor(stream[name]) for name in MEMORY})


def _remembered(stream: Stream, posterior: Posterior, data: Data, seed: int) -> Stream:
    """Add a batch to what is known of the rows so far, a sample of them included."""
    new = Memory.of(posterior.model, posterior.point_sites(data.X), data, seed=seed)
    # the rows of the smallest random numbers are a sample of all rows
    X, key = data.X.numpy(), np.random.default_rng(seed).random(len(data.X))
    n_rows = len(X)
    if stream:
        new = _memory(stream).updated(new)
        n_rows += int(stream["n_rows"])
        X = np.concatenate((stream["sample"], X))
        key = np.concatenate((stream["key"], key))
    kept = np.argsort(key, kind="stable")[:SAMPLE]
    arrays = {name: getattr(new, name).numpy() for name in MEMORY}
    return arrays | {"n_rows": np.array(n_rows), "sample": X[kept], "key": key[kept]}


def _shown(form: HardForm, fitted: FittedTree) -> FittedTree:
    """Derive the tree from the sums of all rows, and its diagnostics from the sample."""
    standardised, units = fitted.stream["sample"], fitted.scaling.units
    X = units.center + standardised * np.where(fitted.scaling.used, units.scale, 1.0)
    memory = _memory(fitted.stream)
    hard, leaf = harden_sums(fitted.posterior, memory.hard_sums, memory.rows, limits=form.limits)
    n_leaves = hard.posterior.model.topology.n_leaves
    sums, mass = (
        each.new_zeros(n_leaves, *each.shape[1:]).index_add_(0, leaf, each)
        for each in (memory.hard_sums, memory.rows)
    )
    tree: Any = form.splits(hard.posterior, fitted.scaling, fitted.tree.class_names)
    leaves = tree_leaves(fitted, sums, mass.numpy(), form.smoothing)
    tree = tree._with(**leaves).drop_experts(X).rescaled(units.y_scale, units.y_center)
    reach = measure_nodes(fitted.posterior, tree, X, standardised, hard.sources)
    return replace(fitted, tree=tree, reach=reach)
