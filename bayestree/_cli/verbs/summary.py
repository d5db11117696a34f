"""`bayestree summary`."""

import json
import math
import textwrap
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.folders import check_output, write_table
from bayestree._cli.options import Json
from bayestree._cli.output import facet_columns, scores_in_lines
from bayestree._cli.tables import aligned, records
from bayestree._utils.wording import counted, one_line

if TYPE_CHECKING:
    import pandas as pd

    from bayestree.runs.store import Run

MOST_NODES = 60  # that are printed; --out writes all
NAMED = 3  # features of a node that are printed
WIDTH = 100  # of the lines below the table
LEVEL = 0.9  # of the intervals, as in the table of the run
TERMS, DIGITS = 4, 3  # of the facets of a node, as in tree.txt


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
        typer.Option(
            "--no-rows", help="Do not read the data: no feature importance or split uncertainty."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table: .csv or .parquet.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: Json = False,
) -> None:
    """Say what a run found: a table of the nodes of its tree.

    For each node: the training rows that reach it; how many facets its polytope has in the point
    estimate and by the posterior (the median, with an interval that holds the number with
    probability 0.9), and how many the prior expects; the share of rows that the split is unsure
    of; the features that matter most; and the split of the point estimate, which holds on the
    left side (L). Lines below the table say what each of these means and on which rows it was
    measured. With --node the facets of one node: those of the point estimate, and those of the
    posterior, each with its probability and the interval of its limit.

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
            point = _point_facets(run, node)
            table, name = found.to_frame(), "facets"
            table.insert(0, "inside is", found.inequalities())
            text = "\n".join(
                ["Point estimate: a row goes left where", *point, "", "Posterior", str(found)]
            )
        if out is not None:
            write_table(_for_file(table.reset_index(), out), out)
        if as_json:
            known = _known(run) | {name: records(table)}
            known |= {"asked": table.attrs["asked"]} if node is None else {"point_estimate": point}
            print(json.dumps(known, indent=2, ensure_ascii=False))
        else:
            print(text)


def _nodes(run: "Run", *, rows: bool) -> "pd.DataFrame":
    """The table; where the rows have changed, without the columns that need them."""
    from bayestree.runs.summary import summary as table_of
    from bayestree.tables import InputError

    if not rows:
        return table_of(run, rows=False)
    _ = run.estimator  # a missing model is an error of its own
    try:
        return table_of(run)
    except (InputError, OSError) as error:
        typer.echo(
            f"warning: feature importance and split uncertainty are not shown: {error}", err=True
        )
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


def _point_facets(run: "Run", node: str) -> list[str]:
    """The facets of a node in the point estimate, in words."""
    from bayestree.description import TreeDescription

    tree = run.estimator.tree_
    number = list(tree.topology.node_labels).index(node)
    return [str(facet) for facet in TreeDescription(tree, TERMS, DIGITS).half_spaces(number)]


def _for_file(table: "pd.DataFrame", out: Path) -> "pd.DataFrame":
    """The table as a file can hold it: CSV has no lists, and names may hold commas."""
    if out.suffix != ".csv" or "features" not in table:
        return table
    lists = [json.dumps(names, ensure_ascii=False) for names in table["features"]]
    return table.assign(features=lists)


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
    metrics = run.metrics
    yield from (one_line(line) for line in (run.file.title, run.file.question) if line)
    kind = "forest" if hasattr(run.estimator, "estimators_") else "tree"
    yield (
        f"{kind} {metrics['tree']} of {run.target!r}: {metrics['training_rows']} training rows, "
        f"{counted(metrics['leaves'], 'leaf')}, depth {metrics['depth']}"
    )
    yield from scores_in_lines(metrics)
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
    drawn = "facets_low" in shown
    if drawn or ("facets" in shown and (table["facets"] > 1).any()):
        columns |= facet_columns(shown)
    if "prior_mean" in shown:
        columns["prior"] = [f"{mean:.1f}" for mean in shown["prior_mean"]]
    if "unsure" in shown:
        columns["unsure"] = [_percent(share) for share in shown["unsure"]]
    if "features" in shown:
        columns["features"] = [_first(names) for names in shown["features"]]
    columns["left if (point estimate)"] = [str(split) for split in shown["split"]]
    yield from aligned(columns, right=("rows", "point estimate", "prior", "unsure"))
    if len(table) > len(shown):
        yield f"… {len(table) - len(shown)} more nodes: write them all by --out nodes.csv"
    yield from _key(columns, table.attrs.get("asked", ""))


def _key(columns: Collection[str], asked: str) -> Iterator[str]:
    """What the columns mean, and on which rows they were measured."""
    from bayestree.report.splits import IMPORTANCE_DEFINITION, UNCERTAIN_DEFINITION

    said = []
    if "posterior" in columns:
        said.append(
            "Point estimate and posterior: number of facets in the tree of tree.txt, and the "
            "posterior median with its 90 % interval."
        )
    if "unsure" in columns:
        said.append(
            f"Unsure: share of {asked} whose side is uncertain, among those that reach the node. "
            f"{UNCERTAIN_DEFINITION}"
        )
    if "features" in columns:
        said.append(
            "Features: the most important first, those that hold 90 % of the importance, measured "
            f"on {asked}. {IMPORTANCE_DEFINITION}"
        )
    if said:
        yield ""
    for sentence in said:
        yield from textwrap.wrap(sentence, WIDTH)


def _percent(share: float) -> str:
    """A share; a dash where no row tells."""
    return "\N{EN DASH}" if math.isnan(share) else f"{100 * share:.1f} %"


def _first(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = " \N{MIDDLE DOT} ".join(map(one_line, names[:NAMED]))  # names may hold commas
    hidden = len(names) - NAMED
    return shown if hidden <= 0 else f"{shown} + {hidden} more"
