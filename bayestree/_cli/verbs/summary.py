"""`bayestree summary`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.folders import check_output, write_table
from bayestree._cli.options import Json
from bayestree._cli.tables import aligned, records

if TYPE_CHECKING:
    import pandas as pd

    from bayestree.runs.store import Run

MOST_NODES = 60  # that are printed; --out writes all
NAMED = 3  # features of a node that are printed
LEVEL = 0.9  # of the intervals, as in the table of the run


def summary(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run.")],
    *,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Show the facets of one node: root, L, R, LL, ... from the root."
        ),
    ] = None,
    no_rows: Annotated[
        bool,
        typer.Option("--no-rows", help="Leave the data alone: not how sure splits are of rows."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table: .csv or .parquet.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: Json = False,
) -> None:
    """Say what a run found: a table of the nodes of its tree.

    For each node: the rows that reach it; how many facets its polytope has, by the posterior, with
    an interval that holds the number with probability 0.9, and how many the prior expects; the
    share of its rows whose side is open (the posterior gives the other one more than 10 %); the
    features that matter; and the split, of which the left side (L) holds. With --node the facets
    of one node, each with its probability and the interval of its limit.

    For example:

        bayestree summary results/tumours

        bayestree summary results/tumours --node root
    """
    with clear_errors():
        if out is not None:
            check_output(out, folder, force=force)
        from bayestree.runs.store import open_run

        run = open_run(folder)
        if node is None:
            table = _nodes(run, rows=not no_rows)
            name, text = "nodes", "\n".join([*_head(run), *_printed(table)])
        else:
            found = _facets(run, node)
            table, name, text = found.to_frame(), "facets", str(found)
            table.insert(0, "inside is", found.inequalities())
        if out is not None:
            write_table(table.reset_index(), out)
        if as_json:
            print(json.dumps(_known(run) | {name: records(table)}, indent=2, ensure_ascii=False))
        else:
            print(text)


def _nodes(run: "Run", *, rows: bool) -> "pd.DataFrame":
    """The table; without what needs the rows, where these are not what they were."""
    from bayestree.runs.summary import summary as table_of
    from bayestree.tables import InputError

    if not rows:
        return table_of(run, rows=False)
    _ = run.estimator  # whose absence is no matter of the rows
    try:
        return table_of(run)
    except (InputError, OSError) as error:
        typer.echo(f"warning: not said how sure the splits are of the rows: {error}", err=True)
        return table_of(run, rows=False)


def _facets(run: "Run", node: str) -> Any:
    from bayestree.runs.outputs import has_draws
    from bayestree.tables import InputError

    estimator = run.estimator
    if not (has_draws(estimator) and hasattr(estimator, "facets")):
        raise InputError(
            "--node shows the posterior of the facets of a node, and this run has no posterior; "
            f"see its splits by `bayestree export {run.folder}`."
        )
    try:
        return estimator.facets(node, level=LEVEL)
    except ValueError as error:
        raise InputError(f"--node: {error}") from error


def _known(run: "Run") -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        "title": run.file.title,
        "question": run.file.question,
        "metrics": run.metrics,
        "warnings": run.manifest.get("warnings", []),
    }


def _head(run: "Run") -> Iterator[str]:
    """What the run is about, and how well it predicts."""
    from bayestree.report.words import counted
    from bayestree.runs.scores import listed

    metrics = run.metrics
    scores = {name: value for name, value in metrics.items() if isinstance(value, float)}
    yield from (line for line in (run.file.title, run.file.question) if line)
    yield (
        f"tree {metrics['tree']} of {run.target!r}: {metrics['training_rows']} training rows, "
        f"{counted(metrics['leaves'], 'leaf')}, depth {metrics['depth']}"
    )
    yield f"on {metrics['scored_rows']} {metrics['scored_on']}: {listed(scores)}"
    yield from (f"warning: {text}" for text in run.manifest.get("warnings", []))
    yield ""


def _printed(table: "pd.DataFrame") -> Iterator[str]:
    """The table in lines, its numbers as a person reads them."""
    if table.empty:
        yield "a tree without a split"
        return
    shown = table.iloc[:MOST_NODES]
    columns: dict[str, list[str]] = {}
    for level, name in enumerate(shown.index.names):
        columns[str(name)] = [str(key) for key in shown.index.get_level_values(level)]
    columns["rows"] = [f"{round(rows, 1):,.10g}" for rows in shown["rows"]]
    if "facets_low" in shown or ("facets" in shown and (table["facets"] > 1).any()):
        columns["facets"] = [str(number) for number in shown["facets"]]
    if "facets_low" in shown:
        ends = zip(shown["facets_low"], shown["facets_high"], strict=True)
        columns["90 %"] = [f"{low:.0f} to {high:.0f}" for low, high in ends]
    if "prior_mean" in shown:
        columns["prior"] = [f"{mean:.1f}" for mean in shown["prior_mean"]]
    if "unsure" in shown:
        columns["unsure"] = [f"{100 * share:.1f} %" for share in shown["unsure"]]
    if "features" in shown:
        columns["features"] = [_first(names) for names in shown["features"]]
    columns["left if"] = list(shown["split"])
    yield from aligned(columns, right=("rows", "facets", "prior", "unsure"))
    if len(table) > len(shown):
        yield f"… {len(table) - len(shown)} nodes more: write them all by --out nodes.csv"


def _first(names: str) -> str:
    """The first few of names with commas."""
    every = names.split(", ")
    hidden = len(every) - NAMED
    return names if hidden <= 0 else ", ".join(every[:NAMED]) + f" + {hidden} more"
