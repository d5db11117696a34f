"""The runner: from a run file to a run folder, in stages that can each be taken up again.

A run reads its rows, fits, and makes the outputs one by one. The model is written as soon as it is
fitted and read back for all that follows, so that a run which is taken up after its fit goes on
from the very same numbers.
"""

import difflib
import time
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tomli_w

from bayestree._utils.progress import watching
from bayestree.inference.scratch import NoRoomError, scratch_in
from bayestree.runs import outputs
from bayestree.runs.checkpoints import Checkpoints, stopped_by_signals
from bayestree.runs.disk import check_parts
from bayestree.runs.folder import CHECKPOINTS, LOG, MANIFEST, RUN, RunFolder
from bayestree.runs.lines import LogFile
from bayestree.runs.manifest import begun, changed, now
from bayestree.runs.progress import Both, Display, Silent
from bayestree.runs.rows import Prepared, read_rows
from bayestree.runs.schema import RunFile
from bayestree.runs.store import Run, open_run, read_model
from bayestree.runs.toml import read_toml
from bayestree.tables import InputError


def run(
    file: RunFile,
    *,
    resume: bool = False,
    force: bool = False,
    display: Display | None = None,
    command: str | None = None,
) -> Run:
    """Run a run file: read, fit, and write its folder.

    Parameters
    ----------
    file : RunFile
    resume : bool
        Go on with the run that was interrupted in the folder, from its last checkpoint; the
        numbers are those of a run that nobody disturbed. A folder without a run is begun, a
        finished run gets the outputs that it does not have yet.
    force : bool
        Replace another run in the folder; files that are none of a run's stay.
    display : Display, optional
        Where to say what is being done; by default nowhere but in the folder's log.
    command : str, optional
        What was typed, for the manifest.

    Returns
    -------
    Run

    Raises
    ------
    InputError
        If the data or the folder cannot be used, settings do not go together, or another
        process is writing to the folder. A folder that was made is gone then.
    KeyboardInterrupt
        On Ctrl-C or SIGTERM, after the step that the fit is in. The folder can be taken up.
    """
    if resume and force:
        raise InputError("--resume goes on with a run and --force begins anew: give one of them.")
    folder = RunFolder(file.output.folder)
    folder.check()
    with folder.locked(), scratch_in(folder.path):
        new = folder.is_new()
        resume = _check_folder(folder, resume=resume, force=force)
        rows = read_rows(file)
        explicit = file.explicit(rows.task)
        estimator = file.estimator(rows.task, rows.y)
        check_parts(file, estimator)
        if resume:
            _check_same(folder, explicit, rows)
            manifest = _taken_up(folder, explicit)
        else:
            folder.clear()
            manifest = begun(explicit, rows, command)
        with Both(display or Silent(), LogFile(folder / LOG)) as told:
            job = _Job(folder, explicit, rows, manifest, told)
            with _left_whole(job, new=new), _warnings_to(job):
                job.go(estimator, resumed=resume)
    return open_run(folder.path)


