"""Files that ArviZ 0.x and 1.x exchange, if an interpreter with the latter is available.

``make test-arviz1`` makes one; BAYESTREE_ARVIZ1_PYTHON names another.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from bayestree import ConvexPolytopeTreeClassifier
from bayestree._utils import arviz_compat
from bayestree.diagnostics import loo_of, polytope_size
from bayestree.inference import Svi

ROOT = Path(__file__).parents[1]
PYTHON = Path(os.environ.get("BAYESTREE_ARVIZ1_PYTHON") or ROOT / ".venv-arviz1" / "bin" / "python")

pytestmark = [
    pytest.mark.skipif(
        not PYTHON.exists() or arviz_compat.major_version() > 0,
        reason="needs ArviZ 0.x here and 1.x elsewhere: `make test-arviz1`, or name an interpreter "
        "that has it in BAYESTREE_ARVIZ1_PYTHON",
    ),
]


def run(*arguments):
    done = subprocess.run(
        [PYTHON, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def case():
    X = np.random.default_rng(0).normal(size=(90, 2)) * [1, 10]
    y = np.where(X[:, 0] + X[:, 1] / 10 > 0, "yes", "no")
    settings = {"n_experts": 4, "max_depth": 2, "n_modes": 1}
    settings |= {"inference": Svi(epochs=20, n_draws=60)}
    clf = ConvexPolytopeTreeClassifier(random_state=0, **settings).fit(X, y)
    return clf, clf.to_arviz(X, y, n_prior=20), clf.fitted_.scaling.standardise(X)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
def test_a_posterior_goes_to_arviz_1_and_comes_back(case, tmp_path, any_k):
    clf, made, X = case
    made.to_netcdf(tmp_path / "0.nc")
    figures = json.loads(run("tests/arviz1.py", tmp_path / "0.nc", tmp_path / "1.nc"))
    assert figures["arviz"].startswith("1.")
    back = arviz_compat.arviz().from_netcdf(tmp_path / "1.nc")
    assert set(back.groups()) == set(made.groups())
    assert dict(back.attrs) == dict(made.attrs)
    for name in made.groups():
        xr.testing.assert_identical(
            arviz_compat.group(back, name).load(), arviz_compat.group(made, name)
        )

    posterior = clf.posterior_
    n_nodes, n_leaves = (getattr(posterior.model.topology, n) for n in ("n_nodes", "n_leaves"))
    assert figures["rows"] == 2 * n_leaves
    assert figures["elpd"] == pytest.approx(arviz_compat.arviz().loo(made).elpd_loo, abs=0.1)
    assert figures["elpd_corrected"] == pytest.approx(loo_of(made).elpd, rel=1e-6)
    sizes = polytope_size(posterior.draws, X, [np.arange(len(X))] * n_nodes)
    assert figures["facets"] == pytest.approx(sizes.facets.mean())
    assert figures["checks"] > 0


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
def test_a_mixture_has_the_same_score_there(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    settings = {"n_experts": 2, "max_depth": 1, "n_modes": 2}
    settings |= {"inference": Svi(epochs=10)}
    clf = ConvexPolytopeTreeClassifier(random_state=0, **settings).fit(X, X[:, 0] > 0)
    made = clf.to_arviz(X, X[:, 0] > 0)
    made.to_netcdf(tmp_path / "0.nc")
    code = "import sys, arviz as az; print(az.loo(az.from_netcdf(sys.argv[1]).load()).elpd)"
    there = float(run("-c", code, tmp_path / "0.nc").split()[-1])
    assert there == pytest.approx(arviz_compat.arviz().loo(made).elpd_loo)
