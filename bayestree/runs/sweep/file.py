"""The sweep file: a run, the parameters to vary, their combinations, and how these are scored."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import tomli_w
from pydantic import Field, ValidationInfo, field_validator

from bayestree._utils.errors import InputError
from bayestree._utils.parameters import MAX_INTEGER
from bayestree._utils.write import write_whole
from bayestree.runs.parameters import TABLES
from bayestree.runs.schema import RunFile
from bayestree.runs.settings import (
    Flag,
    Location,
    Name,
    Section,
    Seed,
    Text,
    check_section,
    find_key,
    table_settings,
)
from bayestree.runs.toml import abbreviated, read_toml, relative_path, resolve_path

MAX_SETTINGS = 100_000  # settings of a sweep; more are a mistake
PATIENCE = 100  # duplicates drawn in a row, for each point, before the search stops
DIGITS = 4  # significant digits of numbers drawn from a range, as a table shows them

Integer = Annotated[int, Field(strict=True, ge=-MAX_INTEGER, le=MAX_INTEGER)]
Number = Integer | Annotated[float, Field(strict=True, allow_inf_nan=False)]
Combination = dict[str, Any]


class Range(Section):
    """Range of a random search, with both ends; of integers if both ends are integers.

    With ``log``, numbers are drawn uniformly on the logarithmic scale.
    """

    low: Number
    high: Number
    log: Flag = False

    @field_validator("high")
    @classmethod
    def _ordered(cls, high: float, info: ValidationInfo) -> float:
        low = info.data.get("low")
        if low is not None and not low < high:
            raise ValueError(f"low = {low} must be less than high = {high}.")
        return high

    @field_validator("log")
    @classmethod
    def _positive(cls, log: bool, info: ValidationInfo) -> bool:
        low = info.data.get("low")
        if log and low is not None and low <= 0:
            raise ValueError(f"low = {low} must be above 0 if log = true.")
        return log

    def draw(self, rng: np.random.Generator) -> int | float:
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        margin = 0.5 if whole else 0.0  # the ends are as likely as other integers
        low, high, share = self.low - margin, self.high + margin, rng.random()
        if self.log:
            drawn = math.exp((1 - share) * math.log(low) + share * math.log(high))
        else:
            drawn = (1 - share) * low + share * high
        drawn = round(drawn) if whole else float(f"{drawn:.{DIGITS}g}")
        return min(max(drawn, self.low), self.high)


Choices = Mapping[str, Sequence[Any] | Range]


def grid(vary: Choices, where: str) -> list[Combination]:
    """Return all combinations of the values; those of the last name change fastest.

    ``vary`` maps names, such as ``"model.max_depth"``, to values. Messages name the file ``where``.
    """
    lists: list[Sequence[Any]] = []
    for name, values in vary.items():
        if isinstance(values, Range):
            raise InputError(
                f"{where} [vary]: {name} is a range, but a grid needs a list; write a list, or set "
                'method = "random".'
            )
        lists.append(values)
    count = math.prod(map(len, lists))
    if count > MAX_SETTINGS:
        raise InputError(
            f"{where}: the grid has {count} combinations, but the maximum is {MAX_SETTINGS}; "
            'vary less, or set method = "random".'
        )
    return [dict(zip(vary, values, strict=True)) for values in itertools.product(*lists)]


def random(vary: Choices, points: int, seed: int, where: str) -> list[Combination]:
    """Return distinct combinations, each value drawn uniformly from its list or range.

    The first combinations do not depend on the number of points.
    """
    found: dict[str, Combination] = {}
    repeats = 0
    for setting in _drawn(vary, seed):
        before = len(found)
        found.setdefault(repr(setting), setting)
        repeats = repeats + 1 if len(found) == before else 0
        if len(found) == points:
            break
        if repeats > PATIENCE * points:
            raise InputError(
                f"{where} [sweep]: points = {points}, but only {len(found)} distinct ones were "
                'found; reduce points, or set method = "grid".'
            )
    return list(found.values())


def _drawn(vary: Choices, seed: int) -> Iterator[Combination]:
    """Yield settings endlessly; names are sorted so that their order in the file is irrelevant."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = {name: _draw(vary[name], rng) for name in sorted(vary)}
        yield {name: drawn[name] for name in vary}


def _draw(values: Sequence[Any] | Range, rng: np.random.Generator) -> Any:
    if isinstance(values, Range):
        return values.draw(rng)
    return values[int(rng.integers(len(values)))]


Metric = Literal["accuracy", "log_loss", "rmse", "r2", "mean_deviance", "concordance"]
#: Metrics of each task, the default first.
METRICS: dict[str, tuple[Metric, ...]] = {
    "classification": ("log_loss", "accuracy"),
    "regression": ("rmse", "r2", "mean_deviance"),
    "survival": ("concordance",),
}
HIGHER_IS_BETTER = ("accuracy", "r2", "concordance")


class SweepHead(Section):
    """The keys and tables of a sweep file."""

    title: Text = Field("", description="Question that the sweep answers.")
    run: Location = Field(description="Run file whose parameters are varied.")
    sweep: dict[str, Any] = Field({}, description="Points, scores and folder of the results.")
    vary: dict[str, Any] = Field({}, description="Values to try.")


