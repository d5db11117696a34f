"""What verbs share: options, results on standard output, progress and errors on the other."""

import io
import json
import logging
import math
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperGroup

from bayestree._utils.wording import InputError
from bayestree.estimators.registry import TREES
from bayestree.runs.configuration import SECTIONS

if TYPE_CHECKING:
    import pandas as pd

    from bayestree.runs.display import Display
    from bayestree.runs.schema import RunFile
    from bayestree.runs.store import Run

Json = Annotated[
    bool, typer.Option("--json", help="Print a single JSON object on stdout and nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress and no tree.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume a run that was interrupted.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file.")]
ForceRun = Annotated[
    bool, typer.Option("--force", help="Replace the run in a folder that is not empty.")
]
ForceMemory = Annotated[bool, typer.Option("--force-memory", help="Fit even if memory is short.")]
Quote = Annotated[
    bool, typer.Option("--quote-formulas", help="In CSV, put ' before text like =A1 or -x.")
]
TableOut = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the table: .csv or .parquet.")
]
FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run.")]
Replaced = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a value of the file: model.max_depth=3; may be repeated.",
    ),
]
Root = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder that no path may leave.")]


def tree_names(incomplete: str) -> list[str]:
    """Return the names of the trees that start with the typed text."""
    return [name for name in TREES if name.startswith(incomplete)]


def card_names(incomplete: str) -> list[str]:
    """Return names of cards that start with the typed text; the shell itself completes paths."""
    from bayestree.runs.cards import cards

    names = sorted({card.name for card in cards()})
    return [name for name in names if name.startswith(incomplete)]


def sets(key: str, **shown: Any) -> Any:
    """Return an option that sets a key of a run file, such as ``"data.target"``.

    It has the description, bounds and default of the key, unless the key is a parameter of a
    tree. Arguments of ``typer.Option`` in ``shown`` replace them.
    """
    table, _, name = key.rpartition(".")
    if table in SECTIONS:
        shown = _described(SECTIONS[table].model_fields[name]) | shown
    option: Any = typer.Option(**shown)
    option.key = key
    return option


def _described(field: FieldInfo) -> dict[str, Any]:
    """Return the description of a key, the bounds of its values and its default."""
    found = {"help": field.description, "show_default": False}
    for constraint in field.metadata:
        found |= {"min": constraint.ge} if hasattr(constraint, "ge") else {}
        found |= {"max": constraint.le} if hasattr(constraint, "le") else {}
    if isinstance(field.default, str | int | float):
        found["show_default"] = str(field.default)
    return found


