"""Scores and predictions of a fitted tree, and the output files of a run, written atomically."""

import json
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
from sklearn.base import BaseEstimator

from bayestree._utils import arviz_compat
from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.wording import brief, counted
from bayestree._utils.write import whole_file, write_whole
from bayestree.description import has_draws, has_evidence
from bayestree.diagnostics.scores import squared_scores
from bayestree.diagnostics.size import PolytopeSize
from bayestree.estimators._estimator import Estimator
from bayestree.estimators._tree import StagedTree
from bayestree.export.words import export_text
from bayestree.fitted.training_rows import parts_of
from bayestree.report.study import fit_baseline
from bayestree.runs import store
from bayestree.runs.rows import RunRows
from bayestree.runs.schema import RunFile
from bayestree.runs.store import Columns, Run, RunFolder
from bayestree.tables.columns import abbreviate

TINY = 1e-15
LEVEL = 0.9  # probability of the prediction intervals
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def scored(
    estimator: BaseEstimator,
    X: pd.DataFrame,
    y: AnyArray,
    weights: FloatArray | None,
    targets: Sequence[str] = (),
) -> dict[str, float]:
    """Score the predictions, and the best constant one; of several ``targets``, each.

    The scores are ``accuracy``, ``accuracy_of_most_frequent_class`` and ``log_loss`` (nats per
    row); or ``rmse``, in the units of y, and ``r2``, or what the ``scores`` of the estimator are.
    Without positive weights, all rows have weight 1.
    """
    found = predict_rows(estimator, X, y)
    return scores_of(estimator, y, *found, weights=weights, targets=targets)


def scores_of(
    estimator: BaseEstimator,
    y: AnyArray,
    predicted: AnyArray,
    probability: FloatArray | None = None,
    *,
    weights: FloatArray | None,
    targets: Sequence[str] = (),
) -> dict[str, float]:
    """Return the scores of rows y, given the results of :func:`predict_rows`."""
    if weights is None or not weights.any():
        weights = np.ones(len(y))
    if len(targets) > 1:
        pairs = zip(targets, y.T, predicted.T, strict=True)
        each = {name: squared_scores(own, found, weights) for name, own, found in pairs}
        return {f"{score}: {name}": x for name, own in each.items() for score, x in own.items()}
    if probability is None:
        own: Callable[..., dict[str, float]] = getattr(estimator, "scores", squared_scores)
        return own(y, predicted, weights)
    most_frequent = max(float(weights[y == label].sum()) for label in np.unique(y))
    # Classes that do not occur in the training rows have probability 0; keep their loss finite.
    losses = -np.log(np.maximum(probability, TINY))
    return {
        "accuracy": float(np.average(predicted == y, weights=weights)),
        "accuracy_of_most_frequent_class": most_frequent / float(weights.sum()),
        "log_loss": float(np.average(losses, weights=weights)),
    }


def unseen_classes(y: AnyArray, labels: AnyArray) -> list[str]:
    """Return a remark about the rows y (n,) to score whose classes are not among the labels."""
    unseen = y[~np.isin(y, labels)]
    if not len(unseen):
        return []
    names = abbreviate(map(brief, np.unique(unseen).tolist()))
    return [
        f"scores: {counted(len(unseen), 'row')} of classes that the fit did not see ({names}), of "
        f"probability 0: predictions of them are wrong, and each adds {-np.log(TINY):.1f} nats "
        "instead of infinity to the sum of the log loss."
    ]


def predict_rows(estimator: BaseEstimator, X: pd.DataFrame, y: AnyArray) -> tuple[AnyArray, ...]:
    """Return the predictions of rows and, for classes, the probability of each row's true class."""
    if not hasattr(estimator, "classes_"):
        return (np.concatenate([estimator.predict(X.iloc[part]) for part in parts_of(X)]),)
    predicted, true_class = [], []
    for part in parts_of(X):
        probability = estimator.predict_proba(X.iloc[part])
        predicted.append(estimator.classes_[probability.argmax(axis=1)])
        true_class.append((probability * (y[part, None] == estimator.classes_)).sum(axis=1))
    return np.concatenate(predicted), np.concatenate(true_class)


