"""The runner: from a run file to a run folder, in stages that can each be resumed.

A run reads its rows, fits, and writes the outputs one by one. The model is written as soon as it is
fitted and read back for the outputs, so that a run resumed after its fit continues from the same
numbers.
"""

import difflib
import time
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from joblib import parallel_config

from bayestree._utils.arrays import AnyArray
from bayestree._utils.progress import Bars, watching
from bayestree._utils.wording import InputError
from bayestree.distributed.passes import client_of, stopped
from bayestree.estimators._data_sets import check_partitions, fit_sample
from bayestree.estimators._estimator import Estimator
from bayestree.estimators._tree import StagedTree, check_without_rows
from bayestree.fitting.plan import FitPlan
from bayestree.inference.memory_mapped import NoRoomError, scratch_in
from bayestree.runs import outputs, store
from bayestree.runs.cards import read_toml
from bayestree.runs.checkpoints import Checkpoints, stopped_by_signals
from bayestree.runs.display import Display, Displays, Log, LogFile
from bayestree.runs.rows import RunRows, rows_of
from bayestree.runs.schema import RunFile, value_lines, without_removed
from bayestree.runs.settings import tree_parameters
from bayestree.runs.store import Run, RunFolder, open_run, read_model


def run(
    file: RunFile,
    *,
    resume: bool = False,
    force: bool = False,
    display: Display | None = None,
    command: str | None = None,
) -> Run:
    """Run a run file: read, fit, and write its folder; progress is shown by ``display``.

    ``resume`` continues an interrupted run from its last checkpoint, with the numbers of an
    uninterrupted one; a finished run gets its missing outputs, and an empty folder a new run.
    ``force`` replaces another run in the folder once the new one is done; until then this is in the
    subfolder ``.next``, where ``resume`` continues it. The ``command`` is for the manifest.

    An InputError reports data, a folder or settings that cannot be used; a new folder is removed
    then. After Ctrl-C or SIGTERM, and the current step, a KeyboardInterrupt is raised.
    """
    if resume and force:
        raise InputError("--resume continues a run and --force replaces it; specify only one.")
    check_fit(file)
    target = RunFolder(file.output.folder)
    target.check()
    with target.locked(), scratch_in(target.path):
        inside, fitted = RunFolder(target / store.NEXT), (target / store.MODEL).is_file()
        folder = inside if inside.is_run() or (force and fitted) else target
        with nullcontext() if folder is target else folder.locked():
            explicit = _run_in(folder, file, resume, force, display or Display(), command)
        if folder is not target:
            explicit.write_toml(target / store.RUN)
            target.replace_by(folder)
    return open_run(target.path)


def _run_in(
    folder: RunFolder,
    file: RunFile,
    resume: bool,
    force: bool,
    display: Display,
    command: str | None,
) -> RunFile:
    """Run in a folder, whatever the run file says, and return the run file with explicit values."""
    new = folder.is_new()
    resume = _check_folder(folder, resume=resume, force=force)
    with rows_of(file) as rows:
        explicit = file.explicit(rows.task)
        estimator = file.estimator(rows.task, rows.y)
        _check_fit(file, rows.task)
        if explicit.cluster is not None:
            cluster = explicit.cluster.model_copy(update={"sample_rows": rows.sample.most})
            explicit = explicit.model_copy(update={"cluster": cluster})
        if resume:
            _check_same(folder, explicit, rows)
            manifest = _resumed_manifest(folder, explicit)
        else:
            folder.clear()
            manifest = store.new_manifest(explicit, rows, command)
        log = Log(LogFile(folder / store.LOG), propagate=True)
        with closing(Displays(display, log)) as displays:
            job = _RunInProgress(folder, explicit, rows, manifest, displays)
            with _recording_end(job, new=new), _warnings_to(job):
                job.go(estimator, resumed=resume)
        return explicit


