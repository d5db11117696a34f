"""The benchmark sets: ``NAME.npz`` files in the folder that BAYESTREE_DATA names.

Each holds X, y and, where an official split exists, split (0 train, 1 validation, 2 test).
"""

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

SEED = 0


class AbsentError(Exception):
    """A set, a package, an estimator for the task, or settings that are not available."""


def made(kind: Any, settings: Mapping[str, Any]) -> Any:
    """Make an estimator; settings of its method stand beside its parameters, as in run files."""
    from bayestree.fitting.settings import without_settings  # noqa: PLC0415 - may be absent

    given = {"inference": "auto"} | dict(settings)
    return kind(**(without_settings(given, "svi") if kind.file_settings() else settings))


class Split(NamedTuple):
    """Training and test rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


SMALL = ("iris", "wine", "breast_cancer", "diabetes")  # of scikit-learn
REGRESSION = ("airfoil", "concrete", "abalone", "kin40k")


def load_all(name: str) -> tuple[np.ndarray, np.ndarray]:
    """X and y of all rows, whatever their official split; scikit-learn's small sets too."""
    if name in SMALL:
        return getattr(datasets, f"load_{name}")(return_X_y=True)
    with np.load(folder() / f"{name}.npz") as found:
        return found["X"].astype(np.float64), found["y"]


def stored(name: str) -> bool:
    """Whether scikit-learn has the set, or the folder of the data sets, if there is one."""
    known = "BAYESTREE_DATA" in os.environ
    return name in SMALL or (known and (folder() / f"{name}.npz").exists())


def folder() -> Path:
    """The folder of the data sets."""
    named = os.environ.get("BAYESTREE_DATA")
    if named is None:
        raise SystemExit("Set BAYESTREE_DATA to the folder of the benchmark sets.")
    return Path(named)


def load(name: str) -> Split:
    """A set by name; without an official split 80/20 with seed 0, stratified (by quintile)."""
    with np.load(folder() / f"{name}.npz") as found:
        X, y = found["X"].astype(np.float64), found["y"]
        split = found.get("split")
    if split is not None:
        # the validation rows of an official split belong to training here
        train = split < 2
        return Split(X[train], y[train], X[~train], y[~train])
    strata = np.digitize(y, np.quantile(y, [0.2, 0.4, 0.6, 0.8])) if name in REGRESSION else y
    parts = train_test_split(X, y, test_size=0.2, stratify=strata, random_state=SEED)
    return Split(parts[0], parts[2], parts[1], parts[3])


def rings(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows uniform on [-1, 1]^2; class 1 between radii 0.4 and 0.8."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    radius = np.hypot(X[:, 0], X[:, 1])
    return X, ((radius > 0.4) & (radius < 0.8)).astype(int)


def peak_gib() -> float:
    """Peak resident memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