def _baseline_scores(rows: RunRows) -> dict[str, Any] | None:
    """Score a linear model, with its name and number of rows; None if it cannot be fitted.

    None if y comes with exposures or events, which it does not know.
    """
    classifies = rows.task == "classification"
    if rows.y.ndim > 1 or rows.task == "survival":
        return None
    baseline = fit_baseline(rows.X, rows.y, rows.weights, classifies=classifies)
    if baseline is None:
        return None
    scores = scored(baseline.model, rows.X_held, rows.y_held, rows.weights_held)
    scores.pop("accuracy_of_most_frequent_class", None)
    return {"model": baseline.name, "training_rows": baseline.n_rows, **scores}


def predictions(
    estimator: Estimator,
    X: pd.DataFrame,
    extra: FloatArray | None = None,
    targets: Sequence[str] = (),
) -> pd.DataFrame:
    """Predict rows: ``prediction``, and ``p(class)`` for each class or ``low`` and ``high``.

    Several ``targets`` have columns each, such as ``"prediction: height"``. The interval contains y
    with probability 0.9; trees without a model of y have none. Counts are predicted for the
    exposures ``extra``. For survival times the prediction is a risk score, next to a ``median``.
    """
    if len(targets) > 1:
        each = (predictions(estimator.output(j), X) for j in range(len(targets)))
        named = zip(targets, each, strict=True)
        return pd.concat([one.add_suffix(f": {name}") for name, one in named], axis=1)
    if not hasattr(estimator, "classes_"):
        survives = hasattr(estimator, "predict_median")
        given = {} if extra is None or survives else {"exposure": extra}
        table = pd.DataFrame({"prediction": estimator.predict(X, **given)})
        if survives:
            table["median"] = estimator.predict_median(X)
        if hasattr(estimator, "predict_interval"):
            table["low"], table["high"] = estimator.predict_interval(X, LEVEL, **given)
        return table
    probability = estimator.predict_proba(X)
    table = pd.DataFrame(probability, columns=[f"p({label})" for label in estimator.classes_])
    table.insert(0, "prediction", estimator.classes_[probability.argmax(axis=1)])
    return table


