"""The sweep of the examples, in small."""

import tomllib
from pathlib import Path

import tomli_w

from bayestree.runs.sweep import sweep
from bayestree.runs.sweep_file import read_sweep

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_every_sweep_is_one_that_can_be():
    for path in EXAMPLES.glob("*-sweep.toml"):
        assert read_sweep(path).settings


def test_priors(tmp_path):
    run = tomllib.loads((EXAMPLES / "priors.toml").read_text())
    run["data"]["path"] = str(EXAMPLES / "data" / "diabetes.csv")
    run["model"] |= {"card": str(EXAMPLES / run["model"]["card"]), "max_depth": 1, "n_experts": 2}
    run["inference"] |= {"epochs": 2, "n_restarts": 1, "n_draws": 5}
    (tmp_path / "priors.toml").write_text(tomli_w.dumps(run))
    text = (EXAMPLES / "priors-sweep.toml").read_text()
    for large, small in (
        ("[0, 1]", "[0]"),
        ("folds = 3", "folds = 2"),
        ("[0.1, 1.0, 5.0]", "[0.1]"),
    ):
        text = text.replace(large, small)
    (tmp_path / "sweep.toml").write_text(text)
    file = read_sweep(tmp_path / "sweep.toml")
    found = sweep(file, n_jobs=1)
    assert (found.table["status"] == "done").all()
    assert found.metric == "rmse"
    assert len(found.table) == 2 * len(file.settings)
