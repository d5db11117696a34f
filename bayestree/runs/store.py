"""Folders of runs: names of the files, locks, manifests, and access to what was written."""

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import pandas as pd
from filelock import FileLock, Timeout
from pydantic import AfterValidator, BaseModel

from bayestree import __version__
from bayestree._utils.arrays import FloatArray
from bayestree._utils.user_classes import without_imports
from bayestree._utils.write import naming, write_whole
from bayestree.estimators._estimator import Estimator
from bayestree.estimators.files import load
from bayestree.runs.rows import RunRows, rows_of, sha256
from bayestree.runs.schema import RunFile, digest_of_values, read_run
from bayestree.tables import Encoding, InputError, check_complete, is_dataset, numbers
from bayestree.tables.column_types import Ignored
from bayestree.tables.columns import DROP, quote_columns

RUN, MANIFEST, LOG, LOCK = "run.toml", "manifest.json", "run.log", ".lock"
MODEL, COLUMNS, TREE, FACETS = "model.safetensors", "columns.json", "tree.txt", "facets.csv"
METRICS, DRAWS, PREDICTIONS = "metrics.json", "posterior.nc", "predictions.parquet"
REPORT, CHECKPOINTS, ROWS = "report.html", "checkpoints", "rows"  # ROWS exists only as a draft
NEXT = ".next"  # the folder of a run that will replace the one around it
RESULTS = (MODEL, COLUMNS, TREE, FACETS, METRICS, DRAWS, PREDICTIONS, REPORT)
CHECKSUM = "checksum"  # of a JSON file
CHECKPOINT = re.compile(r"\.?\d{4}\.safetensors(\..+)?")  # or its draft


class _Table(BaseModel):
    path: str
    sha256: str
    rows: int
    columns: int


class _Manifest(BaseModel):
    """Required entries of a manifest; it may have others."""

    status: str
    started: Annotated[str, AfterValidator(datetime.fromisoformat)]
    stages: list[str]
    seconds: dict[str, float]
    resumed: int
    data: dict[str, _Table]
    versions: dict[str, str]
    files: dict[str, str] = {}