def format_scores(scores: dict[str, float]) -> str:
    """Return the scores on one line."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in scores.items())


MAX_NUMBERS = 10_000_000  # maximum rows x draws of the groups of posterior.nc by row
# Sizes by estimator, so that facets.csv and the report share one computation.
_SIZES: WeakKeyDictionary[Estimator, PolytopeSize] = WeakKeyDictionary()


class FittedRun(NamedTuple):
    """A fitted estimator with the rows and the folder of its run."""

    folder: RunFolder
    file: RunFile
    rows: RunRows
    estimator: Estimator
    manifest: Mapping[str, Any]


def write_model(run: FittedRun) -> None:
    """Write the fitted estimator and its columns."""
    rows = run.rows
    data = run.file.data
    is_text = rows.y.dtype.kind in "UO"
    columns = Columns(data.target, is_text, rows.task, rows.encoding, data.extra, data.weights)
    run.folder.write_json(store.COLUMNS, columns.to_json())
    run.estimator.save(run.folder / store.MODEL)


def _write_scores(run: FittedRun) -> None:
    """Write the tree as text, the posterior numbers of facets, and scores and sizes."""
    folder, file, rows, estimator, _ = run
    write_whole(folder / store.TREE, text_of(estimator))
    sizes = sizes_of(estimator)
    if sizes is not None:
        write_whole(folder / store.FACETS, sizes.to_frame().to_csv())
    baseline = _baseline_scores(rows)
    metrics = {
        "tree": file.tree,
        "task": rows.task,
        "target": file.data.target,
        "training_rows": len(rows.X),
        "scored_rows": len(rows.X_held),
        "scored_on": "held-out rows" if rows.held_out else "training rows",
        **scored(estimator, rows.X_held, rows.y_held, rows.weights_held, file.data.targets),
        "leaves": estimator.get_n_leaves(),
        "depth": estimator.get_depth(),
        **_of_cluster(run),
        **_objective(estimator),
        **({"evidence": estimator.evidence().to_json()} if has_evidence(estimator) else {}),
        **({} if baseline is None else {"baseline": baseline}),
    }
    write_whole(folder / store.METRICS, json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")


def _objective(estimator: Estimator) -> dict[str, Any]:
    """Return what a variational fit, or MAP, has reached in nats, by mode."""
    if not isinstance(estimator, StagedTree):
        return {}
    each = [one.posterior.stats for one in estimator.fitted_.trees]
    if any("lp" in stats for stats in each):  # draws of a sampler, which has moved on
        return {}
    plain = estimator.fitted_.trees[0].posterior.settings.get("objective") != "impurity"
    for name, stat in (("elbo", "final_elbo"), ("log_joint" if plain else "impurity", "log_joint")):
        if all(stat in stats for stats in each):
            return {"objective": {name: [float(np.ravel(stats[stat])[-1]) for stats in each]}}
    return {}


def _of_cluster(run: FittedRun) -> dict[str, Any]:
    """Count the rows on workers; those in this process, which are scored, are a sample of them."""
    rows, check = run.rows, run.manifest.get("sample_check")
    if rows.distributed is None:
        return {}
    return {
        **({} if check is None else {"sample_check": check}),
        "training_rows": rows.sample.n_training,
        "sampled_training_rows": len(rows.X),
        "held_out_rows": rows.sample.n_held_out,
    }


def _write_draws(run: FittedRun) -> None:
    """Write the posterior draws, if there are any, as netCDF; large groups by row are left out."""
    if not (has_draws(run.estimator) and isinstance(run.estimator, StagedTree)):
        return
    rows, mixture = run.rows, run.estimator.fitted_
    n_draws = mixture.shown.n_draws * len(mixture.trees)
    by_row = len(rows.X) * n_draws <= MAX_NUMBERS
    container = run.estimator.to_arviz(*((rows.X, rows.y, rows.weights) if by_row else ()))
    write_whole(run.folder / store.DRAWS, arviz_compat.netcdf(container))


def _write_predictions(run: FittedRun) -> None:
    """Write predictions of the held-out rows, with their row numbers and targets."""
    rows, extra = run.rows, run.file.data.extra
    path = run.folder / store.PREDICTIONS
    with whole_file(path) as draft, table_writer(draft, ".parquet") as write:
        for part in parts_of(rows.X_held):
            columns = rows.y_held[part].T if rows.y.ndim == 2 else [rows.y_held[part]]
            names = run.file.data.targets
            number = None if extra is None else columns[-1]
            table = predictions(run.estimator, rows.X_held.iloc[part], number, names)
            table.insert(0, "row", rows.rows_held[part])
            for place, (name, y) in enumerate(zip(names, columns, strict=False), start=1):
                table.insert(place, name, y, allow_duplicates=True)
            for own, value in ((extra, number), (run.file.data.weights, rows.weights_held[part])):
                if own is not None:
                    table.insert(len(table.columns), own, value, allow_duplicates=True)
            write(table)


def _quoted(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet takes for a formula (OWASP)."""
    return f"'{value}" if isinstance(value, str) and value[:1] in FORMULAS else value


