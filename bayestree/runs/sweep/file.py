"""The sweep file: one run, what is varied of it, and how the points are scored."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import Field, TypeAdapter, ValidationError

from bayestree._utils.write import write_whole
from bayestree.runs.fields import LARGEST
from bayestree.runs.keys import find_key
from bayestree.runs.nearest import nearest
from bayestree.runs.paths import place, seen_from
from bayestree.runs.reading import checked
from bayestree.runs.schema import TABLES, RunFile
from bayestree.runs.sections import Name, Section, Text
from bayestree.runs.sweep.settings import MOST, Range, Setting, grid, random
from bayestree.runs.toml import read_toml, shown
from bayestree.tables import InputError

Metric = Literal["accuracy", "log_loss", "rmse", "r2"]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]
Values = Annotated[list[Any], Field(min_length=1)]
KEYS = ("title", "run", "sweep", "vary")
#: Metrics of each task, the usual one first.
METRICS: dict[str, tuple[Metric, ...]] = {
    "classification": ("log_loss", "accuracy"),
    "regression": ("rmse", "r2"),
}
#: Metrics of which more is better.
MORE = ("accuracy", "r2")


class SweepHead(Section):
    """The keys above all tables."""

    title: Text = Field("", description="What the sweep is to answer.")
    run: Path = Field(description="Run file that every point is, with other values.")


class SweepTable(Section):
    """``[sweep]``: which points, how they are scored, where they are written."""

    folder: Path = Field(description="Folder of the results, relative to the sweep file.")
    method: Literal["grid", "random"] = Field(
        "grid", description="Every combination of the values, or some drawn at random."
    )
    points: Annotated[int, Field(strict=True, ge=1, le=MOST)] | None = Field(
        None, description="Of a random search: how many settings."
    )
    search_seed: Seed = Field(0, description="Of a random search: seed of the settings.")
    seeds: Annotated[list[Seed], Field(min_length=1)] | None = Field(
        None, description="Seeds of the fits, each with every setting; by default the run's."
    )
    folds: Annotated[int, Field(strict=True, ge=0, le=1000)] = Field(
        0,
        description="Parts of the training rows, each scored by a fit to the others; with 0 the "
        "held-out rows are scored.",
    )
    metric: Metric | None = Field(
        None, description="What is best; by default log_loss for classes and rmse for numbers."
    )
    n_jobs: Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST)] = Field(
        2, description="Points at once on this machine; -1 is one for each core."
    )
    scheduler: Name | None = Field(None, description="Address of a Dask scheduler to send them to.")


@dataclass(frozen=True)
class SweepFile:
    """A sweep, checked: every setting is a run that can be.

    Parameters
    ----------
    title : str
    run : Path
        The run file, absolute.
    sweep : SweepTable
        With an absolute folder.
    vary : dict
        ``"table.key"`` to a list of values or a :class:`Range`.
    settings : list of dict
        What is tried.
    files : list of RunFile
        The run of each setting.
    """

    title: str
    run: Path
    sweep: SweepTable
    vary: dict[str, list[Any] | Range]
    settings: list[Setting]
    files: list[RunFile]

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, Any], where: str | Path, *, root: str | Path | None = None
    ) -> Self:
        """A sweep from the content of a sweep file.

        Parameters
        ----------
        parts : mapping
            As TOML gives it: keys and tables.
        where : path
            The file that it is of: named in messages, and what its paths are relative to.
        root : path, optional
            Folder that no path may leave.

        Raises
        ------
        InputError
            With the table, the key, its value and the remedy.
        """
        source, home = Path(where), None if root is None else Path(root)
        for name in parts:
            if name not in KEYS:
                raise InputError(f"{source.name}: no key is named {name!r}{nearest(name, KEYS)}")
        head = checked(
            SweepHead, {k: v for k, v in parts.items() if k in ("title", "run")}, source.name, ""
        )
        table = _sweep(parts.get("sweep", {}), source, home)
        vary = _vary(parts.get("vary", {}), source.name)
        settings = _settings(table, vary, source.name)
        run = place(head.run, source.parent, root=home, what=f"{source.name}: run")
        content = read_toml(run, "run file")
        files = [
            RunFile.from_parts(
                content, run, sets=one.items(), source=f"{source.name}: [vary]", root=home
            )
            for one in settings
        ]
        return cls(head.title, run, table, vary, settings, files)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the fits."""
        return [self.files[0].seed] if self.sweep.seeds is None else self.sweep.seeds

    def write_toml(self, path: Path) -> None:
        """Write the sweep as a sweep file that does the same in the folder of ``path``."""
        folder = path.parent
        table = self.sweep.model_dump(exclude_none=True, exclude={"folder"})
        content = {
            "title": self.title,
            "run": seen_from(self.run, folder),
            "sweep": {"folder": seen_from(self.sweep.folder, folder), **table},
            "vary": {
                name: values.model_dump() if isinstance(values, Range) else values
                for name, values in self.vary.items()
            },
        }
        write_whole(path, tomli_w.dumps(content))

    def metric(self, task: str) -> Metric:
        """What is best, for a task.

        Raises
        ------
        InputError
            If the metric that the file names is of the other task.
        """
        named = self.sweep.metric
        if named is not None and named not in METRICS[task]:
            raise InputError(
                f"[sweep] metric = {named!r} is none of {task}; take {' or '.join(METRICS[task])}."
            )
        return named or METRICS[task][0]


