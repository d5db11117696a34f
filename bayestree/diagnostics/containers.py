"""Checks of a stored posterior from its ArviZ container, without the estimator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils import arviz_compat
from bayestree._utils.arviz_compat import ess
from bayestree.diagnostics.convergence import check_convergence
from bayestree.diagnostics.label_free import label_free, spread_rows, typical_rows
from bayestree.diagnostics.loo import Loo, loo
from bayestree.diagnostics.verdict import Convergence
from bayestree.topology import Topology

if TYPE_CHECKING:
    import xarray as xr


def convergence_of(container: Any, X: ArrayLike | None = None, *, n_rows: int = 20) -> Convergence:
    """Check whether the inference behind a stored posterior has converged.

    Parameters
    ----------
    container, X, n_rows
        As for :func:`label_free_of`. With more than one draw, ``sample_stats`` is required: it
        distinguishes the draws of a sampler from those of a variational fit.
    """
    quantities = label_free_of(container, X, n_rows=n_rows)
    point = quantities.sizes["chain"] * quantities.sizes["draw"] == 1
    # Without recorded statistics, a variational fit would be mistaken for a sampler.
    recorded = _recorded(container) if point else arviz_compat.group(container, "sample_stats")
    return check_convergence(quantities, {str(name): value for name, value in recorded.items()})


def label_free_of(container: Any, X: ArrayLike | None = None, *, n_rows: int = 20) -> xr.Dataset:
    """Quantities of a stored posterior that do not depend on the order of the experts.

    They are those of :func:`label_free`.

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
        If a group is missing, X has a different number of features, or the container is that of a
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
        lp=_recorded(container).get("lp"),
        class_names=[str(name) for name in posterior["class"].to_numpy()]
        if "class" in posterior.coords
        else (),
        fixed_sides=not settings.get("mirror", False),
    )


def loo_of(container: Any, name: str = "obs") -> Loo:
    """PSIS-LOO of a posterior in an ArviZ container.

    The result is that of ``arviz.loo`` (except that ArviZ 0.x divides the variance of the terms by
    n, while ArviZ 1.x and this function divide it by n - 1), but one that cannot be trusted is
    refused. That of a mixture is the score of the mixture (see ``to_arviz``).

    Parameters
    ----------
    container : arviz.InferenceData or xarray.DataTree
        With the groups ``posterior`` and ``log_likelihood``.
    name : str
        Name of the variable in ``log_likelihood``.

    Raises
    ------
    ValueError
        If a group or the variable is missing, k is too large for more than a tenth of the rows, or
        the container of a mixture was made by an earlier version.
    """
    likelihood = arviz_compat.group(container, "log_likelihood")
    if name not in likelihood:
        raise ValueError(f"log_likelihood has no variable {name!r}, only {[*likelihood]}.")
    if "mode" in likelihood.coords and "chain" in likelihood["mode"].dims:
        raise ValueError(
            "the container is that of a mixture from an earlier version, whose chains are modes "
            "without their weights; make it again by to_arviz(X, y)."
        )
    terms = likelihood[name].transpose("chain", "draw", ...).to_numpy()
    draws = arviz_compat.group(container, "posterior")
    found = loo(terms.reshape(*terms.shape[:2], -1), reff=_relative_ess(draws))
    if not found.trusted:
        raise ValueError(f"leave-one-out by importance sampling fails: {found.warning}")
    return found


def _relative_ess(posterior: Any) -> float:
    """Mean effective draws per draw over all parameters, as in ArviZ; 1 for one chain."""
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if n_chains == 1:
        return 1.0
    each = [ess(values.transpose("chain", "draw", ...), "mean") for values in posterior.values()]
    return float(np.mean(np.concatenate([one.ravel() for one in each])) / (n_chains * n_draws))


def _recorded(container: Any) -> xr.Dataset:
    """``sample_stats``; empty where nothing was recorded."""
    if "sample_stats" not in arviz_compat.names(container):
        import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and this module is imported by estimators

        return xr.Dataset()
    return arviz_compat.group(container, "sample_stats")
