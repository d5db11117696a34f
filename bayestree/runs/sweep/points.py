"""The points of a sweep: each setting with each seed and fold, identified by a key."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayestree._utils.arrays import Fold, split_rows
from bayestree.runs.manifest import versions
from bayestree.runs.rows import Prepared
from bayestree.runs.schema import RunFile
from bayestree.runs.sweep.file import SweepFile
from bayestree.runs.sweep.settings import Setting
from bayestree.tables import InputError

KEY_LENGTH = 20  # hexadecimal digits


@dataclass(frozen=True)
class Point:
    """One fit of a sweep.

    ``key`` is a digest of everything that affects its numbers: data, parameters, seed, fold, and
    versions of packages. ``number`` is that of its setting, from 0; ``file`` has the point's seed.
    ``fold`` counts from 0; None if the held-out rows of the run are scored.
    """

    key: str
    number: int
    setting: Setting
    file: RunFile
    fold: int | None


def points_of(sweep: SweepFile, rows: Mapping[int, Prepared]) -> list[Point]:
    """All points, setting by setting; ``rows`` holds the rows of a run for each seed."""
    n_folds = sweep.sweep.folds
    folds: list[int | None] = list(range(n_folds)) if n_folds else [None]
    points = []
    for number, (setting, file) in enumerate(zip(sweep.settings, sweep.files, strict=True)):
        for seed in sweep.seeds:
            seeded = file.model_copy(update={"seed": seed})
            for fold in folds:
                key = _key(seeded, rows[seed], fold, n_folds)
                points.append(Point(key, number, setting, seeded, fold))
    return points


def folds_of(rows: Prepared, n_folds: int, seed: int) -> list[Fold]:
    """Training and scored rows of each fold, stratified if all classes have enough rows."""
    if len(rows.X) < n_folds:
        raise InputError(f"[sweep] folds = {n_folds}, but there are {len(rows.X)} training rows.")
    labels = rows.y if rows.task == "classification" else None
    return split_rows(len(rows.X), labels, n_folds, seed)


def _key(file: RunFile, rows: Prepared, fold: int | None, n_folds: int) -> str:
    data = file.data.model_dump(mode="json", exclude={"path", "test", "storage"})
    parameters = file.parameters(rows.task)
    parameters.pop("n_jobs", None)  # does not affect the numbers
    content: dict[str, Any] = {
        "tables": {name: each["sha256"] for name, each in rows.fingerprints.items()},
        "data": data | {"task": rows.task},
        "tree": file.tree,
        "parameters": parameters,
        "seed": file.seed,
        "fold": [fold, n_folds],
        "versions": versions(),
    }
    text = json.dumps(content, sort_keys=True, default=repr)  # of settings
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]