class RunFolder:
    """The folder of one run, by its absolute path; it need not exist yet."""

    file_names: ClassVar[tuple[str, ...]] = (RUN, MANIFEST, LOG, LOCK, *RESULTS)
    folders: ClassVar[tuple[str, ...]] = (CHECKPOINTS, NEXT)

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __str__(self) -> str:
        return repr(str(self.path))

    def check(self) -> None:
        """Refuse a path where no folder can be created, and links inside the folder."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"the folder {self} is a file; choose another.")
        parent = next(place for place in (self.path, *self.path.parents) if place.exists())
        if not (parent.is_dir() and os.access(parent, os.W_OK)):
            raise InputError(f"the folder {self} cannot be written: {str(parent)!r} is read-only.")
        self.refuse_links()

    def refuse_links(self) -> None:
        """Refuse links in the place of files, which would be read, written or removed elsewhere."""
        names = (LOCK, *self.file_names, *self.folders)
        own = [x for x in self.path.glob("*") if x.name in names or self._is_draft(x)]
        trees = (os.walk(self / name) for name in self.folders)
        inside = (Path(base, x) for tree in trees for base, *each in tree for x in chain(*each))
        for path in chain(own, inside):
            regular = path.is_file() or path.is_dir() or not path.exists()
            if path.is_symlink() or not regular:
                raise InputError(
                    f"{str(path)!r} is a link or a special file, which is not allowed in the place "
                    "of a file of results; remove it."
                )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, which is created if necessary, against other processes.

        The lock is released when the process ends, however that happens. Folders created by this
        method are removed after the block if they are empty.
        """
        created = [place for place in (self.path, *self.path.parents) if not place.exists()]
        with naming(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self / LOCK, timeout=0)
        try:
            with lock:
                yield
        except Timeout:
            raise InputError(f"another process is writing to the folder {self}.") from None
        finally:
            _remove_empty(created)

    def is_new(self) -> bool:
        """Return whether there are no files except what a run killed at its start may leave."""
        return not self.path.is_dir() or all(map(self.is_ignorable, self.path.iterdir()))

    def is_run(self) -> bool:
        return (self / MANIFEST).is_file()

    def clear(self) -> None:
        """Remove the results of a run and the drafts of killed processes; other files stay.

        The run file, which may be the only copy, stays until it is replaced.
        """
        # The manifest first, so that a partly removed run is no longer taken for one.
        for name in (MANIFEST, *RESULTS, LOG):
            remove(self / name)
        self.clear_checkpoints()
        self.remove_drafts()

    def replace_by(self, other: "RunFolder") -> None:
        """Move a finished run, except its run file, to this folder in the place of its own.

        The manifest is moved last, so that the other folder remains a run until all is done, and
        the move can be repeated if it is interrupted.
        """
        if self.is_run():
            self.clear()
        for name in (*RESULTS, LOG, MANIFEST):
            if (other / name).exists():
                (other / name).replace(self / name)
        shutil.rmtree(other.path)

    def clear_checkpoints(self) -> None:
        """Remove the checkpoints of loops, and their folder if it is empty then."""
        place = self / CHECKPOINTS
        if not place.is_dir():
            return
        for path in place.iterdir():
            if CHECKPOINT.fullmatch(path.name):
                path.unlink()
        if not any(place.iterdir()):
            place.rmdir()

    def remove_drafts(self) -> None:
        """Remove the drafts of files that killed processes left behind."""
        for place in self.path.iterdir():
            if self._is_draft(place):
                remove(place)

    def read_manifest(self) -> dict[str, Any]:
        """Read the manifest; an InputError if there is none, or it was edited."""
        path = self / MANIFEST
        if not path.is_file():
            raise InputError(missing(path))
        found = read_json(path)
        try:
            _Manifest.model_validate(found, strict=True)
        except ValueError:
            raise changed(path) from None
        return found

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file with a checksum, which :func:`read_json` verifies."""
        plain = json.loads(json.dumps(content))
        whole = plain | {CHECKSUM: _checksum(plain)}
        write_whole(self / name, json.dumps(whole, indent=2, ensure_ascii=False) + "\n")

    def is_ignorable(self, path: Path) -> bool:
        """Return whether a file may exist in a new folder."""
        return path.name in (LOCK, LOG) or self._is_draft(path)

    def _is_draft(self, path: Path) -> bool:
        """Return whether a file is the unfinished draft of a file of the folder."""
        return any(path.name.startswith(f".{name}.") for name in (*self.file_names, ROWS))


def missing(path: Path) -> str:
    """Return the message that a file of a run does not exist, for what was given as its folder."""
    folder = path.parent
    if not folder.exists():
        return f"the folder {str(folder)!r} does not exist; specify the folder of a run."
    if not folder.is_file():
        return f"{str(folder)!r} has no {path.name}; specify the folder of a run."
    if (folder.parent / MANIFEST).is_file():
        return f"{str(folder)!r} is a file of a run; specify its folder, {str(folder.parent)!r}."
    return (
        f"{str(folder)!r} is a file; specify the folder that `bayestree run` or `fit` has written."
    )


def remove(path: Path) -> None:
    """Remove a file or a folder with its content."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_empty(places: list[Path]) -> None:
    """Remove folders, the innermost first, while they hold nothing but a lock."""
    for place in places:
        if any(file.name != LOCK for file in place.iterdir()):
            return
        (place / LOCK).unlink(missing_ok=True)
        place.rmdir()


FORMAT = 1
PACKAGES = ("torch", "pyro-ppl", "numpy", "scipy", "scikit-learn", "pandas", "arviz", "safetensors")


