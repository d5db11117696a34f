"""Conversion of a posterior under ArviZ 1.x, in a separate interpreter.

Run by ``test_arviz1.py`` as ``python arviz1.py READ WRITE``: reads a posterior in netCDF, prints
figures as JSON, and writes the posterior again.
"""

import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayestree._utils import arviz_compat
from bayestree.diagnostics import check_convergence, label_free, loo_of, polytope_size
from bayestree.topology import Topology


def used(made: Any) -> dict[str, float]:
    """ArviZ's own functions on the container, and one figure of each."""
    az = arviz_compat.arviz()
    table = az.summary(made, var_names=["leaf_probs"])
    # a few draws of a small fit leave some rows hard to leave out
    warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto", UserWarning)
    compared = az.compare({"one": made, "other": made})
    assert list(compared.index) == ["one", "other"]
    az.plot_trace(made, var_names=["leaf_probs"])
    az.plot_forest(made, var_names=["weight"], coords={"node": ["root"]})
    warnings.filterwarnings("ignore", "Variables obs in", UserWarning)  # y is a class
    az.plot_ppc_dist(made)
    return {"rows": len(table), "elpd": float(az.loo(made).elpd)}


def diagnosed(made: Any) -> dict[str, float]:
    """The package's diagnostics on the groups."""
    posterior, constant = (
        arviz_compat.group(made, name) for name in ("posterior", "constant_data")
    )
    topology = Topology(constant.children.to_numpy())
    X = ((constant.X - constant.center) / constant.scale).to_numpy()
    draws = {name: posterior[name].to_numpy() for name in posterior}
    everywhere = [np.arange(len(X))] * topology.n_nodes
    free = label_free(draws, topology, X[:8], steepness=made.attrs["steepness"])
    checked = check_convergence(free, arviz_compat.group(made, "sample_stats"))
    return {
        "facets": float(polytope_size(draws, X, everywhere).facets.mean()),
        "elpd_corrected": float(loo_of(made).elpd),
        "checks": float(len(checked.checks)),
    }


def main(source: Path, target: Path) -> None:
    """Read, use, write."""
    az = arviz_compat.arviz()
    # as the fixture any_k does: so few draws leave some rows hard to leave out
    vars(importlib.import_module("bayestree.diagnostics.loo"))["MAX_BAD_SHARE"] = 1.0
    read = az.from_netcdf(source).load()
    made = arviz_compat.container(
        {name: arviz_compat.group(read, name) for name in read.children}, dict(read.attrs)
    )
    assert isinstance(made, xr.DataTree)
    figures = used(made) | diagnosed(made)
    made.to_netcdf(target)
    assert not {"torch", "pyro"} & set(sys.modules)
    print(json.dumps(figures | {"arviz": az.__version__}))  # noqa: T201


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(*(Path(argument) for argument in sys.argv[1:]))
