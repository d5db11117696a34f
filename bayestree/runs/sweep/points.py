"""The points of a sweep: each setting with each seed, on each fold; with a key to know it by."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold

from bayestree.runs.manifest import versions
from bayestree.runs.rows import Prepared
from bayestree.runs.schema import RunFile
from bayestree.runs.sweep.file import SweepFile
from bayestree.runs.sweep.settings import Setting
from bayestree.tables import InputError

KEY_LENGTH = 20  # hexadecimal digits
Fold = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Point:
    """One fit of a sweep.

    Parameters
    ----------
    key : str
        Of all that its numbers depend on: data, parameters, seed, fold, and versions of packages.
    number : int
        Of its setting, from 0.
    setting : dict
        ``"table.key"`` to value.
    file : RunFile
        With the point's seed.
    fold : int, optional
        From 0; None where the run's held-out rows are scored.
    """

    key: str
    number: int
    setting: Setting
    file: RunFile
    fold: int | None


def points_of(sweep: SweepFile, rows: Mapping[int, Prepared]) -> list[Point]:
    """All points, setting by setting.

    Parameters
    ----------
    sweep : SweepFile
    rows : mapping
        From each seed to the rows of a run with it.
    """
    n_folds = sweep.sweep.folds
    folds: list[int | None] = list(range(n_folds)) if n_folds else [None]
    found = []
    for number, (setting, file) in enumerate(zip(sweep.settings, sweep.files, strict=True)):
        for seed in sweep.seeds:
            own = file.model_copy(update={"seed": seed})
            for fold in folds:
                key = _key(own, rows[seed], fold, n_folds)
                found.append(Point(key, number, setting, own, fold))
    return found


def folds_of(rows: Prepared, n_folds: int, seed: int) -> list[Fold]:
    """Training and scored rows of each fold, drawn evenly over classes with rows enough.

    Raises
    ------
    InputError
        If there are fewer rows than folds.
    """
    if len(rows.X) < n_folds:
        raise InputError(f"[sweep] folds = {n_folds}, but there are {len(rows.X)} training rows.")
    smallest = np.unique(rows.y, return_counts=True)[1].min()
    even = rows.task == "classification" and smallest >= n_folds
    kind = StratifiedKFold if even else KFold
    split = kind(n_folds, shuffle=True, random_state=seed).split(rows.X, rows.y)
    return [(np.asarray(train), np.asarray(held)) for train, held in split]


def _key(file: RunFile, rows: Prepared, fold: int | None, n_folds: int) -> str:
    data = file.data.model_dump(mode="json", exclude={"path", "test", "storage"})
    parameters = file.parameters(rows.task)
    parameters.pop("n_jobs", None)  # of no account for the numbers
    content: dict[str, Any] = {
        "tables": {name: each["sha256"] for name, each in rows.fingerprints.items()},
        "data": data | {"task": rows.task},
        "tree": file.tree,
        "parameters": parameters,
        "seed": file.seed,
        "fold": [fold, n_folds],
        "versions": versions(),
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]
