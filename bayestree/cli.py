"""`bayestree`: trees from the command line. Every verb calls public functions."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bayestree import __version__

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from bayestree.estimators._base import BaseTree
    from bayestree.tables import Encoding

MODEL, COLUMNS = "model.safetensors", "columns.json"
TINY = 1e-15
EXAMPLES = """
Examples:

    bayestree fit iris.csv --target species --out iris-tree

    bayestree predict iris-tree new.csv --out predictions.csv
"""

app = typer.Typer(
    name="bayestree",
    help="Bayesian decision trees whose splits are convex polytopes, with a posterior.\n"
    + EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class TaskOption(StrEnum):
    """What the target is."""

    auto = "auto"
    classification = "classification"
    regression = "regression"


class InferenceOption(StrEnum):
    """How far the fit goes."""

    svi = "svi"
    nuts = "nuts"
    map = "map"
    grow = "grow"


class Prepared(NamedTuple):
    """A table, read and checked: features of the training and the held-out rows."""

    task: str
    encoding: "Encoding"
    X: "pd.DataFrame"
    y: "NDArray[Any]"
    weights: "NDArray[np.float64]"
    X_held: "pd.DataFrame"
    y_held: "NDArray[Any]"
    weights_held: "NDArray[np.float64]"
    held_out: bool
    remarks: list[str]


def main() -> None:
    """Run the command line."""
    app()


def _version(value: bool) -> None:
    if value:
        print(f"bayestree {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def fit(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with a header.")
    ],
    *,
    target: Annotated[str, typer.Option(help="Column to predict.")],
    out: Annotated[Path, typer.Option(help="Folder to write; new or empty.")],
    task: Annotated[
        TaskOption, typer.Option(help="auto: classes for text or few whole numbers.")
    ] = TaskOption.auto,
    inference: Annotated[
        InferenceOption,
        typer.Option(help="svi, nuts give a posterior; map the best tree; grow the greedy one."),
    ] = InferenceOption.svi,
    depth: Annotated[int, typer.Option(min=0, help="Most splits on a path.")] = 4,
    experts: Annotated[int, typer.Option(min=1, help="Most facets of a split.")] = 20,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the rows; by default the fit decides.")
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Posterior draws; by default 50, nuts 250 a chain.")
    ] = None,
    test_fraction: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of the rows held out to be scored.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Of the random numbers.")] = 0,
    weights: Annotated[
        str | None, typer.Option(help="Column of weights: each row counts so many times.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Column to leave out; may be repeated.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the files of a folder that is not empty.")
    ] = False,
) -> None:
    """Fit a tree to a table, score it on held-out rows, and write it to a folder.

    Text columns become one feature for each category. The folder then holds the model
    (model.safetensors), the tree as text (tree.txt), the columns and their categories
    (columns.json), the scores (metrics.json) and the posterior of the number of facets of each
    node (facets.csv).
    """
    with _clear_errors():
        _check_folder(out, force=force)
        from bayestree import tables

        frame = tables.read_table(data)
        _check_columns(frame, target, weights, drop or [])
        frame = frame.drop(columns=drop or [])
        prepared = _prepare(frame, target, weights, task=task, fraction=test_fraction, seed=seed)
        _tell_data(data, target, prepared)
        estimator = _estimator(prepared.task)(
            max_depth=depth,
            n_experts=experts,
            inference=inference.value,
            n_draws=draws,
            random_state=seed,
            verbose=True,
        )
        if epochs is not None:
            estimator.set_params(epochs=epochs)
        estimator.fit(prepared.X, prepared.y, prepared.weights)
        _report(estimator, prepared, target, out)


@app.command()
def predict(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder that `bayestree fit` wrote.")
    ],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with the same columns.")
    ],
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")] = Path(
        "predictions.csv"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Predict the rows of a table, in their order.

    For classes: the prediction and the probability of each class. For numbers: the prediction and
    an interval that holds the value with probability 0.9. Columns may be in any order, and others
    are ignored; if the target is among them, the predictions are scored.
    """
    with _clear_errors():
        _check_output(out, data, force=force)
        from bayestree import tables

        estimator, columns, encoding = _read_folder(folder)
        text = [*encoding.text, *([columns["target"]] if columns["is_text"] else [])]
        frame = tables.read_table(data, text=text)
        X, remarks = encoding.encode(frame)
        for remark in remarks:
            typer.echo(f"warning: {remark}", err=True)
        _write_table(_predictions(estimator, X), out)
        print(f"{len(X)} rows predicted: {out}")
        if columns["target"] in frame:
            print(_score_if_possible(estimator, columns, frame, X))