@dataclass
class _Job:
    """A run under way."""

    folder: RunFolder
    file: RunFile
    rows: Prepared
    manifest: dict[str, Any]
    display: Display

    def __post_init__(self) -> None:
        self.checkpoints = Checkpoints(self.folder / CHECKPOINTS, display=self.display)

    def go(self, estimator: Any, *, resumed: bool) -> None:
        """All stages; those that are done are passed over."""
        self.manifest.pop("error", None)
        self.note(status="running", resumed=self.manifest["resumed"] + resumed)
        self.file.write_toml(self.folder / RUN)
        self._describe()
        wanted = self.file.output
        with stopped_by_signals(self.checkpoints):
            self._stage("fit", lambda: self._fit(estimator))
            self.folder.clear_checkpoints()
            self._stage("scores", lambda: outputs.write_scores(*self._given))
            self._stage(
                "draws",
                lambda: outputs.write_draws(self.folder, self.rows, self._fitted),
                wanted=wanted.draws,
            )
            self._stage(
                "predictions",
                lambda: outputs.write_predictions(*self._given),
                wanted=wanted.predictions,
            )
            # last, as it tells how long the others took
            self._stage(
                "report",
                lambda: outputs.write_report(*self._given, manifest=self.manifest),
                wanted=wanted.report,
            )
        self.note(status="done", ended=now())

    @cached_property
    def _fitted(self) -> Any:
        """The estimator as the file has it, which is what a run that is taken up has as well."""
        return read_model(self.folder.path)[0]

    @property
    def _given(self) -> tuple[RunFolder, RunFile, Prepared, Any]:
        return self.folder, self.file, self.rows, self._fitted

    def _fit(self, estimator: Any) -> None:
        rows = self.rows
        with watching(self.checkpoints):
            try:
                estimator.fit(rows.X, rows.y, rows.weights)
            except InputError:
                raise
            except (ValueError, NoRoomError) as error:
                # settings that do not go together; the log has where it came from
                self.log_traceback()
                raise InputError(str(error)) from error
        outputs.write_model(self.folder, self.file, rows, estimator)

    def _stage(self, name: str, work: Callable[[], None], *, wanted: bool = True) -> None:
        done = name in self.manifest["stages"]
        if not wanted or done:
            return
        self.display.stage(name)
        started = time.monotonic()
        try:
            work()
        finally:
            seconds = self.manifest["seconds"]
            seconds[name] = round(seconds.get(name, 0.0) + time.monotonic() - started, 3)
        self.note(stages=[*self.manifest["stages"], name])
        if self.checkpoints.stopping:
            raise KeyboardInterrupt

    def _describe(self) -> None:
        """Say what the data is, and what is odd about it."""
        if self.manifest["resumed"]:
            done = ", ".join(self.manifest["stages"])
            where = f"done are {done}" if done else "it was in its fit"
            self.display.say(f"going on with the run begun {self.manifest['started']}: {where}")
            if others := changed(self.manifest["versions"]):
                self.display.warn(f"the last digits of the numbers may change: {others}")
        rows, data = self.rows, self.file.data
        n_classes = len(np.unique(rows.y))
        what = f"{n_classes} classes" if rows.task == "classification" else "a number"
        self.display.say(
            f"{data.path.name}: {data.target!r} is {what} ({rows.task}); {rows.X.shape[1]} "
            f"features, {len(rows.X)} rows to train on and {len(rows.X_held)} to score"
        )
        for column in rows.encoding.columns:
            if column.categories is not None:
                shown = ", ".join(column.features[:8])
                more = ", ..." if len(column.features) > 8 else ""
                self.display.say(f"text column {column.name!r} becomes {shown}{more}")
        for remark in rows.remarks:
            self.display.warn(remark)

    def note(self, **changes: Any) -> None:
        self.manifest |= changes
        self.folder.write_json(MANIFEST, self.manifest)

    def log_traceback(self) -> None:
        # where the log has no room either, the error itself is what matters
        with suppress(OSError), (self.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(traceback.format_exc())


@contextmanager
def _left_whole(job: _Job, *, new: bool) -> Iterator[None]:
    """Leave a folder that says how the run ended, however that is.

    A new folder is left without a run where the fit refuses its settings: nothing came of it.
    """
    try:
        yield
    except InputError as error:
        if new and not job.manifest["stages"]:
            job.folder.clear()
            (job.folder / RUN).unlink()
        else:
            job.note(status="failed", error=str(error))
        raise
    except KeyboardInterrupt:
        job.display.say("interrupted")
        job.note(status="interrupted")
        raise
    except Exception as error:
        job.log_traceback()
        job.note(status="failed", error=f"{type(error).__name__}: {error}")
        raise


def _check_folder(folder: RunFolder, *, resume: bool, force: bool) -> bool:
    """Whether there is a run to be taken up; refuse what must not be written over."""
    if folder.is_new() or force:
        return False
    if not folder.is_run():
        raise InputError(
            f"the folder {folder} is not empty and holds no run; name another, or add --force."
        )
    if resume:
        # a run that was killed as it began has nothing to go on from
        return bool(folder.read_manifest()["stages"]) or (folder / RUN).is_file()
    if folder.read_manifest()["status"] != "done":
        raise InputError(
            f"the folder {folder} holds a run that was not finished: add --resume to go on with "
            "it, or --force to begin anew."
        )
    raise InputError(
        f"the folder {folder} is not empty and holds a run; name another, or add --force to "
        "replace it."
    )


def _check_same(folder: RunFolder, file: RunFile, rows: Prepared) -> None:
    """Refuse to go on with a run of other values or other data."""
    there = read_toml(folder / RUN, "run file")
    here = tomllib.loads(file.to_toml(folder.path))
    lines = difflib.ndiff(_essential(there), _essential(here))
    changed = [line for line in lines if line[0] in "+-"]
    if changed:
        found = next((line[2:] for line in changed if line[0] == "-"), "nothing")
        asked = next((line[2:] for line in changed if line[0] == "+"), "nothing")
        raise InputError(
            f"the folder {folder} holds another run, with {found} where this one has {asked}; "
            "name another folder, or add --force to begin anew."
        )
    # by content: a project may have been moved as a whole
    was = folder.read_manifest()["data"]
    for name in sorted(was.keys() | rows.fingerprints.keys()):
        table = rows.fingerprints.get(name, {})
        if table.get("sha256") != was.get(name, {}).get("sha256"):
            path = str(table.get("path", file.data.path))
            raise InputError(
                f"{path!r} has changed since the run in {folder} began; add --force to begin anew."
            )


def _taken_up(folder: RunFolder, file: RunFile) -> dict[str, Any]:
    """The manifest of a run that goes on; a report with other words is made anew."""
    folder.sweep()
    manifest = folder.read_manifest()
    if (folder / RUN).read_text(encoding="utf-8") != file.to_toml(folder.path):
        manifest["stages"] = [name for name in manifest["stages"] if name != "report"]
    return manifest


def _essential(content: dict[str, Any]) -> list[str]:
    """Return a line for each value that affects the numbers of a run, in any order of the file."""
    found = {("", "seed"): content.get("seed", 0)}
    for table in ("data", "model", "inference"):
        found |= {(table, key): value for key, value in content[table].items()}
    for place, value in found.items():
        if isinstance(value, float) and value.is_integer():  # 20.0 is the same as 20
            found[place] = int(value)
    return [" ".join(tomli_w.dumps({key: found[_, key]}).split()) for _, key in sorted(found)]


@contextmanager
def _warnings_to(job: _Job) -> Iterator[None]:
    """Show warnings in one line each, and keep them in the manifest."""

    def keep(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        job.display.warn(text)
        kept = job.manifest.setdefault("warnings", [])
        if text not in kept:  # a resumed run may repeat some
            kept.append(text)

    with warnings.catch_warnings():
        warnings.showwarning = keep
        yield
