"""The keys of run files and sweep files: for each its type, default and description, stated once.

Run files, sweep files, options of the command line and JSON schemas read these models. The keys of
``[model]`` and ``[inference]`` are the declared parameters of the estimators
(:mod:`bayestree.runs.settings`). This module imports neither torch nor pandas.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from bayestree._utils.wording import MAX_INTEGER, InputError
from bayestree._utils.write import url_of
from bayestree.estimators.registry import TaskName

if TYPE_CHECKING:
    import numpy as np

MAX_COMBINATIONS = 100_000  # of a sweep; more are a mistake
DIGITS = 4  # significant digits of numbers drawn from a range, as a table shows them
BACKSLASHES = (
    "in double quotes a backslash starts an escape, such as \\t for a tab; write paths with "
    "forward slashes, or in single quotes"
)

Task = Literal["auto", TaskName]
Metric = Literal["accuracy", "log_loss", "rmse", "r2", "mean_deviance", "concordance"]


def resolve_path(name: str | Path, folder: Path, *, root: str | Path | None, what: str) -> Path:
    """Return an absolute path, relative to ``folder``, without links and inside ``root``.

    Messages call the path ``what``.
    """
    if any(letter < " " for letter in str(name)):
        raise InputError(f"{what} {str(name)!r} has a control character: {BACKSLASHES}.")
    try:
        path = (folder / name).resolve()
    except (ValueError, OSError, RuntimeError) as error:
        raise InputError(f"{what} {str(name)!r} is not a valid path: {error}.") from error
    if any(map(os.path.islink, (path, *path.parents))):  # `resolve` says so before Python 3.13
        raise InputError(f"{what} {str(name)!r} is not a valid path: its links form a circle.")
    if root is not None and not path.is_relative_to(Path(root).resolve()):
        raise InputError(f"{what} {str(name)!r} is outside --root {str(root)!r}.")
    return path


def check_links(folder: Path, root: str | Path) -> None:
    """Raise InputError if a folder contains a link to a place outside ``root``."""
    for path in filter(Path.is_symlink, folder.rglob("*")):
        resolve_path(path, folder, root=root, what="link")


def relative_path(path: Path, folder: Path) -> str:
    """Return an absolute path as it is written in a file of ``folder``.

    The result is relative, so that a project can be moved as a whole, unless the two paths have
    only the root of the file system in common.
    """
    if url := url_of(path):
        return url
    shared = path.drive == folder.drive and path.parts[1:2] == folder.parts[1:2]
    return os.path.relpath(path, folder) if shared else str(path)


def abbreviated(value: Any) -> str:
    """Return the ``repr`` of a value for a message, cut after 80 characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or deep nesting
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _resolve(path: Path, info: ValidationInfo) -> Path:
    """Resolve a path relative to the folder of the file, inside the root folder."""
    folder, root = info.context or (Path(), None)
    return resolve_path(path, folder, root=root, what=str(info.field_name))


