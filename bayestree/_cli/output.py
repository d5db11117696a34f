"""What the verbs of runs print: progress on standard error, results on standard output."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bayestree._cli.tables import aligned

if TYPE_CHECKING:
    import pandas as pd

    from bayestree.runs.progress import Display
    from bayestree.runs.store import Run

MOST_PRINTED = 60  # leaves of a tree that is printed; more are only written


def to_go_on(*, force: bool) -> str:
    """What is said of a run that was interrupted."""
    place = " in place of --force" if force else ""
    return f"interrupted; type the same again with --resume{place} to go on"


def typed() -> str:
    """The command, as it was typed."""
    return shlex.join(["bayestree", *sys.argv[1:]])


def display(*, quiet: bool) -> "Display":
    """Live bars on a terminal, plain lines elsewhere, warnings always."""
    from rich.console import Console

    from bayestree.runs.lines import Lines
    from bayestree.runs.live import Live
    from bayestree.runs.progress import Silent

    if quiet:
        return Silent(lambda text: _aside(f"warning: {text}"))
    console = Console(stderr=True)
    if console.is_terminal:
        return Live(console)
    return Lines(_aside)


def _aside(text: str) -> None:
    """A line on stderr; a run does not end because nobody reads it any more."""
    with suppress(BrokenPipeError):
        typer.echo(text, err=True)


def tell_run(run: "Run", *, as_json: bool, quiet: bool) -> None:
    """Say what a finished run found, and where it is."""
    from bayestree.runs.folder import REPORT

    files = sorted(path.name for path in run.folder.iterdir() if not path.name.startswith("."))
    if as_json:
        found = {
            "folder": str(run.folder),
            "status": run.manifest["status"],
            "metrics": run.metrics,
            "seconds": run.manifest["seconds"],
            "files": files,
        }
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    if not quiet:
        _tell_tree(run)
    print(f"written to {seen(run.folder)}: {', '.join(files)}")
    if REPORT in files and not quiet:
        print(f"to be read in a browser: {seen(run.folder / REPORT)}")


def seen(path: Path) -> Path:
    """A path as a person would type it here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _tell_tree(run: "Run") -> None:
    from bayestree.runs.folder import FACETS, TREE

    metrics = run.metrics
    print(*scores_in_lines(metrics), sep="\n", end="\n\n")
    if metrics["leaves"] > MOST_PRINTED:
        print(f"{metrics['leaves']} leaves: see {seen(run.folder) / TREE}\n")
    else:
        print((run.folder / TREE).read_text(encoding="utf-8"))
    if (run.folder / FACETS).is_file():
        _tell_facets(run)


def scores_in_lines(metrics: Mapping[str, Any]) -> Iterator[str]:
    """The scores of a run and, below them, those of a linear model."""
    from bayestree.report.baseline import training_rows_phrase
    from bayestree.runs.scores import listed

    def of(found: Mapping[str, Any]) -> str:
        return listed({name: value for name, value in found.items() if isinstance(value, float)})

    yield f"on {metrics['scored_rows']} {metrics['scored_on']}: {of(metrics)}"
    baseline = metrics.get("baseline", {})
    if of(baseline):
        n_rows = baseline.get("training_rows")
        fit = training_rows_phrase(None if n_rows == metrics["training_rows"] else n_rows)
        yield f"{baseline['model']}, {fit}: {of(baseline)}"


def facet_columns(table: "pd.DataFrame") -> dict[str, list[str]]:
    """Facets of each node of a summary, by the point estimate and, if there is one, posterior."""
    columns = {"point estimate": [str(number) for number in table["facets_point"]]}
    if "facets_low" in table:
        spans = zip(*(table[f"facets_{end}"] for end in ("median", "low", "high")), strict=True)
        columns["posterior"] = [f"{mid:.0f} ({low:.0f} to {high:.0f})" for mid, low, high in spans]
    return columns


def _tell_facets(run: "Run") -> None:
    from bayestree.runs.summary import summary

    table = summary(run, rows=False)
    if table.empty:
        return
    print("facets of each node: of the point estimate, and posterior median with its 90 % interval")
    columns = {"node": [str(label) for label in table.index], **facet_columns(table)}
    print(*aligned(columns, right=("point estimate",)), sep="\n", end="\n\n")
