"""What a run makes of a fitted tree: each function writes files of the run's folder, whole."""

import itertools
import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from bayestree._utils import arviz_compat
from bayestree._utils.write import write_whole
from bayestree.estimators._file_rows import parts_of
from bayestree.report.text import export_text
from bayestree.runs.disk import few
from bayestree.runs.folder import (
    COLUMNS,
    DRAWS,
    FACETS,
    METRICS,
    MODEL,
    PREDICTIONS,
    REPORT,
    RUN,
    TREE,
    RunFolder,
)
from bayestree.runs.rows import Prepared
from bayestree.runs.schema import RunFile
from bayestree.runs.scores import baseline_scores, predictions, scored
from bayestree.runs.store import Columns

MOST_NUMBERS = 10_000_000  # of a group of posterior.nc that has one for each row and draw
# Sizes by estimator: facets.csv and the report are of one measurement, the prior's counted once.
_MEASURED: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
BY_ROW = ("log_likelihood", "posterior_predictive", "prior_predictive", "observed_data")


def write_model(folder: RunFolder, file: RunFile, rows: Prepared, estimator: Any) -> None:
    """The fitted estimator, and the columns that it was fitted to."""
    columns = Columns(file.data.target, rows.y.dtype.kind == "U", rows.task, rows.encoding)
    folder.write_json(COLUMNS, columns.to_json())
    estimator.save(folder / MODEL)


def write_scores(folder: RunFolder, file: RunFile, rows: Prepared, estimator: Any) -> None:
    """The tree as text, the posterior of the facets of its nodes, and scores and sizes."""
    write_whole(folder / TREE, text_of(estimator))
    sizes = sizes_of(estimator)
    if sizes is not None:
        write_whole(folder / FACETS, sizes.to_frame().to_csv())
    baseline = baseline_scores(rows)
    metrics = {
        "tree": file.tree,
        "task": rows.task,
        "target": file.data.target,
        "training_rows": len(rows.X),
        "scored_rows": len(rows.X_held),
        "scored_on": "held-out rows" if rows.held_out else "training rows",
        **scored(estimator, rows.X_held, rows.y_held, rows.weights_held),
        "leaves": estimator.get_n_leaves(),
        "depth": estimator.get_depth(),
        **({} if baseline is None else {"baseline": baseline}),
    }
    folder.write_json(METRICS, metrics)


def write_draws(folder: RunFolder, rows: Prepared, estimator: Any) -> None:
    """The posterior as netCDF, with the groups of rows where they are not too large.

    Trees without draws have none to write.
    """
    if not has_draws(estimator):
        return
    posterior = estimator.posterior_
    by_row = len(rows.X) * posterior.n_chains * posterior.n_draws <= MOST_NUMBERS
    given = (rows.X, rows.y, rows.weights) if by_row else ()
    container = estimator.to_arviz(*given)
    write_whole(folder / DRAWS, arviz_compat.netcdf(container))


def write_predictions(folder: RunFolder, file: RunFile, rows: Prepared, estimator: Any) -> None:
    """Predictions of the held-out rows, beside their numbers in the table and what they are."""

    def found() -> Iterator[pa.Table]:
        for part in parts_of(rows.X_held):
            table = predictions(estimator, rows.X_held.iloc[part])
            table.insert(0, "row", rows.rows_held[part])
            table.insert(1, file.data.target, rows.y_held[part], allow_duplicates=True)
            yield pa.Table.from_pandas(table, preserve_index=False)

    parts = found()
    first = next(parts)
    with folder.draft(PREDICTIONS) as path, pq.ParquetWriter(path, first.schema) as written:
        for part in itertools.chain([first], parts):
            written.write_table(part)


def write_report(
    folder: RunFolder,
    file: RunFile,
    rows: Prepared,
    estimator: Any,
    *,
    manifest: Mapping[str, Any],
) -> None:
    """One page of HTML for a person."""
    metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    page = report_of(folder, file, rows, estimator, metrics=metrics, manifest=manifest)
    write_whole(folder / REPORT, page)


def report_of(
    folder: RunFolder,
    file: RunFile,
    rows: Prepared | None,
    estimator: Any,
    *,
    metrics: Mapping[str, Any],
    manifest: Mapping[str, Any],
) -> str:
    """The page; without rows it has no scores and no pictures of them."""
    from bayestree.report.html import html_report  # noqa: PLC0415 - it draws: seconds of imports

    given: dict[str, Any] = {}
    if rows is not None:
        rows = few(rows)
        given = {"X": rows.X, "y": rows.y, "weights": rows.weights}
        if rows.held_out:
            given |= {
                "X_held": rows.X_held,
                "y_held": rows.y_held,
                "weights_held": rows.weights_held,
            }
    table = dict(manifest["data"]["data"])
    return html_report(
        estimator,
        **given,
        title=file.title,
        question=file.question,
        data=table | {"target": file.data.target, "task": file.data.task},
        metrics=metrics,
        sizes=sizes_of(estimator),
        command=repeating(folder),
        run_file=without_places((folder / RUN).read_text(encoding="utf-8")),
        manifest=dict(manifest),
    )


def repeating(folder: RunFolder) -> str:
    """The command that makes the same run again beside the first one, in its folder."""
    again = Path("..", f"{folder.path.name}-again")
    return f"bayestree run {RUN} --out {shlex.quote(str(again))}"


def without_places(run_file: str) -> str:
    """A run file for others: of files and folders the names, and not where they lie."""
    content = tomllib.loads(run_file)
    for table, key in (("data", "path"), ("data", "test"), ("output", "folder")):
        if key in content[table]:
            content[table][key] = Path(content[table][key]).name
    return tomli_w.dumps(content)


def has_draws(estimator: Any) -> bool:
    """Whether there is a posterior of more than one draw."""
    if not hasattr(estimator, "to_arviz"):
        return False
    posterior = estimator.posterior_
    return bool(posterior.n_chains * posterior.n_draws > 1)


def text_of(estimator: Any) -> str:
    """The tree as text; of a forest one after the other."""
    if not hasattr(estimator, "estimators_"):
        return export_text(estimator)
    return "\n".join(
        f"tree {number}: {export_text(tree)}"
        for number, tree in enumerate(estimator.estimators_, start=1)
    )


def sizes_of(estimator: Any) -> Any:
    """Posterior of the facets of each node; None where there is one draw or none."""
    if not (hasattr(estimator, "polytope_size") and has_draws(estimator)):
        return None
    if estimator not in _MEASURED:
        _MEASURED[estimator] = estimator.polytope_size()
    return _MEASURED[estimator]
