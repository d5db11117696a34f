"""`bayestree cards`."""

import json
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bayestree.cli.shared import Force, Json, card_names, check_output, print_json, tree_names
from bayestree.estimators.registry import TaskName

if TYPE_CHECKING:
    from bayestree.runs.cards import Card

cards = typer.Typer(
    help="List, show and copy the cards of the package, for models and for inference methods.\n\n"
    "A card contains values for the parameters of a tree. A run file names one card for the model "
    "and one for the inference method, and may override any value.",
    rich_markup_mode=None,
)

HEADS = {"model": "models: trees and their priors", "inference": "inference: how they are fitted"}

CardName = Annotated[
    str,
    typer.Argument(
        metavar="CARD",
        help="Name listed by `bayestree cards`; inference/tao if two cards have the same name.",
        autocompletion=card_names,
    ),
]


@cards.callback(invoke_without_command=True)
def _listed_by_default(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_cards()


@cards.command("list")
def list_cards(*, as_json: Json = False) -> None:
    """List all cards with a summary of each."""
    from bayestree.runs.cards import cards as shipped

    found = shipped()
    if as_json:
        print_json({"cards": [_described(card) for card in found]})
        return
    lines = _wrapper(indent=17)
    for kind, head in HEADS.items():
        print(head)
        for card in (each for each in found if each.kind == kind):
            lines.initial_indent = f"  {card.name:<14} "
            print(lines.fill(card.summary))
        print()


@cards.command()
def show(card: CardName, *, as_json: Json = False) -> None:
    """Print the text of a card, or its content as JSON."""
    from bayestree.runs.cards import find_any

    found = find_any(card)
    if as_json:
        print_json(_described(found))
    else:
        print(found.text.rstrip())


@cards.command()
def copy(
    card: CardName,
    to: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="By default the name of the card with .toml."),
    ] = None,
    *,
    force: Force = False,
) -> None:
    """Copy a card to a file, which you can edit and name in a run file by its path.

    Example:

        bayestree cards copy cpt wide.toml
    """
    from bayestree._utils.write import write_whole
    from bayestree.runs.cards import find_any

    found = find_any(card)
    path = to or Path(f"{Path(found.name).stem}.toml")
    check_output(path, (), force=force, option="")
    write_whole(path, found.text)
    print(f"copied to {path}")


@cards.command()
def parameters(
    tree: Annotated[
        str,
        typer.Argument(
            metavar="TREE",
            help="Name of a tree, as in a model card: cpt, tao, ...",
            autocompletion=tree_names,
        ),
    ],
    *,
    task: Annotated[
        TaskName, typer.Option(help="Some defaults differ between tasks.")
    ] = "classification",
    as_json: Json = False,
) -> None:
    """List the parameters of a tree, each with its default, description and valid values."""
    from bayestree.runs.schema import check_task, one_tree
    from bayestree.runs.settings import CARD_KEYS, tree_parameters

    check_task(one_tree({"TREE": tree}), task)
    found = [
        {
            "name": one.name,
            "table": one.group,
            "default": one.to_file(one.default),
            "values": one.expected_in_file,
            "description": one.description,
        }
        for one in tree_parameters(tree, task).values()
    ]
    if as_json:
        print_json({"parameters": found})
        return
    lines = _wrapper(indent=4)
    for table in CARD_KEYS:
        print(f"[{table}]")
        for one in (each for each in found if each["table"] == table):
            print(f"{one['name']} = {json.dumps(one['default'])}")
            print(lines.fill(f"{one['description']} Expected: {one['values']}."))
        print()


@cards.command()
def schema(
    of: Annotated[
        Literal["run", "sweep", "model", "inference"],
        typer.Argument(help="Run file, sweep file, model card or inference card."),
    ] = "run",
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write; by default the schema is printed."),
    ] = None,
) -> None:
    """Print the JSON schema that lets an editor complete and check a file.

    For an editor with Taplo ("Even Better TOML"), write #:schema run.schema.json into the first
    line of the run file.
    """
    from bayestree._utils.write import write_whole
    from bayestree.runs.json_schema import card_schema, run_schema, sweep_schema

    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "run": run_schema,
        "sweep": sweep_schema,
        "model": lambda: card_schema("model"),
        "inference": lambda: card_schema("inference"),
    }
    text = json.dumps(makers[of](), indent=2)
    if out is None:
        print(text)
    else:
        check_output(out, (), force=True)
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