def _check_levels(levels: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse levels that state no order, or that are too many for a feature each."""
    from bayestree.tables import MAX_ONE_HOT  # noqa: PLC0415 - pandas is slow to import

    if not 2 <= len(set(levels)) == len(levels) <= MAX_ONE_HOT:
        raise ValueError(
            f"levels must be from 2 to {MAX_ONE_HOT} different texts in ascending order, got "
            f"{abbreviated([*levels])}."
        )
    return levels


def _resolve_data(path: Path, info: ValidationInfo) -> Path:
    """Resolve the path or pattern of a table; a URL is outside any root folder."""
    folder, root = info.context or (Path(), None)
    if url_of(path):
        if root is not None:
            raise InputError(f"{info.field_name} {url_of(path)!r} is outside --root {str(root)!r}.")
        return path
    found = _resolve(path, info)
    if root is not None:
        for each in Path(found.anchor).glob(str(found.relative_to(found.anchor))):
            resolve_path(each, folder, root=root, what=str(info.field_name))
            check_links(each, root)
    return found


Location = Annotated[Path, AfterValidator(_resolve)]
Table = Annotated[Path, AfterValidator(_resolve_data)]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(strict=True, min_length=1)]
Code = Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True)] | Text
Levels = Annotated[tuple[Name, ...], AfterValidator(_check_levels)]
Share = Annotated[float, Field(strict=True, ge=0, le=0.9)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]
Integer = Annotated[int, Field(strict=True, ge=-MAX_INTEGER, le=MAX_INTEGER)]
Number = Integer | Annotated[float, Field(strict=True, allow_inf_nan=False)]


class KnownKeys(BaseModel):
    """A table of known keys; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Head(KnownKeys):
    """The keys above all tables."""

    title: Text = Field("", description="Title of the report.")
    question: Text = Field("", description="Question that the run answers, shown in the report.")
    seed: Seed = Field(0, description="Seed of the random numbers.")


class DataTable(KnownKeys):
    """``[data]``: the rows and the target."""

    path: Table = Field(
        description="CSV, Parquet or .npy file, relative to the run file; or a folder, a pattern "
        "such as data/*.parquet or a URL of Parquet files."
    )
    target: Name | Annotated[tuple[Name, ...], Field(min_length=1)] = Field(
        description="Column to predict, or a list of columns of numbers, for the tree cpt."
    )
    task: Task = Field(
        "auto",
        description="auto: survival with an event, regression with an exposure; classification "
        "for text, booleans and few integers.",
    )
    weights: Name | None = Field(
        None, description="Column of row weights; a weight of 2 counts a row twice."
    )
    exposure: Name | None = Field(
        None, description="Column of exposures, for regression with leaf = poisson."
    )
    event: Name | None = Field(
        None, description="Column of events, for survival: false or 0 where the time is censored."
    )
    drop: tuple[Name, ...] = Field((), description="Columns to leave out.")
    levels: dict[Name, Levels] | None = Field(
        None, description="Columns of ordered categories: the categories of each, as text."
    )
    missing_values: Code | tuple[Code, ...] | dict[Name, Code | tuple[Code, ...]] | None = Field(
        None, description="Values that stand for missing ones, or a table of these by column."
    )
    test_fraction: Share = Field(0.2, description="Share of the rows held out for scoring.")
    test: Table | None = Field(None, description="File of held-out rows, instead of a share.")
    max_size: Annotated[float, Field(strict=True, gt=0)] | None = Field(
        None, description="GB that a compressed table may have; default 1, or 20 times its files."
    )
    storage: Literal["memory", "disk"] = Field(
        "memory", description="disk: read the rows in chunks, never all into memory."
    )

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def stated_task(self) -> str:
        """The task, if it is given or follows from an event or an exposure; else auto."""
        if self.task != "auto" or self.extra is None:
            return self.task
        return "regression" if self.event is None else "survival"

    @property
    def extra(self) -> str | None:
        """Column of the number that the target comes with: the exposure or the event."""
        return self.exposure if self.event is None else self.event


class OutputTable(KnownKeys):
    """``[output]``: the folder of the run and the files to write."""

    folder: Location = Field(description="Folder of the run, relative to the run file.")
    draws: Flag = Field(True, description="Write the posterior draws: posterior.nc.")
    report: Flag = Field(True, description="Write report.html.")
    predictions: Flag = Field(True, description="Write predictions of the held-out rows.")


class ClusterTable(KnownKeys):
    """``[cluster]``: workers that read the rows, of which the tree is fitted to a sample."""

    workers: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = Field(
        None, description="Number of processes on this machine; by default one for each core."
    )
    scheduler: Name | None = Field(
        None, description="Address of a Dask scheduler whose workers are used instead."
    )
    sample_rows: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        None,
        description="Number of training rows in the sample to which the tree is fitted; by default "
        "as many as have 2^25 numbers.",
    )


