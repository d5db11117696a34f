"""What is asked of a finished run: its nodes, a verdict on its inference, exports, predictions."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bayestree._utils.wording import counted
from bayestree.description import TreeDescription, has_draws, modes_of, trees_of
from bayestree.diagnostics import (
    Convergence,
    HeldOut,
    calibration,
    held_out_classes,
    held_out_intervals,
)
from bayestree.diagnostics.draws import spread
from bayestree.diagnostics.size import MEANINGS
from bayestree.diagnostics.verdict import Settled, residuals
from bayestree.estimators._estimator import Estimator
from bayestree.estimators._tree import StagedTree
from bayestree.export.graphs import export_dot, export_json
from bayestree.export.onnx import check_onnx, export_onnx
from bayestree.export.words import export_rules, export_text
from bayestree.report.rows import (
    LabelledRows,
    evaluation_rows,
    most_important,
    permutation_importance,
    rows_of,
    split_uncertainty,
)
from bayestree.routed_tree import RoutedTree
from bayestree.runs import store
from bayestree.runs.outputs import LEVEL, sizes_of
from bayestree.runs.store import Columns, Run, open_run, read_model
from bayestree.tables import Encoding, Features, InputError, located
from bayestree.tree import Tree

if TYPE_CHECKING:
    from bayestree.explain.explanation import Explanation


TERMS, DIGITS = 3, 3  # shown of a half-space
SIZES = ("facets_median", "facets_low", "facets_high", "prior_mean", "box_mean")


def summary(run: Run, *, rows: bool = True) -> pd.DataFrame:
    """Return the nodes of a run's tree: their splits, numbers of facets, and uncertainty.

    There is a row for each node, by its path from the root; for a forest by number of tree and
    path:

    - ``rows``: weighted training rows that reach the node;
    - ``facets_point``: number of facets of its polytope in the point estimate, which is the tree of
      ``tree.txt`` and of every export;
    - ``facets``: the posterior mode of the number of facets that alone cut off at least 1 % of the
      node's rows, with the median (``facets_median``), an interval of probability 0.9
      (``facets_low``, ``facets_high``), and the prior mean (``prior_mean``); without a posterior
      the same as ``facets_point``;
    - ``box_mean``: the posterior mean of the number of all facets in the box of the node's rows;
      ``attrs["counted"]`` of the table says which are counted otherwise;
    - ``unsure``: share of the rows reaching the node for which the posterior probability of the
      side not taken by the point estimate exceeds 10 %; ``disagreement``, the mean of these
      probabilities; ``sd``, the mean standard deviation of P(right); missing if no row reaches
      the node;
    - ``features``: names that account for 90 % of the importance at the node
      (``permutation_importance`` of ``bayestree.report.rows``), the most important first;
    - ``split``: the split of the point estimate as a condition that holds on the left side; of
      several facets the one nearest to the mean of the data, which is necessary for the left side,
      but not sufficient.

    Importance and uncertainty are measured on at most 2,000 evenly spaced held-out rows or, if
    there are none, training rows, which ``attrs["asked"]`` describes. With ``rows=False`` the rows
    are not read again, and these columns are absent.
    """
    estimator = run.estimator
    evaluated = _evaluation_rows(run) if rows else None
    members = getattr(estimator, "estimators_", None)
    if members is not None:
        each = {
            number: _point_estimate(one.tree_, run.columns.encoding, evaluated)
            for number, one in enumerate(members, start=1)
        }
        table = pd.concat(each, names=["tree"])
    else:
        table = _with_posterior(run, evaluated)
    table.attrs["asked"] = "" if evaluated is None else evaluated.counted
    return table


def _evaluation_rows(run: Run) -> LabelledRows | None:
    """Return the rows on which features and uncertainty are measured."""
    rows = run.rows().thinned()
    train = rows_of(run.estimator, rows.X, weights=rows.weights, held_out=False)
    held = rows_of(run.estimator, rows.X_held, weights=rows.weights_held, held_out=True)
    return evaluation_rows(train, held if rows.held_out else None)


def _with_posterior(run: Run, evaluated: LabelledRows | None) -> pd.DataFrame:
    """Return the nodes of one tree, with its posterior if it has one."""
    estimator = run.estimator
    table = _point_estimate(estimator.tree_, run.columns.encoding, evaluated)
    if not has_draws(estimator) or (sizes := _sizes(run)) is None:
        return table
    table["facets"] = sizes["facets"].astype(np.int64)
    parts = [sizes.reindex(columns=[name for name in SIZES if name in sizes])]
    uncertainty = None if evaluated is None else split_uncertainty(estimator, evaluated)
    if uncertainty is not None:
        parts.append(uncertainty.to_frame("node")[["unsure", "disagreement", "sd"]])
    last = [name for name in ("features", "split") if name in table]
    joined = pd.concat([table.drop(columns=last), *parts, table[last]], axis="columns")
    joined.attrs["counted"] = MEANINGS["cutting"]
    return joined


def _point_estimate(
    tree: RoutedTree, encoding: Encoding, evaluated: LabelledRows | None
) -> pd.DataFrame:
    """Return the columns of the point estimate."""
    described = TreeDescription(tree, TERMS, DIGITS)
    columns: dict[str, Any] = {"rows": described.node_rows}
    if isinstance(tree, Tree):
        columns["facets_point"] = columns["facets"] = tree.n_facets
        if evaluated is not None:
            (share,) = permutation_importance([tree], evaluated, encoding).nodes
            names = encoding.names
            columns["features"] = [[names[j] for j in most_important(one)] for one in share]
    columns["split"] = [described.condition(node) for node in range(tree.n_nodes)]
    labels = pd.Index(tree.topology.node_labels, name="node", dtype=object)
    return pd.DataFrame(columns, index=labels)


def _sizes(run: Run) -> pd.DataFrame | None:
    """Return the facets of each node, from the run's table if it has one."""
    path, labels = run.folder / store.FACETS, list(run.estimator.tree_.topology.node_labels)
    if path.is_file():
        found = pd.read_csv(store.checked(path, run.manifest), index_col="node")
        if list(found.index) == labels and {"facets", "facets_median"} <= set(found):
            return found
    sizes = sizes_of(run.estimator)
    return None if sizes is None else sizes.to_frame()


