"""Checks of a stored posterior from its ArviZ container, without the estimator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils import arviz_compat
from bayestree.diagnostics.convergence import check_convergence
from bayestree.diagnostics.label_free import label_free, spread_rows, typical_rows
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
        If a group is missing, or X has a different number of features.
    """
    posterior, constant = (
        arviz_compat.group(container, name) for name in ("posterior", "constant_data")
    )
    center, scale = constant["center"].to_numpy(), constant["scale"].to_numpy()
    if X is None and "X" in constant:
        X = constant["X"].to_numpy()
    if X is None:
        rows = typical_rows(len(center), n_rows)
    else:
        given = np.asarray(X, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != len(center):
            raise ValueError(f"X must have shape (n, {len(center)}), got {given.shape}.")
        rows = spread_rows((given - center) / scale, n_rows)
    settings = json.loads(container.attrs.get("settings", "{}"))
    return label_free(
        {str(name): values.to_numpy() for name, values in posterior.items()},
        Topology(constant["children"].to_numpy()),
        rows,
        steepness=float(container.attrs["steepness"]),
        lp=_recorded(container).get("lp"),
        class_names=[str(name) for name in posterior["class"].to_numpy()]
        if "class" in posterior.coords
        else (),
        fixed_sides=not settings.get("mirror", False),
    )


def _recorded(container: Any) -> xr.Dataset:
    """``sample_stats``; empty where nothing was recorded."""
    if "sample_stats" not in arviz_compat.names(container):
        import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and this module is imported by estimators

        return xr.Dataset()
    return arviz_compat.group(container, "sample_stats")