def plan(file: RunFile) -> FitPlan:
    """Return the plan of the fit of a run file, which reads its rows and writes nothing.

    An InputError reports data or settings that cannot be used, and a tree of a single method.
    """
    check_fit(file)
    with rows_of(file) as rows:
        estimator = file.estimator(rows.task, rows.y)
        if not isinstance(estimator, StagedTree):
            raise InputError(
                f"tree {file.tree!r} has a single method, whose settings are in the run file: "
                "there is nothing to plan."
            )
        y, given = _response(file, rows)
        try:
            with watching(Bars(shown=False)):  # as the run watches its fit
                found = estimator.plan(rows.X, y, rows.weights, **given)
        except ValueError as error:
            raise InputError(str(error)) from error
        return found if rows.sample is None else rows.sample.planned(found)


def _response(file: RunFile, rows: RunRows) -> tuple[AnyArray | pd.Series, dict[str, Any]]:
    """Return y and the exposures of the training rows, as estimators take them."""
    if file.data.exposure is not None:
        return rows.y[:, 0], {"exposure": rows.y[:, 1]}
    if rows.order is not None:
        return pd.Series(pd.Categorical(rows.y, categories=[*rows.order], ordered=True)), {}
    return rows.y, {}


def check_fit(file: RunFile) -> None:
    """Raise InputError if the settings of a run exclude every fit, before any rows are read."""
    file.check_tasks(partial(_check_fit, file))


def _check_fit(file: RunFile, task: str) -> None:
    estimator, exposure = file.estimator(task), file.data.exposure
    counts = task != "regression" or estimator._leaf_family().extra == "exposure"
    if exposure is not None and not counts:  # for other tasks, the rows are refused
        raise InputError(
            f"[data] exposure {exposure!r} is for leaf = poisson of the trees cpt and cpt-k1, got "
            f"tree {file.tree!r} with leaf {estimator.leaf!r}. Leave it out."
        )
    if file.data.storage == "disk" and not estimator._in_parts():
        raise InputError(
            f'[data] storage = "disk" requires a fit that processes the rows in parts, but '
            f"tree {file.tree!r} with these settings needs all rows at once; use the trees cpt "
            "or e2edt with inference 'grow', 'map', 'svi' or 'em', or set storage = \"memory\"."
        )
    try:
        if file.cluster is not None:
            check_partitions(estimator)
        check_without_rows(estimator)
    except ValueError as error:
        raise InputError(str(error)) from error