MAX_ROWS = 10_000  # maximum number of held-out rows on which predictions are judged


@dataclass(frozen=True)
class Diagnosis:
    """A verdict on a run: its inference, such as ``"nuts, 4 chains of 200 draws"``, and the checks.

    There are no checks of a point estimate.
    """

    how: str
    checks: Convergence

    @property
    def converged(self) -> Settled:
        """Whether the inference has converged; ``"nothing to judge"`` for a point estimate."""
        return self.checks.settled

    @property
    def passes(self) -> bool:
        """Whether no check failed, which the exit code reports."""
        return self.converged in ("yes", "doubtful", "nothing to judge")

    def __str__(self) -> str:
        return f"{self.how}\n\n{self.checks}"


def diagnose(run: Run) -> Diagnosis:
    """Judge a run by its draws, the statistics of its inference and its predictions.

    The table that it was fitted to need not exist. See
    :func:`bayestree.diagnostics.check_convergence` for the checks.
    """
    run.columns.check_single("diagnose")
    estimator, held_out = run.estimator, _held_out(run)
    if has_draws(estimator) and isinstance(estimator, StagedTree):
        checks = replace(estimator.check_convergence(), held_out=held_out)
    else:
        constant = all(tree.is_constant for tree in trees_of(estimator))
        checks = Convergence((), (), pd.DataFrame(), "point", held_out, single_leaf=constant)
    return Diagnosis(_inference(run), checks)


def _held_out(run: Run) -> HeldOut | None:
    """Return the calibration of the predictions of held-out rows; None if there are none."""
    path = run.folder / store.PREDICTIONS
    if not path.is_file() or not (run.folder / store.METRICS).is_file():
        return None
    if run.metrics.get("scored_on") != "held-out rows":
        return None
    store.checked(path, run.manifest)
    try:
        table = pq.read_table(path)
        # By position, because the target may be named like another column.
        _, y, predicted, *others = (column.to_numpy() for column in table.columns)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{str(path)!r} was changed after it was written; fit again.") from error
    # Runs of version 0.2 and earlier lack the weights.
    mass = others.pop() if table.column_names[-1] == run.file.data.weights else np.ones(len(y))
    kept = spread(len(y), MAX_ROWS)
    kept, task = kept[mass[kept] > 0], run.columns.task
    if task == "survival" or (task == "regression" and not (others and len(kept))):
        return None  # times may be censored; or the tree has no model of y
    if task == "regression":
        low, high, exposure = (column[kept] for column in (*others, np.ones(len(y)))[:3])
        inside = (y[kept] >= low) & (y[kept] <= high)
        fitted = run.estimator.fitted_
        whole = not fitted.forest and fitted.shown.posterior.model.leaf.whole
        apart = residuals(y[kept], predicted[kept], exposure, mass[kept])
        return held_out_intervals(inside, LEVEL, at_least=whole, residual=apart, weights=mass[kept])
    classes = run.estimator.classes_
    kept = kept[np.isin(y[kept], classes)]
    if len(kept) == 0:
        return None
    probability = np.stack(others, axis=1)[kept]
    return held_out_classes(calibration(y[kept], probability, classes=classes, weights=mass[kept]))


def _inference(run: Run) -> str:
    """Return the tree, its inference and number of draws, in words."""
    fitted = run.estimator.fitted_
    if fitted.forest:
        return f"{run.file.tree}: a forest of {len(fitted.trees)} trees"
    posterior = fitted.shown.posterior
    chains, draws = posterior.n_chains, posterior.n_draws
    several = len(modes_of(run.estimator))
    name = f"{run.file.tree}, {posterior.inference}{f', {several} modes, each' if several else ''}"
    if chains * draws == 1:
        return f"{name}: a point estimate"
    return f"{name}: {counted(chains, 'chain')} of {draws:,} draws"


