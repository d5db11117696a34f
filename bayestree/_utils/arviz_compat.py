"""The one place that knows ArviZ's versions: InferenceData before 1.0, xarray.DataTree since.

ArviZ takes seconds to import, so nothing here does so before it is needed.
"""

import importlib
import io
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import h5netcdf
import xarray as xr
from xarray.backends import H5NetCDFStore


def major_version() -> int:
    """Major version of the ArviZ that is installed: 0 or 1."""
    return int(version("arviz").split(".")[0])


def arviz() -> Any:
    """The module, imported without the notice of its 0.x versions that 1.0 differs."""
    with warnings.catch_warnings():
        # Nothing for the caller to do about it: this package runs with both.
        warnings.filterwarnings("ignore", "\nArviZ is undergoing a major refactor", FutureWarning)
        return importlib.import_module("arviz")


def container(groups: Mapping[str, xr.Dataset], attrs: Mapping[str, Any]) -> Any:
    """What ArviZ's functions take: groups of variables in one object.

    Parameters
    ----------
    groups : mapping of xarray.Dataset
        By ArviZ's names, such as ``posterior``.
    attrs : mapping
        Attributes of the whole: strings and numbers, which netCDF can hold.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The former with ArviZ 0.x, the latter with 1.x.
    """
    if major_version() > 0:
        tree = xr.DataTree.from_dict(dict(groups))
        tree.attrs.update(attrs)
        return tree
    return arviz().InferenceData(attrs=dict(attrs), **groups)


def names(container: Any) -> list[str]:
    """Names of the groups of an InferenceData or a DataTree."""
    if isinstance(container, xr.DataTree):
        return [str(name) for name in container.children]
    return [*container.groups()]


def group(container: Any, name: str) -> xr.Dataset:
    """One group of an InferenceData or a DataTree.

    Parameters
    ----------
    container : arviz.InferenceData or xarray.DataTree
    name : str

    Raises
    ------
    ValueError
        If it has no such group.
    """
    if name not in names(container):
        raise ValueError(
            f"there is no group {name!r} among {names(container)}; groups that need rows are "
            "made by to_arviz(X, y), and those that were left out by naming them in groups=."
        )
    found: xr.Dataset = container[name]
    return found.to_dataset() if isinstance(container, xr.DataTree) else found


def netcdf(container: Any) -> memoryview:
    """The bytes of a netCDF file, as ``to_netcdf`` writes it.

    They are made in memory because HDF5 ends the process where it cannot write to a file.
    """
    content = io.BytesIO()
    with h5netcdf.File(content, "w") as file:
        file.attrs.update(container.attrs)
        for name in names(container):
            found = group(container, name)
            numbers = [
                key for key, values in found.variables.items() if values.dtype.kind in "biuf"
            ]
            store = H5NetCDFStore(file.create_group(name))
            found.dump_to_store(store, encoding={key: {"zlib": True} for key in numbers})
    return content.getbuffer()


def stacking_weights(scored: Mapping[str, tuple[Any, xr.DataArray]]) -> dict[str, float]:
    """Weights of models by which their predictions, averaged, predict rows left out the best.

    Yao et al., "Using stacking to average Bayesian predictive distributions" (2018), as
    ``arviz.compare`` has it.

    Parameters
    ----------
    scored : mapping
        By name of the model, two or more of them: what ArviZ's functions take, with the groups
        ``posterior`` and ``log_likelihood``, and the log predictive density of each row of the
        latter when that row is left out.
    """
    results = {}
    with warnings.catch_warnings():
        # k too large: the caller knows the k of its own scores
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto", UserWarning)
        warnings.filterwarnings("ignore", "The inplace keyword", DeprecationWarning)  # of pandas
        for name, (made, each) in scored.items():
            result = arviz().loo(made, pointwise=True)
            if major_version() > 0:
                result.elpd, result.elpd_i = float(each.sum()), each
            else:
                result["elpd_loo"], result["loo_i"] = float(each.sum()), each
            results[name] = result
        table = arviz().compare(results, method="stacking")
    return {str(name): float(weight) for name, weight in table["weight"].items()}
