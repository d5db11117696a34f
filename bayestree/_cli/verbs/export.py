"""`bayestree export`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import Json


class FormatOption(StrEnum):
    """What to write."""

    text = "text"
    rules = "rules"
    json = "json"
    dot = "dot"
    onnx = "onnx"


def export(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a run, or a model file.")
    ],
    *,
    kind: Annotated[
        FormatOption | None,
        typer.Option("--format", help="By default as the name of --out tells, else text."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write; by default standard output.")
    ] = None,
    max_features: Annotated[
        int | None,
        typer.Option(
            min=1, help="Terms shown of each facet: of text, rules (by default all) and dot."
        ),
    ] = None,
    max_facets: Annotated[
        int | None,
        typer.Option(
            min=1, help="Facets shown of each node: of text, rules (by default all) and dot."
        ),
    ] = None,
    decimals: Annotated[
        int | None,
        typer.Option(min=1, help="Significant digits: of text, rules (by default all) and dot."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: Json = False,
) -> None:
    """Write the deterministic tree for people or for other programs.

    text is the tree for a terminal and dot a drawing for Graphviz: both are rounded, and show the
    facets of a polytope as bounds. rules are IF ... THEN ..., one for each leaf, and json holds
    every number: both are equivalent to the tree. onnx is a model that predicts without this
    package, in double precision; it is run by onnxruntime on the rows of the fit and compared with
    the tree before it is written.

    For example:

        bayestree export results/tumours

        bayestree export results/tumours --format dot | dot -Tsvg > tree.svg

        bayestree export results/tumours --out tree.onnx
    """
    with clear_errors():
        from bayestree.runs.exports import exported, format_of
        from bayestree.runs.paths import check_output
        from bayestree.tables import InputError

        name = format_of(kind, out)
        if out is not None:
            check_output(out, force=force)
        elif name == "onnx":
            raise InputError("onnx is no text; name a file by --out.")
        estimator = _estimator(folder)
        limits = {"max_features": max_features, "max_facets": max_facets, "decimals": decimals}
        content = exported(estimator, name, **limits)
        told: dict[str, Any] = {"format": name, "leaves": estimator.get_n_leaves()}
        if isinstance(content, bytes):
            told |= _checked(content, folder, estimator)
        _tell(content, out, told, as_json=as_json)


def _estimator(folder: Path) -> Any:
    from bayestree import load
    from bayestree.runs.store import read_model

    return load(folder) if folder.is_file() else read_model(folder)[0]


def _checked(content: bytes, folder: Path, estimator: Any) -> dict[str, Any]:
    """Compare a model with its tree, and say so."""
    from bayestree.runs.exports import checked

    try:
        found = checked(content, folder, estimator)
    except ImportError as error:
        typer.echo(f"warning: not compared with the tree: {error}", err=True)
        return {"checked": None}
    border = f"; {found.at_border} lie on a border within rounding" if found.at_border else ""
    typer.echo(
        f"onnxruntime sends {found.rows} {found.source} to the leaves of the tree{border}", err=True
    )
    return {"checked": found._asdict()}


def _tell(content: str | bytes, out: Path | None, told: dict[str, Any], *, as_json: bool) -> None:
    from bayestree._utils.write import write_whole

    if out is not None:
        write_whole(out, content)
        told |= {"file": str(out)}
    else:
        told |= {"content": content}
    if as_json:
        print(json.dumps(told, indent=2, ensure_ascii=False))
    elif out is not None:
        print(f"written to {out}")
    else:
        print(content, end="")