class SweepTable(Section):
    """``[sweep]``: the points, their scores, and the folder of the results."""

    folder: Location = Field(description="Folder of the results, relative to the sweep file.")
    method: Literal["grid", "random"] = Field(
        "grid", description="All combinations of the values, or random ones."
    )
    points: Annotated[int, Field(strict=True, ge=1, le=MAX_SETTINGS)] | None = Field(
        None, description="Number of settings of a random search."
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
    n_jobs: Annotated[int, Field(strict=True, ge=-MAX_INTEGER, le=MAX_INTEGER)] = Field(
        2, description="Number of points fitted at once on this machine; -1 uses all cores."
    )
    scheduler: Name | None = Field(
        None, description="Address of a Dask scheduler that distributes the points."
    )


@dataclass(frozen=True)
class SweepFile:
    """A sweep whose settings are all valid runs.

    ``run`` is the path of the run file; ``run`` and the folder of ``sweep`` are absolute. ``vary``
    maps ``"table.key"`` to a list of values or a range. Each of the ``settings`` maps it to one
    value, and has a run in ``files``.
    """

    title: str
    run: Path
    sweep: SweepTable
    vary: dict[str, list[Any] | Range]
    settings: list[Combination]
    files: list[RunFile]

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, Any], where: str | Path, *, root: str | Path | None = None
    ) -> Self:
        """Create a sweep from the content of a sweep file, which need not exist at ``where``.

        Messages name ``where``, and paths are relative to it. No path may leave ``root``.
        """
        path = Path(where)
        head = check_section(SweepHead, table_settings(parts, path.name, "sweep"), path, root)
        sweep = _sweep(head.sweep, path, root)
        vary = _vary(head.vary, path)
        if sweep.points is None:
            settings = grid(vary, path.name)
        else:
            settings = random(vary, sweep.points, sweep.search_seed, path.name)
        content = read_toml(head.run, "run file")
        files = [
            RunFile.from_parts(
                content, head.run, sets=one.items(), source=f"{path.name} [vary]", root=root
            )
            for one in settings
        ]
        return cls(head.title, head.run, sweep, vary, settings, files)

    @property
    def seeds(self) -> list[int]:
        return [self.files[0].seed] if self.sweep.seeds is None else self.sweep.seeds

    def write_toml(self, path: Path) -> None:
        folder = path.parent
        table = self.sweep.model_dump(exclude_none=True, exclude={"folder"})
        content = {
            "title": self.title,
            "run": relative_path(self.run, folder),
            "sweep": {"folder": relative_path(self.sweep.folder, folder), **table},
            "vary": {
                name: values.model_dump() if isinstance(values, Range) else values
                for name, values in self.vary.items()
            },
        }
        write_whole(path, tomli_w.dumps(content))

    def metric(self, task: str) -> Metric:
        """Return the metric by which the settings of a task are ranked."""
        named = self.sweep.metric
        if named is not None and named not in METRICS[task]:
            suitable = " or ".join(METRICS[task])
            raise InputError(f"[sweep] metric {named!r} does not suit {task}; use {suitable}.")
        return named or METRICS[task][0]


def read_sweep(path: str | Path, *, root: str | Path | None = None) -> SweepFile:
    """Read a sweep file, and the run file that it names; no path may leave the folder ``root``."""
    where = resolve_path(path, Path.cwd(), root=root, what="sweep file")
    return SweepFile.from_parts(read_toml(where, "sweep file"), where, root=root)


def _sweep(values: Mapping[str, Any], source: Path, root: str | Path | None) -> SweepTable:
    at = f"{source.name} [sweep]"
    values = {"folder": str(Path("results") / source.stem), **values}
    table = check_section(SweepTable, table_settings(values, at, "sweep"), source, root)
    if (table.points is None) == (table.method == "random"):
        raise InputError(f'{at}: points needs method = "random", which needs points.')
    if table.folds == 1:
        raise InputError(f"{at}: folds = 1 leaves no rows to fit; use 2 or more, or 0.")
    if table.n_jobs == 0:
        raise InputError(f"{at}: n_jobs must be 1 or more, or -1 for all cores, got 0.")
    if table.seeds is not None and len(set(table.seeds)) < len(table.seeds):
        raise InputError(f"{at}: seeds contains a duplicate; remove it.")
    return table


def _vary(values: Mapping[str, Any], source: Path) -> dict[str, list[Any] | Range]:
    """Return the values to try by ``"table.key"``, however the file nests its tables."""
    at = f"{source.name} [vary]"
    found: dict[str, list[Any] | Range] = {}
    for name, value in _flat(values):
        table, key = find_key(name, at)
        if table not in TABLES:
            remedy = "list [sweep] seeds instead" if key == "seed" else "change it in the run file"
            raise InputError(
                f"{at}: {name} belongs neither to [model] nor to [inference]; {remedy}."
            )
        full = f"{table}.{key}"
        if full in found:
            raise InputError(f"{at}: {full} is set twice; remove one.")
        found[full] = _values(value, name, source)
    return found


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if name in TABLES and isinstance(value, Mapping):
            yield from ((f"{name}.{key}", each) for key, each in value.items())
        else:
            yield name, value


def _values(value: Any, name: str, source: Path) -> list[Any] | Range:
    at = f"{source.name} [vary]: {name}"
    if isinstance(value, Mapping):
        return check_section(Range, table_settings(value, at, "vary"), source, None, f"vary.{name}")
    if not (isinstance(value, list) and value):
        raise InputError(
            f"{at} must be a list of values, or a range such as {{ low = 1, high = 10 }}, got "
            f"{abbreviated(value)}."
        )
    duplicates = [each for number, each in enumerate(value) if each in value[:number]]
    if duplicates:
        raise InputError(f"{at} contains {abbreviated(duplicates[0])} twice; remove one.")
    return value