def settings_of(verb: Callable[..., None], values: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the key and the value of each option of a verb that sets a key, by the option."""
    found = {}
    for name, annotation in get_annotations(verb).items():
        for one in get_args(annotation)[1:]:
            if hasattr(one, "key"):
                found[f"--{name.replace('_', '-')}"] = (one.key, values[name])
    return found


INPUT = 2  # exit code of input that cannot be used
INTERRUPTED = 130  # exit code of Ctrl-C, as in shells: 128 plus the number of the signal
BROKEN_PIPE = 141  # exit code if the reader of the output has gone, as `| head` does

_as_json: ContextVar[bool] = ContextVar("as_json", default=False)


class Verbs(TyperGroup):
    """The verbs, which with ``--json`` print errors as JSON too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Record whether JSON is requested, before anything can fail, and check the texts."""
        _as_json.set("--json" in args)
        with clear_errors():
            for text in (*args, str(Path.cwd())):
                _check_encoding(text)
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Call the verb; report usage errors and unexpected exceptions as JSON too."""
        with clear_errors():
            try:
                return super().invoke(ctx)
            except (typer.Exit, typer.Abort, BrokenPipeError):
                raise
            except Exception as error:
                usage_error = getattr(error, "format_message", None)  # of the click in typer
                if not _is_input_error(error):
                    _print_error_as_json(
                        usage_error() if usage_error else f"{type(error).__name__}: {error}"
                    )
                raise


@contextmanager
def clear_errors(*, interrupted: str = "interrupted") -> Iterator[None]:
    """Report unusable input on one line with exit code 2, and Ctrl-C with exit code 130.

    With ``--json`` the message is also printed on standard output, as a JSON object. If nobody
    reads standard output any more, the command ends silently with exit code 141. Each warning is
    a line on standard error, once.
    """
    said = set[str]()

    def say(message: Warning | str, *_: Any, **__: Any) -> None:
        if (text := " ".join(str(message).split())) not in said:
            typer.echo(f"warning: {text}", err=True)
        said.add(text)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = say
            try:
                yield
            finally:
                sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = io.StringIO()  # what is left goes nowhere
        raise typer.Exit(BROKEN_PIPE) from None
    except (ValueError, OSError) as error:
        if not _is_input_error(error):
            raise
        _report(str(error))
        raise typer.Exit(INPUT) from None
    except KeyboardInterrupt:
        _report(interrupted)
        raise typer.Exit(INTERRUPTED) from None


def _report(text: str) -> None:
    line = " ".join(text.split())
    typer.echo(f"bayestree: {line}", err=True)
    _print_error_as_json(line)


def _print_error_as_json(error: str) -> None:
    if _as_json.get():
        typer.echo(json.dumps({"error": error}, indent=2))


def _check_encoding(text: str) -> None:
    """Refuse text that Python could not decode, which no file of a run could contain."""
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(text).decode(errors="replace")
        raise InputError(
            f"{shown!r} is not text in the encoding of this locale, {sys.getfilesystemencoding()}; "
            "set LC_ALL=C.UTF-8, or use another name."
        ) from None


def _is_input_error(error: Exception) -> bool:
    """Return whether the input is to blame; torch is imported only if necessary."""
    if isinstance(error, InputError | OSError):
        return True
    from bayestree.estimators.files import ModelFileError

    return isinstance(error, ModelFileError)


TABLE, PAGE = (".csv", ".parquet"), (".html", ".htm")


def check_output(
    out: Path | None,
    suffixes: tuple[str, ...] = TABLE,
    *,
    force: bool,
    data: Path | None = None,
    option: str = "--out ",
) -> None:
    """Refuse a path that cannot be written, exists without ``force``, or is the input ``data``."""
    if out is None:
        return
    name = f"{option}{str(out)!r}"
    if suffixes and out.suffix not in suffixes:
        raise InputError(f"{name} must end in {' or '.join(suffixes)}.")
    if out.is_dir():
        raise InputError(f"{name} is a folder; specify a file.")
    is_input = data is not None and data.exists() and out.exists() and out.samefile(data)
    if out.exists() and (not force or is_input):
        remedy = "choose another file" if force else "choose another file, or add --force"
        raise InputError(f"{name} exists; {remedy}.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{name} is in a folder that does not exist; create it first.")


def write_table(table: "pd.DataFrame", out: Path, *, quote: bool = False) -> None:
    """Write a table as CSV or Parquet, depending on the file name."""
    from bayestree._utils.write import whole_file
    from bayestree.runs.outputs import table_writer

    with whole_file(out) as draft, table_writer(draft, out.suffix, quote) as write:
        write(table)


def aligned(columns: Mapping[str, Sequence[str]], *, right: Collection[str] = ()) -> Iterator[str]:
    """Yield the columns of text as lines, the header first; ``right`` are right-aligned."""
    cells = [[name, *values] for name, values in columns.items()]
    widths = [max(map(len, values)) for values in cells]
    for line in zip(*cells, strict=True):
        padded = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, line, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()


def records(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return the rows of a table, including its index, as plain JSON."""
    rows = table.reset_index().to_dict(orient="records")
    return [{str(key): plain(value) for key, value in row.items()} for row in rows]


def plain(value: Any) -> Any:
    """Return a value for JSON: null if it is missing or infinite, and text for a time."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return None if str(value) == "NaT" else str(value)
    return value


MAX_PRINTED = 60  # leaves of the largest tree that is printed


def resume_hint(*, force: bool) -> str:
    """Return the message printed when a run is interrupted."""
    place = " instead of --force" if force else ""
    return f"interrupted; repeat the command with --resume{place} to continue"


def command_line() -> str:
    """Return the command as it was typed."""
    return shlex.join(["bayestree", *sys.argv[1:]])


def print_json(content: Mapping[str, Any]) -> None:
    """Print the single JSON object of a verb, in ASCII, which every encoding contains."""
    print(json.dumps(content, indent=2))


def print_result(content: Mapping[str, Any], text: object, *, as_json: bool) -> None:
    """Print the result of a verb, as a JSON object or as text."""
    if as_json:
        print_json(content)
    else:
        print(text)


def display(*, quiet: bool) -> "Display":
    """Show live bars on a terminal, plain lines elsewhere, and only warnings if ``quiet``."""
    from rich.console import Console

    from bayestree.runs.display import Live, Log, Printed

    if quiet:
        return Log(Printed(_print_error, logging.WARNING))
    console = Console(stderr=True)
    return Live(console) if console.is_terminal else Log(Printed(_print_error))


def _print_error(text: str) -> None:
    """Print a line on stderr; a closed pipe does not end the run."""
    with suppress(BrokenPipeError):
        typer.echo(text, err=True)


def run_and_print(
    file: "RunFile", *, resume: bool, force: bool, as_json: bool, quiet: bool
) -> None:
    """Run a file with progress on standard error, and print its results."""
    from bayestree.runs.runner import run

    done = run(
        file,
        resume=resume,
        force=force,
        display=display(quiet=quiet or as_json),
        command=command_line(),
    )
    _print_run(done, as_json=as_json, quiet=quiet)


def _print_run(run: "Run", *, as_json: bool, quiet: bool) -> None:
    """Print the results of a finished run and its files."""
    from bayestree.runs.store import REPORT

    files = sorted(path.name for path in run.folder.iterdir() if not path.name.startswith("."))
    if as_json:
        print_json(
            {
                "folder": str(run.folder),
                "status": run.manifest["status"],
                "metrics": run.metrics,
                "seconds": run.manifest["seconds"],
                "files": files,
            }
        )
        return
    if not quiet:
        _print_tree(run)
    print(f"written to {_relative(run.folder)}: {', '.join(files)}")
    if REPORT in files and not quiet:
        print(f"to read the report, open {_relative(run.folder / REPORT)} in a browser")


def _relative(path: Path) -> Path:
    """Return a path relative to the current folder, if it is inside."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _print_tree(run: "Run") -> None:
    from bayestree.runs.store import FACETS, TREE, checked

    metrics = run.metrics
    print(*score_lines(metrics), sep="\n", end="\n\n")
    if metrics["leaves"] > MAX_PRINTED:
        print(f"{metrics['leaves']} leaves: see {_relative(run.folder) / TREE}\n")
    else:
        print(checked(run.folder / TREE, run.manifest).read_text(encoding="utf-8"))
    if (run.folder / FACETS).is_file():
        _print_facets(run)


def score_lines(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scores of a run and of a linear model, ELBO and evidence, each on a line."""
    from bayestree.report.study import training_rows_phrase
    from bayestree.runs.outputs import format_scores

    def formatted(scores: Mapping[str, Any]) -> str:
        return format_scores({key: x for key, x in scores.items() if isinstance(x, float)})

    yield f"on {metrics['scored_rows']} {metrics['scored_on']}: {formatted(metrics)}"
    baseline = metrics.get("baseline", {})
    if scores := formatted(baseline):
        n_rows = baseline.get("training_rows")
        rows = training_rows_phrase(None if n_rows == metrics["training_rows"] else n_rows)
        yield f"{baseline['model']}, {rows}: {scores}"
    for name, each in metrics.get("objective", {}).items():
        what = {"elbo": "ELBO", "log_joint": "log joint density"}.get(name, f"objective ({name})")
        modes = " of the modes" if len(each) > 1 else ""
        yield f"{what}{modes}: {', '.join(f'{value:,.2f}' for value in each)} nats"
    if "evidence" in metrics:
        yield _evidence_line(metrics["evidence"])


def _evidence_line(found: Mapping[str, Any]) -> str:
    """Return the evidence of a run, and the probabilities of its numbers of leaves and depths."""
    leaves, depth = (
        ", ".join(f"{size} ({share:.2f})" for size, share in found[name].items())
        for name in ("leaves", "depth")
    )
    error = found["standard_error"]
    known = "of one run" if error is None else f"standard error {error:.2f}"
    return (
        f"log evidence {found['log_evidence']:,.2f} ({known}); "
        f"posterior of the number of leaves: {leaves}; of the depth: {depth}"
    )


def facet_columns(table: "pd.DataFrame") -> dict[str, list[str]]:
    """Return the numbers of facets in the point estimate and, if there is one, the posterior."""
    columns = {"point estimate": [str(number) for number in table["facets_point"]]}
    if "facets_low" in table:
        spans = zip(*(table[f"facets_{end}"] for end in ("median", "low", "high")), strict=True)
        columns["posterior"] = [f"{mid:.0f} ({low:.0f} to {high:.0f})" for mid, low, high in spans]
    return columns


def _print_facets(run: "Run") -> None:
    from bayestree.runs.results import summary

    table = summary(run, rows=False)
    if table.empty:
        return
    counted = table.attrs.get("counted", "facets")
    print("facets of each node: in the point estimate, and the posterior median, with its 90 %")
    print(f"interval, of the number of {counted}")
    columns = {"node": [str(label) for label in table.index], **facet_columns(table)}
    print(*aligned(columns, right=("point estimate",)), sep="\n", end="\n\n")
