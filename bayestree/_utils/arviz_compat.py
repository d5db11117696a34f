"""Compatibility with ArviZ 0.x (InferenceData) and 1.x (xarray.DataTree): groups of containers.

ArviZ takes seconds to import and xarray a part of one, so they are imported on first use.
"""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr

    from bayestree._utils.arrays import FloatArray


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


def elpd_data(
    rows: FloatArray,
    k: FloatArray | None,
    *,
    elpd: float,
    p: float,
    good_k: float,
    n_folds: int,
    **shared: Any,
) -> Any:
    """Return ArviZ's own result of cross-validation, an ``ELPDData``.

    ``rows`` (n,) are the terms and ``k`` (n,) their Pareto k, None for refits in ``n_folds``;
    ``shared`` are ``se``, ``n_samples`` and ``warning``.
    """
    import xarray as xr  # noqa: PLC0415

    terms, shapes = (
        None if one is None else xr.DataArray(one, {"row": range(len(one))}) for one in (rows, k)
    )
    az, shared = arviz(), shared | {"n_data_points": len(rows), "scale": "log"}
    of_k = {} if k is None else {"pareto_k": shapes, "good_k": good_k}
    if major_version() == 0:  # prints the first three values in this order
        named = {"elpd_loo": elpd, "se": shared.pop("se"), "p_loo": p, **shared, "loo_i": terms}
        named |= of_k
        return az.ELPDData(data=[*named.values()], index=[*named])
    named = {"elpd": elpd, "p": p, "elpd_i": terms, "good_k": None} | shared | of_k
    named |= {"n_folds": n_folds} if n_folds else {}
    if hasattr(az, "ELPDDataLOO"):  # ArviZ 1.3 has a class for each kind
        return (az.ELPDDataLOOKFold if n_folds else az.ELPDDataLOO)(**named)
    return az.ELPDData(kind="loo_kfold" if n_folds else "loo", **named)


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
