"""Results of a sweep: a small file for each finished point, and the table of all points."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from bayestree._utils.write import write_whole
from bayestree.runs.folder import RunFolder
from bayestree.runs.sweep.file import HIGHER_IS_BETTER, Metric
from bayestree.runs.sweep.fit import DONE, Outcome
from bayestree.runs.sweep.points import Point
from bayestree.tables import InputError

SWEEP, NOTES, TABLE = "sweep.toml", "sweep.json", "results.parquet"
BEST, POINTS = "best.toml", "points"


class SweepFolder(RunFolder):
    """The folder of one sweep, which may be extended."""

    file_names = (SWEEP, NOTES, TABLE, BEST)

    def claim(self, *, force: bool) -> None:
        """Prepare the folder for a sweep; it may hold something else only with ``force``."""
        if not (self.is_new() or (self / SWEEP).is_file() or force):
            raise InputError(
                f"the folder {self} is not empty and not a sweep; choose another, or add --force."
            )
        (self / POINTS).mkdir(exist_ok=True)
        self.remove_drafts()
        for draft in (self / POINTS).glob(".*"):
            draft.unlink()  # left behind by a killed process

    def outcomes(self, points: Iterable[Point]) -> dict[str, Outcome]:
        """Outcomes of finished points, by key; invalid files are ignored."""
        found = {}
        for point in points:
            try:
                content = json.loads((self / self._file_name(point)).read_text(encoding="utf-8"))
                outcome = TypeAdapter(Outcome).validate_python(content["outcome"])
            except (OSError, ValueError, TypeError, LookupError, RecursionError):
                continue
            if outcome.status == DONE:
                found[point.key] = outcome
        return found

    def write_outcome(self, point: Point, outcome: Outcome) -> None:
        """Write the outcome of a point atomically."""
        content = {
            "setting": point.setting,
            "seed": point.file.seed,
            "fold": point.fold,
            "outcome": asdict(outcome),
        }
        self.write_json(self._file_name(point), content)

    def write_table(self, table: pd.DataFrame) -> None:
        write_whole(self / TABLE, table.to_parquet(index=False))

    def _is_ignorable(self, path: Path) -> bool:
        empty = path.name == POINTS and path.is_dir() and not any(path.iterdir())
        return empty or super()._is_ignorable(path)

    def _file_name(self, point: Point) -> str:
        return f"{POINTS}/{point.key}.json"


def table_of(points: Iterable[Point], outcomes: Mapping[str, Outcome]) -> pd.DataFrame:
    """A row for each point that has an outcome, in the order of the points."""
    found = [(point, outcomes[point.key]) for point in points if point.key in outcomes]
    settings = [point.setting for point, _ in found]
    scores = dict.fromkeys(name for _, one in found for name in one.scores)
    names = settings[0] if settings else {}
    sizes = ("leaves", "depth", "training_rows", "scored_rows")
    columns: dict[str, Any] = {
        "point": [point.number for point, _ in found],
        **{name: _same_type([one[name] for one in settings]) for name in names},
        "seed": [point.file.seed for point, _ in found],
        "fold": pd.array([point.fold for point, _ in found], dtype="Int64"),
        "status": [one.status for _, one in found],
        **{name: [one.scores.get(name) for _, one in found] for name in scores},
        **{name: pd.array([getattr(o, name) for _, o in found], dtype="Int64") for name in sizes},
        "seconds": [one.seconds for _, one in found],
        "warnings": ["\n".join(one.warnings) for _, one in found],
        "error": [one.error for _, one in found],
        "worker": [one.worker for _, one in found],
        "key": [point.key for point, _ in found],
    }
    return pd.DataFrame(columns)


def ranking(table: pd.DataFrame, metric: Metric, n_fits: int) -> pd.DataFrame:
    """The settings, the best first: the mean of the metric over seeds and folds.

    ``n_fits`` is the number of fits of each setting. Settings with unfinished fits have no
    comparable mean; they come last.
    """
    names = ["point", *(name for name in map(str, table) if "." in name)]
    done = table[table["status"] == DONE]
    if metric not in table:
        return table[names].drop_duplicates("point").assign(mean=None, fits=0)
    groups = done.groupby("point")
    sizes = groups.agg(
        mean=(metric, "mean"),
        sd=(metric, "std"),
        leaves=("leaves", "mean"),
        seconds=("seconds", "sum"),
        fits=(metric, "size"),
    )
    found = table[names].drop_duplicates("point").join(sizes, on="point")
    found["fits"] = found["fits"].fillna(0).astype(int)
    found.loc[found["fits"] < n_fits, "mean"] = None
    ascending = metric not in HIGHER_IS_BETTER
    return found.sort_values("mean", ascending=ascending, kind="stable").reset_index(drop=True)


def _same_type(values: Sequence[Any]) -> list[Any]:
    """Values as they are if they have one type, as Parquet requires; otherwise as text."""
    for kinds in ((bool,), (int,), (int, float), (str,)):
        if all(type(value) in kinds for value in values):
            return list(values)
    return [value if isinstance(value, str) else json.dumps(value) for value in values]