@dataclass
class _RunInProgress:
    """A run in progress."""

    folder: RunFolder
    file: RunFile
    rows: RunRows
    manifest: dict[str, Any]
    display: Display

    def __post_init__(self) -> None:
        self.checkpoints = Checkpoints(self.folder / store.CHECKPOINTS, display=self.display)

    def go(self, estimator: Estimator, *, resumed: bool) -> None:
        """Run all stages that are not done yet."""
        self.manifest.pop("error", None)
        self.update(status="running", resumed=self.manifest["resumed"] + resumed)
        self.file.write_toml(self.folder / store.RUN)
        self.update(files=self._digests(store.RUN))
        self._describe()
        with stopped_by_signals(self.checkpoints):
            self._stage("fit", lambda: self._fit(estimator))
            self.folder.clear_checkpoints()
            several = len(self.file.data.targets) > 1
            for name, write in outputs.WRITERS.items():
                if not getattr(self.file.output, name, True):
                    continue
                if several and name in outputs.FOR_ONE_TARGET:
                    self.display.say(f"no {name}: the run has several targets")
                    continue
                self._stage(name, partial(self._write, write))
        self.update(status="done", ended=store.now())

    @cached_property
    def _fitted(self) -> Estimator:
        """The estimator read from its file, as in a resumed run."""
        return read_model(self.folder.path)[0]

    def _write(
        self, write: Callable[[outputs.FittedRun], None], estimator: Estimator | None = None
    ) -> None:
        fitted = self._fitted if estimator is None else estimator
        with watching(self.display):
            write(outputs.FittedRun(self.folder, self.file, self.rows, fitted, self.manifest))

    def _fit(self, estimator: Estimator) -> None:
        rows = self.rows
        y, given = _response(self.file, rows)
        with watching(self.checkpoints):
            try:
                if rows.sample is not None:
                    fit_sample(estimator, rows.distributed, rows.sample)
                    if (check := estimator.sample_check_) is not None:
                        self.display.say(str(check))
                        self.update(sample_check=check.to_json())
                else:
                    estimator.fit(rows.X, y, rows.weights, **given)
            except InputError:
                raise
            except (ValueError, NoRoomError) as error:
                # Settings that contradict each other; the log gets the traceback.
                self.log_traceback()
                raise InputError(str(error)) from error
        self._write(outputs.write_model, estimator)

    def _stage(self, name: str, work: Callable[[], None]) -> None:
        if name in self.manifest["stages"]:
            return
        self.display.stage(name)
        started = time.monotonic()
        try:
            work()
        finally:
            seconds = self.manifest["seconds"]
            seconds[name] = round(seconds.get(name, 0.0) + time.monotonic() - started, 3)
        files = self._digests(*outputs.FILES.get(name, ()))
        self.update(stages=[*self.manifest["stages"], name], files=files)
        if self.checkpoints.stopping:
            raise KeyboardInterrupt

    def _describe(self) -> None:
        """Report the state of a resumed run, and the data with its warnings."""
        if self.manifest["resumed"]:
            done = ", ".join(self.manifest["stages"])
            state = f"finished stages: {done}" if done else "its fit is not finished"
            self.display.say(f"resuming the run started {self.manifest['started']}: {state}")
            if changes := store.version_changes(self.manifest["versions"]):
                self.display.warn(f"the last digits of the numbers may change: {changes}")
        rows, data = self.rows, self.file.data
        n_classes = len(np.unique(rows.y))
        classes = f" ({n_classes} classes)" if rows.task == "classification" else ""
        self.display.say(
            f"{data.path.name}: {rows.task} of {data.target!r}{classes}; "
            f"{rows.X.shape[1]} features, {len(rows.X)} training rows and "
            f"{len(rows.X_held)} scored rows"
        )
        for column in rows.encoding.columns:
            if column.features not in ((), (column.name,)):
                shown = ", ".join(column.features[:8])
                more = ", ..." if len(column.features) > 8 else ""
                self.display.say(f"column {column.name!r} becomes {shown}{more}")
        known = np.unique(rows.y) if rows.task == "classification" else rows.y_held
        for remark in [*rows.remarks, *outputs.unseen_classes(rows.y_held, known)]:
            self.display.warn(remark)

    def _digests(self, *names: str) -> dict[str, str]:
        """Return the digests in the manifest, and those of files that have just been written."""
        paths = [self.folder / name for name in names if (self.folder / name).is_file()]
        return self.manifest.get("files", {}) | {path.name: store.digest(path) for path in paths}

    def update(self, **changes: Any) -> None:
        self.manifest |= changes
        self.folder.write_json(store.MANIFEST, self.manifest)

    def log_traceback(self) -> None:
        # If the disk is too full for the log as well, the error itself is more important.
        with suppress(OSError), (self.folder / store.LOG).open("a", encoding="utf-8") as log:
            log.write(traceback.format_exc())


@contextmanager
def _recording_end(job: _RunInProgress, *, new: bool) -> Iterator[None]:
    """Record in the manifest how the run ended; remove a new run whose settings are refused."""
    try:
        yield
    except InputError as error:
        if new and not job.manifest["stages"]:
            job.folder.clear()
            (job.folder / store.RUN).unlink()
        else:
            job.update(status="failed", error=str(error))
        raise
    except KeyboardInterrupt:
        job.display.say("interrupted")
        job.update(status="interrupted")
        raise
    except Exception as error:
        job.log_traceback()
        job.update(status="failed", error=f"{type(error).__name__}: {error}")
        raise


