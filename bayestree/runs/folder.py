"""A run's folder: the names of its files, who may write to it, and what it says of itself."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar

from filelock import FileLock, Timeout
from pydantic import AfterValidator, BaseModel

from bayestree._utils.write import naming, write_whole
from bayestree.tables import InputError

RUN, MANIFEST, LOG, LOCK = "run.toml", "manifest.json", "run.log", ".lock"
MODEL, COLUMNS, TREE, FACETS = "model.safetensors", "columns.json", "tree.txt", "facets.csv"
METRICS, DRAWS, PREDICTIONS = "metrics.json", "posterior.nc", "predictions.parquet"
REPORT, CHECKPOINTS, ROWS = "report.html", "checkpoints", "rows"  # ROWS: only ever drafts
RESULTS = (MODEL, COLUMNS, TREE, FACETS, METRICS, DRAWS, PREDICTIONS, REPORT)
OWN = (RUN, MANIFEST, LOG, LOCK, *RESULTS, ROWS)  # whose drafts are known by their names

CHECKPOINT = re.compile(r"\.?\d{4}\.safetensors(\..+)?")  # or the draft of one


class _Table(BaseModel):
    path: str
    sha256: str
    rows: int
    columns: int


class _Manifest(BaseModel):
    """What every manifest says; it may say more."""

    status: str
    started: Annotated[str, AfterValidator(datetime.fromisoformat)]
    stages: list[str]
    seconds: dict[str, float]
    resumed: int
    data: dict[str, _Table]
    versions: dict[str, str]


class RunFolder:
    """The folder of one run.

    Parameters
    ----------
    path : Path
        Absolute; it need not exist yet.
    """

    own: ClassVar[tuple[str, ...]] = OWN

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __str__(self) -> str:
        return repr(str(self.path))

    def check(self) -> None:
        """Refuse a place where no folder can be.

        Raises
        ------
        InputError
        """
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"the folder {self} is a file; name another.")
        ground = next(place for place in (self.path, *self.path.parents) if place.exists())
        if not (ground.is_dir() and os.access(ground, os.W_OK)):
            raise InputError(f"the folder {self} cannot be written: {str(ground)!r} is closed.")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process from writing to the folder, which is made if need be.

        The lock goes with the process, however that ends. A folder that was made for the block
        and holds nothing after it is removed.

        Raises
        ------
        InputError
            If another process has it.
        """
        made = [place for place in (self.path, *self.path.parents) if not place.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self / LOCK, timeout=0)
        try:
            with lock:
                yield
        except Timeout:
            raise InputError(f"another process is writing to the folder {self}.") from None
        finally:
            _remove_empty(made)

    def is_new(self) -> bool:
        """Whether there is nothing yet, but for what a run leaves that was killed as it began."""
        return not self.path.is_dir() or all(map(self._is_nothing, self.path.iterdir()))

    def is_run(self) -> bool:
        """Whether a run was begun here."""
        return (self / MANIFEST).is_file()

    def clear(self) -> None:
        """Remove what a run made, and drafts that a killed process left; others stay.

        The run file stays as well, until another takes its place: it may be the only one.
        """
        # the manifest first: what is left of a run that is being removed is none
        for name in (MANIFEST, *RESULTS, LOG):
            _remove(self / name)
        self.clear_checkpoints()
        self.sweep()

    def clear_checkpoints(self) -> None:
        """Remove the states of loops, and their folder if it held nothing else."""
        place = self / CHECKPOINTS
        if not place.is_dir():
            return
        for path in place.iterdir():
            if CHECKPOINT.fullmatch(path.name):
                path.unlink()
        if not any(place.iterdir()):
            place.rmdir()

    def sweep(self) -> None:
        """Remove drafts of files that a killed process left."""
        for place in self.path.iterdir():
            if self._is_draft(place):
                _remove(place)

    def read_manifest(self) -> dict[str, Any]:
        """What the folder says of its run.

        Raises
        ------
        InputError
            If it is no folder of a run, or its manifest was changed by hand.
        """
        path = self / MANIFEST
        if not path.is_file():
            raise InputError(f"{self} has no {MANIFEST}; give the folder of a run.")
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            _Manifest.model_validate(found, strict=True)
        except (ValueError, RecursionError):
            raise InputError(f"{str(path)!r} was changed after it was written.") from None
        return found

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file of JSON, whole or not at all."""
        write_whole(self / name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        """A path to write a file to, which gets its name when the block ends without an error."""
        whole = self / name
        with naming(whole), tempfile.TemporaryDirectory(dir=self.path, prefix=f".{name}.") as place:
            path = Path(place) / name
            yield path
            with path.open("rb+") as written:
                os.fsync(written.fileno())  # else a power cut may leave the name without content
            path.replace(whole)

    def _is_nothing(self, path: Path) -> bool:
        """Whether a file may be there before anything is begun."""
        return path.name in (LOCK, LOG) or self._is_draft(path)

    def _is_draft(self, path: Path) -> bool:
        """Whether a name is that of an own file before it is whole."""
        return any(path.name.startswith(f".{name}.") for name in self.own)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_empty(places: list[Path]) -> None:
    """Remove folders, the innermost first, for as long as they hold nothing but a lock."""
    for place in places:
        if any(file.name != LOCK for file in place.iterdir()):
            return
        (place / LOCK).unlink(missing_ok=True)
        place.rmdir()