WRITERS: dict[str, Callable[..., str | bytes]] = {
    "text": export_text,
    "rules": export_rules,
    "json": export_json,
    "dot": export_dot,
    "onnx": export_onnx,
}
SUFFIXES = {".txt": "text", ".json": "json", ".dot": "dot", ".gv": "dot", ".onnx": "onnx"}
COMPARED = 10_000  # maximum number of rows on which an ONNX model is compared
SIMULATED = 1000  # number of simulated rows if the data is unavailable


@dataclass(frozen=True)
class Checked:
    """A comparison of an ONNX model with the tree, by numbers of rows and their origin.

    ``at_border`` counts rows that fall on the other side of a split because of rounding.
    """

    rows: int
    at_border: int
    source: str


def format_of(name: str | None, out: Path | None) -> str:
    """Return the format of an export: the given one, else by the name of the file, else text."""
    if name is not None:
        return name
    if out is None:
        return "text"
    if out.suffix not in SUFFIXES:
        raise InputError(
            f"--out {str(out)!r} does not indicate the format; end it in {', '.join(SUFFIXES)}, or "
            f"add --format with one of {', '.join(WRITERS)}."
        )
    return SUFFIXES[out.suffix]


def exported(estimator: object, kind: str, **limits: Any) -> str | bytes:
    """Export a fitted tree in a format.

    ``limits`` are ``max_features``, ``max_facets`` and ``decimals``, and ``inputs`` of ONNX; None
    for the defaults of the format. An InputError reports that the format cannot represent this
    tree, has no such limit, or requires a package that is not installed.
    """
    writer = WRITERS[kind]
    limits = {name: value for name, value in limits.items() if value is not None}
    unsupported = limits.keys() - inspect.signature(writer).parameters.keys()
    if unsupported:
        option = min(unsupported).replace("_", "-")
        raise InputError(f"the format {kind} always shows the whole tree; omit --{option}.")
    try:
        return writer(estimator, **limits)
    except (TypeError, ValueError, ImportError) as error:
        raise InputError(f"{kind}: {error}") from error


def checked(
    content: bytes, folder: Path, estimator: Estimator, *, columns: bool = False
) -> Checked:
    """Compare an ONNX model with its tree on at most 10,000 rows of its run.

    If the rows are unavailable, or the model does not belong to a run, rows with a similar
    location and scale are simulated, but not for a model of ``columns``: an InputError says so.
    """
    X, source = (
        _table_rows(folder, estimator.encoding_) if columns else _encoded_rows(folder, estimator)
    )
    return Checked(len(X), check_onnx(content, estimator, X), source)


def _table_rows(folder: Path, encoding: Encoding) -> tuple[pd.DataFrame, str]:
    """Return the first rows of the table of a run."""
    if not (folder / store.MANIFEST).is_file():
        raise InputError("the model does not belong to a run, whose rows are needed.")
    path = open_run(folder).file.data.path
    with located(path):
        frame = next(encoding.chunks(path))
    return frame[[*encoding.names]].head(COMPARED), "rows of the table"


def _encoded_rows(folder: Path, estimator: Estimator) -> tuple[pd.DataFrame, str]:
    if (folder / store.MANIFEST).is_file():
        try:
            rows = open_run(folder).rows()
        except (InputError, OSError):
            pass  # the data is missing or has changed
        else:
            return rows.X.iloc[spread(len(rows.X), COMPARED)], "training rows"
    tree = estimator.fitted_.shown.tree
    normal = np.random.default_rng(0).normal(size=(SIMULATED, tree.n_features))
    X = Features.of(tree.center + tree.scale * normal, estimator.encoding_)
    return X, "simulated rows"


def explain_row(
    folder: Path, row: str, *, features: Sequence[str] = (), **asked: Any
) -> "Explanation":
    """Explain the prediction for a row with the model of a folder.

    ``row`` is the number of a row, from 0, in the table of the run, or the path of a table with a
    single row. The others are arguments of ``explain`` of the estimators.
    """
    estimator, columns = read_model(folder)
    columns.check_single("explain")
    if not hasattr(estimator, "explain"):
        raise InputError(
            f"the model in {str(folder)!r} is a {type(estimator).__name__} of several trees, which "
            "explain predictions one by one: bayestree.load(...).estimators_[0].explain(x)."
        )
    numbered = row.isdecimal() and not Path(row).exists()
    path = open_run(folder).file.data.path if numbered else Path(row)
    with located(path):
        frame = _row(path, columns, int(row) if numbered else None)
        columns.encoding.features(frame)  # whose messages name the row
    try:
        X = frame[[*columns.encoding.names]]
        return estimator.explain(X, features=features or None, **asked)
    except ValueError as error:
        raise InputError(str(error)) from error


def _row(path: Path, columns: Columns, number: int | None) -> pd.DataFrame:
    """Return the row of a table with a number, or its only row."""
    n_rows, found = 0, None
    for frame in columns.encoding.chunks(path):
        n_rows += len(frame)
        if found is None and (number or 0) < n_rows:
            found = frame.loc[[number or 0]]
    if number is None and n_rows > 1:
        raise InputError(f"{str(path)!r} has {n_rows} rows; give a table with one row.")
    if found is None:
        raise InputError(f"{str(path)!r} has no row {number}; its rows are 0 to {n_rows - 1}.")
    return found
