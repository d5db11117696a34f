"""What came of a sweep: a small file for each finished point, and the table of all of them."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bayestree._utils.write import write_whole
from bayestree.runs.folder import RunFolder
from bayestree.runs.sweep.file import MORE, Metric
from bayestree.runs.sweep.fit import DONE, Outcome
from bayestree.runs.sweep.points import Point
from bayestree.tables import InputError

SWEEP, NOTES, TABLE, BEST, POINTS = (
    "sweep.toml",
    "sweep.json",
    "results.parquet",
    "best.toml",
    "points",
)


class SweepFolder(RunFolder):
    """The folder of one sweep, which may grow.

    Parameters
    ----------
    path : Path
        Absolute; it need not exist yet.
    """

    own = (SWEEP, NOTES, TABLE, BEST)

    def claim(self, *, force: bool) -> None:
        """Make the folder one of a sweep.

        Raises
        ------
        InputError
            If it holds something else and ``force`` is false.
        """
        if not (self.is_new() or (self / SWEEP).is_file() or force):
            raise InputError(
                f"the folder {self} is not empty and holds no sweep; name another, or add --force."
            )
        (self / POINTS).mkdir(exist_ok=True)
        self.sweep()
        for draft in (self / POINTS).glob(".*"):
            draft.unlink()  # of a process that was killed

    def outcomes(self, points: Iterable[Point]) -> dict[str, Outcome]:
        """Those of points that are finished, by key; what is no outcome counts as none."""
        found = {}
        for point in points:
            try:
                content = json.loads(self._file(point).read_text(encoding="utf-8"))
                outcome = Outcome.from_json(content["outcome"])
            except (OSError, ValueError, TypeError, LookupError, RecursionError):
                continue
            if outcome.status == DONE:
                found[point.key] = outcome
        return found

    def keep(self, point: Point, outcome: Outcome) -> None:
        """Write what came of a point, whole or not at all."""
        content = {
            "setting": point.setting,
            "seed": point.file.seed,
            "fold": point.fold,
            "outcome": outcome.to_json(),
        }
        write_whole(self._file(point), json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def write_table(self, table: pd.DataFrame) -> None:
        """Write the table of results, whole or not at all."""
        raw = io.BytesIO()
        table.to_parquet(raw, index=False)
        write_whole(self / TABLE, raw.getvalue())

    def _is_nothing(self, path: Path) -> bool:
        empty = path.name == POINTS and path.is_dir() and not any(path.iterdir())
        return empty or super()._is_nothing(path)

    def _file(self, point: Point) -> Path:
        return self / POINTS / f"{point.key}.json"


def table_of(points: Iterable[Point], outcomes: Mapping[str, Outcome]) -> pd.DataFrame:
    """A row for each point that has an outcome, in the order of the points.

    Returns
    -------
    DataFrame
        ``point`` (number of the setting), the names that are varied, ``seed``, ``fold``,
        ``status``, the scores, ``leaves``, ``depth``, ``training_rows``, ``scored_rows``,
        ``seconds``, ``warnings``, ``error``, ``worker``, ``key``.
    """
    found = [(point, outcomes[point.key]) for point in points if point.key in outcomes]
    settings = [point.setting for point, _ in found]
    scores = dict.fromkeys(name for _, one in found for name in one.scores)
    names = settings[0] if settings else {}
    sizes = ("leaves", "depth", "training_rows", "scored_rows")
    columns: dict[str, Any] = {
        "point": [point.number for point, _ in found],
        **{name: _alike([one[name] for one in settings]) for name in names},
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

    Parameters
    ----------
    table : DataFrame
        As of :func:`table_of`.
    metric : str
    n_fits : int
        Of each setting. Those of which not all are done have no mean that the others' can be
        held against; they come last.

    Returns
    -------
    DataFrame
        ``point``, the varied names, ``mean`` and ``sd`` of the metric, ``leaves`` (mean),
        ``seconds`` (all fits together) and ``fits`` that are done.
    """
    names = ["point", *_varied(table)]
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
    ascending = metric not in MORE
    return found.sort_values("mean", ascending=ascending, kind="stable").reset_index(drop=True)


def _varied(table: pd.DataFrame) -> Iterator[str]:
    return (name for name in map(str, table) if "." in name)


def _alike(values: Sequence[Any]) -> list[Any]:
    """Values of one kind, as a column of a Parquet file needs them; else as text."""
    for kinds in ((bool,), (int,), (int, float), (str,)):
        if all(type(value) in kinds for value in values):
            return list(values)
    return [value if isinstance(value, str) else json.dumps(value) for value in values]