def read_sweep(path: str | Path, *, root: str | Path | None = None) -> SweepFile:
    """Read a sweep file, and the run file that it names.

    Parameters
    ----------
    path : path of a TOML file
    root : path, optional
        Folder that no path may leave, that of the file included.

    Raises
    ------
    InputError
        If a file cannot be read, a key is not known, or a setting is no run that can be.
    """
    home = None if root is None else Path(root)
    source = place(path, Path.cwd(), root=home, what="sweep file")
    return SweepFile.from_parts(read_toml(source, "sweep file"), source, root=home)


def _sweep(values: Any, source: Path, root: Path | None) -> SweepTable:
    if not isinstance(values, Mapping):
        raise InputError(
            f"{source.name}: sweep = {shown(values)}, but it must be a table, [sweep]."
        )
    known = SweepTable.model_fields
    for name in values:
        if name not in known:
            raise InputError(f"{source.name}: [sweep] has no key {name!r}{nearest(name, known)}")
    values = {"folder": str(Path("results") / source.stem), **values}
    table = checked(SweepTable, values, source.name, "sweep")
    _check(table, f"{source.name}: [sweep]")
    what = f"{source.name}: [sweep] folder"
    folder = place(table.folder, source.parent, root=root, what=what)
    return table.model_copy(update={"folder": folder})


def _check(table: SweepTable, at: str) -> None:
    """Refuse values that do not go together."""
    if (table.points is None) == (table.method == "random"):
        raise InputError(f'{at} points is to be given with method = "random", and only then.')
    if table.folds == 1:
        raise InputError(f"{at} folds = 1 leaves no rows to fit to; take 2 or more, or 0.")
    if table.n_jobs == 0:
        raise InputError(f"{at} n_jobs = 0 is nobody; take 1 or more, or -1.")
    if table.seeds is not None and len(set(table.seeds)) < len(table.seeds):
        raise InputError(f"{at} seeds has one twice; leave one out.")


def _vary(values: Any, source: str) -> dict[str, list[Any] | Range]:
    """What is varied by ``"table.key"``, however the file nests its tables."""
    if not isinstance(values, Mapping):
        raise InputError(f"{source}: vary = {shown(values)}, but it must be a table, [vary].")
    found: dict[str, list[Any] | Range] = {}
    for name, value in _flat(values):
        at = f"{source}: [vary]"
        table, key = find_key(name, at)
        if table not in TABLES:
            remedy = "list [sweep] seeds instead" if key == "seed" else "change it in the run file"
            raise InputError(f"{at} {name} is neither of [model] nor of [inference]; {remedy}.")
        full = f"{table}.{key}"
        if full in found:
            raise InputError(f"{at} {full} is there twice; leave one out.")
        found[full] = _values(value, f"{at} {name}")
    return found


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if name in TABLES and isinstance(value, Mapping):
            yield from ((f"{name}.{key}", each) for key, each in value.items())
        else:
            yield name, value


def _values(value: Any, at: str) -> list[Any] | Range:
    wanted: TypeAdapter[Any] = TypeAdapter(Range if isinstance(value, Mapping) else Values)
    try:
        found: list[Any] | Range = wanted.validate_python(value)
    except ValidationError as error:
        raise InputError(
            f"{at} = {shown(value)}, but it must be a list of values, or a range such as "
            f"{{ low = 1, high = 10 }} ({error.errors(include_url=False)[0]['msg']})."
        ) from error
    if isinstance(found, list):
        twice = [each for number, each in enumerate(found) if each in found[:number]]
        if twice:
            raise InputError(f"{at} has {shown(twice[0])} twice; leave one out.")
    return found


def _settings(
    table: SweepTable, vary: Mapping[str, list[Any] | Range], source: str
) -> list[Setting]:
    if table.points is not None:
        return random(vary, table.points, table.search_seed, source)
    return grid(vary, source)
