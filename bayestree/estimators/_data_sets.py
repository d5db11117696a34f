"""Fits to Parquet data sets that outgrow the memory of a process (``fit_files``)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.parameters import ParameterError
from bayestree._utils.state import at_once, draw_seed, seeded
from bayestree._utils.wording import warn
from bayestree.diagnostics.sample import SampleCheck, SmallSampleWarning
from bayestree.distributed.passes import DistributedRows, Sample, on_workers
from bayestree.distributed.worker import LeafSums, Source
from bayestree.estimators._estimator import Estimator
from bayestree.estimators._tree import StagedTree
from bayestree.fitted.tree import FittedTree, MixtureEstimator
from bayestree.fitting.hard import tree_leaves
from bayestree.fitting.rules import PARTITIONED, first_broken
from bayestree.inference import Posterior
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
