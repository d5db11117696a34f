"""Fits to rows that are not in memory at once: of Parquet files, and in batches.

``fit_files`` fits data sets that outgrow the memory of a process, and ``partial_fit`` goes on with
further rows. Its first batch grows the tree. A later one moves its splits and leaves: the posterior
given the rows so far is the prior (see ``bayestree.inference.streaming``), and the memory does not
grow. What is known of the rows so far is the ``stream`` of the fitted tree.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from inspect import cleandoc
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.parallel import threads_for
from bayestree._utils.parameters import ParameterError
from bayestree._utils.progress import fitting
from bayestree._utils.state import Function, at_once, draw_seed, seeded
from bayestree._utils.wording import warn
from bayestree.diagnostics.sample import SampleCheck, SmallSampleWarning
from bayestree.distributed.passes import DistributedRows, Sample, on_workers
from bayestree.distributed.worker import LeafSums, Source
from bayestree.estimators._estimator import Estimator
from bayestree.estimators._tree import StagedTree
from bayestree.fitted.diagnostics import measure_nodes
from bayestree.fitted.response import separated
from bayestree.fitted.training_rows import with_unused_columns
from bayestree.fitted.tree import FittedTree, Mixture, MixtureEstimator
from bayestree.fitting.engine import HardForm, tree_leaves
from bayestree.fitting.rules import PARTITIONED, STREAMING, first_broken
from bayestree.inference import Data, Map, Posterior
from bayestree.inference.growth.harden import harden_sums
from bayestree.inference.streaming import Memory
from bayestree.tables import DoubtfulColumnsWarning, Features, UnusedColumnsWarning
from bayestree.tables.columns import codes_by_column
from bayestree.tables.dataset import Dataset


def fit_files(
    estimator: StagedTree,
    data: str | Path,
    target: str,
    *,
    weights: str | None = None,
    exposure: str | None = None,
    drop: Collection[str] = (),
    n_workers: int | None = None,
    scheduler: str | None = None,
    sample_rows: int | None = None,
    n_partitions: None = None,
) -> Any:
    """Fit the tree to a sample of a Parquet data set, and estimate its leaves from all rows.

    Workers pass through the rows four times: they check all values, learn the encoding of the
    columns, draw the sample, and sum up the rows of each leaf. In between, this process fits the
    tree to the sample as ``fit`` does, by any method. The numbers do not depend on the workers. If
    one is lost, others repeat its part of the pass.

    - Exact, from all rows: kinds and encoding of the columns, classes, and the leaves of ``tree_``
      and of the trees of ``modes_`` with their numbers of rows.
    - From all rows, given the splits and the leaves of the fit to the sample: the prior and the
      posterior of the leaves of point estimates and of variational posteriors. It is one step of
      EM, with memberships averaged over up to 8 draws.
    - From the sample alone: the units of the features, the topology, the splits and their
      posterior, which is that of so many rows; the draws of samplers; families whose posterior is
      not exact; leaves with ``monotonic_cst``; the weights of modes; and all diagnostics.

    If the sample has all rows, this is ``fit``. Otherwise ``sample_check_`` says whether the rows
    of the sample score higher than the others, and a warning if so.

    Parameters
    ----------
    data : str or Path
        A folder, a pattern such as ``"data/*.parquet"``, a file, or a URL that fsspec can read.
        Every worker must be able to read it.
    target : str
        The column to predict.
    weights : str, optional
        The column of the weights of the rows.
    exposure : str, optional
        The column of the exposures, for a regressor with ``leaf="poisson"``.
    drop : collection of str
        Columns that are not used.
    n_workers : int, optional
        Number of processes on this machine; by default one for each core. A script needs the usual
        ``if __name__ == "__main__":``.
    scheduler : str, optional
        Address of a Dask scheduler, such as ``"tcp://10.0.0.1:8786"``, whose workers are used
        instead. It can run arbitrary code there and here: use only trusted ones.
    sample_rows : int, optional
        Number of rows in the sample, on average; by default as many as have 2^25 numbers, 256 MiB
        in double precision. All rows are equally probable, and keep their weights.

    Returns
    -------
    self

    Raises
    ------
    ValueError
        For rows that cannot be used, workers that do not answer, ``class_weight`` or
        ``warm_start``.

    Warns
    -----
    SmallSampleWarning
        If more rows in the sample would improve the tree.
    """
    check_partitions(estimator)
    if n_partitions is not None:
        raise ParameterError(
            f"n_partitions={n_partitions!r} was removed after version 0.2.0, because the numbers "
            "of a fit no longer depend on the workers: omit it."
        )
    dataset = Dataset.of(data)
    source = Source(dataset, target, weights, exposure, tuple(drop))
    source.check()
    codes = codes_by_column(estimator.missing_values, source.features)
    source = replace(source, codes=codes)
    task = "classification" if is_classifier(estimator) else "regression"
    where: dict[str, Any] = {"n_workers": n_workers, "scheduler": scheduler}
    with on_workers(source, task, sample_rows=sample_rows, **where) as (rows, sample):
        for remark in sample.ignored:
            warn(remark, UnusedColumnsWarning)
        for doubt in sample.doubts:
            warn(doubt, DoubtfulColumnsWarning)
        fit_sample(estimator, rows, sample)
    return estimator


def check_partitions(estimator: Estimator) -> None:
    """Raise ParameterError if an estimator cannot be fitted to a sample of rows on workers."""
    if not hasattr(estimator, "fit_files"):
        reason = "is for convex polytope trees and end-to-end trees: choose one of these"
    else:
        plan = estimator._before_rows()
        reason = first_broken(PARTITIONED, replace(estimator._case(), plan=plan))
    if reason:
        raise ParameterError(f"a fit to a sample of rows on workers {reason}.")


def fit_sample(estimator: StagedTree, rows: DistributedRows, sample: Sample) -> None:
    """Fit an estimator to a sample of the rows of a data set, and its leaves to all of them."""
    X, y, weights, extra, _ = sample.training
    given = {} if extra is None else {"exposure": extra}
    features = Features.of(X, sample.encoding)
    if is_classifier(estimator):
        _fit_classes(estimator, features, y, weights, sample.target.classes)
    else:
        estimator.fit(features, y, weights, **given)
    if sample.complete:
        return
    found, mixture = rows.leaf_sums(estimator), estimator.fitted_
    check = SampleCheck.of(found.scores)
    seeds = np.random.default_rng(draw_seed(estimator.random_state))
    number, weight = found.scores[:, :2].sum(axis=0)
    smoothing = estimator.smoothing * min(1.0, weight / number)  # see ``weight_unit``
    trees = [
        _with_all_rows(fitted, sums, smoothing, draw_seed(seeds))
        for fitted, sums in zip(mixture.trees, found.trees, strict=True)
    ]
    plan = sample.planned(estimator.plan_)
    estimator.fitted_ = replace(mixture, trees=trees, sample_check=check, plan=plan)
    if check.gains:
        warn(f"{check}; set a larger sample_rows.", SmallSampleWarning)


@at_once
def _fit_classes(
    estimator: StagedTree, X: Features, y: AnyArray, weights: FloatArray, classes: AnyArray
) -> None:
    """Fit to a sample, which may lack some of the classes of all rows."""
    estimator._fit_task(estimator._task_of(X, y, weights, classes))


def _with_all_rows(fitted: FittedTree, sums: LeafSums, smoothing: float, seed: int) -> FittedTree:
    """Estimate the leaves of a tree that was fitted to a sample from the sums over all rows."""
    if any(fitted.posterior.model.monotone):
        return fitted
    new = replace(fitted, posterior=_posterior(fitted.posterior, sums.soft, seed))
    leaves = tree_leaves(new, sums.hard, sums.rows.numpy(), smoothing)
    units, tree = fitted.scaling.units, fitted.tree._with(**leaves)
    return replace(new, tree=tree.rescaled(units.y_scale, units.y_center))


def _posterior(found: Posterior, sums: Tensor, seed: int) -> Posterior:
    """Replace the leaves of a posterior by those given sums (L, c), where their law is exact.

    Draws of samplers stay: their leaves depend on the splits of the draw.
    """
    model, n_draws = found.model, found.n_chains * found.n_draws
    drawn = found.variational or n_draws == 1
    if not (drawn and model.leaf.exact and model.likelihood.additive):
        return found
    leaf = model.leaf.calibrate(sums)
    law = leaf.posterior(sums)
    with seeded(seed):
        draws = [law.sample() for _ in range(n_draws)] if n_draws > 1 else [law.mean()]
    return replace(
        found,
        model=model.with_(leaf=leaf),
        draws={**found.draws, **_like(found.draws, draws)},
        point={**found.point, **_like(found.point, [law.mean()])},
    )


def _like(
    sites: Mapping[str, AnyArray], drawn: Sequence[Mapping[str, Tensor]]
) -> dict[str, AnyArray]:
    """Return draws of the leaves with the shapes and precision of other values of the sites."""
    return {
        name: torch.stack([one[name] for one in drawn])
        .numpy()
        .astype(sites[name].dtype)
        .reshape(sites[name].shape)
        for name in drawn[0]
    }


def sample_check(estimator: MixtureEstimator) -> SampleCheck | None:
    """Whether more rows in the sample of ``fit_files`` would improve the fit.

    It can be printed. It is None if the sample had all rows, after ``fit`` and for loaded models.
    """
    check_is_fitted(estimator)
    return estimator.fitted_.sample_check


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
    stage: Any = plan.last  # is repeated, at the steepness that the first batch reached
    reached = (model.steepness, model.steepness) if isinstance(stage, Map) else None
    stage = replace(stage, steepness=reached)
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
