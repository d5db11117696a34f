"""`bayestree cards`."""

import json
import shutil
import textwrap
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import card_names, tree_names

if TYPE_CHECKING:
    from bayestree.runs.cards import Card

cards = typer.Typer(
    help="List, show and copy the cards that the package carries, for models and inferences.\n\n"
    "A card holds values for the parameters of a tree. A run file names one of a model (what is "
    "believed) and one of an inference (how it is fitted), and may override any value.",
    rich_markup_mode=None,
)

HEADS = {"model": "models: what is believed", "inference": "inference: how it is fitted"}

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")
]
CardName = Annotated[
    str,
    typer.Argument(
        metavar="CARD",
        help="Name, as `bayestree cards` lists it; inference/tao where two have it.",
        autocompletion=card_names,
    ),
]


class TaskOption(StrEnum):
    """What a tree predicts."""

    classification = "classification"
    regression = "regression"


class SchemaOption(StrEnum):
    """What a JSON schema is of."""

    run = "run"
    sweep = "sweep"
    model = "model"
    inference = "inference"


@cards.callback(invoke_without_command=True)
def _listed_by_default(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_cards()


@cards.command("list")
def list_cards(*, as_json: AsJson = False) -> None:
    """List all cards, each with what it is."""
    with clear_errors():
        from bayestree.runs.cards import cards as shipped

        found = shipped()
        if as_json:
            print(json.dumps({"cards": [_described(card) for card in found]}, indent=2))
            return
        lines = _wrapper(indent=17)
        for kind, head in HEADS.items():
            print(head)
            for card in (each for each in found if each.kind == kind):
                lines.initial_indent = f"  {card.name:<14} "
                print(lines.fill(card.summary))
            print()


@cards.command()
def show(card: CardName, *, as_json: AsJson = False) -> None:
    """Print a card as it is, or its content as JSON."""
    with clear_errors():
        from bayestree.runs.cards import find_any

        found = find_any(card)
        print(json.dumps(_described(found), indent=2) if as_json else found.text.rstrip())


@cards.command()
def copy(
    card: CardName,
    to: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="By default the name with .toml.")
    ] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Copy a card to a file, to be changed and named in a run file by its path.

    Example:

        bayestree cards copy cpt wide.toml
    """
    with clear_errors():
        from bayestree.runs.cards import copy_card, find_any

        found = find_any(card)
        path = to or Path(f"{Path(found.name).stem}.toml")
        copy_card(found, path, force=force)
        print(f"copied to {path}")


@cards.command()
def parameters(
    tree: Annotated[
        str,
        typer.Argument(
            metavar="TREE",
            help="Name, as a model card says it: cpt, tao, ...",
            autocompletion=tree_names,
        ),
    ],
    *,
    task: Annotated[
        TaskOption, typer.Option(help="Trees for numbers have other values to begin with.")
    ] = TaskOption.classification,
    as_json: AsJson = False,
) -> None:
    """Tell what can be set for a tree: each key, where it begins, what it may be, what it is."""
    with clear_errors():
        from bayestree.runs.parameters import parameters_of
        from bayestree.runs.reading import check_task, one_tree

        check_task(one_tree({"TREE": tree}), task.value)
        found = parameters_of(tree, task.value).values()
        if as_json:
            print(json.dumps({"parameters": [one.described() for one in found]}, indent=2))
            return
        lines = _wrapper(indent=4)
        for table in ("model", "inference"):
            print(f"[{table}]")
            for one in (each for each in found if each.table == table):
                print(f"{one.name} = {json.dumps(one.written(one.default))}")
                print(lines.fill(f"{one.text} It may be {one.words}."))
            print()


@cards.command()
def schema(
    of: Annotated[
        SchemaOption, typer.Argument(help="A run or sweep file, or a card of a model or inference.")
    ] = SchemaOption.run,
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write; by default it is printed.")
    ] = None,
) -> None:
    """Print the JSON schema by which an editor completes and checks such a file.

    In an editor with Taplo ("Even Better TOML") write #:schema run.schema.json into the first
    line of a run file.
    """
    with clear_errors():
        from bayestree._utils.write import write_whole
        from bayestree.runs.json_schema import card_schema, run_schema, sweep_schema
        from bayestree.runs.paths import check_output

        makers: dict[SchemaOption, Callable[[], dict[str, Any]]] = {
            SchemaOption.run: run_schema,
            SchemaOption.sweep: sweep_schema,
            SchemaOption.model: lambda: card_schema("model"),
            SchemaOption.inference: lambda: card_schema("inference"),
        }
        text = json.dumps(makers[of](), indent=2)
        if out is None:
            print(text)
        else:
            check_output(out, force=True)
            write_whole(out, f"{text}\n")


def _wrapper(indent: int) -> textwrap.TextWrapper:
    return textwrap.TextWrapper(
        min(100, shutil.get_terminal_size().columns),
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )


def _described(card: "Card") -> dict[str, Any]:
    return {
        "name": card.name,
        "kind": card.kind,
        "tree": card.tree,
        "summary": card.summary,
        "values": dict(card.values),
        "by_task": {task: dict(values) for task, values in card.by_task.items()},
        "path": str(card.path),
    }
