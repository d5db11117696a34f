"""`bayestree diagnose`, `compare`, `report` and `summary`."""

import json
import math
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayestree._utils.wording import InputError, counted, one_line
from bayestree.cli import shared
from bayestree.cli.shared import FolderArgument, Force, Json, Quote, TableOut

if TYPE_CHECKING:
    import pandas as pd

    from bayestree.description import TreeDescription
    from bayestree.diagnostics import Facets
    from bayestree.runs.rows import RunRows
    from bayestree.runs.store import Run

NOT_CONVERGED = 1  # exit code


def diagnose(folder: FolderArgument, *, as_json: Json = False) -> None:
    """Report in plain words which predictions and intervals of a run can be trusted.

    Predictions are judged on the held-out rows of the run, if it has any. Chains are compared by
    quantities that do not depend on the order of the experts (R-hat, effective sample size).
    Samplers are also checked for divergences, tree depth and energy, and variational fits for
    convergence of the bound. The log evidence and the posterior of the number of leaves and of the
    depth are shown for runs by sequential Monte Carlo.

    The exit code is 0 if no check failed, or if there is no posterior to check; it is 1 if a check
    failed, or if there is too little information to decide.

    For example:

        bayestree diagnose results/wines && bayestree report results/wines
    """
    from bayestree.runs.results import diagnose as diagnose_run
    from bayestree.runs.store import open_run

    run = open_run(folder)
    diagnosis = diagnose_run(run)
    checks = diagnosis.checks
    content = {
        "folder": str(run.folder),
        "converged": diagnosis.converged,
        "inference": diagnosis.how,
        "predictions": checks.predictions,
        "intervals": checks.intervals,
        "stands_for_the_posterior": checks.faithful,
        "checks": shared.records(checks.to_frame()),
        "not_judged": list(checks.not_judged),
        "evidence": checks.evidence and checks.evidence.to_json(),
    }
    shared.print_result(content, diagnosis, as_json=as_json)
    if not diagnosis.passes:
        raise typer.Exit(NOT_CONVERGED)


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDERS", help="Folders of two or more runs.")
    ],
    *,
    out: TableOut = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare runs: which is more probable or predicts better, and how certain that is.

    Runs by sequential Monte Carlo are compared by their evidence: log_bayes_factor is the
    difference of the log evidence from the most probable run, and probability that of a run's
    model.

    Others are compared by leave-one-out cross-validation (PSIS-LOO) on the rows that
    all of them were fitted to: elpd is the sum of the log predictive densities (higher is better);
    difference is the difference from the best run, with its standard error; weight is the stacking
    weight of a run; bad_k is the share of rows whose score is unreliable.

    If that share is above 10 % for any run, or fewer than two runs have a posterior, the log scores
    of the held-out rows are compared instead, row by row: held_out is their sum, with the
    difference from the best run and its standard error. If no rows were held out, the runs are
    refitted without each of five parts of the training rows, and these are scored.

    Runs on different rows are refused: they need the same table and target, and the same seed and
    test_fraction, or a test table.

    For example:

        bayestree compare results/tumours results/laplace
    """
    shared.check_output(out, force=force)
    from bayestree.runs.compare import compare as compare_runs
    from bayestree.runs.store import open_run

    comparison = compare_runs([open_run(folder) for folder in folders])
    if out is not None:
        shared.write_table(comparison.table.reset_index(), out)
    content = {
        "runs": shared.records(comparison.table),
        "basis": comparison.basis,
        "scored_on": comparison.scored_on,
        "remarks": list(comparison.remarks),
    }
    shared.print_result(content, comparison, as_json=as_json)


COMPARISON = "comparison.html"  # in the current folder


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDERS", help="Folder of a run; several are compared.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write; by default report.html in the folder, or comparison.html in the "
            "current one for several runs.",
        ),
    ] = None,
    no_rows: Annotated[
        bool, typer.Option("--no-rows", help="Do not read the data; omit the figures that need it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the report of a run, or of several side by side: a self-contained HTML page.

    The page shows the tree with selectable nodes and leaves, the posterior of its facets, the
    uncertainty of its splits, scores, calibration, convergence in plain words, and the command that
    repeats the run. It can be read offline, on a phone and on paper, and sent by e-mail.

    Of several runs on the same rows, the page shows which settings differ, the scores and their
    differences with standard errors, the rows on which the predictions differ most, the trees, the
    importance of the columns, convergence and time. Runs on different rows are refused.

    The rows are read again and must be unchanged; with --no-rows they are not needed.

    For example:

        bayestree report results/tumours

        bayestree report results/tumours --out tumours.html

        bayestree report results/tumours results/laplace --out laplace.html
    """
    shared.check_output(out and out.absolute(), shared.PAGE, force=True)
    from bayestree._utils.progress import watching
    from bayestree._utils.write import write_whole
    from bayestree.runs.store import REPORT, open_run

    first, *others = folders
    if others and no_rows:
        raise InputError("--no-rows is for the report of one run; remove it to compare several.")
    runs = [open_run(folder) for folder in folders]
    page = (out or (Path(COMPARISON) if others else first / REPORT)).absolute()
    write = _comparison(runs) if others else _report(runs[0], no_rows=no_rows)
    with closing(shared.display(quiet=as_json)) as shown, watching(shown):
        shown.stage("report")
        text = write()
    write_whole(page, text)
    content = {"file": str(page), "bytes": len(text.encode())}
    shared.print_result(content, f"written to {page}: open it in a browser", as_json=as_json)


