"""The sweep file: a run, the parameters to vary, their combinations, and how these are scored."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import tomli_w

from bayestree._utils.wording import InputError
from bayestree._utils.write import write_whole
from bayestree.runs.cards import read_toml
from bayestree.runs.configuration import (
    MAX_COMBINATIONS,
    Metric,
    Range,
    SweepHead,
    SweepTable,
    Vary,
    abbreviated,
    relative_path,
    resolve_path,
)
from bayestree.runs.schema import RunFile
from bayestree.runs.settings import CARD_KEYS, check_section, find_key, table_settings

PATIENCE = 100  # duplicates drawn in a row, for each point, before the search stops
#: Metrics of each task, the default first.
METRICS: dict[str, tuple[Metric, ...]] = {
    "classification": ("log_loss", "accuracy"),
    "regression": ("rmse", "r2", "mean_deviance"),
    "survival": ("concordance",),
}
HIGHER_IS_BETTER = ("accuracy", "r2", "concordance")

Combination = dict[str, Any]


def grid(vary: Vary, where: str) -> list[Combination]:
    """Return all combinations of the values; the values of the last name change fastest.

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
    if count > MAX_COMBINATIONS:
        raise InputError(
            f"{where}: the grid has {count} combinations, but the maximum is {MAX_COMBINATIONS}; "
            'vary less, or set method = "random".'
        )
    return [dict(zip(vary, values, strict=True)) for values in itertools.product(*lists)]


def random(vary: Vary, points: int, seed: int, where: str) -> list[Combination]:
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


def _drawn(vary: Vary, seed: int) -> Iterator[Combination]:
    """Yield settings endlessly; names are sorted so that their order in the file is irrelevant."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = {name: _draw(vary[name], rng) for name in sorted(vary)}
        yield {name: drawn[name] for name in vary}


def _draw(values: Sequence[Any] | Range, rng: np.random.Generator) -> Any:
    if isinstance(values, Range):
        return values.draw(rng)
    return values[int(rng.integers(len(values)))]


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
    vary: Vary
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
    return check_section(SweepTable, table_settings(values, at, "sweep"), source, root, "sweep")


def _vary(values: Mapping[str, Any], source: Path) -> Vary:
    """Return the values to try by ``"table.key"``, however the file nests its tables."""
    at = f"{source.name} [vary]"
    found: Vary = {}
    for name, value in _flat(values):
        table, key = find_key(name, at)
        if table not in CARD_KEYS:
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
        if name in CARD_KEYS and isinstance(value, Mapping):
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
