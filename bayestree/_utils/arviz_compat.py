"""Compatibility with ArviZ 0.x (InferenceData) and 1.x (xarray.DataTree): groups and statistics.

ArviZ takes seconds to import and xarray a part of one, so they are imported on first use.
"""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray

if TYPE_CHECKING:
    import xarray as xr


@cache
def major_version() -> int:
    """Return the major version of the installed ArviZ: 0 or 1."""
    return int(version("arviz").split(".")[0])


def arviz() -> Any:
    """Import the module without the 0.x notice about 1.0, which does not concern users."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "\nArviZ is undergoing a major refactor", FutureWarning)
        return importlib.import_module("arviz")


def container(groups: Mapping[str, xr.Dataset], attrs: Mapping[str, Any]) -> Any:
    """Return an InferenceData (ArviZ 0.x) or DataTree (1.x) of named groups.

    ``attrs`` are strings and numbers, as required by netCDF.
    """
    if major_version() > 0:
        import xarray as xr  # noqa: PLC0415

        tree = xr.DataTree.from_dict(dict(groups))
        tree.attrs.update(attrs)
        return tree
    return arviz().InferenceData(attrs=dict(attrs), **groups)


def names(container: Any) -> list[str]:
    """Return the names of the groups of an InferenceData or a DataTree."""
    if callable(container.groups):  # a property of a DataTree
        return [*container.groups()]
    return [str(name) for name in container.children]


def group(container: Any, name: str) -> xr.Dataset:
    """Return a group of an InferenceData or a DataTree; ValueError if it is missing."""
    if name not in names(container):
        raise ValueError(
            f"there is no group {name!r} among {names(container)}; create groups that need rows "
            "by to_arviz(X, y), and groups that were omitted by naming them in groups=."
        )
    found: xr.Dataset = container[name]
    return found if callable(container.groups) else found.to_dataset()


def netcdf(container: Any) -> memoryview:
    """Return the bytes of a netCDF file, as ``to_netcdf`` writes it.

    They are created in memory because HDF5 kills the process if it cannot write to a file.
    """
    import h5netcdf  # noqa: PLC0415
    from xarray.backends import H5NetCDFStore  # noqa: PLC0415

    content = io.BytesIO()
    with h5netcdf.File(content, "w") as file:
        file.attrs.update(container.attrs)
        for name in names(container):
            found = group(container, name)
            numbers = (k for k, values in found.variables.items() if values.dtype.kind in "biuf")
            store = H5NetCDFStore(file.create_group(name))
            found.dump_to_store(store, encoding={key: {"zlib": True} for key in numbers})
    return content.getbuffer()


def r_hat(values: ArrayLike) -> FloatArray:
    """Compute rank-normalised split R-hat, the larger of bulk and folded.

    Vehtari et al., "Rank-normalization, folding, and localization", Bayesian Analysis 16 (2021).

    For values (chain, draw, ...): NaN for a constant quantity, inf if every half of a chain is
    stuck at a different value. A single chain must have 8 draws, and its quarters are compared.
    """
    array = np.asarray(values)
    if array.ndim > 1 and len(array) == 1:  # ArviZ requires two chains
        half = array.shape[1] // 2
        array = np.concatenate([array[:, :half], array[:, -half:]])
    return _each(array, lambda statistics, one: statistics.rhat(one, method="rank"))


def ess(values: ArrayLike, kind: Literal["bulk", "tail", "mean"] = "bulk") -> FloatArray:
    """Compute effective sample sizes for bulk, 5 % tails or mean of values (chain, draw, ...)."""
    tails = {"prob": (0.05, 0.95)} if kind == "tail" else {}
    return _each(values, lambda statistics, one: statistics.ess(one, method=kind, **tails))


def bfmi(energy: ArrayLike, change: ArrayLike | None = None) -> FloatArray:
    """Return the estimated Bayesian fraction of missing information by chain (Betancourt 2016).

    ``change`` are changes of the energy from transition to transition where draws were thinned.
    """
    values = _checked(energy)
    steps = np.diff(values, axis=1) if change is None else _checked(change)
    return (steps**2).mean(axis=1) / values.var(axis=1, ddof=1)


def _each(values: ArrayLike, statistic: Any) -> FloatArray:
    array = _checked(values)
    flat = array.reshape(*array.shape[:2], -1)
    statistics = _statistics()
    # Constant chains divide by 0: R-hat is inf, or NaN if they agree.
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [float(statistic(statistics, flat[:, :, j])) for j in range(flat.shape[2])]
    return np.array(found, dtype=np.float64).reshape(array.shape[2:])


def _checked(values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim < 2 or array.shape[1] < 4:
        raise ValueError(
            f"values must have shape (chain, draw, ...) with 4 draws or more, got {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError("values must be finite; look for draws that are NaN or infinite.")
    return array


def _statistics() -> Any:
    """Return the module or object with ``rhat`` and ``ess`` of arrays (chain, draw)."""
    if major_version() > 0:
        from arviz_stats.base import array_stats  # noqa: PLC0415 - takes a second to import

        return array_stats
    return arviz()