def _report(run: "Run", *, no_rows: bool) -> Callable[[], str]:
    """Read the rows of a run, and return the function that writes its report."""
    from bayestree.runs.outputs import report_of

    run.columns.check_single("report")
    rows = None if no_rows else _rows(run)
    return partial(report_of, run, rows, run.estimator)


def _comparison(runs: "Sequence[Run]") -> Callable[[], str]:
    """Read the rows of several runs, and return the function that compares them."""
    from bayestree.runs.compare import comparison_page, named_runs, same_rows

    named = named_runs(runs)
    return partial(comparison_page, named, same_rows(named))


def _rows(run: "Run") -> "RunRows":
    try:
        return run.rows()
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')}; or add --no-rows.") from error


MAX_NODES = 60  # maximum number of printed nodes; --out writes all
MAX_FEATURES = 3  # maximum number of printed features of a node
WIDTH = 100  # characters per line below the table
LEVEL = 0.9  # probability of the intervals, as in the table of the run
TERMS, DIGITS = 4, 3  # shown of the facets of a node, as in tree.txt


def summary(
    folder: FolderArgument,
    *,
    node: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Show the facets of one node: root, L, R, LL, ..."),
    ] = None,
    no_rows: Annotated[
        bool,
        typer.Option(
            "--no-rows", help="Do not read the data; omit feature importance and split uncertainty."
        ),
    ] = False,
    out: TableOut = None,
    quote_formulas: Quote = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Summarise a run in a table of the nodes of its tree.

    The table has, for each node, the number of training rows that reach it; the number of facets
    of its polytope in the point estimate, in the posterior (median and 90 % interval) and in the
    prior (mean); the share of rows whose side is uncertain; the most important features; and the
    split of the point estimate, of several facets the one nearest to the mean of the data. Lines
    below the table explain these columns and name the rows they were measured on. With --node the
    facets of one node are shown: those of the point estimate, and those of the posterior, each with
    its probability and the interval of its limit.

    For example:

        bayestree summary results/tumours

        bayestree summary results/tumours --node root
    """
    shared.check_output(out, force=force)
    from bayestree.runs.store import open_run

    run = open_run(folder)
    run.columns.check_single("summary")
    if node is None:
        table = _nodes(run, rows=not no_rows)
        # The splits of a forest have one facet.
        rule = "" if run.estimator.fitted_.forest else _described(run).rule
        name, text = "nodes", "\n".join([*_head(run), *_printed(table, rule)])
    else:
        facets = _facets(run, node)
        point = _point_facets(run, node)
        table, name = facets.to_frame(), "facets"
        table.insert(0, "inside is", facets.inequalities())
        text = "\n".join([_rule(point, _described(run).rule), *point, "", "Posterior", str(facets)])
    if out is not None:
        shown = table.reset_index()
        if out.suffix == ".csv" and "features" in shown:  # names may contain commas
            shown["features"] = [json.dumps(x, ensure_ascii=False) for x in shown["features"]]
        shared.write_table(shown, out, quote=quote_formulas)
    content = {
        "folder": str(run.folder),
        "title": run.file.title,
        "question": run.file.question,
        "metrics": run.metrics,
        "warnings": run.manifest.get("warnings", []),
        name: shared.records(table),
    }
    other: dict[Any, Any] = {"point_estimate": point} if node else dict(table.attrs)
    shared.print_result(content | other, text, as_json=as_json)


def _nodes(run: "Run", *, rows: bool) -> "pd.DataFrame":
    """Return the table; if the rows have changed, without the columns that need them."""
    from bayestree.runs.results import summary as table_of

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


def _facets(run: "Run", node: str) -> "Facets":
    from bayestree.description import has_draws
    from bayestree.estimators._tree import StagedTree

    estimator = run.estimator
    if not (has_draws(estimator) and isinstance(estimator, StagedTree)):
        raise InputError(
            "--node shows the posterior of the facets of a node, but this run has no posterior; "
            f"show its splits with `bayestree export {run.folder}`."
        )
    try:
        return estimator.facets(node, level=LEVEL)
    except ValueError as error:
        raise InputError(f"--node: {error}") from error


def _point_facets(run: "Run", node: str) -> list[str]:
    """Return the facets of a node in the point estimate, in words."""
    described = _described(run)
    number = list(described.tree.topology.node_labels).index(node)
    return [str(facet) for facet in described.half_spaces(number)]


def _described(run: "Run") -> "TreeDescription":
    from bayestree.description import TreeDescription

    return TreeDescription(run.estimator.tree_, TERMS, DIGITS)


def _rule(facets: list[str], rule: str) -> str:
    """Return how the facets of a node decide."""
    if len(facets) == 1:
        return "Point estimate: a row goes left if"
    return textwrap.fill(f"Point estimate: {len(facets)} facets. {rule}", WIDTH)


def _head(run: "Run") -> Iterator[str]:
    """Yield title, question, size and scores of a run."""
    from bayestree.description import words_of_mode

    metrics = run.metrics
    yield from (one_line(line) for line in (run.file.title, run.file.question) if line)
    kind = "forest" if run.estimator.fitted_.forest else "tree"
    yield (
        f"{kind} {metrics['tree']} of {run.columns.target!r}: "
        f"{metrics['training_rows']} training rows, "
        f"{counted(metrics['leaves'], 'leaf')}, depth {metrics['depth']}"
    )
    given = run.estimator.get_params(deep=False)
    own = {name: given.get(name, "") for name in ("prior", "leaf")}
    if written := [f"{name} {one!r}" for name, one in own.items() if not isinstance(one, str)]:
        yield ", ".join(written)
    if words := words_of_mode(run.estimator):
        yield from textwrap.wrap(f"the tree is {words}", WIDTH)
    yield from shared.score_lines(metrics)
    for text in run.manifest.get("warnings", []):
        yield from textwrap.wrap(f"warning: {text}", WIDTH, subsequent_indent="  ")
    yield ""


def _printed(table: "pd.DataFrame", rule: str) -> Iterator[str]:
    """Yield the table as lines, with rounded numbers."""
    if table.empty:
        yield "a tree without a split"
        return
    shown = table.iloc[:MAX_NODES]
    columns: dict[str, list[str]] = {}
    for level, name in enumerate(shown.index.names):
        columns[str(name)] = [str(key) for key in shown.index.get_level_values(level)]
    columns["rows"] = [f"{round(rows, 1):,.10g}" for rows in shown["rows"]]
    has_posterior = "facets_low" in shown
    if has_posterior or ("facets" in shown and (table["facets"] > 1).any()):
        columns |= shared.facet_columns(shown)
    if "prior_mean" in shown:
        columns["prior"] = [f"{mean:.1f}" for mean in shown["prior_mean"]]
    if "unsure" in shown:
        columns["unsure"] = [  # no row may reach the node
            "\N{EN DASH}" if math.isnan(x) else f"{100 * x:.1f} %" for x in shown["unsure"]
        ]
    if "features" in shown:
        columns["features"] = [_first(names) for names in shown["features"]]
    columns["split (point estimate)"] = [str(split) for split in shown["split"]]
    yield from shared.aligned(columns, right=("rows", "point estimate", "prior", "unsure"))
    if len(table) > len(shown):
        yield f"… {len(table) - len(shown)} more nodes: write all with --out nodes.csv"
    several = "facets_point" in table and bool((table["facets_point"] > 1).any())
    yield from _legend(columns, table.attrs, rule if several else "")


def _legend(columns: Collection[str], attrs: Mapping[Any, Any], rule: str) -> Iterator[str]:
    """Yield the explanation of the columns and of the rows they were measured on.

    ``rule`` says how several facets decide, if any node has several.
    """
    from bayestree.report.rows import IMPORTANCE_DEFINITION, UNCERTAIN_DEFINITION

    lines = []
    if "posterior" in columns:
        lines.append(
            "Point estimate and posterior: number of facets in the tree of tree.txt, and the "
            f"posterior median of the number of {attrs['counted']}, with its 90 % interval."
        )
    if "unsure" in columns:
        lines.append(
            f"Unsure: share of the {attrs.get('asked', '')} at the node whose side is uncertain. "
            f"{UNCERTAIN_DEFINITION}"
        )
    if "features" in columns:
        lines.append(
            "Features: columns that account for 90 % of the importance, the most important first, "
            f"measured on {attrs.get('asked', '')}. {IMPORTANCE_DEFINITION}"
        )
    if rule:
        lines.append(f"Split: the facet nearest to the mean of the data. {rule}")
    if lines:
        yield ""
    for sentence in lines:
        yield from textwrap.wrap(sentence, WIDTH)


def _first(names: Sequence[str]) -> str:
    """Return the first few names, and the number of others."""
    shown = " \N{MIDDLE DOT} ".join(map(one_line, names[:MAX_FEATURES]))
    hidden = len(names) - MAX_FEATURES
    return shown if hidden <= 0 else f"{shown} + {hidden} more"
