"""Access to runs that were written to folders."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray
from bayestree.estimators.files import load
from bayestree.runs.folder import COLUMNS, MANIFEST, METRICS, MODEL, RUN, RunFolder, missing
from bayestree.runs.rows import Prepared, read_rows, sha256
from bayestree.runs.schema import RunFile, read_run
from bayestree.tables import Encoding, InputError, check_complete, numbers
from bayestree.tables.errors import quote_columns
from bayestree.tables.kinds import Ignored


class Columns(NamedTuple):
    """The target of a model, or its targets, and how columns become its features."""

    target: str | tuple[str, ...]
    is_text: bool
    task: str
    encoding: Encoding
    extra: str | None = None  # column of the exposure or event

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "target_is_text": self.is_text,
            "task": self.task,
            "columns": self.encoding.to_json(),
            **({} if self.extra is None else {"extra": self.extra}),
        }

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

    def check_single(self, command: str) -> None:
        """Refuse several targets."""
        if len(self.targets) > 1:
            raise InputError(
                f"{command} is for one target, but the model predicts "
                f"{quote_columns(self.targets)}: use output(0), output(1), ... of the model in "
                "Python, or a run for each target."
            )

    def extra_of(self, frame: pd.DataFrame) -> FloatArray | None:
        """The exposure or event of each row (n,), if the table has it."""
        if self.extra is None or self.extra not in frame:
            return None
        check_complete(frame[[self.extra]])
        return numbers(frame[self.extra]).to_numpy()


@dataclass(frozen=True)
class Run:
    """A run in its folder, whose files are read when they are needed.

    ``manifest`` holds status, versions, fingerprints of the data, and seconds of each stage;
    ``file`` is the run file with all values explicit and absolute paths.
    """

    folder: Path
    manifest: Mapping[str, Any]
    file: RunFile

    @cached_property
    def estimator(self) -> Any:
        """The fitted estimator; an InputError if the run was interrupted before it was fitted."""
        return read_model(self.folder)[0]

    @cached_property
    def columns(self) -> Columns:
        return read_columns(self.folder)

    @property
    def encoding(self) -> Encoding:
        return self.columns.encoding

    @property
    def target(self) -> str | tuple[str, ...]:
        return self.columns.target

    @property
    def task(self) -> str:
        return self.columns.task

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Content of ``metrics.json``; an InputError if the run was interrupted before."""
        return _json(self.folder / METRICS)

    def rows(self) -> Prepared:
        """Read the rows of the run again; an InputError if they have changed since the run."""
        # Runs of earlier versions may have a row index among their features.
        fitted = (self.folder / COLUMNS).is_file()
        used = [one.name for one in self.encoding.columns if not isinstance(one, Ignored)]
        keep = used if fitted else []
        try:
            rows = read_rows(self.file, keep)
        except InputError:
            self._check_files()
            raise
        for name, before in self.manifest["data"].items():
            if rows.fingerprints.get(name, {}).get("sha256") != before["sha256"]:
                raise self._changed(before["path"])
        return rows

    def _check_files(self) -> None:
        """Refuse tables that have changed, whatever else is wrong with them."""
        for name, path in (("data", self.file.data.path), ("test", self.file.data.test)):
            before = self.manifest["data"].get(name, {}).get("sha256")
            if path is not None and path.is_file() and sha256(path) != before:
                raise self._changed(path)

    def _changed(self, path: str | Path) -> InputError:
        return InputError(f"{str(path)!r} has changed since the run in {str(self.folder)!r}.")


def open_run(folder: str | Path) -> Run:
    """Open the folder of a run, finished or not.

    An InputError reports that it is not the folder of a run, or that a file in it was edited.
    """
    place = RunFolder(Path(folder).resolve())
    manifest = place.read_manifest()
    return Run(place.path, manifest, read_run(place / RUN))


def read_model(folder: Path) -> tuple[Any, Columns]:
    """The estimator of a folder and its columns; the folder need not have a manifest.

    Models of earlier versions take features; they get the encoding of the columns.
    """
    estimator, columns = _model(folder), read_columns(folder)
    if columns.encoding.feature_names != estimator.encoding_.feature_names:
        raise InputError(
            f"{COLUMNS} and {MODEL} in {str(folder)!r} belong to different fits; fit again."
        )
    for one in (estimator, *estimator._fitted_trees()):
        one.encoding_ = columns.encoding
        one.n_features_in_ = len(columns.encoding.columns)
        one.feature_names_in_ = np.array(columns.encoding.names, dtype=object)
    return estimator, columns


def read_columns(folder: Path) -> Columns:
    """Read ``columns.json``; an InputError if it is missing or was changed."""
    content = _json(folder / COLUMNS)
    try:
        encoding = Encoding.from_json(content["columns"])
        _ = encoding.feature_names
        extra, target = content.get("extra"), content["target"]
        first, *others = [target] if isinstance(target, str) else map(str, target)
        return Columns(
            first if isinstance(target, str) else (first, *others),
            bool(content["target_is_text"]),
            str(content["task"]),
            encoding,
            None if extra is None else str(extra),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{str(folder / COLUMNS)!r} was changed after it was written; fit again."
        ) from error


def _model(folder: Path) -> Any:
    _check_exists(folder / MODEL)
    return load(folder / MODEL)


def _json(path: Path) -> dict[str, Any]:
    _check_exists(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError(f"{str(path)!r} was changed after it was written; fit again.")
    return content


def _check_exists(path: Path) -> None:
    if path.is_file():
        return
    if (path.parent / MANIFEST).is_file():
        remedy = f"its run was not finished; resume it by `bayestree run {path.parent} --resume`"
        raise InputError(f"{str(path.parent)!r} has no {path.name}; {remedy}.")
    raise InputError(missing(path))