def new_manifest(file: RunFile, rows: RunRows, command: str | None) -> dict[str, Any]:
    """Return the manifest of a new run, as plain JSON.

    ``status`` is ``"running"`` until the run is ``"done"``, ``"interrupted"`` or ``"failed"``. If
    it is ``"running"`` and no process writes to the folder, the run was killed. ``files`` will
    have digests of the files that are read again.
    """
    return {
        "format": FORMAT,
        "status": "running",
        "command": command,
        "seed": file.seed,
        "data": {name: dict(value) for name, value in rows.fingerprints.items()},
        "versions": versions(),
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "started": now(),
        "ended": None,
        "resumed": 0,
        "stages": [],
        "seconds": {},
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of all that affect its numbers."""
    packages = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "bayestree": __version__, **packages}


def version_changes(before: Mapping[str, str]) -> str:
    """Return the packages whose versions have changed, in words; empty if there are none."""
    return ", ".join(
        f"{name} {version} was {before[name]}"
        for name, version in versions().items()
        if before.get(name, version) != version
    )


def now() -> str:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Columns(NamedTuple):
    """The target of a model, or its targets, and how columns become its features."""

    target: str | tuple[str, ...]
    is_text: bool
    task: str
    encoding: Encoding
    extra: str | None = None  # column of the exposure or event
    weights: str | None = None  # column of the weights

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "target_is_text": self.is_text,
            "task": self.task,
            "columns": self.encoding.to_json(),
            **{n: own for n in ("extra", "weights") if (own := getattr(self, n)) is not None},
        }

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def text_targets(self) -> tuple[str, ...]:
        """The targets that files should not be searched for numbers."""
        return self.targets if self.is_text else ()

    def check_single(self, command: str) -> None:
        """Refuse several targets."""
        if len(self.targets) > 1:
            raise InputError(
                f"{command} is for one target, but the model predicts "
                f"{quote_columns(self.targets)}: use output(0), output(1), ... of the model in "
                "Python, or a run for each target."
            )

    def numbers_of(self, name: str | None, frame: pd.DataFrame) -> FloatArray | None:
        """Return the exposures, events or weights (n,), if the table has them."""
        if name is None or name not in frame:
            return None
        check_complete(frame[[name]], remedy=DROP)
        return numbers(frame[name]).to_numpy()


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
    def _model(self) -> tuple[Estimator, Columns]:
        return read_model(self.folder)

    @property
    def estimator(self) -> Estimator:
        """The fitted estimator; an InputError if the run was interrupted before it was fitted."""
        return self._model[0]

    @property
    def columns(self) -> Columns:
        return self._model[1]

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Content of ``metrics.json``; an InputError if the run was interrupted before."""
        return read_json(checked(self.folder / METRICS, self.manifest))

    def rows(self) -> RunRows:
        """Read the rows of the run again; an InputError if they have changed since the run."""
        # Features of runs of version 0.2.0 may be text that this version takes for identifiers.
        fitted = (self.folder / MODEL).is_file()
        encoded = self.columns.encoding.columns if fitted else ()
        keep = [one.name for one in encoded if not isinstance(one, Ignored)]
        try:
            with rows_of(self.file, keep, here=True) as rows:
                pass
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
            if path is None or not (path.is_file() or is_dataset(path)):
                continue
            if sha256(path) != before:
                raise self._changed(path)

    def _changed(self, path: str | Path) -> InputError:
        return InputError(f"{str(path)!r} has changed since the run in {str(self.folder)!r}.")


def open_run(folder: str | Path) -> Run:
    """Open the folder of a run, finished or not.

    An InputError reports that it is not the folder of a run, that a file in it was edited, or that
    the module of a prior or leaf of the user's own is not imported.
    """
    place = RunFolder(Path(folder).resolve())
    place.refuse_links()
    manifest = place.read_manifest()
    with without_imports():
        return Run(place.path, manifest, read_run(checked(place / RUN, manifest), removed="any"))


def read_model(folder: Path) -> tuple[Estimator, Columns]:
    """Return the estimator of a folder and its columns; the folder need not have a manifest."""
    RunFolder(folder).refuse_links()
    _check_exists(folder / MODEL)
    estimator, content = load(folder / MODEL), read_json(folder / COLUMNS)
    try:
        encoding = Encoding.from_json(content["columns"])
        same = _checksum(encoding.to_json()) == _checksum(estimator.encoding_.to_json())
        extra, weights, target = content.get("extra"), content.get("weights"), content["target"]
        first, *others = [target] if isinstance(target, str) else map(str, target)
        columns = Columns(
            first if isinstance(target, str) else (first, *others),
            bool(content["target_is_text"]),
            str(content["task"]),
            encoding,
            *(None if name is None else str(name) for name in (extra, weights)),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise changed(folder / COLUMNS) from error
    if not same:
        raise InputError(
            f"{COLUMNS} and {MODEL} in {str(folder)!r} describe different columns: one of them was "
            "changed, or belongs to another fit; fit again."
        )
    return estimator, columns


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file; an InputError if it is missing, or its checksum differs.

    Files of version 0.2 and earlier have no checksum.
    """
    _check_exists(path)
    with suppress(ValueError, AttributeError, TypeError, RecursionError):
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found.pop(CHECKSUM, None) in (None, _checksum(found)):
            return found
    raise changed(path)


def changed(path: Path) -> InputError:
    """Return the error of a file that is not as it was written."""
    return InputError(
        f"{str(path)!r} was changed after it was written; undo this, or repeat the command that "
        "wrote it, with --resume for an output of a run and --force otherwise."
    )


def checked(path: Path, manifest: Mapping[str, Any]) -> Path:
    """Return the path of a file of a run; an InputError if it is missing or was changed."""
    _check_exists(path)
    if digest(path) != manifest.get("files", {}).get(path.name, digest(path)):
        raise changed(path)
    return path


def digest(path: Path) -> str:
    """Return a digest of a file; of a run file, that of the values that affect the numbers."""
    return digest_of_values(path) if path.name == RUN else sha256(path)


def _checksum(content: Any) -> str:
    """Return the SHA-256 of JSON, whatever its layout."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _check_exists(path: Path) -> None:
    if path.is_file():
        return
    if (path.parent / MANIFEST).is_file():
        remedy = f"its run was not finished; resume it by `bayestree run {path.parent} --resume`"
        raise InputError(f"{str(path.parent)!r} has no {path.name}; {remedy}.")
    raise InputError(missing(path))
