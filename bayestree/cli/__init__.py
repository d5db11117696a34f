"""The command line `bayestree`. Every verb calls public functions."""

import atexit
import gc
import io
import sys
import traceback
from typing import Annotated

import typer

from bayestree import __version__
from bayestree.cli.cards import cards
from bayestree.cli.predict import explain, export, predict
from bayestree.cli.results import compare, diagnose, report, summary
from bayestree.cli.run import fit, plan, run, sweep, warm_up
from bayestree.cli.shared import Verbs, clear_errors

INTERNAL_ERROR = 70  # exit code (EX_SOFTWARE)
EXAMPLES = """
Examples:

    bayestree fit iris.csv --target species --out iris-tree

    bayestree predict iris-tree new.csv --out predictions.csv

    bayestree run tumours.toml

    bayestree run tumours.toml --resume

    bayestree diagnose results/tumours && bayestree summary results/tumours

    bayestree fit iris.csv --target species --tree tao --set max_depth=3 --out iris-tao

Exit codes: 0 success; 1 negative result (not converged, or a point of a sweep failed); 2 unusable
input, with one line that names the remedy; 70 internal error; 130 interrupted; 141 broken pipe.
"""

app = typer.Typer(
    name="bayestree",
    cls=Verbs,
    help="Bayesian decision trees whose splits are convex polytopes, and oblique trees as their "
    "special cases.\n" + EXAMPLES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line."""
    # Imports make half a million objects, of which none is garbage; nor need it be sought at exit.
    gc.set_threshold(1_000_000)
    atexit.register(gc.freeze)
    if isinstance(sys.stdout, io.TextIOWrapper):  # code pages may lack box-drawing characters
        sys.stdout.reconfigure(errors="replace")
    try:
        app()
    except Exception:
        traceback.print_exc()
        sys.exit(INTERNAL_ERROR)


def _version(value: bool) -> None:
    if value:
        print(f"bayestree {__version__}")
        raise typer.Exit


def _import(names: list[str] | None) -> list[str]:
    for name in names or ():
        from bayestree._utils.user_classes import import_module

        with clear_errors():
            import_module(name)
    return names or []


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            callback=_import,
            help="Import a module of your own, whose priors or leaves a model file or the folder "
            "of a run names; may be repeated.",
        ),
    ] = None,
) -> None:
    pass


for verb in (run, fit, plan, predict, explain, summary, diagnose, report, compare, export, sweep):
    app.command()(verb)
app.command()(warm_up)
app.add_typer(cards, name="cards")