@contextmanager
def table_writer(path: Path, suffix: str, quote: bool = False) -> Iterator[Callable[..., None]]:
    """Open a CSV or Parquet file, and give a function that appends tables; ``quote`` formulas."""
    with ExitStack() as open_files:
        files: list[Any] = []

        def write_csv(table: pd.DataFrame) -> None:
            first = not files
            table = table.rename(columns=_quoted).map(_quoted) if quote else table
            if first:
                files.append(open_files.enter_context(path.open("w", encoding="utf-8", newline="")))
            table.to_csv(files[0], index=False, header=first)

        def write_parquet(table: pd.DataFrame) -> None:
            rows = pa.Table.from_pandas(table, preserve_index=False)
            if not files:
                made = pq.ParquetWriter(path, rows.schema, write_page_checksum=True)
                files.append(open_files.enter_context(made))
            files[0].write_table(rows)

        yield write_csv if suffix == ".csv" else write_parquet


def _write_report(run: FittedRun) -> None:
    """Write the HTML report."""
    written = Run(run.folder.path, run.manifest, run.file)
    write_whole(run.folder / store.REPORT, report_of(written, run.rows, run.estimator))


#: Stages after the fit, in order. The report comes last: it shows how long the others took.
WRITERS: dict[str, Callable[[FittedRun], None]] = {
    "scores": _write_scores,
    "draws": _write_draws,
    "predictions": _write_predictions,
    "report": _write_report,
}
FOR_ONE_TARGET = ("draws", "report")
#: Files of stages that are read again, or whose numbers are; the manifest has their digests.
FILES = {
    "scores": (store.TREE, store.FACETS, store.METRICS),
    "draws": (store.DRAWS,),
    "predictions": (store.PREDICTIONS,),
}


def report_of(run: Run, rows: RunRows | None, estimator: Estimator) -> str:
    """Return the HTML report; without rows it has no figures of them."""
    from bayestree.report.page import html_report  # noqa: PLC0415 - importing it takes seconds

    return html_report(estimator, **report_arguments(run, rows), sizes=sizes_of(estimator))


def report_arguments(run: Run, rows: RunRows | None) -> dict[str, Any]:
    """Return the rows and records of a run as the report takes them, thinned if they are many."""
    names: tuple[str, ...] = ()
    if rows is not None:
        rows = rows.thinned()
        names = ("X", "y", "weights")
        names += ("X_held", "y_held", "weights_held") if rows.held_out else ()
    table, file = dict(run.manifest["data"]["data"]), run.file
    name = f"{file.output.folder.name}-again"
    return {
        **{name: getattr(rows, name) for name in names},
        "title": file.title,
        "question": file.question,
        "data": table | {"target": file.data.target, "task": file.data.task},
        "metrics": run.metrics,
        "command": f"bayestree run {store.RUN} --out {shlex.quote(f'../{name}')}",
        "run_file": _strip_folders((run.folder / store.RUN).read_text(encoding="utf-8")),
        "manifest": dict(run.manifest),
    }


def _strip_folders(run_file: str) -> str:
    """Return a run file to share, whose paths are reduced to the names of files."""
    content = tomllib.loads(run_file)
    content["output"]["folder"] = "."  # not that around a run that replaces another
    for key in content["data"].keys() & {"path", "test"}:
        path = Path(content["data"][key])
        kept = path.parts[-2:] if "*" in path.name else path.parts[-1:]
        content["data"][key] = Path(*kept).as_posix()
    return tomli_w.dumps(content)


def text_of(estimator: Estimator) -> str:
    """Return the tree as text, or all trees of a forest."""
    if not hasattr(estimator, "estimators_"):
        return export_text(estimator)
    return "\n".join(
        f"tree {number}: {export_text(tree)}"
        for number, tree in enumerate(estimator.estimators_, start=1)
    )


def sizes_of(estimator: Estimator) -> PolytopeSize | None:
    """Return the posterior number of facets of each node; None without several draws."""
    if not (isinstance(estimator, StagedTree) and has_draws(estimator)):
        return None
    if estimator not in _SIZES:
        _SIZES[estimator] = estimator.polytope_size()
    return _SIZES[estimator]
