"""`bayestree predict`, `explain` and `export`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bayestree._utils.wording import InputError
from bayestree.cli import shared

if TYPE_CHECKING:
    from bayestree.estimators._estimator import Estimator
    from bayestree.explain.explanation import Explanation
    from bayestree.runs.predict import Predicted


def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run or a fit.")],
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="CSV or Parquet file, or data set, with the same columns."
        ),
    ],
    *,
    out: Annotated[
        Path,
        typer.Option(help="File to write: .csv or .parquet; or folder, for a Parquet data set."),
    ] = Path("predictions.csv"),
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of files predicted at once into a folder."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Dask scheduler that distributes the files: tcp://HOST:PORT."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Predict only the files that the folder lacks.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file, or the predictions in the folder.")
    ] = False,
    quote_formulas: shared.Quote = False,
    as_json: shared.Json = False,
) -> None:
    """Predict the rows of a table with the model of a run.

    The predictions are in the order of the rows. For classes they consist of the prediction and the
    probability of each class; for numbers, of the prediction and, if there is a posterior, an
    interval that contains the value with probability 0.9. Columns may be in any order, and others
    are ignored; if the target is among them, the predictions are scored. For the table of the run
    itself, the output reports how many of its rows the model was fitted to.

    A Parquet data set is a folder, a pattern or a URL of Parquet files. Its predictions may be a
    folder, with a file of the same name for each of its files.

    For example:

        bayestree predict results/tumours new.csv

        bayestree predict results/tumours 'rows/*.parquet' --out predicted/ --jobs 4
    """
    from bayestree.runs.predict import predict_dataset, predict_file
    from bayestree.tables import is_dataset
    from bayestree.tables.dataset import PARQUET
    from bayestree.tables.files import table_format

    in_folder = out.suffix not in shared.TABLE and (
        is_dataset(data) or table_format(data) == PARQUET
    )
    hint = shared.resume_hint(force=force) if in_folder else "interrupted"
    with shared.clear_errors(interrupted=hint):
        if jobs == 0:
            raise InputError("--jobs must be 1 or more, or -1 for all cores, got 0.")
        if in_folder:
            found = predict_dataset(
                folder, data, out, n_jobs=jobs, scheduler=scheduler, resume=resume, force=force
            )
        else:
            if jobs is not None or scheduler is not None or resume:
                raise InputError(
                    "--jobs, --scheduler and --resume are for predictions of Parquet files in a "
                    f"folder, got --out {str(out)!r} and {str(data)!r}; specify --out FOLDER."
                )
            shared.check_output(out, force=force, data=data)
            found = predict_file(folder, data, out, quote=quote_formulas)
    _print_predicted(found, out, as_json=as_json)


def _print_predicted(found: "Predicted", out: Path, *, as_json: bool) -> None:
    from bayestree.runs.outputs import format_scores

    for remark in found.remarks:
        typer.echo(f"warning: {remark}", err=True)
    scores = found.scores
    if as_json:
        shared.print_json(
            {
                "file": str(out),
                "rows": found.n_rows,
                "scores": scores,
                "scored_rows": found.n_scored,
                "rows_of_the_fit": found.n_seen,
            }
        )
        return
    before = f", {found.n_resumed} of them before" if found.n_resumed else ""
    print(f"{found.n_rows} rows predicted{before}: {out}")
    if isinstance(scores, str):
        print(f"not scored: {scores}")
    elif scores is not None:
        print(f"scores{_rows_label(found)}: {format_scores(scores)}")


def _rows_label(found: "Predicted") -> str:
    """Return the name of the scored rows, if they are not all, or the model was fitted to some."""
    every = found.n_scored == found.n_rows
    if found.n_seen is not None and found.n_seen == found.n_rows:
        return " on rows the model was fitted to (expect worse on new rows)"
    rows = f" on {found.n_scored} rows"
    if found.n_seen:
        return (
            f"{rows}{'' if every else f' of {found.n_rows}'}, {found.n_seen} of them training rows"
        )
    return "" if every else rows


Format = Literal["text", "rules", "json", "dot", "onnx"]
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
    assurance: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the draws, such as 0.9, that the nearest change must convince. Default: "
            "only their mean, the prediction.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: .png, .svg or .pdf.")
    ] = None,
    force: shared.Force = False,
    as_json: shared.Json = False,
) -> None:
    """Explain the prediction for one row.

    The output states the prediction and how uncertain it is because of the data and because of the
    posterior, the path through the tree with the probability of each turn and the facets that
    decided it, and the nearest change of the row, within the ranges of the training rows, that
    makes the prediction another class, or takes it to a number.

    For example:

        bayestree explain results/tumours 12

        bayestree explain results/tumours 12 --feature "mean radius" --target benign

        bayestree explain results/tumours 12 --assurance 0.9

        bayestree explain results/tumours patient.csv --plot patient.png
    """
    shared.check_output(plot, PICTURES, force=force, option="--plot ")
    from bayestree.runs.results import explain_row

    found = explain_row(folder, row, features=feature or (), target=target, assurance=assurance)
    if plot is not None:
        _draw(found, plot)
    text = str(found) if plot is None else f"{found}\nwritten to {plot}"
    shared.print_result(_content(found), text, as_json=as_json)


def _draw(found: "Explanation", plot: Path) -> None:
    from bayestree._utils.write import whole_file

    if not found.turns and found.regression is None:
        raise InputError("the tree has no split: there is nothing to draw; omit --plot.")
    with whole_file(plot) as draft:
        found.plot()[0].figure.savefig(draft, format=plot.suffix[1:], dpi=150)


def _content(found: "Explanation") -> dict[str, Any]:
    """Return the explanation as plain JSON."""
    change = found.change
    return {
        "prediction": shared.plain(found.prediction),
        "tree_prediction": shared.plain(found.tree_prediction),
        "classes": list(found.classes),
        "expected": found.expected.tolist(),
        "sd": found.sd.tolist(),
        "uncertainty": {name: getattr(found, name) for name in ("total", "data", "posterior")},
        "leaf": found.leaf,
        "leaf_probability": found.leaf_probability,
        "turns": shared.records(found.to_frame("turn")),
        "facets": shared.records(found.to_frame("facet")),
        "effects": shared.records(found.to_frame("feature")),
        "regression": None
        if found.regression is None
        else {
            "quantity": found.regression.quantity,
            "total": found.regression.total,
            "constant": found.regression.constant,
            "effects": shared.records(found.to_frame("leaf")),
        },
        "change": None
        if change is None
        else {
            "wanted": change.wanted,
            "distance": None if change.row is None else change.distance,
            "bound": None if change.bound is None or change.row is None else change.bound,
            "prediction": shared.plain(change.prediction),
            "assurance": change.assurance,
            "features": shared.records(found.to_frame("change")),
        },
    }


def _limit(shown: str) -> Any:
    return typer.Option(min=1, help=f"{shown}, in text, rules (default: all) and dot.")


def export(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a run, or a model file.")
    ],
    *,
    kind: Annotated[
        Format | None,
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
    force: shared.Force = False,
    as_json: shared.Json = False,
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
    from bayestree._utils.write import write_whole
    from bayestree.runs.results import exported, format_of

    name = format_of(kind, out)
    if out is not None:
        shared.check_output(out, (), force=force)
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
        shared.print_json(result)
    elif out is None:
        print(content, end="")
    else:
        print(f"written to {out}")


def _estimator(folder: Path) -> "Estimator":
    from bayestree import load
    from bayestree.runs.store import read_model

    return load(folder) if folder.is_file() else read_model(folder)[0]


def _check(
    content: bytes, folder: Path, estimator: "Estimator", *, columns: bool
) -> dict[str, Any] | None:
    """Compare an ONNX model with its tree, and report the result."""
    from bayestree.runs.results import checked

    try:
        found = checked(content, folder, estimator, columns=columns)
    except (ImportError, InputError) as error:
        typer.echo(f"warning: not compared with the tree: {error}", err=True)
        return None
    border = f"; {found.at_border} lie on a border within rounding" if found.at_border else ""
    typer.echo(
        f"onnxruntime sends {found.rows} {found.source} to the leaves of the tree{border}", err=True
    )
    return asdict(found)