#: The tables of a run file whose keys do not depend on its tree; the first stands above all tables.
SECTIONS: dict[str, type[KnownKeys]] = {
    "": Head,
    "data": DataTable,
    "output": OutputTable,
    "cluster": ClusterTable,
}


class SweepHead(KnownKeys):
    """The keys and tables of a sweep file."""

    title: Text = Field("", description="Question that the sweep answers.")
    run: Location = Field(description="Run file whose parameters are varied.")
    sweep: dict[str, Any] = Field({}, description="Points, scores and folder of the results.")
    vary: dict[str, Any] = Field({}, description="Values to try.")


class SweepTable(KnownKeys):
    """``[sweep]``: the points, their scores, and the folder of the results."""

    folder: Location = Field(description="Folder of the results, relative to the sweep file.")
    method: Literal["grid", "random"] = Field(
        "grid", description="All combinations of the values, or random ones."
    )
    points: Annotated[int, Field(strict=True, ge=1, le=MAX_COMBINATIONS)] | None = Field(
        None, description="Number of settings of a random search.", validate_default=True
    )
    search_seed: Seed = Field(0, description="Seed of a random search.")
    seeds: Annotated[list[Seed], Field(min_length=1)] | None = Field(
        None, description="Seeds of the fits, each with every setting; by default that of the run."
    )
    folds: Annotated[int, Field(strict=True, ge=0, le=1000)] = Field(
        0,
        description="Folds of cross-validation over the training rows; with 0 the held-out rows "
        "are scored.",
    )
    metric: Metric | None = Field(
        None,
        description="Metric of the ranking; by default log_loss for classification, rmse for "
        "regression and concordance for survival; mean_deviance is for counts.",
    )
    n_jobs: Integer = Field(
        2, description="Number of points fitted at once on this machine; -1 uses all cores."
    )
    scheduler: Name | None = Field(
        None, description="Address of a Dask scheduler that distributes the points."
    )

    @field_validator("points", "seeds", "folds", "n_jobs")
    @classmethod
    def _possible(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse values that are valid alone, but make no sweep."""
        key = info.field_name
        if key == "points" and (value is None) == (info.data.get("method") == "random"):
            raise ValueError('points needs method = "random", which needs points.')
        if key == "seeds" and value is not None and len(set(value)) < len(value):
            raise ValueError("seeds contains a duplicate; remove it.")
        if key == "folds" and value == 1:
            raise ValueError("folds = 1 leaves no rows to fit; use 2 or more, or 0.")
        if key == "n_jobs" and value == 0:
            raise ValueError("n_jobs must be 1 or more, or -1 for all cores, got 0.")
        return value


class Range(KnownKeys):
    """Range of a random search, with both ends; of integers if both ends are integers.

    With ``log``, numbers are drawn uniformly on the logarithmic scale.
    """

    low: Number
    high: Number
    log: Flag = False

    @field_validator("high", "log")
    @classmethod
    def _possible(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse an empty range, and one without a logarithm."""
        low = info.data.get("low")
        if info.field_name == "high" and low is not None and not low < value:
            raise ValueError(f"low = {low} must be less than high = {value}.")
        if info.field_name == "log" and value and low is not None and low <= 0:
            raise ValueError(f"low = {low} must be above 0 if log = true.")
        return value

    def draw(self, rng: "np.random.Generator") -> int | float:
        """Draw a number."""
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        margin = 0.5 if whole else 0.0  # the ends are as likely as other integers
        low, high, share = self.low - margin, self.high + margin, rng.random()
        if self.log:
            drawn = math.exp((1 - share) * math.log(low) + share * math.log(high))
        else:
            drawn = (1 - share) * low + share * high
        drawn = round(drawn) if whole else float(f"{drawn:.{DIGITS}g}")
        return min(max(drawn, self.low), self.high)


#: The values to try of each parameter, by ``"table.key"``.
Vary = dict[str, Sequence[Any] | Range]
