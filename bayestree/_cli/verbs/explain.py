"""`bayestree explain`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayestree._cli.errors import clear_errors
from bayestree._cli.options import Force, Json
from bayestree._cli.output import print_json
from bayestree._cli.tables import check_output, records

if TYPE_CHECKING:
    from bayestree.explain.explanation import Explanation

PICTURES = (".png", ".svg", ".pdf")


def explain(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run or a fit.")],
    row: Annotated[
        str,
        typer.Argument(
            metavar="ROW",
            help="Number of a row of the table of the run, from 0, or a file with a single row.",
        ),
    ],
    *,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Column that may change in the nearest change; may be repeated. Default: all but "
            "dates and missing values.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE",
            help="Class to predict after the change, by default any other; or number that the "
            "prediction should reach.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: .png, .svg or .pdf.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Explain the prediction for one row.

    The output states the prediction and how uncertain it is because of the data and because of the
    posterior, the path through the tree with the probability of each turn and the facets that
    decided it, and the nearest change of the row, within the ranges of the training rows, that
    makes the prediction another class, or takes it to a number.

    For example:

        bayestree explain results/tumours 12

        bayestree explain results/tumours 12 --feature "mean radius" --target benign

        bayestree explain results/tumours patient.csv --plot patient.png
    """
    with clear_errors():
        if plot is not None:
            check_output(plot, PICTURES, force=force, option="--plot ")
        from bayestree.runs.explain import explain_row

        found = explain_row(folder, row, features=feature or (), target=target)
        if plot is not None:
            _draw(found, plot)
        if as_json:
            print_json(_content(found))
        else:
            print(found)
            if plot is not None:
                print(f"written to {plot}")


def _draw(found: "Explanation", plot: Path) -> None:
    from bayestree._utils.write import whole_file
    from bayestree.tables import InputError

    if not found.turns and found.regression is None:
        raise InputError("the tree has no split: there is nothing to draw; omit --plot.")
    with whole_file(plot) as draft:
        found.plot()[0].figure.savefig(draft, format=plot.suffix[1:], dpi=150)


def _content(found: "Explanation") -> dict[str, Any]:
    """The explanation as plain JSON."""
    change = found.change
    return {
        "prediction": _plain(found.prediction),
        "tree_prediction": _plain(found.tree_prediction),
        "classes": list(found.classes),
        "expected": found.expected.tolist(),
        "sd": found.sd.tolist(),
        "uncertainty": {
            "total": found.total,
            "data": found.data,
            "posterior": found.posterior,
        },
        "leaf": found.leaf,
        "leaf_probability": found.leaf_probability,
        "turns": records(found.to_frame("turn")),
        "facets": records(found.to_frame("facet")),
        "effects": records(found.to_frame("feature")),
        "regression": None
        if found.regression is None
        else {
            "quantity": found.regression.quantity,
            "total": found.regression.total,
            "constant": found.regression.constant,
            "effects": records(found.to_frame("leaf")),
        },
        "change": None
        if change is None
        else {
            "wanted": change.wanted,
            "distance": None if change.row is None else change.distance,
            "bound": None if change.bound is None or change.row is None else change.bound,
            "prediction": _plain(change.prediction),
            "features": records(found.to_frame("change")),
        },
    }


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
