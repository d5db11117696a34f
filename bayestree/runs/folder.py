"""The folder of a run: names of its files, locking, and its manifest."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar

from filelock import FileLock, Timeout
from pydantic import AfterValidator, BaseModel

from bayestree._utils.write import write_whole
from bayestree.tables import InputError

RUN, MANIFEST, LOG, LOCK = "run.toml", "manifest.json", "run.log", ".lock"
MODEL, COLUMNS, TREE, FACETS = "model.safetensors", "columns.json", "tree.txt", "facets.csv"
METRICS, DRAWS, PREDICTIONS = "metrics.json", "posterior.nc", "predictions.parquet"
REPORT, CHECKPOINTS, ROWS = "report.html", "checkpoints", "rows"  # ROWS exists only as a draft
NEXT = ".next"  # the folder of a run that will replace the one around it
RESULTS = (MODEL, COLUMNS, TREE, FACETS, METRICS, DRAWS, PREDICTIONS, REPORT)
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


class RunFolder:
    """The folder of one run, by its absolute path; it need not exist yet."""

    file_names: ClassVar[tuple[str, ...]] = (RUN, MANIFEST, LOG, LOCK, *RESULTS, ROWS)

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __str__(self) -> str:
        return repr(str(self.path))

    def check(self) -> None:
        """Refuse a path where no folder can be created."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"the folder {self} is a file; choose another.")
        parent = next(place for place in (self.path, *self.path.parents) if place.exists())
        if not (parent.is_dir() and os.access(parent, os.W_OK)):
            raise InputError(f"the folder {self} cannot be written: {str(parent)!r} is read-only.")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, which is created if necessary, against other processes.

        The lock is released when the process ends, however that happens. Folders created by this
        method are removed after the block if they are empty.
        """
        created = [place for place in (self.path, *self.path.parents) if not place.exists()]
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
        """Whether there are no files except what a run killed at its start may leave."""
        return not self.path.is_dir() or all(map(self._is_ignorable, self.path.iterdir()))

    def is_run(self) -> bool:
        return (self / MANIFEST).is_file()

    def clear(self) -> None:
        """Remove the results of a run and the drafts of killed processes; other files stay.

        The run file, which may be the only copy, stays until it is replaced.
        """
        # The manifest first, so that a partly removed run is no longer taken for one.
        for name in (MANIFEST, *RESULTS, LOG):
            _remove(self / name)
        self.clear_checkpoints()
        self.remove_drafts()

    def to_write(self, *, force: bool) -> "RunFolder":
        """Return this folder or, for a run that replaces a fitted one, one inside it."""
        inside = RunFolder(self / NEXT)
        return inside if inside.is_run() or (force and (self / MODEL).is_file()) else self

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
                _remove(place)

    def read_manifest(self) -> dict[str, Any]:
        """Read the manifest; an InputError if there is none, or it was edited."""
        path = self / MANIFEST
        if not path.is_file():
            raise InputError(missing(path))
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            _Manifest.model_validate(found, strict=True)
        except (ValueError, RecursionError):
            raise InputError(f"{str(path)!r} was changed after it was written.") from None
        return found

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        write_whole(self / name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def _is_ignorable(self, path: Path) -> bool:
        """Whether a file may exist in a new folder."""
        return path.name in (LOCK, LOG) or self._is_draft(path)

    def _is_draft(self, path: Path) -> bool:
        """Whether a file is the unfinished draft of one of the folder's files."""
        return any(path.name.startswith(f".{name}.") for name in self.file_names)


def missing(path: Path) -> str:
    """The message that a file of a run does not exist, for what was given as its folder."""
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


def _remove(path: Path) -> None:
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
