"""`bayestree export`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import Force, Json
from bayestree._cli.output import print_json
from bayestree._cli.tables import check_output


class FormatOption(StrEnum):
    """Formats of exports."""

    text = "text"
    rules = "rules"
    json = "json"
    dot = "dot"
    onnx = "onnx"


def _limit(shown: str) -> Any:
    return typer.Option(min=1, help=f"{shown}, in text, rules (default: all) and dot.")


def export(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a run, or a model file.")
    ],
    *,
    kind: Annotated[
        FormatOption | None,
        typer.Option("--format", help="By default the format that --out indicates, or text."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write; by default standard output.")
    ] = None,
    max_features: Annotated[int | None, _limit("Number of terms shown of each facet")] = None,
    max_facets: Annotated[int | None, _limit("Number of facets shown of each node")] = None,
    decimals: Annotated[int | None, _limit("Number of significant digits")] = None,
    columns: Annotated[
        bool,
        typer.Option(
            "--columns", help="An onnx model that takes the columns of the table as they are."
        ),
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the deterministic tree for people or for other programs.

    text is the tree for a terminal and dot a drawing for Graphviz; both are rounded and show the
    facets of a polytope as bounds. rules has an IF ... THEN ... rule for each leaf, and json all
    numbers; both are equivalent to the tree. onnx is a double-precision model that predicts without
    this package; before it is written, it is run by onnxruntime on the rows of the fit and compared
    with the tree.

    For example:

        bayestree export results/tumours

        bayestree export results/tumours --format dot | dot -Tsvg > tree.svg

        bayestree export results/tumours --out tree.onnx

        bayestree export results/tumours --out tree.onnx --columns
    """
    with clear_errors():
        from bayestree._utils.write import write_whole
        from bayestree.runs.exports import exported, format_of
        from bayestree.tables import InputError

        name = format_of(kind, out)
        if out is not None:
            check_output(out, (), force=force)
        elif name == "onnx":
            raise InputError("onnx is a binary format; specify a file with --out.")
        if columns and name != "onnx":
            raise InputError(f"--columns is for the format onnx, got {name}; omit it.")
        estimator = _estimator(folder)
        limits = {"max_features": max_features, "max_facets": max_facets, "decimals": decimals}
        content = exported(estimator, name, **limits, inputs="columns" if columns else None)
        result: dict[str, Any] = {"format": name, "leaves": estimator.get_n_leaves()}
        if isinstance(content, bytes):
            result["checked"] = _check(content, folder, estimator, columns=columns)
        if out is None:
            result["content"] = content
        else:
            write_whole(out, content)
            result["file"] = str(out)
        if as_json:
            print_json(result)
        elif out is None:
            print(content, end="")
        else:
            print(f"written to {out}")


def _estimator(folder: Path) -> Any:
    from bayestree import load
    from bayestree.runs.store import read_model

    return load(folder) if folder.is_file() else read_model(folder)[0]


def _check(content: bytes, folder: Path, estimator: Any, *, columns: bool) -> dict[str, Any] | None:
    """Compare an ONNX model with its tree, and report the result."""
    from bayestree.runs.exports import checked
    from bayestree.tables import InputError

    try:
        found = checked(content, folder, estimator, columns=columns)
    except (ImportError, InputError) as error:
        typer.echo(f"warning: not compared with the tree: {error}", err=True)
        return None
    border = f"; {found.at_border} lie on a border within rounding" if found.at_border else ""
    typer.echo(
        f"onnxruntime sends {found.rows} {found.source} to the leaves of the tree{border}", err=True
    )
    return found._asdict()
