"""Finished runs, each executed once for all tests that only read them."""

import atexit
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile

SMALL = {"max_depth": 2, "n_experts": 3}
SHORT = {"card": "svi", "n_modes": 1, "epochs": 3, "n_draws": 40}
SAMPLED = {"card": "smc", "n_chains": 2, "n_draws": 16}

#: Tables [data], [model] and [inference] of each, in addition to shared values.
KINDS = {
    "svi": ({}, {"card": "cpt", **SMALL}, SHORT),
    "other prior": ({}, {"card": "cpt", **SMALL, "concentration": 5.0}, SHORT),
    "nuts": (
        {},
        {"card": "cpt", "max_depth": 1, "n_experts": 2},
        {"card": "nuts", "epochs": 3, "n_chains": 2, "n_warmup": 12, "n_draws": 16},
    ),
    "smc": ({}, {"card": "cpt", "max_depth": 1, "n_experts": 2}, SAMPLED),
    "smc, oblique": ({}, {"card": "cpt", "max_depth": 1, "n_experts": 1}, SAMPLED),
    "map": ({}, {"card": "cpt", **SMALL}, {"card": "map", "epochs": 3}),
    "modes": ({}, {"card": "cpt", **SMALL}, SHORT | {"n_modes": 2, "mode_weights": "equal"}),
    "tao": ({}, {"card": "tao", "max_depth": 2}, {"card": "tao"}),
    "forest": (
        {},
        {"card": "e2edf", "n_estimators": 2, "max_depth": 2},
        {"card": "em-forest", "epochs": 2},
    ),
    "numbers": (
        {"target": "price", "drop": ["kind"]},
        {"card": "cpt", **SMALL, "max_depth": 1},
        SHORT,
    ),
    "numbers, modes": (
        {"target": "price", "drop": ["kind"]},
        {"card": "cpt", **SMALL, "max_depth": 1},
        SHORT | {"n_modes": 2},
    ),
    "numbers, other prior": (
        {"target": "price", "drop": ["kind"]},
        {"card": "cpt", **SMALL, "max_depth": 1, "concentration": 5.0},
        SHORT,
    ),
    "numbers, tao": (
        {"target": "price", "drop": ["kind"]},
        {"card": "tao", "max_depth": 2},
        {"card": "tao"},
    ),
    "all rows, other prior": (
        {"test_fraction": 0.0},
        {"card": "cpt", **SMALL, "concentration": 5.0},
        SHORT,
    ),
    "all rows": ({"test_fraction": 0.0}, {"card": "cpt", **SMALL}, SHORT),
}


def table():
    """80 rows with two columns of numbers, one of text, and two targets."""
    rng = np.random.default_rng(0)
    size, weight = rng.normal(3.0, 2.0, size=(2, 80))
    return pd.DataFrame(
        {
            "size": size,
            "weight": weight,
            "color": np.where(np.arange(80) % 3, "red", "blue"),
            "kind": np.where(size + 0.3 * weight + rng.normal(size=80) > 4, "big", "small"),
            "price": 10 * size + rng.normal(size=80),
        }
    )


@cache
def finished(kind):
    """Folder of a run, not to be written to."""
    data, model, inference = KINDS[kind]
    parts = {
        "title": f"A run of {kind}",
        "data": {"path": "data.csv", "target": "kind", "drop": ["price"]} | data,
        "model": model,
        "inference": inference,
        "output": {"folder": f"runs/{kind}", "draws": False, "report": False},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such short fits are warned of
        return run(RunFile.from_parts(parts, _home() / "run.toml")).folder


@cache
def _home():
    home = Path(tempfile.mkdtemp(prefix="bayestree-runs-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    table().to_csv(home / "data.csv", index=False)
    return home