def _check_folder(folder: RunFolder, *, resume: bool, force: bool) -> bool:
    """Return whether there is a run to resume; refuse to overwrite anything else."""
    if folder.is_new() or force:
        return False
    if not folder.is_run():
        raise InputError(
            f"the folder {folder} is not empty and not a run; choose another, or add --force."
        )
    if resume:
        # A run that was killed at its start has nothing to resume.
        return bool(folder.read_manifest()["stages"]) or (folder / store.RUN).is_file()
    if folder.read_manifest()["status"] != "done":
        raise InputError(
            f"the folder {folder} contains an unfinished run; add --resume to continue it, or "
            "--force to replace it."
        )
    raise InputError(
        f"the folder {folder} is not empty and contains a run; choose another, or add --force to "
        "replace it."
    )


def _check_same(folder: RunFolder, file: RunFile, rows: RunRows) -> None:
    """Refuse to resume a run with other values or other data."""
    manifest = folder.read_manifest()
    there = without_removed(read_toml(store.checked(folder / store.RUN, manifest), "run file"))
    here = tomllib.loads(file.to_toml(folder.path))
    # What the folder lacks are parameters that its version did not have.
    parameters = tree_parameters(file.tree, str(file.task()))
    for section in ("model", "inference"):
        for key in (here[section].keys() & parameters.keys()) - there[section].keys():
            if here[section][key] == parameters[key].to_file(parameters[key].default):
                del here[section][key]
    lines = difflib.ndiff(value_lines(there), value_lines(here))
    changes = [line for line in lines if line[0] in "+-"]
    if changes:
        old, new = (
            next((line[2:] for line in changes if line[0] == sign), "nothing") for sign in "-+"
        )
        raise InputError(
            f"the folder {folder} contains a run with {old}, but this run has {new}; choose "
            "another folder, or add --force to replace the run."
        )
    # Tables are compared by content because a project may have been moved as a whole.
    tables = manifest["data"]
    for name in sorted(tables.keys() | rows.fingerprints.keys()):
        table = rows.fingerprints.get(name, {})
        if table.get("sha256") != tables.get(name, {}).get("sha256"):
            path = str(table.get("path", file.data.path))
            raise InputError(
                f"{path!r} has changed since the run in {folder} was started; add --force to "
                "replace the run."
            )


def _resumed_manifest(folder: RunFolder, file: RunFile) -> dict[str, Any]:
    """Return the manifest of a resumed run, without the stages to be repeated.

    These are a report with another title or question, and outputs that were changed.
    """
    folder.remove_drafts()
    manifest = folder.read_manifest()
    again = set()
    if (folder / store.RUN).read_text(encoding="utf-8") != file.to_toml(folder.path):
        again.add("report")
    for stage, names in outputs.FILES.items():
        for path in (folder / name for name in names):
            digest = manifest.get("files", {}).get(path.name)
            if digest is not None and path.is_file() and store.digest(path) != digest:
                again.add(stage)
    manifest["stages"] = [name for name in manifest["stages"] if name not in again]
    return manifest


@contextmanager
def _warnings_to(job: _RunInProgress) -> Iterator[None]:
    """Show each warning on one line, and store it in the manifest."""

    def keep(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        job.display.warn(text)
        kept = job.manifest.setdefault("warnings", [])
        if text not in kept:  # a resumed run may repeat warnings
            kept.append(text)

    with warnings.catch_warnings():
        warnings.showwarning = keep
        yield


@contextmanager
def spread(scheduler: str | None) -> Iterator[None]:
    """Send the joblib tasks of the block to the cluster of a Dask scheduler, if one is given.

    These are the trees of a forest, the modes of a mixture, the chains of NUTS and the runs of
    SMC, and the points and folds of a sweep. The numbers are the same as on one machine. A
    scheduler, such as ``"tcp://10.0.0.1:8786"``, can run arbitrary code on its workers and on this
    machine: use only trusted ones.
    """
    if scheduler is None:
        yield
        return
    with client_of(scheduler) as client, stopped(scheduler), parallel_config("dask", client=client):
        yield