# Errors.


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Turn what is wrong with the input into one line and exit code 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        if not _is_input(error):
            raise
        typer.echo(f"bayestree: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None


def _is_input(error: Exception) -> bool:
    """Whether an error is of the input, not of the program; torch is imported only if need be."""
    from bayestree.tables import InputError

    if isinstance(error, InputError | OSError):
        return True
    from bayestree.estimators.files import ModelFileError

    return isinstance(error, ModelFileError)


def _check_folder(folder: Path, *, force: bool) -> None:
    from bayestree.tables import InputError

    if folder.is_dir():
        if any(folder.iterdir()) and not force:
            raise InputError(
                f"--out {str(folder)!r} is not empty; name another folder, or add --force."
            )
    elif folder.exists():
        raise InputError(f"--out {str(folder)!r} is a file; name a folder.")
    ground = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not (ground.is_dir() and os.access(ground, os.W_OK)):
        raise InputError(f"--out {str(folder)!r} cannot be written: {str(ground)!r} is closed.")


def _check_output(out: Path, data: Path, *, force: bool) -> None:
    from bayestree.tables import InputError

    if out.suffix not in (".csv", ".parquet"):
        raise InputError(f"--out {str(out)!r} must end in .csv or .parquet.")
    if out.exists() and (not force or out.is_dir() or (data.exists() and out.samefile(data))):
        remedy = "name another file" if force else "name another file, or add --force"
        raise InputError(f"--out {str(out)!r} exists; {remedy}.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"--out {str(out)!r} is in a folder that does not exist; make it first.")


def _check_columns(
    frame: "pd.DataFrame", target: str, weights: str | None, drop: list[str]
) -> None:
    from bayestree.tables import InputError

    named = [("--target", target), *([("--weights", weights)] if weights else [])]
    for option, name in [*named, *(("--drop", name) for name in drop)]:
        if name not in frame:
            known = ", ".join(map(repr, frame.columns[:20]))
            raise InputError(f"{option} {name!r} is not a column; the table has {known}.")
    for option, name in named:
        if name in drop or (option == "--weights" and name == target):
            raise InputError(f"{option} {name!r} is named for another purpose as well.")


# Fitting.


def _estimator(task: str) -> type["BaseTree"]:
    from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor

    return ConvexPolytopeTreeClassifier if task == "classification" else ConvexPolytopeTreeRegressor


def _prepare(
    frame: "pd.DataFrame",
    target: str,
    weights: str | None,
    *,
    task: str,
    fraction: float,
    seed: int,
) -> Prepared:
    """Check a table, hold rows out, and turn columns into features by the training rows."""
    import numpy as np

    from bayestree import tables

    tables.check_complete(frame)
    found, y = tables.read_target(frame[target], task)
    counts = np.ones(len(frame)) if weights is None else tables.read_weights(frame[weights])
    features = frame.drop(columns=[target, *([weights] if weights else [])])
    kept, held = _hold_out(y, counts, found, fraction, seed)
    encoding = tables.Encoding.of(features.iloc[kept])
    X, _ = encoding.encode(features.iloc[kept])
    X_held, remarks = encoding.encode(features.iloc[held])
    return Prepared(
        task=found,
        encoding=encoding,
        X=X,
        y=y[kept],
        weights=counts[kept],
        X_held=X_held,
        y_held=y[held],
        weights_held=counts[held],
        held_out=fraction > 0,
        remarks=remarks,
    )


def _hold_out(
    y: "NDArray[Any]", weights: "NDArray[np.float64]", task: str, fraction: float, seed: int
) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
    """Rows to train on and to score on: the same, if none are held out."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    from bayestree.tables import InputError

    rows = np.arange(len(y))
    n_held = round(fraction * len(y))
    kept = held = rows
    if fraction > 0:
        if not 1 <= n_held <= len(y) - 2:
            raise InputError(
                f"--test-fraction {fraction:g} of {len(y)} rows leaves too few to train on or to "
                "score; 0 scores the training rows."
            )
        classes, sizes = np.unique(y, return_counts=True)
        even = task == "classification" and sizes.min() > 1
        even = even and len(classes) <= min(n_held, len(y) - n_held)
        kept, held = train_test_split(
            rows, test_size=n_held, random_state=seed, stratify=y if even else None
        )
    counted = y[kept][weights[kept] > 0]
    if len(np.unique(counted)) < (2 if task == "classification" else 1):
        raise InputError("the training rows of positive weight hold too few classes; add rows.")
    return np.sort(kept), np.sort(held)


def _report(estimator: Any, prepared: Prepared, target: str, out: Path) -> None:
    """Print what was found, and write it all."""
    from bayestree import export_text
    from bayestree._write import whole_folder

    tree, sizes = export_text(estimator), estimator.polytope_size()
    scores = _scores(estimator, prepared.X_held, prepared.y_held, prepared.weights_held)
    metrics = {
        "task": prepared.task,
        "target": target,
        "training_rows": len(prepared.X),
        "scored_rows": len(prepared.X_held),
        "scored_on": "held-out rows" if prepared.held_out else "training rows",
        **scores,
        "leaves": estimator.get_n_leaves(),
        "depth": estimator.get_depth(),
    }
    columns = {
        "target": target,
        "target_is_text": prepared.y.dtype.kind == "U",
        "task": prepared.task,
        "columns": prepared.encoding.to_json(),
    }
    with whole_folder(out) as draft:
        estimator.save(draft / MODEL)
        (draft / "tree.txt").write_text(tree, encoding="utf-8")
        (draft / COLUMNS).write_text(_json(columns), encoding="utf-8")
        (draft / "metrics.json").write_text(_json(metrics), encoding="utf-8")
        sizes.to_frame().to_csv(draft / "facets.csv")
    print(f"scores on {metrics['scored_rows']} {metrics['scored_on']}: {_listed(scores)}\n")
    print(tree)
    _tell_sizes(sizes)
    print(f"written to {out}: {MODEL}, tree.txt, {COLUMNS}, metrics.json, facets.csv")


def _scores(
    estimator: Any, X: "pd.DataFrame", y: "NDArray[Any]", weights: "NDArray[np.float64] | None"
) -> dict[str, float]:
    """Scores of the predictions, and of the best constant one."""
    import numpy as np
    from sklearn.metrics import r2_score, root_mean_squared_error

    if weights is None or not weights.any():
        weights = np.ones(len(y))
    found = estimator.predict(X)
    if not hasattr(estimator, "classes_"):
        scores = {"rmse": float(root_mean_squared_error(y, found, sample_weight=weights))}
        if len(y) > 1:
            scores["r2"] = float(r2_score(y, found, sample_weight=weights))
        return scores
    truth = y[:, None] == estimator.classes_
    own = (estimator.predict_proba(X) * truth).sum(axis=1)
    frequent = max(float(weights[y == label].sum()) for label in np.unique(y))
    return {
        "accuracy": float(np.average(found == y, weights=weights)),
        "accuracy_of_most_frequent_class": frequent / float(weights.sum()),
        # A class that training did not hold has probability 0; its loss stays finite.
        "log_loss": float(np.average(-np.log(np.maximum(own, TINY)), weights=weights)),
    }


# Predicting.


def _read_folder(folder: Path) -> "tuple[Any, dict[str, Any], Encoding]":
    """The model, what columns.json says, and the encoding of the columns."""
    from bayestree import load
    from bayestree.tables import Encoding, InputError

    for name in (MODEL, COLUMNS):
        if not (folder / name).is_file():
            raise InputError(
                f"{str(folder)!r} has no {name}; give a folder that `bayestree fit` wrote."
            )
    estimator: Any = load(folder / MODEL)
    try:
        columns = json.loads((folder / COLUMNS).read_text(encoding="utf-8"))
        encoding = Encoding.from_json(columns["columns"])
        names = encoding.feature_names
        columns = {"target": str(columns["target"]), "is_text": bool(columns["target_is_text"])}
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{str(folder / COLUMNS)!r} was changed after it was written; fit again."
        ) from error
    if names != list(getattr(estimator, "feature_names_in_", ())):
        raise InputError(
            f"{COLUMNS} and {MODEL} in {str(folder)!r} are not of the same fit; fit again."
        )
    return estimator, columns, encoding


def _predictions(estimator: Any, X: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    if not hasattr(estimator, "classes_"):
        low, high = estimator.predict_interval(X, 0.9)
        return pd.DataFrame({"prediction": estimator.predict(X), "low": low, "high": high})
    probability = estimator.predict_proba(X)
    table = pd.DataFrame(probability, columns=[f"p({label})" for label in estimator.classes_])
    table.insert(0, "prediction", estimator.classes_[probability.argmax(axis=1)])
    return table


def _write_table(table: "pd.DataFrame", out: Path) -> None:
    from bayestree._write import write_whole

    if out.suffix == ".csv":
        write_whole(out, table.to_csv(index=False))
    else:
        write_whole(out, table.to_parquet(index=False))


def _score_if_possible(
    estimator: Any, columns: dict[str, Any], frame: "pd.DataFrame", X: "pd.DataFrame"
) -> str:
    """A line with the scores, or why there are none."""
    from bayestree.tables import InputError, check_complete, numbers

    column = frame[columns["target"]]
    try:
        check_complete(column.to_frame())
        y = column.astype(str) if columns["is_text"] else numbers(column)
    except InputError as error:
        return f"not scored: {error}"
    return f"scores: {_listed(_scores(estimator, X, y.to_numpy(), None))}"


# What is printed.


def _tell_data(data: Path, target: str, prepared: Prepared) -> None:
    n_classes = len(set(prepared.y.tolist()))
    what = f"{n_classes} classes" if prepared.task == "classification" else "a number"
    print(f"{data}: {target!r} is {what} ({prepared.task}), {prepared.X.shape[1]} features")
    for column in prepared.encoding.columns:
        if column.categories is not None:
            print(f"text column {column.name!r} becomes {', '.join(column.features)}")
    for remark in prepared.remarks:
        typer.echo(f"warning: {remark}", err=True)


def _tell_sizes(sizes: Any) -> None:
    if len(sizes.labels) == 0:
        return
    print("facets of each node: the most probable number, and an interval of 90 %")
    for label, row in sizes.to_frame().iterrows():
        print(f"  {label:<12} {row.facets:>3.0f}   [{row.facets_low:.0f}, {row.facets_high:.0f}]")
    print()


def _listed(scores: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in scores.items())


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
